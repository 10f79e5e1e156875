package arkindex

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// Limits of what a server can make the agent keep in memory or wait for.
const (
	maxAnswer     = 32 << 20 // bytes of a JSON answer
	maxWords      = 8 << 10  // bytes that are read of an error's explanation
	maxRetryAfter = time.Minute
	answerTime    = 90 * time.Second // for one request and its answer
)

// credential is what a request is signed with: the zero value is the agent's
// own token.
type credential struct {
	scheme, token string
	anonymous     bool
}

var nobody = credential{anonymous: true}

// call is one operation with its parameters.
type call struct {
	op    string
	path  map[string]string
	query url.Values
	body  any
	as    credential
}

// statusError is an answer with an error status.
type statusError struct {
	request string // method and address
	code    int
	words   string // the server's message, fit for one line
	json    bool   // it is JSON, so the application answers, and not a proxy in front of it
	store   bool   // it is the answer of an object store
	after   time.Duration
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%s: %d %s", e.request, e.code, http.StatusText(e.code))
	if e.words != "" {
		s += ": " + e.words
	}
	return s
}

// Answered reports whether the server is there, and refuses this request alone.
func (e *statusError) Answered() bool {
	switch e.code {
	case http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return e.code >= 400 && e.code < 500
}

// status returns the HTTP status that err is about, or 0.
func status(err error) int {
	var e *statusError
	if errors.As(err, &e) {
		return e.code
	}
	return 0
}

// passing reports whether the same request may succeed a little later.
func passing(err error) bool {
	var e *statusError
	if errors.As(err, &e) {
		return e.code >= 500 || e.code == http.StatusTooManyRequests
	}
	var broken *brokenError
	return errors.As(err, &broken)
}

// brokenError is a connection that could not be opened, or that broke.
type brokenError struct {
	request string
	err     error
	silent  bool // no answer came within the timeout
}

func (e *brokenError) Error() string { return e.request + ": " + fault.Text(e.err) }
func (e *brokenError) Unwrap() error { return e.err }

// do performs a call and decodes the answer into into, or copies it if into is a *[]byte. The answer
// must be JSON: a page with status 200 that is not JSON was not written by the instance, and nothing
// was done.
func (q *Queue) do(ctx context.Context, c call, into any) error {
	o := q.operation(ctx, c.op)
	err := q.authorized(ctx, o, c, into)
	if code := status(err); code == http.StatusNotFound || code == http.StatusMethodNotAllowed {
		// It may have moved since the document was read.
		if now, moved := q.moved(ctx, c.op, o); moved {
			err = q.authorized(ctx, now, c, into)
		}
	}
	return fault.Wrap(fault.Unavailable, err)
}

// authorized sends a call with its credential. If the server no longer accepts the agent's own, it is
// renewed.
func (q *Queue) authorized(ctx context.Context, o operation, c call, into any) error {
	if c.as.anonymous || c.as.token != "" {
		return q.persist(ctx, o, c, c.as, into)
	}
	id, err := q.me(ctx)
	if err != nil {
		return err
	}
	err = q.persist(ctx, o, c, credential{scheme: q.cfg.AuthScheme, token: id.Access}, into)
	if status(err) != http.StatusUnauthorized {
		return err
	}
	q.log.Debug("token is refused", "operation", c.op)
	if id, err = q.renew(ctx, id.Access); err != nil {
		return err
	}
	return q.persist(ctx, o, c, credential{scheme: q.cfg.AuthScheme, token: id.Access}, into)
}

// persist repeats a request until it is answered, as often as Waits allows.
func (q *Queue) persist(ctx context.Context, o operation, c call, as credential, into any) error {
	target, err := o.url(q.base, c.path, c.query)
	if err != nil {
		return err
	}
	var body []byte
	if c.body != nil {
		if body, err = json.Marshal(c.body); err != nil {
			return err
		}
	}
	return q.repeat(ctx, target.Host, func() error { return q.once(ctx, o.Method, target, body, as, into) })
}

// awayTime is how long a host that did not answer is not tried again. A turn with a thousand tasks to
// report must not time out a thousand times.
const awayTime = 30 * time.Second

// away returns since when a host does not answer.
type away struct {
	since  time.Time
	silent bool
}

// repeat runs f, which sends requests to a host, again while it fails in a way that may pass. For a
// while, a host that did not answer is not tried again.
func (q *Queue) repeat(ctx context.Context, host string, f func() error) error {
	for i := 0; ; i++ {
		was, _ := q.away.Load(host)
		before, known := was.(away)
		known = known && q.cfg.Now().Sub(before.since).Abs() < awayTime
		if known && before.silent {
			return &brokenError{request: host, err: errors.New("did not answer a moment ago")}
		}
		err := f()
		if err == nil || !passing(err) {
			q.away.Delete(host)
			return err
		}
		var broken *brokenError
		silent := errors.As(err, &broken) && broken.silent
		if ctx.Err() != nil || known && !silent {
			return err
		}
		if silent || i == len(q.cfg.Waits) {
			q.away.Store(host, away{q.cfg.Now(), silent})
			return err
		}
		wait := q.cfg.Waits[i]
		var e *statusError
		if errors.As(err, &e) && e.after > 0 {
			wait = e.after
		}
		q.log.Debug("request is repeated", "after", wait, "error", err)
		if q.cfg.Sleep(ctx, wait) != nil {
			return err
		}
	}
}

// once sends one request of the API.
func (q *Queue) once(ctx context.Context, method string, target *url.URL, body []byte, as credential, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), reader)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if as.token != "" {
		req.Header.Set("Authorization", as.scheme+" "+as.token)
	}
	resp, err := q.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	what := shown(req)
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return broke(what, err, fmt.Sprintf("answer breaks off after %d bytes: ", len(answer)))
	case len(answer) > maxAnswer:
		return fmt.Errorf("%s: answer is longer than %d MiB", what, maxAnswer>>20)
	case len(bytes.TrimSpace(answer)) == 0:
		return fmt.Errorf("%s: answer is empty", what)
	}
	// The answer is not quoted: it may contain a token.
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(answer), []byte("<")):
		return fmt.Errorf("%s: answer is HTML, not JSON", what)
	case !json.Valid(answer):
		return fmt.Errorf("%s: answer of %d bytes is not JSON", what, len(answer))
	}
	if raw, ok := into.(*[]byte); ok {
		*raw = answer
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s: answer: %s", what, task.Clean(fault.Text(err)))
	}
	return nil
}

