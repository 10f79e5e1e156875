package arkindex

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// How long a document is used, and how soon it is requested again when an operation is missing at its
// path, or when the request has failed.
const (
	schemaAge   = 24 * time.Hour
	schemaAgain = 5 * time.Minute
	maxSchema   = 64 << 20
)

// schema is the instance's OpenAPI document.
type schema struct {
	doc        []byte // nil: the instance has none
	operations map[string]operation
	asked      time.Time // when the instance was asked, or the file was written
}

func (q *Queue) schemaFile() string { return q.cfg.IdentityFile + ".openapi.json" }

// operation finds an operation: in the instance's document, or else in the fallback table.
func (q *Queue) operation(ctx context.Context, id string) operation {
	s := q.openapi(ctx)
	for _, name := range append([]string{id}, spellings[id]...) {
		if o, ok := s.operations[name]; ok {
			return o
		}
	}
	return fallback[id]
}

// has reports whether the instance's document has an operation; without a
// document, the fallback table decides.
func (q *Queue) has(ctx context.Context, id string) bool {
	s := q.openapi(ctx)
	if s.operations == nil {
		_, ok := fallback[id]
		return ok
	}
	_, ok := s.operations[id]
	return ok
}

// openapi returns the document from memory, the cache file or the instance.
func (q *Queue) openapi(ctx context.Context) *schema {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Now()
	if q.schema == nil {
		q.schema = q.cachedSchema(now)
	}
	age := schemaAge
	if q.schema != nil && q.schema.operations == nil {
		age = schemaAgain
	}
	if q.schema == nil || now.Sub(q.schema.asked) > age {
		_ = q.fetchSchema(ctx, now) // the request itself will tell
	}
	return q.schema
}

// moved requests the document again, unless that was done lately, and reports whether an operation
// has another path than before.
func (q *Queue) moved(ctx context.Context, id string, was operation) (operation, bool) {
	q.mu.Lock()
	now := q.cfg.Now()
	if q.schema == nil || now.Sub(q.schema.asked) > schemaAgain {
		_ = q.fetchSchema(ctx, now) // then nothing has moved
	}
	q.mu.Unlock()
	is := q.operation(ctx, id)
	return is, is != was
}

// fetchSchema requests the document; if that fails, the known one stays. q.mu is held.
func (q *Queue) fetchSchema(ctx context.Context, now time.Time) error {
	doc, operations, err := q.downloadSchema(ctx)
	if err != nil {
		q.log.Debug("no OpenAPI document, well-known paths are used", "error", err)
		if q.schema == nil {
			q.schema = &schema{}
		}
		q.schema.asked = now
		return err
	}
	q.schema = &schema{doc: doc, operations: operations, asked: now}
	if err := renameio.WriteFile(q.schemaFile(), doc, 0o600); err != nil {
		q.log.Warn("OpenAPI document is not kept", "error", err)
	}
	return nil
}

// cachedSchema reads the cache file. If that fails in any way, the instance is queried instead.
func (q *Queue) cachedSchema(now time.Time) *schema {
	info, err := os.Stat(q.schemaFile())
	if err != nil || info.Size() > maxSchema || clock.Modified(info).After(now.Add(time.Hour)) {
		return nil
	}
	// The document of another instance would send requests to wrong paths.
	if id, err := q.readIdentity(); err != nil || id.URL != q.origin() {
		return nil
	}
	doc, err := os.ReadFile(q.schemaFile())
	if err != nil {
		return nil
	}
	operations, err := parseOpenAPI(doc)
	if err != nil {
		return nil
	}
	return &schema{doc: doc, operations: operations, asked: clock.Modified(info)}
}

// downloadSchema tries the two names that the format has had, once each.
func (q *Queue) downloadSchema(ctx context.Context) ([]byte, map[string]operation, error) {
	var failure error
	for _, format := range []string{"json", "openapi-json"} {
		target := &url.URL{
			Scheme: q.base.Scheme, Host: q.base.Host,
			Path: "/api/v1/openapi/", RawQuery: "format=" + format,
		}
		doc, err := q.getSchema(ctx, target)
		if err == nil {
			operations, bad := parseOpenAPI(doc)
			if bad == nil {
				return doc, operations, nil
			}
			err = bad
		}
		failure = err
		if code := status(err); code == 0 || code >= 500 {
			break
		}
	}
	return nil, nil, failure
}

func (q *Queue) getSchema(ctx context.Context, target *url.URL) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.oai.openapi+json, application/json")
	resp, err := q.sendQuietly(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	doc, err := io.ReadAll(io.LimitReader(resp.Body, maxSchema+1))
	if err != nil {
		return nil, plain(err)
	}
	if len(doc) > maxSchema {
		return nil, fmt.Errorf("OpenAPI document is longer than %d MiB", maxSchema>>20)
	}
	return doc, nil
}

// origin is the instance's address, as it is kept with the identity.
func (q *Queue) origin() string { return strings.ToLower(q.base.Scheme + "://" + q.base.Host) }
