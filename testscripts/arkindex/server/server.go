package server

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// Options say what kind of server it is. The zero value will do.
type Options struct {
	FarmID, Seed string        // "": those of the constants
	TokenLife    time.Duration // of an agent's token; 0: an hour
	URLLife      time.Duration // of a presigned URL; 0: an hour
	Moved        bool          // the agents' operations are elsewhere than the well-known paths
	NoDocument   bool          // there is no OpenAPI document
	Paginated    bool          // artifacts are listed in pages of two
	LogType      string        // Content-Type that URLs for logs are signed for; "": any
	AnyHost      bool          // tasks that need a GPU go to agents without one, too
	GitDir       string        // directory of bare repositories, served under /git/
	StateFile    string        // keeps the world between two runs of the server
	Store        func() string // host of the object store in presigned URLs; nil: localhost, at the server's port
	Now          func() time.Time
}

// Farm and seed of a server that was not told others.
const (
	FarmID = "5b0e0c1e-0000-4000-8000-000000000001"
	Seed   = "0123456789abcdef0123456789abcdef"
)

// Server is the server; it is an http.Handler.
type Server struct {
	opt Options
	ops []op

	mu       sync.Mutex
	w        World
	requests []Request
	faults   []*Fault
}

// New makes a server with an empty world, or that of the state file.
func New(opt Options) (*Server, error) {
	if opt.FarmID == "" {
		opt.FarmID = FarmID
	}
	if opt.Seed == "" {
		opt.Seed = Seed
	}
	if opt.TokenLife == 0 {
		opt.TokenLife = time.Hour
	}
	if opt.URLLife == 0 {
		opt.URLLife = time.Hour
	}
	if opt.Now == nil {
		opt.Now = clock.Now
	}
	s := &Server{opt: opt, w: World{
		FarmID: opt.FarmID, Seed: opt.Seed, Key: []byte(random(16)),
		Secrets: map[string]string{}, Models: map[string]string{},
		Storage: map[string][]byte{}, Activities: map[string]string{},
	}}
	if opt.StateFile != "" {
		kept, err := os.ReadFile(opt.StateFile)
		if err == nil {
			err = json.Unmarshal(kept, &s.w)
		}
		if err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("state of the server: %w", err)
		}
	}
	s.ops = s.operations()
	return s, nil
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// NewID makes an id as Arkindex gives them.
func NewID() string {
	h := random(16)
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-8" + h[17:20] + "-" + h[20:]
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// now is the server's clock. s.mu is held.
func (s *Server) now() time.Time { return s.opt.Now().Add(s.w.Clock) }

// Do runs f with exclusive access to the world.
func (s *Server) Do(f func(w *World)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.w)
}

// Requests returns the recorded requests, those of one operation if it is named.
func (s *Server) Requests(operation string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []Request
	for _, r := range s.requests {
		if operation == "" || r.Operation == operation {
			some = append(some, r)
		}
	}
	return some
}

// Forget drops the recorded requests.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// answer is what a handler answers.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// exchange is one request on its way through the server.
type exchange struct {
	*http.Request
	s      *Server
	op     string
	params map[string]string
	body   []byte
	agent  *Agent // who asks
	task   *Task
}

// maxBody limits a request's body.
const maxBody = 256 << 20

// ServeHTTP answers a request, or does what a fault says.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/_control/"):
		s.control(w, r)
		return
	case s.opt.GitDir != "" && strings.HasPrefix(r.URL.Path, "/git/"):
		http.StripPrefix("/git/", http.FileServer(http.Dir(s.opt.GitDir))).ServeHTTP(w, r)
		return
	}
	x := &exchange{Request: r, s: s}
	o, allowed := s.route(x)
	if o != nil {
		x.op = o.id
	}
	fault := s.fault(x.op)
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	x.body = body
	record := Request{
		Operation: x.op, Method: r.Method, Path: r.URL.Path, Query: shownQuery(r.URL.Query()),
		Type: r.Header.Get("Content-Type"), Length: r.ContentLength, Body: string(body[:min(len(body), 4096)]),
	}
	record.Program, _, _ = strings.Cut(r.UserAgent(), "/")
	record.Auth, _, _ = strings.Cut(r.Header.Get("Authorization"), " ")
	var a answer
	switch {
	case fault != nil && !fault.acts():
		a = fault.answer()
	case o == nil && allowed:
		a = failure(http.StatusMethodNotAllowed, "method_not_allowed", fmt.Sprintf("Method %q not allowed.", r.Method))
	case o == nil:
		a = notThere()
	default:
		a = s.handle(x, o)
	}
	if fault != nil {
		record.Fault = fault.Kind
	}
	switch {
	case x.agent != nil:
		record.Who = "agent"
	case x.task != nil:
		record.Who = "task " + x.task.Slug
	}
	record.Status = a.status
	if fault != nil && fault.cuts() {
		record.Status = 0
	}
	s.mu.Lock()
	s.requests = append(s.requests, record)
	err = s.save()
	s.mu.Unlock()
	if err != nil {
		a = answer{status: http.StatusInternalServerError, body: []byte(err.Error())}
	}
	if fault != nil {
		fault.write(w, r, a)
		return
	}
	a.write(w)
}

