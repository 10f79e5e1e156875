package vastai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/lock"
)

// times is a clock that advances only in Sleep.
type times struct {
	mu  sync.Mutex
	now time.Time
}

func (c *times) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *times) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	c.now = c.now.Add(max(d, 0))
	c.mu.Unlock()
	return ctx.Err()
}

// market is a server with prepared answers that records the requests.
type market struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string
	at     []time.Time
	clock  *times
	answer func(r *http.Request, n int) (status int, header map[string]string, body string)
}

func newMarket(t *testing.T, clock *times, answer func(r *http.Request, n int) (int, map[string]string, string)) *market {
	t.Helper()
	m := &market{clock: clock, answer: answer}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.asked, m.at = append(m.asked, r.Method+" "+r.URL.Path), append(m.at, clock.Now())
		n := len(m.asked)
		m.mu.Unlock()
		status, header, body := m.answer(r, n)
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *market) requests() []string { m.mu.Lock(); defer m.mu.Unlock(); return slices.Clone(m.asked) }

func (m *market) governor(dir string) *Governor {
	rest := NewREST(m.URL, "key")
	rest.Wait, rest.Now = time.Millisecond, m.clock.Now
	g := NewGovernor(rest, dir, 5*time.Second, m.clock.Now)
	g.Sleep = m.clock.Sleep
	return g
}

var start = time.Date(2026, 3, 1, 15, 0, 0, 0, time.UTC)