// send performs a request; an answer without a 2xx status is an error.
func (q *Queue) send(req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", "ponos")
	what := shown(req)
	resp, err := q.api.Do(req)
	if err != nil {
		return nil, broke(what, err, "")
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	words, _ := io.ReadAll(io.LimitReader(resp.Body, maxWords))
	e := &statusError{
		request: what, code: resp.StatusCode, json: json.Valid(words),
		store: bytes.Contains(words, []byte("<Error>")), after: retryAfter(resp, q.cfg.Now()),
	}
	_, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	e.words = q.scrub(explanation(words), token, req.URL.RawQuery, req.URL.Query().Get("X-Amz-Signature"))
	if resp.StatusCode < 400 {
		if to, err := resp.Location(); err == nil {
			e.words = "redirected to " + address(to)
		}
		return nil, fault.Hint(e, "give the address that it redirects to as url")
	}
	return nil, e
}

// sendQuietly is send for requests that carry no credential, and whose refusal needs no explanation.
func (q *Queue) sendQuietly(req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", "ponos")
	resp, err := q.api.Do(req)
	if err != nil {
		return nil, broke(shown(req), err, "")
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, &statusError{request: shown(req), code: resp.StatusCode}
	}
	return resp, nil
}

// shown is how messages refer to a request.
func shown(req *http.Request) string { return req.Method + " " + address(req.URL) }

// address returns a URL without parts that may be a credential: query, fragment, user.
func address(u *url.URL) string {
	return task.Clean((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
}

// broke makes a brokenError of an error of net/http.
func broke(request string, err error, before string) error {
	e := plain(err)
	silent := errors.Is(e, errNoAnswer) || errors.Is(e, context.DeadlineExceeded)
	return &brokenError{request: request, err: fmt.Errorf("%s%w", before, e), silent: silent}
}

var errNoAnswer = errors.New("no answer in time")

// plain takes the URL, which may be signed, out of an error of net/http.
func plain(err error) error {
	for {
		var e *url.Error
		if !errors.As(err, &e) {
			return err
		}
		if e.Timeout() && errors.Is(e.Err, context.DeadlineExceeded) {
			return errNoAnswer
		}
		err = e.Err
	}
}

// explanation returns the server's message about an error as one line: the detail of Arkindex or
// Django REST, the message of an object store, or else the text.
func explanation(body []byte) string {
	var answer any
	if json.Unmarshal(body, &answer) == nil {
		return clip(strings.Join(details(answer, 0), "; "), 300)
	}
	text := string(body)
	if _, after, ok := strings.Cut(text, "<Message>"); ok {
		text, _, _ = strings.Cut(after, "</Message>")
	} else if strings.HasPrefix(strings.TrimSpace(text), "<") {
		return "answer is HTML, not JSON"
	}
	return clip(text, 120)
}

func details(answer any, depth int) []string {
	if depth > 4 {
		return nil
	}
	switch v := answer.(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, item := range v {
			all = append(all, details(item, depth+1)...)
		}
		return all
	case map[string]any:
		if d, ok := v["detail"]; ok {
			return details(d, depth+1)
		}
		if d, ok := v["errors"]; ok {
			return details(d, depth+1)
		}
		var all []string
		for _, key := range sortedKeys(v) {
			if text := strings.Join(details(v[key], depth+1), " "); text != "" {
				all = append(all, key+": "+text)
			}
		}
		return all
	}
	return nil
}

// clip is task.Clean for at most n bytes, with blanks drawn together.
func clip(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") + "..."
	}
	return task.Clean(s)
}

// scrub removes the agent's credentials from a text, in case a server repeats them.
func (q *Queue) scrub(text string, more ...string) string {
	for _, secret := range append(q.secrets(), more...) {
		if len(secret) >= 8 {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	return text
}

func retryAfter(resp *http.Response, now time.Time) time.Duration {
	header := resp.Header.Get("Retry-After")
	if header == "" {
		return 0
	}
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(header, 10, 16); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(now)
	}
	return max(0, min(wait, maxRetryAfter))
}
