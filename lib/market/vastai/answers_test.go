package vastai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
)

// A list of five hundred instances takes twenty requests.
func TestGovernorPages(t *testing.T) {
	clock := &times{now: start}
	m := newMarket(t, clock, func(r *http.Request, _ int) (int, map[string]string, string) {
		from := 0
		_, _ = fmt.Sscanf(r.URL.Query().Get("after_token"), "t%d", &from)
		var rows []string
		for id := from; id < from+25; id++ {
			rows = append(rows, fmt.Sprintf(`{"id":%d,"label":"l%d"}`, id+1, id))
		}
		next := fmt.Sprintf(`"t%d"`, from+25)
		if from+25 == 500 {
			next = "null"
		}
		return 200, nil, `{"success":true,"instances":[` + strings.Join(rows, ",") + `],"total_instances":500,"next_token":` + next + `}`
	})
	dir := t.TempDir()
	for range 3 {
		if list, err := m.governor(dir).List(t.Context(), start); err != nil || len(list.Instances) != 500 {
			t.Fatalf("%d, %v", len(list.Instances), err)
		}
	}
	if n := len(m.requests()); n != 20 {
		t.Errorf("%d requests", n)
	}
}

// A row that cannot be parsed is counted, and the total of the list still matches.
func TestOddInstances(t *testing.T) {
	clock := &times{now: start}
	m := newMarket(t, clock, func(*http.Request, int) (int, map[string]string, string) {
		return 200, nil, `{"success":true,"instances":[{"id":7,"label":"x"},{"id":null,"label":"y"},"?","?",{"id":0,"label":null},{"label":3}],"total_instances":6,"next_token":null}`
	})
	list, err := m.governor(t.TempDir()).List(t.Context(), start)
	if err != nil || len(list.Instances) != 1 || list.Odd != 5 || list.Nameless() != 3 || strings.Join(list.OddLabels, "|") != "|y" {
		t.Errorf("%+v, %v", list, err)
	}
}

// What an answer means depends on the request: a refusal of an order or a log, or a firewall's
// page, does not concern the key.
func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		op     string
		status int
		words  string
		want   error
	}{
		{orderOp, 403, "invalid_args: error 403/3586: Offer 1 is not your own. Hosts can only rent their own machines.", ErrRejected},
		{orderOp, 401, "", ErrRejected},
		{orderOp, 404, "auth_error: Invalid user key", ErrRejected},
		{orderOp, 400, "invalid_args: error 400/3467: Invalid args", ErrRejected},
		{orderOp, 404, "invalid_args: error 404/3603: no_such_ask Instance type by id 1 is not available.", ErrOfferGone},
		{orderOp, 410, "no_such_ask: error 410/3907", ErrOfferGone},
		{orderOp, 400, "insufficient_credit: Your account lacks credit", ErrCredit},
		{orderOp, 429, "API requests too frequent endpoint threshold=4.5", ErrBusy},
		{orderOp, 500, "", ErrUnknown},
		{"search", 429, "search_quota_exceeded: Daily quota", ErrQuota},
		{"search", 429, "Daily quota. Resets at 2026-03-02 00:00 UTC.", ErrQuota}, // the vastai program's message
		{"search", 429, "API requests too frequent", ErrBusy},
		{"search", 400, "x is not a valid search key", ErrInvalid},
		{"list of instances", 403, "<html>Request blocked</html>", ErrUnknown},
		{"list of instances", 401, "This key lacks the instance_read permission group", ErrAuth},
		{"account", 404, "auth_error: Invalid user key", ErrAuth},
		{"log of 7", 403, "not_authorized", ErrAuth},
		{"destroy 7", 429, "rate_limit_exceeded: API requests too frequent endpoint threshold=3.0", ErrBusy},
		{"account", 200, "", nil},
	} {
		if got := outcome(c.op, c.status, c.words); !errors.Is(got, c.want) || c.want == nil && got != nil {
			t.Errorf("%s %d %q: %v, want %v", c.op, c.status, c.words, got, c.want)
		}
	}
}

func TestCharges(t *testing.T) {
	clock := &times{now: start}
	var filters []string
	m := newMarket(t, clock, func(r *http.Request, n int) (int, map[string]string, string) {
		filters = append(filters, r.URL.Query().Get("select_filters"))
		if r.URL.Query().Get("after_token") == "" {
			return 200, nil, `{"success":true,"count":2,"total":3,"next_token":"x","results":[
				{"start":1772323200,"end":1772366400,"type":"instance","source":"instance-7","description":"d","amount":1.25,"metadata":{"label":"ponos:a:t:1"},"items":[]},
				{"type":"volume","source":"volume-3","amount":1},{"source":"instance-8","amount":null}]}`
		}
		return 200, nil, `{"success":true,"count":1,"total":3,"next_token":null,"results":[{"start":1772323200,"end":1772366400,"source":"instance-9","amount":0.5,"metadata":{}}]}`
	})
	g := m.governor(t.TempDir())
	for range 2 {
		got, err := g.Charges(t.Context(), start.Add(-24*time.Hour), start, start, 5)
		if err != nil || len(got) != 3 || got[1] != (Charge{}) || got[0].Instance != 7 || got[0].Amount != 1.25 || got[0].Label != "ponos:a:t:1" || got[2].Instance != 9 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if len(filters) != 2 || filters[0] != fmt.Sprintf(`{"day":{"gte":%d,"lte":%d},"type":{"in":["instance"]}}`, start.Add(-24*time.Hour).Unix(), start.Unix()) {
		t.Errorf("%q", filters)
	}
	for _, bad := range []string{`{}`, `[]`, `{"success":false,"msg":"Host users do not have instance charges","count":0,"results":[]}`} {
		if _, _, err := parseCharges([]byte(bad)); err == nil {
			t.Errorf("%s became charges", bad)
		}
	}
}

// A turn waits for a market that does not answer only once; the next turn tries again.
func TestNoAnswerInTime(t *testing.T) {
	over := make(chan struct{})
	m := newMarket(t, &times{now: start}, func(*http.Request, int) (int, map[string]string, string) {
		<-over
		return 200, nil, noInstances
	})
	defer close(over)
	g := m.governor(t.TempDir())
	rest, _ := g.API.(*REST)
	rest.Client.Timeout = 2 * time.Second
	if _, err := g.List(t.Context(), start); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "no answer in time") {
		t.Error(err)
	}
	if n := len(m.requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	runs := 0
	cli := NewCLI(runnerFunc(func(c command.Cmd) (command.Result, error) {
		runs++
		return command.Result{}, &command.TimeoutError{Name: c.Name, Timeout: c.Timeout}
	}), m.URL)
	cli.Wait = time.Millisecond
	if _, err := cli.List(t.Context(), ""); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "vastai: no answer within 1m0s") || runs != 1 {
		t.Errorf("%v, %d runs", err, runs)
	}
}

// runnerFunc is a function that runs programs.
type runnerFunc func(c command.Cmd) (command.Result, error)

func (f runnerFunc) Run(_ context.Context, c command.Cmd) (command.Result, error) { return f(c) }
