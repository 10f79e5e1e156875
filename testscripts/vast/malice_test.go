package vast

import (
	"maps"
	"net/http"
	"slices"
	"strings"
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