func (a answer) write(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// handle checks who asks and runs the operation.
func (s *Server) handle(x *exchange, o *op) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refusal := s.identify(x, o); refusal != nil {
		return *refusal
	}
	return o.serve(x)
}

// save keeps the world in the state file. s.mu is held.
func (s *Server) save() error {
	if s.opt.StateFile == "" {
		return nil
	}
	b, err := json.Marshal(&s.w)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.opt.StateFile+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(s.opt.StateFile+".new", s.opt.StateFile)
}

// route finds the operation; known reports that the address is there at all.
func (s *Server) route(x *exchange) (found *op, known bool) {
	for i := range s.ops {
		o := &s.ops[i]
		params, ok := match(o.path, x.URL.EscapedPath())
		if !ok {
			continue
		}
		known = true
		if o.method == x.Method {
			x.params = params
			return o, true
		}
	}
	return nil, known
}

// match compares an escaped path with a template. An {id} is a UUID, a {+name}
// takes the rest.
func match(template, path string) (map[string]string, bool) {
	params := map[string]string{}
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	for i, w := range want {
		if i >= len(got) {
			return nil, false
		}
		value, err := url.PathUnescape(got[i])
		if err != nil {
			return nil, false
		}
		switch {
		case strings.HasPrefix(w, "{+"):
			rest, err := url.PathUnescape(strings.Join(got[i:], "/"))
			params[strings.Trim(w, "{+}")] = rest
			return params, err == nil && rest != ""
		case w == "{id}":
			if !uuid.MatchString(value) {
				return nil, false
			}
			params["id"] = value
		case w != value:
			return nil, false
		}
	}
	return params, len(want) == len(got)
}

// identify checks the Authorization header against what the operation wants.
func (s *Server) identify(x *exchange, o *op) *answer {
	if o.auth == "" {
		return nil
	}
	scheme, token, _ := strings.Cut(x.Header.Get("Authorization"), " ")
	refuse := func(detail string) *answer {
		a := failure(http.StatusUnauthorized, "authentication_failed", detail)
		a.header.Set("WWW-Authenticate", "Bearer")
		return &a
	}
	switch {
	case token == "":
		return refuse("Authentication credentials were not provided.")
	case scheme == "Bearer":
		for _, a := range s.w.Agents {
			for _, t := range a.Access {
				if t.Value == token {
					if s.now().After(t.Expires) {
						return refuse("Token is expired.")
					}
					x.agent = a
				}
			}
		}
	case scheme == "Ponos":
		for _, t := range s.w.Tasks {
			if t.Token == token {
				x.task = t
			}
		}
	}
	switch {
	case x.agent == nil && x.task == nil:
		return refuse("Invalid token.")
	case x.agent != nil && !strings.Contains(o.auth, "agent"), x.task != nil && !strings.Contains(o.auth, "task"):
		a := failure(http.StatusForbidden, "permission_denied", "You do not have permission to perform this action.")
		return &a
	}
	return nil
}

// jsonAnswer answers a value.
func jsonAnswer(status int, value any) answer {
	b, err := json.Marshal(value)
	if err != nil {
		return answer{status: http.StatusInternalServerError, header: http.Header{}, body: []byte(err.Error())}
	}
	return answer{status: status, header: http.Header{"Content-Type": {"application/json"}}, body: b}
}

// failure answers an error in the form of current instances.
func failure(status int, code, detail string) answer {
	return jsonAnswer(status, map[string]any{
		"type":   "client_error",
		"errors": []any{map[string]any{"attr": nil, "code": code, "detail": detail}},
	})
}

func invalid(detail string) answer { return failure(http.StatusBadRequest, "invalid", detail) }
func unknown() answer              { return failure(http.StatusNotFound, "not_found", "Not found.") }

// notThere is what the web framework says of an address without an operation.
func notThere() answer {
	return answer{
		status: http.StatusNotFound, header: http.Header{"Content-Type": {"text/html; charset=utf-8"}},
		body: []byte("<!doctype html>\n<html><head><title>Not Found</title></head><body><h1>Not Found</h1></body></html>\n"),
	}
}

// input decodes the JSON body of a request.
func (x *exchange) input(into any) *answer {
	if t, _, _ := strings.Cut(x.Header.Get("Content-Type"), ";"); t != "application/json" {
		a := failure(http.StatusUnsupportedMediaType, "unsupported_media_type", fmt.Sprintf("Unsupported media type %q in request.", t))
		return &a
	}
	if err := json.NewDecoder(bytes.NewReader(x.body)).Decode(into); err != nil {
		a := failure(http.StatusBadRequest, "parse_error", "JSON parse error - "+err.Error())
		return &a
	}
	return nil
}

// shownQuery is a query without the signature.
func shownQuery(query url.Values) string {
	for name := range query {
		if strings.HasPrefix(name, "X-Amz-") {
			delete(query, name)
		}
	}
	return query.Encode()
}
