package server

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// Options are how a market is.
type Options struct {
	Key    string // of the account; default: Key
	Dir    string // where containers live; "": they only pretend
	Credit float64
	// Scale is how much faster the market's clock goes than the real one.
	Scale float64
	// Boot is how long an instance takes from its order until its container runs.
	Boot time.Duration
	// Restart is how long a container that has ended stays so.
	Restart time.Duration
	// URL is the server's own address, once it is known.
	URL string
	// Pace is how long the documented intervals between requests are here: 1 is as
	// documented, 0 is none at all. RetryAfter says how long to wait, as newer servers do.
	Pace       float64
	RetryAfter bool
	// Quota is how many searches a day are answered; 0: all.
	Quota int
	// QuotaReset is when the quota is filled again, by the real clock; default: the next
	// midnight in UTC.
	QuotaReset time.Time
	Env        []string // PATH and the like, for containers
}

// Key is the default key.
const Key = "4d9b1c2e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c"

// Fault is something that goes wrong on the routes that it matches.
type Fault struct {
	Method string // "": all
	Path   string // regular expression of the path and query
	Times  int    // how often; 0: always
	Skip   int    // how many matching requests go well before
	Status int    // answered instead, if not 0
	Body   string
	Type   string // Content-Type of Body, default application/json
	// Lose cuts the connection after the request has taken effect.
	Lose bool
	// After answers with Status and Body after the request has taken effect.
	After  bool
	Header map[string]string // sent with Status
	Delay  time.Duration
	// Deny says success: false of what was done.
	Deny bool
	// Hit receives each request that this fault applies to.
	Hit chan<- struct{}
}

// Request is a request as it is recorded.
type Request struct {
	Method, Path, Query, Auth, Body string
	Status                          int
}

// Instance is a rented machine.
type Instance struct {
	ID        int64
	Offer     map[string]any
	Label     string
	Image     string
	Env       map[string]string
	Entry     string
	Args      []string
	Disk      float64
	Key       string
	Created   time.Time // by the market's clock
	Destroyed time.Time
	Visible   time.Time // real time from which on lists show it
	Linger    time.Time // real time until which lists show it though it is gone

	Actual   string
	Intended string
	Message  string
	Runs     int // how often the container was started
	Bid      float64
	Outbid   bool
	Due      time.Time // when it was of no more use, by the market's clock
	Ideal    float64   // what it had cost then
	Log      []byte
	GPUTime  time.Duration // by the market's clock
	runSince time.Time
	proc     *container
	gen      int
	asks     int // requests for the log that was asked for last,
	tail     int // and of how many lines; 0: all
	// LogRefused answers requests for the log of this one instance.
	LogRefused *Refusal
	// Change replaces fields of its row in lists; a nil value is null, Absent none at all.
	Change map[string]any
	// Resume is what an outbid instance needs to run again: a bid as high as this.
	Resume float64
}

// Refusal is an answer that reports a failure.
type Refusal struct {
	Status int
	Code   string // in "error"
	Msg    string
}

// Absent is the value of a field that a row or an offer does not have.
const Absent = "<absent>"

// Server is the market.
type Server struct {
	mu        sync.Mutex
	opt       Options
	began     time.Time
	skew      time.Duration
	offers    []map[string]any
	taken     map[int64]bool // offers that were
	instances []*Instance
	faults    []*Fault
	requests  []Request
	nextID    int64
	// Behaviour of machines, by machine_id.
	machines map[int64]*Machine
	// Lag is how long a new instance is missing from lists; Linger how long a
	// destroyed one stays in them; DeafDestroys how many destroys do nothing.
	Lag, Linger  time.Duration
	DeafDestroys int
	// LogAfter is how many times a log is asked for before it is there; below 0, never.
	LogAfter int
	// LogRedirects is how often the store of the logs sends a request elsewhere: to the
	// same server by another name, so that a client that takes its key along is found out.
	LogRedirects int
	// LogRedirect is where it sends them instead, if that is not empty.
	LogRedirect string
	// Unauthorized is the status for a bad key; default: 404.
	Unauthorized int
	// GoneCode is what a destroy of an instance that is gone says; the documents have
	// "not_found", the program knows "no_such_instance", which is the default.
	GoneCode string
	// StrictDisk refuses orders of more disk than the offer has. Otherwise the instance
	// gets what there is.
	StrictDisk bool
	// MuteOwnKeys are instances' own keys that may do nothing; StopOnlyKeys may not change
	// labels.
	MuteOwnKeys, StopOnlyKeys bool
	// DeafStops are how many requests to stop do nothing.
	DeafStops int
	// ChargesLag is how long a charge takes until it is on the bill, by the market's clock.
	ChargesLag time.Duration
	keys       map[string][]string // scoped keys and what they may do
	refused    map[int64]Refusal   // by offer
	pace       map[string]time.Time
	searches   int
	// Truncate cuts logs to their last so many bytes.
	Truncate int
	closed   bool
}