func offersBody(ids ...int) string {
	var rows []string
	for _, id := range ids {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"dph_total":0.%d,"num_gpus":1}`, id, id))
	}
	return `{"offers":[` + strings.Join(rows, ",") + `]}`
}

const noInstances = `{"success":true,"instances":[],"total_instances":0,"next_token":null}`

// Thirty tasks that wait, in two tools, need one list, one account and one search.
func TestGovernorShares(t *testing.T) {
	clock := &times{now: start}
	m := newMarket(t, clock, func(r *http.Request, _ int) (int, map[string]string, string) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/api/v1/instances"):
			return 200, nil, noInstances
		case strings.HasPrefix(r.URL.Path, "/api/v0/users"):
			return 200, nil, `{"id":1,"credit":9}`
		}
		return 200, nil, offersBody(1, 2)
	})
	dir := t.TempDir()
	tools := []*Governor{m.governor(dir), m.governor(dir)}
	var all sync.WaitGroup
	for n := range 30 {
		all.Go(func() {
			g := tools[n%2]
			_, err1 := g.List(t.Context(), start)
			_, err2 := g.Account(t.Context(), time.Time{})
			found, err3 := g.Search(t.Context(), Search{Disk: 20}, true)
			if err := errors.Join(err1, err2, err3); err != nil || len(found.Offers) != 2 {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
	all.Wait()
	if got := m.requests(); len(got) != 3 {
		t.Errorf("%d requests: %v", len(got), got)
	}
	// A list is not used for a later time.
	if _, err := tools[0].List(t.Context(), clock.Now().Add(time.Second)); err != nil || len(m.requests()) != 4 {
		t.Errorf("%v, %v", m.requests(), err)
	}
	// A different search, and one that must be new.
	for _, s := range []struct {
		disk    float64
		patient bool
	}{{30, true}, {20, false}} {
		if _, err := tools[0].Search(t.Context(), Search{Disk: s.disk}, s.patient); err != nil {
			t.Error(err)
		}
	}
	if got := m.requests(); len(got) != 6 {
		t.Errorf("%d requests: %v", len(got), got)
	}
}

// The list may contain secrets of tasks; the cache must not.
func TestGovernorKeepsNoSecrets(t *testing.T) {
	clock := &times{now: start}
	m := newMarket(t, clock, func(*http.Request, int) (int, map[string]string, string) {
		return 200, nil, `{"success":true,"instances":[{"id":7,"label":"x","extra_env":[["TOKEN","hush"],["NONCE","n1"]]}],"total_instances":1,"next_token":null}`
	})
	g := m.governor(t.TempDir())
	g.Keep = []string{"NONCE"}
	for range 2 {
		list, err := g.List(t.Context(), start)
		if err != nil || len(list.Instances) != 1 || list.Instances[0].Env("NONCE") != "n1" || list.Instances[0].Env("TOKEN") != "" {
			t.Errorf("%+v, %v", list, err)
		}
	}
	if got := readCached[Listing](g.Dir + "/instances.json"); len(got.Value.Instances) != 1 || got.Value.Instances[0].ID != 7 {
		t.Errorf("%+v", got)
	}
	b, err := json.Marshal(readCached[json.RawMessage](g.Dir + "/instances.json"))
	if err != nil || strings.Contains(string(b), "hush") {
		t.Errorf("%s, %v", b, err)
	}
}

// Requests of a class keep the documented distance, across processes.
func TestGovernorDistances(t *testing.T) {
	clock := &times{now: start}
	m := newMarket(t, clock, func(r *http.Request, n int) (int, map[string]string, string) {
		if r.Method == http.MethodPut {
			return 200, nil, fmt.Sprintf(`{"success":true,"new_contract":%d}`, n)
		}
		return 200, nil, noInstances
	})
	dir := t.TempDir()
	order := Order{Image: "x", Disk: 20, Label: "l"}
	for n := range 4 {
		if _, err := m.governor(dir).Create(t.Context(), int64(n+1), order); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n < 4; n++ {
		if d := m.at[n].Sub(m.at[n-1]); d < 4500*time.Millisecond {
			t.Errorf("order %d came %v after the one before", n, d)
		}
	}
}

// After the quota of searches is used up, no process searches before its reset: at the time in
// the header, or else at midnight UTC.
func TestGovernorQuota(t *testing.T) {
	reset := start.Add(4 * time.Hour)
	for _, c := range []struct {
		header map[string]string
		until  time.Time
	}{
		{map[string]string{"X-RateLimit-Reset": fmt.Sprint(reset.Unix()), "Retry-After": "14400"}, reset},
		{nil, time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)},
		{map[string]string{"X-RateLimit-Reset": "17"}, time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)},
	} {
		clock := &times{now: start}
		over := false
		m := newMarket(t, clock, func(*http.Request, int) (int, map[string]string, string) {
			if over {
				return 200, nil, offersBody(1)
			}
			return 429, c.header, `{"success":false,"error":"search_quota_exceeded","msg":"Daily search quota exceeded"}`
		})
		dir := t.TempDir()
		for range 20 {
			_, err := m.governor(dir).Search(t.Context(), Search{Disk: 20}, true)
			if !errors.Is(err, ErrQuota) || !Until(err).Equal(c.until) {
				t.Fatalf("%v until %v, want %v", err, Until(err), c.until)
			}
		}
		if got := m.requests(); len(got) != 1 {
			t.Errorf("%d requests", len(got))
		}
		// Other classes are not affected.
		if _, err := m.governor(dir).List(t.Context(), start); errors.Is(err, ErrQuota) && Until(err).IsZero() {
			t.Error(err)
		}
		over = true
		_ = clock.Sleep(t.Context(), c.until.Sub(clock.Now())+time.Second)
		if found, err := m.governor(dir).Search(t.Context(), Search{Disk: 20}, true); err != nil || len(found.Offers) != 1 {
			t.Errorf("after the reset: %+v, %v", found, err)
		}
	}
}

// A Retry-After is respected; without one, the pauses grow.
func TestGovernorBusy(t *testing.T) {
	clock := &times{now: start}
	header := map[string]string{"Retry-After": "90"}
	m := newMarket(t, clock, func(*http.Request, int) (int, map[string]string, string) {
		return 429, header, "API requests too frequent"
	})
	dir := t.TempDir()
	ask := func() error { _, err := m.governor(dir).Account(t.Context(), clock.Now()); return err }
	if err := ask(); !errors.Is(err, ErrBusy) || Until(err).Before(start.Add(90*time.Second)) {
		t.Errorf("%v until %v", err, Until(err))
	}
	n := len(m.requests())
	if err := ask(); !errors.Is(err, ErrBusy) || len(m.requests()) != n || n != 1 {
		t.Errorf("%v, %d requests, then %d", err, n, len(m.requests()))
	}
	header = nil
	var pauses []time.Duration
	for range 7 {
		err := ask()
		if wait := Until(err).Sub(clock.Now()); wait > 0 {
			_ = clock.Sleep(t.Context(), wait)
		}
		before := clock.Now()
		_ = ask()
		pauses = append(pauses, Until(ask()).Sub(before))
	}
	if !slices.IsSorted(pauses) || pauses[0] < 10*time.Second || pauses[6] > 6*time.Minute {
		t.Errorf("pauses %v", pauses)
	}
}

// An invalid Retry-After neither causes immediate retries nor blocks requests for days.
func TestGovernorOddRetryAfter(t *testing.T) {
	for _, after := range []string{"0", "-7", "900000", "Mon, 01 Jan 2001 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT", "soon"} {
		clock := &times{now: start}
		m := newMarket(t, clock, func(*http.Request, int) (int, map[string]string, string) {
			return 429, map[string]string{"Retry-After": after}, "API requests too frequent"
		})
		dir := t.TempDir()
		ask := func() error { _, err := m.governor(dir).List(t.Context(), clock.Now()); return err }
		if err := ask(); !errors.Is(err, ErrBusy) {
			t.Errorf("%s: %v", after, err)
		}
		n := len(m.requests())
		if err := ask(); !errors.Is(err, ErrBusy) || len(m.requests()) != n || n > 4 {
			t.Errorf("%s: %v, %d requests, then %d", after, err, n, len(m.requests()))
		}
		_ = clock.Sleep(t.Context(), 11*time.Minute)
		if err := ask(); !errors.Is(err, ErrBusy) || len(m.requests()) == n {
			t.Errorf("%s: it is not asked again", after)
		}
	}
}

// A tool that is stopped (SIGSTOP) during a request does not block the others.
func TestGovernorSuspended(t *testing.T) {
	clock := &times{now: start}
	m := newMarket(t, clock, func(r *http.Request, _ int) (int, map[string]string, string) {
		if r.Method == http.MethodPost {
			return 200, nil, offersBody(1, 2)
		}
		return 200, nil, noInstances
	})
	g := m.governor(t.TempDir())
	g.Unit = time.Millisecond
	search := Search{Disk: 20}
	for _, file := range []string{"requests", "instances", g.searchFile(search)} {
		held, err := lock.Try(filepath.Join(g.Dir, file+".json.lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
	}
	if list, err := g.List(t.Context(), clock.Now()); err != nil || list.At.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	if found, err := g.Search(t.Context(), search, true); err != nil || len(found.Offers) != 2 {
		t.Errorf("%+v, %v", found, err)
	}
	g.Idle(t.Context(), search)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.List(ctx, clock.Now().Add(time.Hour)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The pauses between searches without a usable offer grow, however many tasks wait.
func TestGovernorIdle(t *testing.T) {
	clock := &times{now: start}
	m := newMarket(t, clock, func(*http.Request, int) (int, map[string]string, string) { return 200, nil, offersBody() })
	dir := t.TempDir()
	s := Search{Disk: 20}
	for range 360 { // an hour of passes
		for range 5 {
			g := m.governor(dir)
			if _, err := g.Search(t.Context(), s, true); err != nil {
				t.Fatal(err)
			}
			g.Idle(t.Context(), s)
		}
		_ = clock.Sleep(t.Context(), 10*time.Second)
	}
	if n := len(m.requests()); n < 10 || n > 25 {
		t.Errorf("%d searches in an hour of nothing", n)
	}
}

// Offers that were tried are not returned again; several tasks share one search.
func TestGovernorTried(t *testing.T) {
	clock := &times{now: start}
	m := newMarket(t, clock, func(r *http.Request, n int) (int, map[string]string, string) {
		if r.Method != http.MethodPut {
			return 200, nil, offersBody(1, 2, 3)
		}
		if strings.HasSuffix(r.URL.Path, "/2/") {
			return 403, nil, `{"success":false,"error":"invalid_args","msg":"error 403/3586: Offer 2 is not your own."}`
		}
		return 200, nil, fmt.Sprintf(`{"success":true,"new_contract":%d}`, n)
	})
	g := m.governor(t.TempDir())
	order := Order{Image: "x", Disk: 20, Label: "l"}
	var left []int
	for _, id := range []int64{1, 2} {
		if _, err := g.Create(t.Context(), id, order); id == 2 && !errors.Is(err, ErrRejected) || id == 1 && err != nil {
			t.Errorf("order of %d: %v", id, err)
		}
		found, err := g.Search(t.Context(), Search{Disk: 20}, true)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, len(found.Offers))
	}
	if !slices.Equal(left, []int{2, 1}) {
		t.Errorf("offers left: %v", left)
	}
}

// Waiting destroy requests are joined. If the market refuses several ids, instances are
// destroyed one by one, and one refusal does not block the others.
func TestGovernorDestroysTogether(t *testing.T) {
	for _, refusal := range []int{0, 400, 404} {
		bulk := refusal == 0
		clock := &times{now: start}
		var mu sync.Mutex
		gone := map[string]bool{}
		first := make(chan struct{})
		m := newMarket(t, clock, func(r *http.Request, n int) (int, map[string]string, string) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Path != "/api/v0/instances/" {
				gone[strings.Trim(strings.TrimPrefix(r.URL.Path, "/api/v0/instances/"), "/")] = true
				return 200, nil, `{"success":true}`
			}
			var in struct {
				IDs []int64 `json:"instance_ids"`
			}
			_ = json.NewDecoder(r.Body).Decode(&in)
			if !bulk {
				return refusal, nil, `{"error":"not_found","msg":"instances_not_found: invalid request"}`
			}
			for _, id := range in.IDs {
				gone[fmt.Sprint(id)] = true
			}
			return 200, nil, `{"success":true}`
		})
		g := m.governor(t.TempDir())
		g.Sleep = func(ctx context.Context, d time.Duration) error {
			<-first // the first request waits until all have joined
			return clock.Sleep(ctx, d)
		}
		var all sync.WaitGroup
		for id := range int64(12) {
			all.Go(func() {
				if err := g.Destroy(t.Context(), id+1); err != nil {
					t.Error(err)
				}
			})
		}
		for {
			g.mu.Lock()
			joined := g.batch != nil && len(g.batch.ids) == 12
			g.mu.Unlock()
			if joined {
				break
			}
			time.Sleep(time.Millisecond)
		}
		close(first)
		all.Wait()
		if n := len(m.requests()); len(gone) != 12 || bulk && n != 1 || !bulk && n != 13 {
			t.Errorf("bulk %v: %d gone by %d requests", bulk, len(gone), n)
		}
	}
}

// An instance that the market refuses to destroy does not block the others. A key without the
// permission is detected after a few refusals.
func TestGovernorDestroysTheOthers(t *testing.T) {
	for _, c := range []struct {
		refused func(id string) bool
		gone    int
		asked   int
	}{
		{func(id string) bool { return id == "1" }, 11, 13},
		{func(string) bool { return true }, 0, 1 + refusedInARow},
	} {
		clock := &times{now: start}
		gone := 0
		m := newMarket(t, clock, func(r *http.Request, _ int) (int, map[string]string, string) {
			if id := strings.Trim(strings.TrimPrefix(r.URL.Path, "/api/v0/instances/"), "/"); id == "" || c.refused(id) {
				return 401, nil, `{"success":false,"error":"auth_error","msg":"This key lacks the instance_write permission group"}`
			}
			gone++
			return 200, nil, `{"success":true}`
		})
		ids := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
		if err := m.governor(t.TempDir()).Destroy(t.Context(), ids...); !errors.Is(err, ErrAuth) {
			t.Error(err)
		}
		if n := len(m.requests()); gone != c.gone || n != c.asked {
			t.Errorf("%d gone by %d requests, want %+v", gone, n, c)
		}
	}
}

// If the directory cannot be written, as on a full disk, nothing is shared, but requests are
// still made, with the same distances.
func TestGovernorWithoutADirectory(t *testing.T) {
	clock := &times{now: start}
	m := newMarket(t, clock, func(r *http.Request, _ int) (int, map[string]string, string) {
		switch {
		case r.Method == http.MethodDelete:
			return 200, nil, `{"success":true}`
		case strings.HasPrefix(r.URL.Path, "/api/v0/bundles/"):
			return 200, nil, offersBody(1, 2)
		}
		return 200, nil, noInstances
	})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := m.governor(filepath.Join(file, "market"))
	began := clock.Now()
	for range 3 {
		if _, err := g.List(t.Context(), clock.Now()); err != nil {
			t.Error(err)
		}
		if err := g.Destroy(t.Context(), 7); err != nil {
			t.Error(err)
		}
		if found, err := g.Search(t.Context(), Search{}, true); err != nil || len(found.Offers) != 2 {
			t.Errorf("%+v, %v", found, err)
		}
		g.Idle(t.Context(), Search{})
	}
	if n, took := len(m.requests()), clock.Now().Sub(began); n != 9 || took < 12*time.Second {
		t.Errorf("%d requests in %v", n, took)
	}
}
