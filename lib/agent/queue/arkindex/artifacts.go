package arkindex

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/base/web"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// logURLAge is how long the URL for a log is reused. That saves a request per turn; a URL that
// expires earlier is replaced.
const logURLAge = 5 * time.Minute

// PutLog replaces the published log. If a task's definition has no place for a log, it has none.
func (q *Queue) PutLog(ctx context.Context, id task.ID, log io.ReadSeeker) error {
	k := q.recall(id)
	signed := k.logURL
	if signed == "" || q.cfg.Now().Sub(k.logAt) > logURLAge {
		var err error
		if signed, err = q.logURL(ctx, id); err != nil {
			return fmt.Errorf("publishing the log: %w", err)
		}
	}
	if signed == "" {
		q.log.Debug("task has no place for its log", "task", id)
		return nil
	}
	err := q.put(ctx, signed, q.cfg.LogContentType, log)
	if refused(err) {
		if signed, err = q.logURL(ctx, id); err == nil {
			err = q.put(ctx, signed, q.cfg.LogContentType, log)
		}
	}
	if err != nil {
		return fmt.Errorf("publishing the log: %w", unwanted(err))
	}
	return nil
}

// logURL requests the URL for the log. A task with an invalid definition still has a log, which
// reports that.
func (q *Queue) logURL(ctx context.Context, id task.ID) (string, error) {
	_, signed, err := q.define(ctx, id)
	if errors.Is(err, queue.ErrBroken) {
		q.log.Debug("invalid definition; its log is published", "error", err)
		return signed, nil
	}
	return signed, err
}

// refused reports whether a presigned URL is refused, which mostly means that it has expired.
func refused(err error) bool {
	code := status(err)
	return code == http.StatusForbidden || code == http.StatusBadRequest || code == http.StatusUnauthorized
}

// published is an artifact that the instance knows.
type published struct {
	Path        string   `json:"path"`
	Size        int64    `json:"size"`
	ContentType flexible `json:"content_type"`
	PutURL      flexible `json:"s3_put_url"`
}

// Limits of a list of artifacts.
const (
	maxArtifacts = 100000
	maxPages     = 1000
)

// Artifacts lists the artifacts of a finished task.
func (q *Queue) Artifacts(ctx context.Context, id task.ID) ([]task.Artifact, error) {
	all, err := q.list(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("list of artifacts: %w", err)
	}
	var artifacts []task.Artifact
	for _, a := range all {
		if !insidePath(a.Path) {
			return nil, broken("artifact %.80q: expected a path within its directory", a.Path)
		}
		artifacts = append(artifacts, task.Artifact{Path: a.Path, Size: max(0, a.Size), ContentType: string(a.ContentType)})
	}
	return artifacts, nil
}

// insidePath reports whether a path is relative and plain, and stays in its directory.
func insidePath(name string) bool {
	if len(name) > 4096 {
		return false
	}
	for segment := range strings.SplitSeq(name, "/") {
		if !plainName(segment) {
			return false
		}
	}
	return true
}

// list requests the artifacts of a task: a list, or one page after another.
func (q *Queue) list(ctx context.Context, id task.ID) ([]published, error) {
	var all []published
	query := url.Values{}
	for range maxPages {
		var raw []byte
		err := q.asReader(ctx, id, func(as credential) error {
			return q.taskCall(ctx, id, call{op: "ListArtifacts", query: query, as: as}, &raw)
		})
		if err != nil {
			return nil, err
		}
		page := raw
		var next string
		if trimmed := bytes.TrimSpace(raw); len(trimmed) > 0 && trimmed[0] == '{' {
			var answer struct {
				Results json.RawMessage `json:"results"`
				Next    flexible        `json:"next"`
			}
			if err := json.Unmarshal(raw, &answer); err != nil || answer.Results == nil {
				return nil, fault.Errorf(fault.Unavailable, "the answer is not a list")
			}
			page, next = answer.Results, string(answer.Next)
		}
		var some []published
		if err := json.Unmarshal(page, &some); err != nil {
			return nil, fault.Errorf(fault.Unavailable, "the answer is not a list: %s", task.Clean(fault.Text(err)))
		}
		all = append(all, some...)
		if len(all) > maxArtifacts {
			return nil, fault.Errorf(fault.Unavailable, "more than %d artifacts", maxArtifacts)
		}
		if next == "" {
			return all, nil
		}
		at, err := url.Parse(next)
		if err != nil {
			return nil, fault.Errorf(fault.Unavailable, "next page has no address")
		}
		query = at.Query()
	}
	return nil, fault.Errorf(fault.Unavailable, "more than %d pages", maxPages)
}