// Machine is how a machine behaves.
type Machine struct {
	Status string        // message while it loads
	Stuck  bool          // never leaves loading
	Stop   bool          // intended_status becomes stopped while loading
	Slow   time.Duration // how much longer it loads
	Path   string        // directory of programs that its containers have before all others
	// Row is how the machine differs from its offer, in the rows of its instances.
	Row map[string]any
}

// New returns a market without offers.
func New(opt Options) *Server {
	if opt.Key == "" {
		opt.Key = Key
	}
	if opt.Scale == 0 {
		opt.Scale = 1
	}
	if opt.Restart == 0 {
		opt.Restart = 200 * time.Millisecond
	}
	return &Server{opt: opt, began: clock.Now(), nextID: 7000000, machines: map[int64]*Machine{}, taken: map[int64]bool{},
		keys: map[string][]string{}, refused: map[int64]Refusal{}, pace: map[string]time.Time{}}
}

// SetURL tells the server its own address.
func (s *Server) SetURL(url string) { s.mu.Lock(); s.opt.URL = url; s.mu.Unlock() }

// Now is the market's clock.
func (s *Server) Now() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.now() }

func (s *Server) now() time.Time { return s.at(clock.Now()) }

// at is what the market's clock shows at a real time.
func (s *Server) at(t time.Time) time.Time {
	return s.began.Add(time.Duration(float64(t.Sub(s.began))*s.opt.Scale) + s.skew)
}

// Advance sets the clock forward.
func (s *Server) Advance(d time.Duration) { s.mu.Lock(); s.skew += d; s.mu.Unlock() }

// Do runs a function while nothing else happens.
func (s *Server) Do(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }

// SetCredit changes the account's credit.
func (s *Server) SetCredit(c float64) { s.Do(func() { s.opt.Credit = c }) }

// Machine sets how a machine behaves.
func (s *Server) Machine(id int64, m Machine) { s.Do(func() { s.machines[id] = &m }) }

// Break adds a fault, and returns what removes it again.
func (s *Server) Break(f Fault) (mend func()) {
	s.Do(func() { s.faults = append(s.faults, &f) })
	return func() {
		s.Do(func() { s.faults = slices.DeleteFunc(s.faults, func(other *Fault) bool { return other == &f }) })
	}
}

// Mend removes all faults.
func (s *Server) Mend() { s.Do(func() { s.faults = nil }) }

// AddOffer adds an offer like the usual one, with fields changed.
func (s *Server) AddOffer(id int64, fields map[string]any) {
	row := map[string]any{
		"id": id, "ask_contract_id": id, "machine_id": id % 100000, "host_id": 77, "num_gpus": 1, "gpu_name": "RTX 4090", "gpu_ram": 24564,
		"gpu_total_ram": 24564, "gpu_frac": 0.25, "compute_cap": 890, "cuda_max_good": 12.8, "cpu_cores": 64, "cpu_cores_effective": 16.0,
		"cpu_ram": 257000, "disk_space": 510.2, "dph_base": 0.30, "min_bid": 0.12, "storage_cost": 0.15, "inet_up": 480.1, "inet_down": 812.9,
		"inet_up_cost": 0.004, "inet_down_cost": 0.002, "reliability": 0.9971, "reliability2": 0.9971, "verification": "verified", "hosting_type": 0,
		"geolocation": "France, FR", "driver_version": "570.86.10", "direct_port_count": 100, "static_ip": true, "rentable": true, "rented": false,
		"external": false, "is_bid": false, "duration": 864000.0, "dlperf": 91.0, "dlperf_per_dphtotal": 301.2, "score": 402.5, "gpu_arch": "nvidia",
		"bundled_results": nil, "public_ipaddr": " 192.0.2.7 ",
	}
	change(row, fields)
	// As JSON has it.
	b, _ := json.Marshal(row)
	row = nil
	_ = json.Unmarshal(b, &row)
	s.Do(func() { s.offers = append(s.offers, row) })
}

