package vast

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// endpoints are the requests that the agent makes, and in what of the market's answers they
// are found.
var endpoints = map[string]server.Fault{
	"list":    {Method: http.MethodGet, Path: lists},
	"search":  {Path: "^/api/v0/(bundles|search/asks)/"},
	"account": {Path: "^/api/v0/users/current"},
	"order":   {Method: http.MethodPut, Path: asks},
	"destroy": {Method: http.MethodDelete, Path: `^/api/v0/instances/`},
	"log":     {Method: http.MethodPut, Path: "request_logs"},
	"store":   {Method: http.MethodGet, Path: "^/logs/"},
	"charges": {Method: http.MethodGet, Path: "^/api/v0/charges/"},
}

// answers are those of a bad day.
var answers = []server.Fault{
	{Status: 403, Body: `{"success":false,"error":"not_authorized","msg":"You may not do this."}`},
	{Status: 403, Body: "<html>Request blocked</html>", Type: "text/html"},
	{Status: 404, Body: `{"success":false,"error":"not_found","msg":"Not found"}`},
	{Status: 404, Body: "<html>Not found</html>", Type: "text/html"},
	{Status: 429, Body: `{"detail":"API requests too frequent"}`, Header: map[string]string{"Retry-After": "100000"}},
	{Status: 429, Body: "API requests too frequent", Type: "text/plain", Header: map[string]string{"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}},
	{Status: 500, Body: `{"success":false,"msg":"internal"}`},
	{Status: 502, Body: "", Type: "text/plain"},
	{Status: 200, Body: "<html>Welcome</html>", Type: "text/html"},
	{Status: 200, Body: ""},
	{Status: 200, Body: "null"},
	{Status: 200, Body: "[]"},
	{Status: 200, Body: `{"success":false}`},
	{Status: 302, Body: "", Header: map[string]string{"Location": "https://127.0.0.1:9/login"}},
	{Lose: true},
	{Delay: 300 * time.Millisecond},
}

// An instance whose order was not answered, and that vast-reap --account destroys before the
// agent finds it, is neither waited for nor counted as the task's end.
func TestReapBesideAnOrder(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via})
		w.offers(5)
		w.market.Break(server.Fault{Method: http.MethodPut, Path: asks, Times: 1, Lose: true})
		w.task("task", "sleep 1; echo done")
		w.run(turn)
		w.forget("instances")
		if out, errs, code := w.run("vast-reap --account --older 0s --destroy"); code != 1 || errs != "" || !strings.Contains(out, "  yes  ") || len(w.market.Alive()) != 0 {
			t.Errorf("%d %s%s", code, out, errs)
		}
		w.settled("task")
		if n := len(w.market.Instances()); w.state("task") != "completed" || n != 2 {
			t.Errorf("task is %s, %d instances\n%s", w.state("task"), n, w.tell())
		}
		w.check("task")
	})
}

// The key goes nowhere but to the market, wherever that sends a request, and what an order tells neither, if the agent
// makes it and not the vastai program, which repeats it elsewhere.
func TestKeyStaysAtTheMarket(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		var mu sync.Mutex
		var got []string
		other := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			key := r.Header.Get("Authorization") + r.URL.Query().Get("api_key")
			if body, _ := io.ReadAll(r.Body); via == "api" {
				key += string(body)
			}
			if key != "" {
				got = append(got, r.Method+" "+r.URL.Path+" "+key)
			}
		}))
		t.Cleanup(other.Close)
		w := newWorld(t, options{via: via})
		w.offers(9)
		elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1) // another host
		for i, name := range slices.Sorted(maps.Keys(endpoints)) {
			f := endpoints[name]
			f.Times, f.Status, f.Header = 1, 307+i%2, map[string]string{"Location": elsewhere + "/steal"}
			w.market.Break(f)
		}
		w.task("task", "echo done")
		w.settled("task")
		if w.state("task") != "completed" {
			t.Errorf("task is %s\n%s", w.state("task"), w.tell())
		}
		mu.Lock()
		defer mu.Unlock()
		if len(got) > 0 {
			t.Errorf("%q", got)
		}
		w.check("task")
	})
}

// Whatever one kind of request is answered with for a while, each task has its one end, and
// nothing is left on the market.
func TestBadAnswers(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		for _, name := range slices.Sorted(maps.Keys(endpoints)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, options{via: via, extra: "  bill_interval: 20ms\n  max_creates_per_hour: 0\n"})
				w.configure("create_interval: 80ms", "create_interval: 20ms") // waits that the market asks for are bounded by it
				w.offers(60)
				for _, a := range answers {
					if name == "order" && a.Status == 403 {
						continue // five refusals hold an order for minutes
					}
					f := endpoints[name]
					f.Times = 1
					f.Status, f.Body, f.Type, f.Header, f.Lose, f.Delay = a.Status, a.Body, a.Type, a.Header, a.Lose, a.Delay
					w.market.Break(f)
				}
				w.task("one", "echo I am one")
				w.task("two", "echo I am two; exit 2")
				w.settled("one", "two")
				if w.state("one") != "completed" || w.state("two") != "failed" {
					t.Errorf("one is %s, two is %s", w.state("one"), w.state("two"))
				}
				if log := string(w.queue.Log("two")); !strings.Contains(log, "exit code 2") {
					t.Errorf("%s", log)
				}
				w.check("one", "two")
			})
		}
	})
}