// asReader runs f with the credential that can certainly read a task's artifacts: its own or its
// child's. If that is no longer accepted, the agent's is used.
func (q *Queue) asReader(ctx context.Context, id task.ID, f func(credential) error) error {
	q.tasksMu.Lock()
	as := q.readers[id]
	if as.token == "" {
		as = q.tasks[id].as
	}
	q.tasksMu.Unlock()
	if as.token != "" {
		if err := f(as); status(err) != http.StatusUnauthorized && status(err) != http.StatusForbidden {
			return err
		}
	}
	me, err := q.me(ctx)
	if err != nil {
		return err
	}
	err = f(credential{scheme: q.cfg.AuthScheme, token: me.Access})
	if status(err) != http.StatusUnauthorized {
		return err
	}
	if me, err = q.renew(ctx, me.Access); err != nil {
		return err
	}
	return f(credential{scheme: q.cfg.AuthScheme, token: me.Access})
}

// GetArtifact downloads one artifact.
func (q *Queue) GetArtifact(ctx context.Context, id task.ID, a task.Artifact, to *os.File) error {
	ctx, end := progress.Start(ctx, "downloading %s", task.Clean(a.Path))
	defer end()
	want := int64(-1)
	if a.Size > 0 {
		want = a.Size
	}
	from, err := q.artifactURL(ctx, id, a.Path)
	if err != nil {
		return err
	}
	return missing(q.asReader(ctx, id, func(as credential) error { return q.get(ctx, from, as, want, to) }))
}

func (q *Queue) artifactURL(ctx context.Context, id task.ID, path string) (*url.URL, error) {
	return q.operation(ctx, "DownloadArtifact").url(q.base, map[string]string{"id": string(id), "path": path}, nil)
}

// keepKind makes an error one of the queue, unless its kind is known to be different, such as a full
// disk.
func keepKind(err error) error {
	var cut *brokenError
	if status(err) != 0 || errors.As(err, &cut) {
		return fault.Wrap(fault.Unavailable, err)
	}
	return err
}

// unwanted is keepKind for uploads: the application or the store itself may report that it will never
// accept the file, for example because it is too large.
func unwanted(err error) error {
	var e *statusError
	if errors.As(err, &e) && (e.json || e.store) {
		switch e.code {
		case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
			return broken("%w", err)
		}
	}
	return keepKind(err)
}

// missing is keepKind for what a task needs: if the store itself reports that it does not exist, the
// task cannot be run.
func missing(err error) error {
	if err == nil {
		return nil
	}
	var e *statusError
	if errors.As(err, &e) && e.code == http.StatusNotFound && (e.json || e.store) {
		return broken("%w", err)
	}
	return keepKind(err)
}

// PutArtifact announces a file and uploads it. If it exists from an earlier attempt, it is left or
// uploaded again.
func (q *Queue) PutArtifact(ctx context.Context, id task.ID, a task.Artifact, from io.ReadSeeker) error {
	size, err := from.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if a.ContentType == "" {
		kind, _, _ := strings.Cut(mime.TypeByExtension(path.Ext(a.Path)), ";")
		a.ContentType = firstOf(kind, "application/octet-stream")
	}
	a.Size = size
	if !insidePath(a.Path) {
		return broken("artifact %.80q: expected a path of plain names", a.Path)
	}
	ctx, end := progress.Start(ctx, "uploading %s", task.Clean(a.Path))
	defer end()
	if err := q.publish(ctx, id, a, from); err != nil {
		return fmt.Errorf("artifact %q: %w", task.Clean(a.Path), unwanted(err))
	}
	return nil
}