// Instances returns copies of all instances that ever were.
func (s *Server) Instances() []Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Instance, len(s.instances))
	for i, in := range s.instances {
		out[i] = *in
	}
	return out
}

// Alive returns those that are not destroyed.
func (s *Server) Alive() []Instance {
	return slices.DeleteFunc(s.Instances(), func(i Instance) bool { return !i.Destroyed.IsZero() })
}

// Requests returns the requests so far whose method and path match.
func (s *Server) Requests(pattern string) []Request {
	re := regexp.MustCompile(pattern)
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Request
	for _, r := range s.requests {
		if re.MatchString(r.Method + " " + r.Path) {
			out = append(out, r)
		}
	}
	return out
}

func num(v any) float64 {
	if id, ok := v.(int64); ok {
		return float64(id)
	}
	f, _ := v.(float64)
	return f
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// Close ends all containers.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	var procs []*container
	for _, i := range s.instances {
		if i.proc != nil {
			procs = append(procs, i.proc)
		}
		i.gen++
	}
	s.mu.Unlock()
	for _, p := range procs {
		p.kill()
	}
}

type answer struct {
	status int
	kind   string
	body   []byte
	header map[string]string
}

func reply(status int, v any) answer {
	b, _ := json.Marshal(v)
	return answer{status: status, kind: "application/json", body: b}
}

func refuse(status int, code, msg string) answer {
	return reply(status, map[string]any{"success": false, "error": code, "msg": msg})
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	record := Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Auth: r.Header.Get("Authorization"), Body: string(body)}
	s.mu.Lock()
	fault := s.fault(r)
	s.mu.Unlock()
	if fault != nil && fault.Hit != nil {
		fault.Hit <- struct{}{}
	}
	if fault != nil && fault.Delay > 0 {
		time.Sleep(fault.Delay)
	}
	if r.Method == http.MethodPut && !bytes.Contains(body, []byte(`:end=begun"`)) { // a beginning
		s.ownWord(r)
	}
	var a answer
	if fault != nil && (fault.Status != 0) && !fault.After {
		a = answer{fault.Status, fault.Type, []byte(fault.Body), fault.Header}
	} else {
		var limited bool
		if a, limited = s.limit(r); !limited {
			a = s.serve(r, body)
		}
		if fault != nil && fault.After {
			a = answer{fault.Status, fault.Type, []byte(fault.Body), fault.Header}
		}
	}
	if fault != nil && fault.Deny {
		a.body = []byte(strings.Replace(string(a.body), `"success":true`, `"success":false,"msg":"bid too low"`, 1))
	}
	if a.kind == "" {
		a.kind = "application/json"
	}
	record.Status = a.status
	lost := fault != nil && fault.Lose
	if lost {
		record.Status = 0
	}
	s.Do(func() { s.requests = append(s.requests, record) })
	if lost {
		if hijacker, ok := w.(http.Hijacker); ok {
			if conn, _, err := hijacker.Hijack(); err == nil {
				_ = conn.Close()
				return
			}
		}
	}
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

func (s *Server) fault(r *http.Request) *Fault {
	for i, f := range s.faults {
		matched, err := regexp.MatchString(f.Path, r.URL.Path+"?"+r.URL.RawQuery)
		if err != nil || !matched || f.Method != "" && f.Method != r.Method {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.faults = slices.Delete(s.faults, i, i+1)
			}
		}
		copied := *f
		return &copied
	}
	return nil
}

var (
	askPath      = regexp.MustCompile(`^/api/v0/asks/(\d+)/$`)
	instancePath = regexp.MustCompile(`^/api/v0/instances/(\d+)/?$`)
	logPath      = regexp.MustCompile(`^/logs/([0-9a-f]+)-(\d+)(?:-\d+)?\.log$`)
)

