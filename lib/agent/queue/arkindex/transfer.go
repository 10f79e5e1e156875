package arkindex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/base/web"
)

// put uploads a file to a presigned URL, up to its present size: a log may grow meanwhile.
func (q *Queue) put(ctx context.Context, signed, contentType string, from io.ReadSeeker) error {
	size, err := from.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	to, err := url.Parse(signed)
	if err != nil {
		return errors.New("invalid presigned URL")
	}
	return q.repeat(ctx, to.Host, func() error {
		if _, err := from.Seek(0, io.SeekStart); err != nil {
			return err
		}
		ctx, watch := watched(ctx, q.cfg.Stall)
		defer watch.stop()
		var body io.Reader = http.NoBody
		if size > 0 {
			body = io.NopCloser(watch.reader(progress.Reader(ctx, size, io.LimitReader(from, size))))
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, signed, body)
		if err != nil {
			return errors.New("invalid presigned URL")
		}
		req.ContentLength = size
		if contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
		resp, err := q.send(req)
		if err != nil {
			return watch.explain(ctx, err)
		}
		defer resp.Body.Close()
		// A proxy in front of the store may report success, and have stored nothing.
		return foreign(shown(req), resp, "")
	})
}

// foreign returns an error if an answer of success is one that no object store gives, but what is in front of it. The name is
// that of an object, which may be of such a type.
func foreign(request string, resp *http.Response, name string) error {
	of := strings.ToLower(path.Ext(name))
	for kind, is := range map[string]string{"text/html": "HTML", "application/json": "JSON"} {
		own := strings.HasPrefix(of, ".htm") || strings.Contains(of, "json")
		if strings.HasPrefix(resp.Header.Get("Content-Type"), kind) && !own {
			return fault.Errorf(fault.Unavailable, "%s: answer is %s: it is not from an object store", request, is)
		}
	}
	return nil
}

// get downloads to a file. want is the required size, or -1. With a credential, the URL is one of the
// API, which may redirect to the object store; the credential is not sent there.
func (q *Queue) get(ctx context.Context, from *url.URL, as credential, want int64, to *os.File) error {
	return q.repeat(ctx, from.Host, func() error {
		if err := to.Truncate(0); err != nil {
			return err
		}
		if _, err := to.Seek(0, io.SeekStart); err != nil {
			return err
		}
		ctx, watch := watched(ctx, q.cfg.Stall)
		defer watch.stop()
		req, err := http.NewRequestWithContext(web.Leaves(ctx), http.MethodGet, from.String(), nil)
		if err != nil {
			return errors.New("invalid URL")
		}
		// A transport that decompresses would hide a truncated answer.
		req.Header.Set("Accept-Encoding", "identity")
		req.Header.Set("Accept", "*/*")
		if as.token != "" {
			req.Header.Set("Authorization", as.scheme+" "+as.token)
		}
		resp, err := q.send(req)
		if err != nil {
			return watch.explain(ctx, err)
		}
		defer resp.Body.Close()
		if want < 0 { // any answer would pass for the file
			if err := foreign(shown(req), resp, from.Path); err != nil {
				return err
			}
		}
		body := io.Reader(resp.Body)
		if want >= 0 {
			body = io.LimitReader(body, want+1)
		}
		disk := &diskWriter{w: to}
		if want < 0 {
			body = progress.Reader(ctx, resp.ContentLength, body)
		} else {
			body = progress.Reader(ctx, want, body)
		}
		n, err := io.Copy(disk, watch.reader(body))
		switch {
		case disk.err != nil:
			return fault.Wrap(fault.Failed, disk.err)
		case err != nil:
			return watch.explain(ctx, broke(shown(req), err, fmt.Sprintf("breaks off after %d bytes: ", n)))
		case want >= 0 && n != want:
			return fault.Errorf(fault.Unavailable, "%s: size is not the %d bytes that were announced", shown(req), want)
		}
		return nil
	})
}

// diskWriter tells an error of the disk from one of the connection.
type diskWriter struct {
	w   io.Writer
	err error
}

func (d *diskWriter) Write(p []byte) (int, error) {
	n, err := d.w.Write(p)
	if err != nil {
		d.err = err
	}
	return n, err
}

var errStall = errors.New("transfer stalled")

// watch ends a stalled transfer. The total time is not limited: files are large.
type watch struct {
	limit time.Duration
	timer *time.Timer
	end   context.CancelCauseFunc
}

func watched(ctx context.Context, limit time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{limit: limit, end: cancel}
	w.timer = time.AfterFunc(limit, func() { cancel(errStall) })
	return ctx, w
}

func (w *watch) stop() {
	w.timer.Stop()
	w.end(nil)
}

// explain names the stall where the error only reports the cancellation.
func (w *watch) explain(ctx context.Context, err error) error {
	var broken *brokenError
	if errors.As(err, &broken) && errors.Is(context.Cause(ctx), errStall) {
		return &brokenError{request: broken.request, err: errStall, silent: true}
	}
	return err
}

func (w *watch) reader(r io.Reader) io.Reader { return &watchedReader{r, w} }

type watchedReader struct {
	r io.Reader
	w *watch
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.w.timer.Reset(r.w.limit)
	}
	return n, err
}