func (q *Queue) publish(ctx context.Context, id task.ID, a task.Artifact, from io.ReadSeeker) error {
	if q.recall(id).as.token == "" {
		if _, _, err := q.define(ctx, id); err != nil {
			return err
		}
	}
	there, found, err := q.find(ctx, id, a.Path)
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		if !found {
			if there, err = q.announce(ctx, id, a); err != nil {
				if status(err) != http.StatusBadRequest && status(err) != http.StatusConflict {
					return err
				}
				// Another process was faster: the worker itself, or a killed turn of this agent.
				q.note(id, func(k *known) { k.published = nil })
				refusal := err
				if there, found, err = q.find(ctx, id, a.Path); err != nil {
					return err
				} else if !found {
					return refusal
				}
			}
		}
		if there.PutURL == "" {
			if there.Size == a.Size && q.arrived(ctx, id, a.Path) {
				return nil
			}
			return broken("it is already announced, and the queue gives no URL for its upload")
		}
		if !webAddress(string(there.PutURL)) {
			return fault.Errorf(fault.Unavailable, "URL to send it to is not an http or https URL")
		}
		err = q.put(ctx, string(there.PutURL), a.ContentType, from)
		if !refused(err) || attempt > 0 {
			if err == nil {
				q.note(id, func(k *known) {
					if k.published != nil {
						k.published[a.Path] = published{Path: a.Path, Size: a.Size}
					}
				})
			}
			return err
		}
		// The URL has expired; the list has a new one, if any.
		q.note(id, func(k *known) { k.published = nil })
		if there, found, err = q.find(ctx, id, a.Path); err != nil {
			return err
		}
	}
}

// find looks up an artifact among those that the instance knows, which are requested once.
func (q *Queue) find(ctx context.Context, id task.ID, path string) (published, bool, error) {
	all := q.recall(id).published
	if all == nil {
		listed, err := q.list(ctx, id)
		if err != nil {
			return published{}, false, err
		}
		all = map[string]published{}
		for _, a := range listed {
			all[a.Path] = a
		}
		q.note(id, func(k *known) { k.published = all })
	}
	q.tasksMu.Lock()
	defer q.tasksMu.Unlock()
	a, ok := all[path]
	return a, ok, nil
}

// announce creates an artifact, which gives the URL to send it to.
func (q *Queue) announce(ctx context.Context, id task.ID, a task.Artifact) (published, error) {
	var created published
	body := map[string]any{"path": a.Path, "content_type": a.ContentType, "size": a.Size}
	err := q.asReader(ctx, id, func(as credential) error {
		return q.taskCall(ctx, id, call{op: "CreateArtifact", body: body, as: as}, &created)
	})
	return created, err
}

// arrived reports whether the contents of an artifact can be downloaded.
func (q *Queue) arrived(ctx context.Context, id task.ID, path string) bool {
	from, err := q.artifactURL(ctx, id, path)
	if err != nil {
		return false
	}
	err = q.asReader(ctx, id, func(as credential) error {
		req, err := http.NewRequestWithContext(web.Leaves(ctx), http.MethodGet, from.String(), nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", as.scheme+" "+as.token)
		resp, err := q.send(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
	return err == nil
}

// GetFile downloads one of a task's files. If its URL has expired, a new one is requested.
func (q *Queue) GetFile(ctx context.Context, f task.File, to *os.File) error {
	from, err := url.Parse(f.URL)
	if err != nil || !webAddress(f.URL) {
		return broken("file %q: no http or https URL", task.Clean(f.Name))
	}
	ctx, end := progress.Start(ctx, "downloading %s", task.Clean(f.Name))
	defer end()
	err = q.get(ctx, from, nobody, -1, to)
	q.tasksMu.Lock()
	owner, known := q.owners[f.URL]
	q.tasksMu.Unlock()
	if refused(err) && known {
		if t, failed := q.Task(ctx, owner); failed == nil {
			for _, fresh := range t.Files {
				if at, bad := url.Parse(fresh.URL); fresh.Name == f.Name && bad == nil {
					err = q.get(ctx, at, nobody, -1, to)
				}
			}
		}
	}
	return missing(err)
}