func (s *Server) serve(r *http.Request, body []byte) answer {
	path := r.URL.Path
	switch {
	case path == "/api/v0/gpu_names/unique/":
		return reply(200, map[string]any{"gpu_names": []string{"RTX 4090", "RTX 3090"}})
	case path == "/api/v0/gpu_types/":
		return reply(200, map[string]any{"gpu_types": []string{}})
	case logPath.MatchString(path):
		return s.serveResult(r, logPath.FindStringSubmatch(path), true)
	case resultPath.MatchString(path):
		return s.serveResult(r, resultPath.FindStringSubmatch(path), false)
	case path == "/api/v0/bundles/" && r.Method == http.MethodPost:
		// It is answered without a key as well.
		if refused, _ := s.scope(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.Method, path); refused.status != 0 {
			return refused
		}
		return s.search(body)
	case path == "/api/v0/search/asks/" && r.Method == http.MethodPut:
		var in struct {
			Query json.RawMessage `json:"q"`
		}
		if json.Unmarshal(body, &in) != nil {
			return answer{status: 400, kind: "text/plain", body: []byte("Request body must be valid JSON")}
		}
		return s.search(in.Query)
	}
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if key == "" {
		key = r.URL.Query().Get("api_key")
	}
	if key == "" {
		return refuse(403, "auth_error", "This action requires login.")
	}
	own := int64(0) // the instance whose own key this is
	if refused, scoped := s.scope(key, r.Method, path); scoped {
		if refused.status != 0 {
			return refused
		}
	} else if key != s.opt.Key {
		for _, i := range s.Alive() {
			if i.Key == key {
				own = i.ID
			}
		}
		if own == 0 {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.Unauthorized != 0 {
				return refuse(s.Unauthorized, "auth_error", "Invalid user key")
			}
			return refuse(404, "auth_error", "Invalid user key")
		}
	}
	if m := instancePath.FindStringSubmatch(path); m != nil {
		id, _ := strconv.ParseInt(m[1], 10, 64)
		if own != 0 && (own != id || s.ownForbidden(r.Method, body)) {
			return refuse(401, "auth_error", "This key lacks the instance_write permission group")
		}
		return s.one(r.Method, id, body)
	}
	if own != 0 {
		return refuse(401, "auth_error", "This key lacks the instance_read permission group")
	}
	switch m := askPath.FindStringSubmatch(path); {
	case m != nil && r.Method == http.MethodPut:
		id, _ := strconv.ParseInt(m[1], 10, 64)
		return s.create(id, body)
	case strings.TrimSuffix(path, "/") == "/api/v0/users/current":
		s.mu.Lock()
		defer s.mu.Unlock()
		return reply(200, map[string]any{"id": 4242, "email": "me@example.org", "username": "me", "credit": s.opt.Credit, "balance": 0, "api_key": s.opt.Key, "has_billing": true})
	case path == "/api/v0/charges/" && r.Method == http.MethodGet:
		return s.charges(r.URL.Query())
	case path == "/api/v0/instances/filters/":
		return reply(200, map[string]any{"filters": []any{}})
	case path == "/api/v0/instances/" && (r.Method == http.MethodDelete || r.Method == http.MethodPut):
		return s.bulk(r.Method, body)
	case path == "/api/v0/commands/rsync/" && r.Method == http.MethodPut, path == "/api/v0/commands/copy_direct/":
		return s.copying(r.Method, body)
	case path == "/api/v0/instances/":
		return refuse(410, "deprecated_endpoint", "This endpoint has been removed; use /api/v1/instances/")
	case path == "/api/v1/instances/" && r.Method == http.MethodGet:
		return s.list(r.URL.Query())
	}
	if m := actionPath.FindStringSubmatch(path); m != nil && r.Method == http.MethodPut {
		id, _ := strconv.ParseInt(m[2], 10, 64)
		return s.action(m[1], id, body)
	}
	return answer{status: 404, kind: "text/html", body: []byte("<html>Not found</html>")}
}

func (s *Server) find(id int64) *Instance {
	for _, i := range s.instances {
		if i.ID == id && i.Destroyed.IsZero() {
			return i
		}
	}
	return nil
}

// SetLog sets what an instance has printed, where containers only pretend.
func (s *Server) SetLog(id int64, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(id); i != nil {
		i.Log = []byte(text)
	}
}
