package vast

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/registry"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/vastai"
)

// clock stands still but when somebody sleeps.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *fakeClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(max(d, 0))
}

// rented is an instance of the fake market.
type rented struct {
	id      int64
	offer   int64
	label   string
	env     map[string]string
	fields  map[string]any // of its row
	log     string
	logErr  error
	logTime time.Duration
	created time.Time
	bid     float64
	price   float64 // 0: what was offered
	message string
}

// fake is a market in memory. Each request takes a tenth of a second, and the distances of
// the market's documents hold.
type fake struct {
	mu        sync.Mutex
	clock     *fakeClock
	credit    float64
	offers    []map[string]any
	instances []*rented
	next      int64
	odd       int      // rows that cannot be read at all
	oddLabels []string // of rows of which only that can be read
	asked     []string
	create    func(offer int64) error // nil: it is made
	account   error
	charged   []vastai.Charge
	noBill    error
	// chargedFrom is since when charges were asked for last.
	chargedFrom time.Time
	// chargesPage is how many charges a page has; 0: all.
	chargesPage int
	pace        func(ctx context.Context, op string) error
	stuck       map[int64]bool // instances that destroys do nothing to
	logs        int            // that are being read
	logsAtOnce  int            // the most of these
	most        int            // instances at once
}

func (f *fake) SetPace(pace func(ctx context.Context, op string) error) { f.pace = pace }

func (f *fake) ask(ctx context.Context, op string) error {
	if word, _, _ := strings.Cut(op, " "); word != "destroy" { // those have waited already
		if err := f.pace(ctx, op); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.asked = append(f.asked, op)
	f.mu.Unlock()
	f.clock.pass(100 * time.Millisecond)
	return ctx.Err()
}

func (f *fake) Name() string { return "fake" }
func (f *fake) Account(ctx context.Context) (vastai.Account, error) {
	if err := f.ask(ctx, "account"); err != nil {
		return vastai.Account{}, err
	}
	return vastai.Account{ID: 1, Credit: f.credit}, f.account
}

func (f *fake) Search(ctx context.Context, s vastai.Search) (vastai.Found, error) {
	if err := f.ask(ctx, "search"); err != nil {
		return vastai.Found{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	found := vastai.Found{Offers: []vastai.Offer{}}
	for _, row := range f.offers {
		row["is_bid"] = s.Bid
		if s.Bid {
			row["dph_total"] = row["min_bid"]
		} else {
			row["dph_total"] = row["dph_base"]
		}
		b, _ := json.Marshal(row)
		var o vastai.Offer
		if o.UnmarshalJSON(b) != nil {
			found.Odd++
			continue
		}
		found.Offers = append(found.Offers, o)
	}
	return found, nil
}

func (f *fake) Create(ctx context.Context, offer int64, o vastai.Order) (vastai.Created, error) {
	if err := f.ask(ctx, fmt.Sprintf("order %d", offer)); err != nil {
		return vastai.Created{}, err
	}
	if f.create != nil {
		if err := f.create(offer); err != nil {
			return vastai.Created{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.offers, func(row map[string]any) bool { return row["id"] == offer })
	if at < 0 {
		return vastai.Created{}, vastai.ErrOfferGone
	}
	row := f.offers[at]
	f.offers = slices.Delete(f.offers, at, at+1)
	f.next++
	i := &rented{id: f.next, offer: offer, label: o.Label, env: o.Env, created: f.clock.Now(), bid: o.Bid, fields: map[string]any{
		"machine_id": row["machine_id"], "disk_space": o.Disk, "num_gpus": row["num_gpus"], "gpu_ram": row["gpu_ram"], "gpu_name": row["gpu_name"],
		"actual_status": "running", "intended_status": "running",
	}}
	f.instances = append(f.instances, i)
	f.most = max(f.most, len(f.instances))
	return vastai.Created{ID: i.id}, nil
}

func (f *fake) List(ctx context.Context, label string) (vastai.Listing, error) {
	if err := f.ask(ctx, "list"); err != nil {
		return vastai.Listing{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := vastai.Listing{Odd: f.odd + len(f.oddLabels), OddLabels: slices.Clone(f.oddLabels), Instances: []vastai.Instance{}}
	for _, i := range f.instances {
		if label != "" && i.label != label {
			continue
		}
		text := func(name string) string { s, _ := i.fields[name].(string); return s }
		facts := map[string]any{}
		for k, v := range i.fields {
			if !strings.HasSuffix(k, "_status") {
				facts[k] = v
			}
		}
		machine, _ := i.fields["machine_id"].(int64)
		price := 0.5
		if i.bid > 0 {
			price = i.bid
		}
		if i.price > 0 {
			price = i.price
		}
		l.Instances = append(l.Instances, vastai.Instance{
			ID: i.id, Label: i.label, Machine: machine, Actual: text("actual_status"), Intended: text("intended_status"), Price: price, Started: i.created,
			Variables: i.env, Facts: facts, Bid: i.bid > 0, Message: i.message,
		})
	}
	return l, nil
}

func (f *fake) Destroy(ctx context.Context, ids ...int64) error {
	_ = f.ask(ctx, fmt.Sprintf("destroy %v", ids))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instances = slices.DeleteFunc(f.instances, func(i *rented) bool { return slices.Contains(ids, i.id) && !f.stuck[i.id] })
	return nil
}

func (f *fake) Log(ctx context.Context, id int64, _ int) ([]byte, error) {
	_ = f.ask(ctx, "log")
	f.mu.Lock()
	f.logs++
	f.logsAtOnce = max(f.logsAtOnce, f.logs)
	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.logs--; f.mu.Unlock() }()
	i := f.find(id)
	if i != nil && i.logTime > 0 {
		select {
		case <-ctx.Done():
			return nil, vastai.ErrNotReady
		case <-time.After(i.logTime):
		}
	}
	if i == nil {
		return nil, vastai.ErrNotReady
	}
	return []byte(i.log), i.logErr
}

func (f *fake) Charges(ctx context.Context, from, _ time.Time, after string) ([]vastai.Charge, string, error) {
	_ = f.ask(ctx, "charges")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noBill != nil {
		return nil, "", f.noBill
	}
	f.chargedFrom = from
	page, next := f.charged, ""
	if f.chargesPage > 0 {
		at, _ := strconv.Atoi(after)
		if page = page[at:]; len(page) > f.chargesPage {
			page, next = page[:f.chargesPage], strconv.Itoa(at+f.chargesPage)
		}
	}
	return slices.Clone(page), next, nil
}

func (f *fake) Calls() int64 { f.mu.Lock(); defer f.mu.Unlock(); return int64(len(f.asked)) }

func (f *fake) find(id int64) *rented {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.instances {
		if i.id == id {
			return i
		}
	}
	return nil
}

// count is how many requests began so, and forgets all.
func (f *fake) count() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for _, op := range f.asked {
		word, _, _ := strings.Cut(op, " ")
		out[word]++
		out["all"]++
	}
	f.asked = nil
	return out
}

// stand is a runner on a fake market.
type stand struct {
	*testing.T
	*Runner
	market *fake
	clock  *fakeClock
	refs   []runner.Ref
	said   *strings.Builder
}

func newStand(t *testing.T, offers int) *stand {
	t.Helper()
	c := &fakeClock{now: time.Date(2026, 3, 1, 15, 0, 0, 0, time.UTC)}
	f := &fake{clock: c, credit: 50, next: 7000000, stuck: map[int64]bool{}}
	s := &stand{T: t, market: f, clock: c, said: &strings.Builder{}}
	dir := t.TempDir()
	s.Runner = &Runner{
		Dir: filepath.Join(dir, "vast"), Agent: "unit", Disk: 20, Estimate: vastai.Estimate{Hours: 1},
		Limits: Limits{PricePerHour: 2, CostPerTask: 20, Instances: 100, CreatesPerHour: 500, CreditFloor: 1, Boot: 20 * time.Minute, Runtime: 24 * time.Hour},
		Avoid:  6 * time.Hour, Settle: time.Minute, LogInterval: 30 * time.Second, StopWait: 30 * time.Second, Now: c.Now,
		Log: slog.New(slog.NewTextHandler(s.said, nil)),
	}
	s.API = vastai.NewGovernor(f, filepath.Join(dir, "market"), 5*time.Second, c.Now)
	s.API.Keep = Kept()
	s.API.Sleep = func(ctx context.Context, d time.Duration) error {
		if d > 10*time.Second { // the bounds of a turn, which goes by the real clock here
			<-ctx.Done()
			return ctx.Err()
		}
		c.pass(d)
		return ctx.Err()
	}
	for n := range offers {
		s.offer(int64(n+1), nil)
	}
	return s
}

func (s *stand) offer(id int64, change map[string]any) {
	row := map[string]any{
		"id": id, "machine_id": id, "num_gpus": 1.0, "gpu_name": "RTX 4090", "gpu_ram": 24564.0, "dph_base": 0.3 + float64(id)/1000, "min_bid": 0.1 + float64(id)/1000,
		"disk_space": 500.0, "verification": "verified", "reliability": 0.99,
	}
	for k, v := range change {
		row[k] = v
	}
	s.market.mu.Lock()
	defer s.market.mu.Unlock()
	s.market.offers = append(s.market.offers, row)
}

// submission is a task as the agent hands it over.
func (s *stand) submission(n int) runner.Submission {
	s.Helper()
	id := task.ID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n))
	dir := filepath.Join(filepath.Dir(s.Dir), "tasks", string(id))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, runner.EnvFile), []byte("A=b\x00"), 0o600),
		os.WriteFile(filepath.Join(dir, runner.CommandFile), []byte("true\x00"), 0o600)); err != nil {
		s.Fatal(err)
	}
	return runner.Submission{Task: id, Label: fmt.Sprintf("task-%d", n), Dir: dir, Image: "img", Attempt: 1}
}

// begin starts a task that has to be started, and returns its instance.
func (s *stand) begin(n int) *rented {
	s.Helper()
	sub := s.submission(n)
	job, err := s.Start(s.Context(), sub)
	if err != nil {
		s.Fatal(err)
	}
	s.refs = append(s.refs, runner.Ref{Task: sub.Task, Job: job.ID, Dir: sub.Dir})
	s.market.mu.Lock()
	defer s.market.mu.Unlock()
	return s.market.instances[len(s.market.instances)-1]
}

// turn is a look at all jobs, a minute after the one before.
func (s *stand) turn() map[task.ID]runner.Job {
	s.Helper()
	s.clock.pass(time.Minute)
	jobs, err := s.Jobs(s.Context(), func() ([]runner.Ref, error) { return s.refs, nil })
	if err != nil {
		s.Fatal(err)
	}
	out := map[task.ID]runner.Job{}
	for _, j := range jobs {
		out[j.Task] = j
	}
	return out
}

func (s *stand) job(n int) task.ID { return s.submission(n).Task }

func (s *stand) events(event string) []Entry {
	s.Helper()
	b, err := os.ReadFile(filepath.Join(s.Dir, journalFile))
	if err != nil {
		s.Fatal(err)
	}
	var out []Entry
	for line := range strings.Lines(string(b)) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.Fatal(err)
		}
		if e.Event == event {
			out = append(out, e)
		}
	}
	return out
}

func (s *stand) output(n int) string {
	b, _ := os.ReadFile(filepath.Join(s.submission(n).Dir, runner.Output))
	return string(b)
}

// ended makes an instance's task end with a code: by the log, and stopped by itself.
func ended(i *rented, code int) {
	i.log += fmt.Sprintf("\nPONOS-EXIT %s %d\n", i.env[nonceEnv], code)
	i.fields["actual_status"], i.fields["intended_status"] = "exited", "stopped"
}

// Thirty tasks wait for a machine, and there is none: three requests a pass at most, and
// fewer passes with a search the longer that is so.
func TestWaitingTasks(t *testing.T) {
	s := newStand(t, 0)
	pass := func() map[string]int {
		s.clock.pass(10 * time.Second)
		if _, err := s.Jobs(t.Context(), func() ([]runner.Ref, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		for n := range 30 {
			if _, err := s.Start(t.Context(), s.submission(n)); !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), "no suitable offer") {
				t.Fatal(err)
			}
		}
		return s.market.count()
	}
	searches := 0
	for n := range 60 {
		c := pass()
		if c["all"] > 3 {
			t.Errorf("pass %d: %v", n, c)
		}
		searches += c["search"]
	}
	if searches > 8 || searches < 3 {
		t.Errorf("%d searches in ten minutes of nothing", searches)
	}
	// There is one at last.
	s.offer(1, nil)
	for range 40 {
		s.clock.pass(10 * time.Second)
		if _, err := s.Start(t.Context(), s.submission(3)); err == nil {
			return
		}
	}
	t.Error("the offer was not found")
}

// Limits are looked at before anything is asked.
func TestLimitsFirst(t *testing.T) {
	s := newStand(t, 3)
	s.Limits.Instances = 1
	s.begin(1)
	s.market.count()
	s.clock.pass(time.Hour)
	for n := range 20 {
		if _, err := s.Start(t.Context(), s.submission(n+2)); !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), "max_instances") {
			t.Fatal(err)
		}
	}
	if c := s.market.count(); c["all"] != 0 {
		t.Errorf("%v", c)
	}
}

// A log that cannot be read is the affair of its instance, whatever the market says of it.
func TestOneLogRefused(t *testing.T) {
	s := newStand(t, 3)
	sick := s.begin(1)
	sick.logErr = fault.Wrap(fault.Unavailable, fmt.Errorf("log: %w: status 403: not_authorized", vastai.ErrAuth))
	ended(s.begin(2), 0)
	ended(s.begin(3), 4)
	jobs := s.turn()
	if jobs[s.job(1)].State != task.Running || jobs[s.job(2)].State != task.Completed || jobs[s.job(3)].State != task.Failed || jobs[s.job(3)].ExitCode != 4 {
		t.Errorf("%+v", jobs)
	}
	s.turn()
	if len(s.market.instances) != 1 || s.market.instances[0] != sick {
		t.Errorf("left are %+v", s.market.instances)
	}
}

// An order that cannot be read, or a directory that is gone, keeps nobody else.
func TestOneOrderBroken(t *testing.T) {
	s := newStand(t, 3)
	s.begin(1)
	ended(s.begin(2), 0)
	broken := s.orderPath(ordersDir, string(s.job(1))+".1")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		jobs := s.turn()
		if j := jobs[s.job(1)]; !j.Unknown || j.Lost || j.State.Final() {
			t.Errorf("%+v", j)
		}
		if j := jobs[s.job(2)]; j.State != task.Completed {
			t.Errorf("%+v", j)
		}
	}
	if !strings.Contains(s.said.String(), "an order cannot be read") {
		t.Error(s.said)
	}
	if len(s.market.instances) != 1 {
		t.Errorf("%+v", s.market.instances)
	}
}

// What the market says of one offer is that offer's: the next one is tried.
func TestOneOfferRejected(t *testing.T) {
	s := newStand(t, 40)
	s.market.create = func(offer int64) error {
		if offer == 1 {
			return vastai.ErrRejected
		}
		return nil
	}
	if i := s.begin(1); i.offer != 2 {
		t.Errorf("offer %d", i.offer)
	}
	if i := s.begin(2); i.offer != 3 {
		t.Errorf("offer %d", i.offer)
	}
	if c := s.market.count(); c["order"] != 3 || c["search"] != 1 {
		t.Errorf("%v", c)
	}
	if e := s.events("rejected"); len(e) != 1 || e[0].Reason == "" {
		t.Errorf("%+v", e)
	}
}

// After five in a row the order is held, with pauses that grow; others go on.
func TestOrderHeld(t *testing.T) {
	s := newStand(t, 40)
	bad := true
	s.market.create = func(int64) error {
		if bad {
			return vastai.ErrRejected
		}
		return nil
	}
	sub := s.submission(1)
	_, err := s.Start(t.Context(), sub)
	if !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), "held for 5m0s: the market has rejected it with 5 offers in a row") || fault.HintOf(err) == "" {
		t.Fatal(err)
	}
	if c := s.market.count(); c["order"] != 5 {
		t.Errorf("%v", c)
	}
	for range 4 {
		s.clock.pass(time.Minute)
		if _, err := s.Start(t.Context(), sub); !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), "held") {
			t.Error(err)
		}
	}
	if c := s.market.count(); c["all"] != 0 {
		t.Errorf("%v", c)
	}
	bad = false
	s.begin(2)
	bad = true
	s.clock.pass(2 * time.Minute)
	if _, err := s.Start(t.Context(), sub); err == nil || !strings.Contains(err.Error(), "held for 10m0s") {
		t.Error(err)
	}
	bad = false
	s.clock.pass(11 * time.Minute)
	if _, err := s.Start(t.Context(), sub); err != nil {
		t.Error(err)
	}
}

// Only the account says that the key is lost.
func TestKeyLost(t *testing.T) {
	s := newStand(t, 5)
	s.market.create = func(int64) error { return vastai.ErrRejected }
	s.market.account = nil
	ok := s.market.create
	s.market.create = func(offer int64) error { s.market.account = vastai.ErrAuth; return ok(offer) }
	if _, err := s.Start(t.Context(), s.submission(1)); !errors.Is(err, vastai.ErrAuth) || errors.Is(err, runner.ErrLater) {
		t.Error(err)
	}
	if c := s.market.count(); c["order"] != 1 {
		t.Errorf("%v", c)
	}
}

// A machine that is not what was asked for is destroyed and avoided, and its cost is told.
func TestWrongMachine(t *testing.T) {
	s := newStand(t, 2)
	i := s.begin(1)
	i.fields["disk_space"], i.fields["actual_status"] = 8.5, "loading"
	jobs := s.turn()
	if j := jobs[s.job(1)]; j.State.Final() {
		t.Errorf("%+v", j)
	}
	if e := s.events("fault"); len(e) != 1 || !strings.Contains(e[0].Reason, `does not meet "disk 20", and has cost $0.0`) || e[0].Cost <= 0 || e[0].Machine != 1 {
		t.Errorf("%+v", e)
	}
	s.turn()
	if len(s.market.instances) != 1 || s.market.instances[0].offer != 2 {
		t.Errorf("%+v", s.market.instances)
	}
	if avoided, err := s.Avoided(); err != nil || avoided[1].IsZero() {
		t.Errorf("%v %v", avoided, err)
	}
}

// One that is dearer than its offer has said is given back as well.
func TestDearerThanOffered(t *testing.T) {
	s := newStand(t, 2)
	s.begin(1).price = 9
	s.turn()
	if e := s.events("fault"); len(e) != 1 || !strings.Contains(e[0].Reason, "the instance costs $9.0000 an hour, more than max_price_per_hour, and has cost $0.1") || e[0].Machine != 1 {
		t.Errorf("%+v", e)
	}
	s.turn()
	if len(s.market.instances) != 1 || s.market.instances[0].offer != 2 {
		t.Errorf("%+v", s.market.instances)
	}
}

// An image without a shell is not tried on four machines, which would be avoided for it.
func TestImageWithoutAShell(t *testing.T) {
	s := newStand(t, 9)
	i := s.begin(1)
	i.fields["actual_status"] = "created"
	i.message = `Error response from daemon: OCI runtime create failed: runc create failed: unable to start container process: exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown`
	if j := s.turn()[s.job(1)]; j.State != task.Error || !strings.Contains(j.Reason, "the image has no /bin/sh") {
		t.Errorf("%+v", j)
	}
	s.turn()
	if avoided, err := s.Avoided(); err != nil || len(avoided) > 0 || len(s.market.instances) > 0 {
		t.Errorf("%v %v, left are %+v", avoided, err, s.market.instances)
	}
}

// A variable that is longer than documented may be why orders are rejected.
func TestLongVariable(t *testing.T) {
	s := newStand(t, 9)
	s.market.create = func(int64) error { return vastai.ErrRejected }
	sub := s.submission(1)
	if err := os.WriteFile(filepath.Join(sub.Dir, runner.EnvFile), []byte("A=b\x00LONG="+strings.Repeat("x", 300)+"\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.Start(t.Context(), sub)
	if hint := fault.HintOf(err); !strings.HasPrefix(hint, "the variable LONG has 300 bytes, and Vast.ai documents a limit of 256 for each; else check image") {
		t.Errorf("%v, hint %q", err, hint)
	}
}

// A key that may not order is found out with one offer, and the order is held.
func TestKeyMayNotOrder(t *testing.T) {
	s := newStand(t, 9)
	s.market.create = func(int64) error { return lacking(t) }
	_, err := s.Start(t.Context(), s.submission(1))
	if !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), "held for 5m0s: the key may not order instances: ") || !strings.HasPrefix(fault.HintOf(err), "give the key the permission instance_write;") {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
	if c := s.market.count(); c["order"] != 1 {
		t.Errorf("%v", c)
	}
	s.market.create = nil
	s.clock.pass(6 * time.Minute)
	if i := s.begin(1); i.offer != 1 {
		t.Errorf("the offer was avoided, and %d taken", i.offer)
	}
}

// lacking is what the API says where a key lacks a permission.
func lacking(t *testing.T) error {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"success":false,"error":"auth_error","msg":"This key lacks the instance_write permission group"}`)
	}))
	defer web.Close()
	_, err := vastai.NewREST(web.URL, "key").Create(t.Context(), 1, vastai.Order{Image: "i", Entrypoint: "sh", Disk: 10})
	return err
}

// A row that does not tell everything at first is looked at again until it does.
func TestWrongMachineSeenLater(t *testing.T) {
	s := newStand(t, 2)
	i := s.begin(1)
	i.fields["actual_status"] = "loading"
	delete(i.fields, "disk_space")
	s.turn()
	i.fields["disk_space"] = 8.5
	s.turn()
	if e := s.events("fault"); len(e) != 1 || !strings.Contains(e[0].Reason, `does not meet "disk 20"`) {
		t.Errorf("%+v", e)
	}
}

// Tools that a user has suspended hold up nothing for ever: a task waits, and a machine at
// fault goes all the same.
func TestSuspendedTools(t *testing.T) {
	defer func(d time.Duration) { lockTime = d }(lockTime)
	lockTime = 10 * time.Millisecond
	s := newStand(t, 2)
	i := s.begin(1)
	i.fields["disk_space"], i.fields["actual_status"] = 8.5, "loading"
	for _, name := range []string{"create", "images.json", "once.json"} {
		held, err := lock.Try(filepath.Join(s.Dir, name+".lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
	}
	for range 3 {
		s.turn()
	}
	if len(s.market.instances) != 0 {
		t.Errorf("%+v", s.market.instances)
	}
	s.Images = func(context.Context, string, registry.Contents) (registry.Image, error) { return registry.Image{}, nil }
	if _, _, err := s.Place(t.Context(), task.Task{ID: s.job(1), Image: "img", Command: []string{"true"}}); !errors.Is(err, runner.ErrLater) {
		t.Error(err)
	}
}

// Offers with too little disk are not taken, whatever the market returns.
func TestDiskIsAsked(t *testing.T) {
	s := newStand(t, 0)
	s.offer(1, map[string]any{"disk_space": 8.5, "dph_base": 0.1})
	s.offer(2, nil)
	if i := s.begin(1); i.offer != 2 {
		t.Errorf("offer %d", i.offer)
	}
}

// A row of somebody else that stays unreadable holds up nothing: neither ends, nor orders, nor
// that a lost host is seen.
func TestOddRowOfAnother(t *testing.T) {
	for _, odd := range []string{"", "no label", "ponos:other:00000000-0000-4000-8000-000000000001:1"} {
		s := newStand(t, 9)
		s.Limits.Instances = 1
		old := s.clock.now.AddDate(-10, 0, 0) // also where the clock of tests is moved
		path := filepath.Join(s.Dir, markFile)
		if err := errors.Join(s.prepare(), os.WriteFile(path, []byte("0123abcd\n"), 0o600), os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
		if s.market.odd = 1; odd != "" {
			s.market.odd, s.market.oddLabels = 0, []string{odd}
		}
		ended(s.begin(1), 0)
		for range 4 {
			s.turn()
		}
		s.begin(2)
		s.turn()
		s.market.mu.Lock()
		s.market.instances = nil
		s.market.mu.Unlock()
		for range 4 {
			s.turn()
		}
		if j := s.turn()[s.job(2)]; j.State != task.Error || !strings.Contains(j.Reason, "has disappeared") {
			t.Errorf("%q: %+v", odd, j)
		}
		s.begin(3)
	}
}

// A row that may be a task's instance keeps that task waiting, and no other.
func TestOddRowOfATask(t *testing.T) {
	s := newStand(t, 9)
	s.begin(1)
	s.turn()
	s.market.mu.Lock()
	s.market.instances, s.market.oddLabels = nil, []string{s.label(s.job(1), 1, 1) + ":end=0"}
	s.market.mu.Unlock()
	for range 5 {
		if j := s.turn()[s.job(1)]; j.State.Final() || j.Lost {
			t.Fatalf("%+v", j)
		}
	}
	s.begin(2)
	s.market.mu.Lock()
	s.market.oddLabels = []string{s.label(s.job(3), 1, 1)}
	s.market.mu.Unlock()
	s.clock.pass(time.Minute)
	if _, err := s.Start(t.Context(), s.submission(3)); !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), "one may be the instance of this task") {
		t.Error(err)
	}
	s.begin(4)
}

// While the journal cannot be written, nothing is ordered, and nothing is called over; what
// has happened meanwhile is found when it can.
func TestJournalCannotBeWritten(t *testing.T) {
	s := newStand(t, 5)
	ended(s.begin(1), 3)
	journal := filepath.Join(s.Dir, journalFile)
	if err := errors.Join(os.Rename(journal, journal+".kept"), os.Mkdir(journal, 0o700)); err != nil {
		t.Fatal(err)
	}
	s.market.count()
	for range 3 {
		if _, err := s.Start(t.Context(), s.submission(2)); err == nil {
			t.Error("it was started")
		}
		if j := s.turn()[s.job(1)]; j.State.Final() || !j.Unknown {
			t.Errorf("%+v", j)
		}
	}
	if c := s.market.count(); c["order"] != 0 || len(s.market.instances) != 1 {
		t.Errorf("%v, %d instances", c, len(s.market.instances))
	}
	if err := errors.Join(os.Remove(journal), os.Rename(journal+".kept", journal)); err != nil {
		t.Fatal(err)
	}
	if j := s.turn()[s.job(1)]; j.State != task.Failed || j.ExitCode != 3 {
		t.Errorf("%+v", j)
	}
	for range 5 {
		s.clock.pass(time.Minute)
		if _, err := s.Start(t.Context(), s.submission(2)); err == nil {
			break
		}
	}
	s.turn()
	if len(s.market.instances) != 1 || s.market.most != 1 || !strings.Contains(s.market.instances[0].label, string(s.job(2))) {
		t.Errorf("%d at once, left are %+v", s.market.most, s.market.instances)
	}
	if n := len(s.events("ended")); n != 1 {
		t.Errorf("%d ends in the journal", n)
	}
}

// A mark that a full disk has left empty is given anew.
func TestEmptyMark(t *testing.T) {
	s := newStand(t, 1)
	if err := errors.Join(s.prepare(), os.WriteFile(filepath.Join(s.Dir, markFile), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	first, err := s.mark()
	second, again := s.mark()
	if errors.Join(err, again) != nil || len(first) != 8 || first != second {
		t.Errorf("%q %q %v %v", first, second, err, again)
	}
	if files, _ := filepath.Glob(filepath.Join(s.Dir, markFile+"*")); len(files) != 1 {
		t.Error(files)
	}
}

// What machines are avoided is a courtesy: a file that cannot be read stops no order.
func TestMarketFileBroken(t *testing.T) {
	s := newStand(t, 1)
	if err := errors.Join(s.prepare(), os.WriteFile(filepath.Join(s.Dir, "market.json"), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.begin(1)
	if !strings.Contains(s.said.String(), "market.json cannot be read, and is replaced") {
		t.Error(s.said)
	}
}

// What the market was asked to destroy is called destroyed when lists do not show it.
func TestReapListsAgain(t *testing.T) {
	s := newStand(t, 3)
	good, deaf := s.begin(1), s.begin(2)
	s.market.stuck[deaf.id] = true
	s.clock.pass(time.Hour)
	list, err := s.Account(t.Context(), 0)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	failed := s.Reap(t.Context(), list)
	if err := failed[deaf.id]; len(failed) != 1 || failed[good.id] != nil || !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "still lists it after 30s") {
		t.Errorf("%v", failed)
	}
	s.market.stuck = nil
	if list, err = s.Account(t.Context(), 0); err != nil || len(list) != 1 || len(s.Reap(t.Context(), list)) != 0 || len(s.market.instances) != 0 {
		t.Errorf("%v %v, left are %+v", list, err, s.market.instances)
	}
}

// Nothing follows from what a list does not show, if it has rows that cannot be read.
func TestPartialList(t *testing.T) {
	s := newStand(t, 1)
	i := s.begin(1)
	s.turn()
	s.market.mu.Lock()
	s.market.instances, s.market.odd = nil, 1
	s.market.mu.Unlock()
	for range 10 {
		if j := s.turn()[s.job(1)]; j.State.Final() || j.Lost {
			t.Fatalf("%+v", j)
		}
	}
	if n := strings.Count(s.said.String(), "some rows of the list of instances cannot be read"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if _, err := s.Start(t.Context(), s.submission(2)); !errors.Is(err, runner.ErrLater) {
		t.Errorf("an order beside a row that may be that of the task: %v", err)
	}
	s.market.mu.Lock()
	s.market.instances, s.market.odd = []*rented{i}, 0
	s.market.mu.Unlock()
	if j := s.turn()[s.job(1)]; j.State != task.Running {
		t.Errorf("%+v", j)
	}
}

// The same list, looked at twice, is one look.
func TestListReadTwice(t *testing.T) {
	s := newStand(t, 1)
	s.begin(1)
	s.turn()
	s.market.mu.Lock()
	s.market.instances = nil
	s.market.mu.Unlock()
	s.turn()
	for range 5 {
		jobs, err := s.Jobs(t.Context(), func() ([]runner.Ref, error) { return s.refs, nil })
		if err != nil || jobs[0].State.Final() {
			t.Fatalf("%+v, %v", jobs, err)
		}
	}
	s.turn()
	if j := s.turn()[s.job(1)]; j.State != task.Error {
		t.Errorf("%+v", j)
	}
}

// An instance that came and went while the agent was away may have run the task: it is not
// started again without the user's leave.
func TestGoneUnseen(t *testing.T) {
	for retries := range 2 {
		s := newStand(t, 5)
		s.Retries = retries
		s.begin(1)
		s.clock.pass(time.Hour)
		s.market.mu.Lock()
		s.market.instances = nil
		s.market.mu.Unlock()
		job := runner.Job{}
		for range 6 {
			job = s.turn()[s.job(1)]
		}
		if again := len(s.market.instances) == 1; again != (retries > 0) || again == (job.State == task.Error) {
			t.Errorf("retries %d: %+v", retries, job)
		}
		if retries == 0 && !strings.Contains(job.Reason, "whether the task has run is not known") {
			t.Error(job.Reason)
		}
	}
}

// A host that goes offline before its task was seen running may run it all the same.
func TestOfflineUnseen(t *testing.T) {
	s := newStand(t, 5)
	s.begin(1).fields["actual_status"] = "offline"
	job := runner.Job{}
	for range 8 {
		job = s.turn()[s.job(1)]
	}
	if job.State != task.Error || !strings.Contains(job.Reason, "it is offline since before the task was seen running") || s.market.next != 7000001 {
		t.Errorf("%+v, %d instances", job, s.market.next-7000000)
	}
}

// An order that has no instance yet ends with its task: nothing is kept if nothing came of
// it, and what came of it although the answer was lost is destroyed.
func TestOrderOfNothing(t *testing.T) {
	for name, c := range map[string]struct{ gone, lost bool }{"no offer": {gone: true}, "lost, not made": {}, "lost, made": {lost: true}} {
		s := newStand(t, 1)
		s.market.create = func(int64) error {
			if c.gone {
				return vastai.ErrOfferGone
			}
			return vastai.ErrUnknown
		}
		sub := s.submission(1)
		if _, err := s.Start(t.Context(), sub); !errors.Is(err, runner.ErrLater) {
			t.Fatal(err)
		}
		s.turn()
		if left, err := s.orders(); err != nil || len(left) != 1 {
			t.Fatal(left, err)
		}
		done := filepath.Join(filepath.Dir(s.Dir), "done")
		if err := errors.Join(os.Mkdir(done, 0o700), os.Rename(sub.Dir, filepath.Join(done, filepath.Base(sub.Dir)))); err != nil {
			t.Fatal(err)
		}
		if c.lost {
			s.market.create = nil
			o, err := s.read(ordersDir, string(sub.Task)+".1")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.market.Create(t.Context(), o.Offer, vastai.Order{Label: s.label(sub.Task, 1, 1), Env: map[string]string{nonceEnv: o.Nonce}}); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			if jobs := s.turn(); len(jobs) != 0 {
				t.Errorf("%s: %+v", name, jobs)
			}
		}
		if left, err := s.orders(); err != nil || len(left) != 0 || len(s.market.instances) != 0 {
			t.Errorf("%s: %v, %v, %v", name, left, s.market.instances, err)
		}
	}
}

// Logs that take longer than a turn has for them are read all the same, and one that never
// comes does not hold its task: the label tells the end.
func TestSlowLogs(t *testing.T) {
	s := newStand(t, 20)
	s.LogTime = time.Second
	wait := s.API.Sleep
	s.API.Sleep = func(ctx context.Context, d time.Duration) error {
		if d > 10*time.Second {
			return nil // the time of a turn is over at once
		}
		return wait(ctx, d)
	}
	var all []*rented
	for n := range 9 {
		all = append(all, s.begin(n))
	}
	s.turn()
	for n, i := range all {
		ended(i, n)
		i.logTime = 20 * time.Millisecond
	}
	all[0].logTime = time.Hour
	all[0].label += ":end=0"
	over := map[task.ID]runner.Job{}
	for range 400 { // each has LogTime for what is there, however slow the machine is
		if len(over) == len(all) {
			break
		}
		for id, j := range s.turn() {
			if j.State == task.Completed || j.State == task.Failed || j.State == task.Error {
				over[id] = j
			}
		}
	}
	for n := range all {
		if j := over[s.job(n)]; j.ExitCode != n || j.State == task.Error || j.State == "" {
			t.Errorf("task %d: %+v", n, j)
		}
		if has := strings.Contains(s.output(n), "the end of the log could not be read"); has != (n == 0) {
			t.Errorf("output of %d: %s", n, s.output(n))
		}
	}
}

// Twelve ends at once: their logs are read side by side, their instances destroyed by few
// requests, and the turn is not held up.
func TestManyEnds(t *testing.T) {
	s := newStand(t, 12)
	for n := range 12 {
		ended(s.begin(n), 0)
	}
	s.market.count()
	s.clock.pass(time.Minute)
	began := s.clock.Now()
	jobs, err := s.Jobs(t.Context(), func() ([]runner.Ref, error) { return s.refs, nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if j.State != task.Completed {
			t.Errorf("%+v", j)
		}
	}
	took, c := s.clock.Now().Sub(began), s.market.count()
	if took > 15*time.Second || c["destroy"] != 1 || c["all"] > 15 {
		t.Errorf("%v for %v", took, c)
	}
	t.Logf("12 ends: %v of the market's clock, %v", took, c)
	if e := s.events("destroy"); len(e) != 12 {
		t.Errorf("%d destroys in the journal", len(e))
	}
	s.turn()
	s.turn()
	if left, err := s.orders(); err != nil || len(left) != 0 || len(s.market.instances) != 0 {
		t.Errorf("%v %v %v", left, s.market.instances, err)
	}
}

// Whoever is outbid is started again, counted, on another machine, and never on two; what
// was printed before is kept.
func TestOutbid(t *testing.T) {
	s := newStand(t, 9)
	s.Spot, s.Retries = true, 2
	i := s.begin(1)
	if i.bid != 0.1112 {
		t.Errorf("bid %v", i.bid)
	}
	i.log = "first\n"
	s.turn()
	for loss := 1; loss <= 3; loss++ {
		i.fields["actual_status"], i.fields["intended_status"] = "exited", "stopped"
		s.market.stuck[i.id] = true
		for range 6 { // it is still there, so nothing is ordered
			s.turn()
		}
		if len(s.market.instances) != 1 {
			t.Fatalf("loss %d: %d instances", loss, len(s.market.instances))
		}
		if loss == 3 {
			break
		}
		delete(s.market.stuck, i.id)
		for range 6 {
			s.turn()
		}
		if len(s.market.instances) != 1 || s.market.instances[0] == i {
			t.Fatalf("loss %d: %+v", loss, s.market.instances)
		}
		i = s.market.instances[0]
		i.log = fmt.Sprintf("again %d\n", loss)
		if j := s.turn()[s.job(1)]; j.State != task.Running || j.Restarts != loss {
			t.Errorf("loss %d: %+v", loss, j)
		}
	}
	j := s.turn()[s.job(1)]
	if j.State != task.Error || !strings.Contains(j.Reason, "it was outbid; the task was started again 2 of 2 times that retries_on_loss allows") {
		t.Errorf("%+v", j)
	}
	if s.market.most != 1 || len(s.events("lost")) != 2 {
		t.Errorf("%d at once, %+v", s.market.most, s.events("lost"))
	}
	if out := s.output(1); !strings.Contains(out, "first\n[the instance was stopped: it was outbid; the task is started again (1 of 2)]\nagain 1\n") || strings.Contains(out, "missing") {
		t.Errorf("%s", out)
	}
}

// The log of a machine that was taken away may not be there any more.
func TestOutbidWithoutALog(t *testing.T) {
	s := newStand(t, 3)
	s.Spot, s.Retries = true, 1
	i := s.begin(1)
	i.log = "first\n"
	s.turn()
	i.fields["actual_status"], i.fields["intended_status"], i.logErr = "exited", "stopped", vastai.ErrNotReady
	for range 8 {
		s.turn()
	}
	if j := s.turn()[s.job(1)]; j.State.Final() || len(s.events("lost")) != 1 || len(s.market.instances) != 1 || s.market.instances[0] == i || s.market.most != 1 {
		t.Errorf("%+v, %+v", j, s.events("lost"))
	}
	if out := s.output(1); !strings.Contains(out, "first\n[the end of the log could not be read: ") {
		t.Errorf("%s", out)
	}
}

// A task that was through when its machine was taken away is not started again.
func TestOutbidAfterTheEnd(t *testing.T) {
	s := newStand(t, 3)
	s.Bid, s.Retries = 0.2, 5
	ended(s.begin(1), 0)
	for range 4 {
		if j := s.turn()[s.job(1)]; j.State != task.Completed {
			t.Errorf("%+v", j)
		}
	}
	if len(s.events("created")) != 1 {
		t.Error(s.events("created"))
	}
}

// The cheaper kind of machine is taken; a bid below those of others finds none.
func TestRankOverBothKinds(t *testing.T) {
	for _, c := range []struct {
		bid  float64
		spot bool
		base float64
		want float64 // bid
	}{{0.2, false, 0.3, 0.2}, {0.2, false, 0.15, 0}, {0, true, 0.3, 0.1112}, {0.05, false, 0.3, 0}, {0, false, 0.3, 0}} {
		s := newStand(t, 0)
		s.Bid, s.Spot = c.bid, c.spot
		s.offer(1, map[string]any{"dph_base": c.base})
		if i := s.begin(1); i.bid != c.want {
			t.Errorf("%+v: bid %v", c, i.bid)
		}
	}
}

// A host that is offline for long has lost the task.
func TestHostLost(t *testing.T) {
	for retries, want := range []task.State{task.Error, task.Pending} {
		s := newStand(t, 2)
		s.Retries = retries
		i := s.begin(1)
		s.turn()
		i.fields["actual_status"] = "offline"
		for range 7 {
			s.turn()
		}
		j := s.turn()[s.job(1)]
		if want == task.Pending {
			s.turn()
			j = s.turn()[s.job(1)]
			want = task.Running
		}
		if j.State != want || s.market.most != 1 {
			t.Errorf("retries %d: %+v, %d at once", retries, j, s.market.most)
		}
	}
}

// Once the market has billed, its bill counts: beside the estimate in the journal, and
// against the limit of a task.
func TestBill(t *testing.T) {
	s := newStand(t, 3)
	s.BillInterval, s.Limits.CostPerTask = time.Hour, 2
	done, dear := s.begin(1), s.begin(2)
	ended(done, 0)
	for range 4 {
		s.turn()
	}
	if e := s.events("billed"); len(e) != 0 {
		t.Errorf("%+v", e)
	}
	now := s.clock.Now()
	s.market.mu.Lock()
	s.market.charged = []vastai.Charge{{Instance: done.id, Amount: 0.0125, Until: now}, {Instance: done.id, Amount: 0.01, Until: now}, {Instance: dear.id, Amount: 3, Until: now}, {}, {}}
	s.market.mu.Unlock()
	s.clock.pass(2 * time.Hour)
	s.turn()
	e := s.events("billed")
	if len(e) != 1 || e[0].Task != s.job(1) || e[0].Billed == nil || *e[0].Billed != 0.0225 || e[0].Cost <= 0 {
		t.Errorf("%+v", e)
	}
	if j := s.turn()[s.job(2)]; j.State != task.Error || !strings.Contains(j.Reason, "more than max_cost_per_task") || j.Cost < 3 {
		t.Errorf("%+v", j)
	}
	// This bill was there before the end.
	if e := s.events("billed"); len(e) != 2 || e[1].Task != s.job(2) || *e[1].Billed != 3 {
		t.Errorf("%+v", e)
	}
	bills, err := s.Bills(t.Context(), s.clock.Now().Add(-24*time.Hour))
	if err != nil || len(bills) != 2 {
		t.Fatalf("%+v, %v", bills, err)
	}
	for _, b := range bills {
		want := 0.0225
		if b.Task == s.job(2) {
			want = 3
		}
		if b.Billed == nil || *b.Billed != want || b.Estimated <= 0 || b.Estimated >= 3 || len(b.Instances) != 1 {
			t.Errorf("%+v", b)
		}
	}
	c := s.market.count()
	if c["charges"] > 3 {
		t.Errorf("%v", c)
	}
	if said := s.said.String(); strings.Count(said, "some rows of the bill cannot be read") != 1 || !strings.Contains(said, "rows=2") {
		t.Error(said)
	}
}

// An instance that was ordered by a request whose answer was lost, and that no list has
// shown, is known by the label on the bill: of a task that goes on, that is over, and that
// was stopped before it had another one.
func TestBillOfAnUnseenInstance(t *testing.T) {
	s := newStand(t, 9)
	s.BillInterval = time.Hour
	lost := map[int]*rented{}
	for n := range 3 {
		sub := s.submission(n)
		s.market.create = func(int64) error { return vastai.ErrUnknown }
		if _, err := s.Start(t.Context(), sub); !errors.Is(err, runner.ErrLater) {
			t.Fatal(err)
		}
		s.market.create = nil
		lost[n] = &rented{id: int64(500 + n), label: s.label(sub.Task, 1, 1), created: s.clock.Now()}
		if n == 2 {
			continue
		}
		s.clock.pass(2 * time.Minute)
		for range 3 {
			s.clock.pass(time.Minute)
			if _, err := s.Start(t.Context(), sub); err == nil {
				break
			}
		}
		s.refs = append(s.refs, runner.Ref{Task: sub.Task, Job: s.label(sub.Task, 1, 1), Dir: sub.Dir})
	}
	if len(s.market.instances) != 2 {
		t.Fatalf("%+v\n%s", s.market.instances, s.said)
	}
	ended(s.market.instances[1], 0)
	gone := filepath.Join(filepath.Dir(s.Dir), "done")
	stopped := s.submission(2)
	if err := errors.Join(os.MkdirAll(gone, 0o700), os.Rename(stopped.Dir, filepath.Join(gone, string(stopped.Task)))); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.turn()
	}
	before, err := s.Bills(t.Context(), s.clock.Now().Add(-24*time.Hour))
	if err != nil || len(before) != 2 {
		t.Fatalf("%+v, %v", before, err)
	}
	s.market.mu.Lock()
	for n, i := range lost {
		s.market.charged = append(s.market.charged, vastai.Charge{Instance: i.id, Label: i.label, Amount: 0.25 + float64(n), From: i.created, Until: s.clock.Now()})
	}
	s.market.charged = append(s.market.charged,
		vastai.Charge{Instance: 77, Label: "ponos:other:" + string(s.job(0)) + ":1", Amount: 50, Until: s.clock.Now()},
		vastai.Charge{Instance: 78, Label: "mine", Amount: 50, Until: s.clock.Now()})
	s.market.mu.Unlock()
	s.clock.pass(2 * time.Hour)
	s.turn()
	if o, err := s.read(ordersDir, string(s.job(0))+".1"); err != nil || o.cost(s.clock.Now())-o.estimate(s.clock.Now()) != 0.25 {
		t.Errorf("the one that goes on costs %+v, %v", o, err)
	}
	bills, err := s.Bills(t.Context(), s.clock.Now().Add(-24*time.Hour))
	if err != nil || len(bills) != 3 {
		t.Fatalf("%+v, %v", bills, err)
	}
	for _, b := range bills {
		if n, _ := strconv.Atoi(string(b.Task[len(b.Task)-1:])); !slices.Contains(b.Instances, lost[n].id) {
			t.Errorf("%+v, want instance %d", b, lost[n].id)
		}
	}
	for n, least := range map[int]float64{1: 1.25, 2: 2.25} {
		o, err := s.read(doneDir, string(s.job(n))+".1")
		if err != nil || o.End == nil || o.End.Cost < least || o.End.Cost > least+0.5 {
			t.Errorf("%+v, %v", o, err)
		}
	}
	if e := s.events("billed"); len(e) != 1 || e[0].Task != s.job(2) || e[0].Cost != 2.25 || *e[0].Billed != 2.25 {
		t.Errorf("%+v", e)
	}
}

// A bill of many pages is read over some turns, as requests are bounded.
func TestBillOfManyPages(t *testing.T) {
	s := newStand(t, 1)
	s.BillInterval, s.market.chargesPage = time.Hour, 10
	i := s.begin(1)
	i.log = "at work\n"
	s.turn()
	s.market.mu.Lock()
	for n := range 205 {
		s.market.charged = append(s.market.charged, vastai.Charge{Instance: int64(n + 1), Amount: 1, From: i.created, Until: s.clock.Now()})
	}
	s.market.charged = append(s.market.charged, vastai.Charge{Instance: i.id, Amount: 3, From: i.created, Until: s.clock.Now()})
	for n := range 600 { // as many as bound what is read in a turn
		s.market.instances = append(s.market.instances, &rented{id: int64(9000000 + n), label: "mine", fields: map[string]any{"actual_status": "running"}})
	}
	s.market.mu.Unlock()
	s.clock.pass(2 * time.Hour)
	s.market.count()
	turns := 0
	for ; s.read1(t).Bills[i.id].Amount != 3; turns++ {
		s.turn()
		if c := s.market.count(); c["charges"] > 1 || turns > 30 {
			t.Fatalf("%v in turn %d", c, turns)
		}
	}
	if turns != 21 {
		t.Errorf("%d turns", turns)
	}
	s.turn()
	if c := s.market.count(); c["charges"] != 0 {
		t.Errorf("%v", c)
	}
}

// read1 is the order of task 1.
func (s *stand) read1(t *testing.T) *order {
	o, err := s.read(ordersDir, string(s.job(1))+".1")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A task's own request counts instead of that of the configuration, for each machine that is
// ordered for it.
func TestRequestOfATask(t *testing.T) {
	s := newStand(t, 0)
	s.offer(1, map[string]any{"gpu_name": "RTX 3080"})
	s.offer(2, map[string]any{"gpu_name": "A40", "dph_base": 0.9})
	s.offer(3, map[string]any{"gpu_name": "A40", "dph_base": 0.8})
	s.Finds = map[string]vastai.Filters{"*": {{Field: "gpu_name", Op: "eq", Value: "RTX 3080", Text: "3080"}}}
	s.Translate = func(find string) (vastai.Filters, error) {
		if find != "a40" {
			return nil, errors.New("unknown GPU model")
		}
		return vastai.Filters{{Field: "gpu_name", Op: "eq", Value: "A40", Text: "a40"}}, nil
	}
	start := func(n int, find string) (runner.Submission, error) {
		sub := s.submission(n)
		sub.Request.Find = find
		job, err := s.Start(t.Context(), sub)
		s.refs = append(s.refs, runner.Ref{Task: sub.Task, Job: job.ID, Dir: sub.Dir})
		return sub, err
	}
	if _, err := start(1, "a400"); !errors.Is(err, runner.ErrRefused) || !strings.Contains(err.Error(), "the request: unknown GPU model") {
		t.Errorf("%v", err)
	}
	s.refs = nil
	if _, err := start(2, "a40"); err != nil || s.market.instances[0].offer != 3 {
		t.Fatalf("%v, %+v", err, s.market.instances)
	}
	// The machine is at fault: the next one is one of that request, too.
	s.market.instances[0].fields["actual_status"] = "loading"
	s.clock.pass(30 * time.Minute)
	for range 6 {
		s.turn()
	}
	if len(s.market.instances) != 1 || s.market.instances[0].offer != 2 {
		t.Errorf("%+v\n%s", s.market.instances, s.said)
	}
	if _, err := start(3, ""); err != nil || s.market.instances[1].offer != 1 {
		t.Errorf("%v, %+v", err, s.market.instances)
	}
}

// Requests of tasks by their slugs, and machines with several GPUs.
func TestFinds(t *testing.T) {
	s := newStand(t, 1)
	s.offer(2, map[string]any{"num_gpus": 2.0, "dph_base": 0.2})
	s.offer(3, map[string]any{"num_gpus": 2.0, "gpu_name": "H100 SXM", "dph_base": 0.9})
	two := vastai.Condition{Field: "num_gpus", Op: "eq", Value: 2.0}
	s.Finds = map[string]vastai.Filters{
		"task-*": {two},
		"task-3": {two, {Field: "gpu_name", Test: func(v any) bool { return v == "H100 SXM" }}},
	}
	for _, n := range []int{3, 2} {
		if i := s.begin(n); i.offer != int64(n) {
			t.Errorf("task %d on offer %d", n, i.offer)
		}
	}
	s.Finds = nil
	if i := s.begin(7); i.offer != 1 {
		t.Errorf("offer %d", i.offer)
	}
}

// All that bears the label of any agent of the account is found, and can be ended.
func TestAccount(t *testing.T) {
	s := newStand(t, 1)
	s.begin(1)
	id := string(s.job(9))
	for n, label := range []string{"ponos:other:" + id + ":1", "mine", "ponos:lost:" + id + ":2.3", ""} {
		s.market.instances = append(s.market.instances, &rented{id: int64(n + 1), label: label, fields: map[string]any{}, created: s.clock.Now()})
	}
	s.clock.pass(time.Hour)
	found, err := s.Account(t.Context(), 10*time.Minute)
	if err != nil || len(found) != 3 || found[0].Label.Agent != "lost" || found[2].Label.Agent != "unit" {
		t.Fatalf("%+v, %v", found, err)
	}
	if failed := s.Reap(t.Context(), found); len(failed) != 0 {
		t.Error(failed)
	}
	if len(s.market.instances) != 2 {
		t.Errorf("%+v", s.market.instances)
	}
	if found, err := s.Account(t.Context(), 0); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// Check says which permission the key lacks.
func TestScopes(t *testing.T) {
	s := newStand(t, 1)
	if found, err := s.Check(t.Context()); err != nil || !strings.Contains(found.Detail, "credit $50.00") {
		t.Error(err, found)
	}
	if err := scoped(fmt.Errorf("list: %w", vastai.ErrAuth), "instance_read"); !strings.Contains(fault.HintOf(err), "instance_read") {
		t.Error(fault.HintOf(err))
	}
	if err := scoped(vastai.ErrUnknown, "instance_read"); fault.HintOf(err) != "" {
		t.Error(err)
	}
}

// The quota of searches is told once, and tasks wait for it.
func TestQuotaIsToldOnce(t *testing.T) {
	s := newStand(t, 1)
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	s.API = vastai.NewGovernor(&quota{s.market, midnight}, s.API.Dir, s.API.Unit, s.clock.Now)
	s.API.Sleep = func(context.Context, time.Duration) error { return nil }
	for n := range 20 {
		if _, err := s.Start(t.Context(), s.submission(n)); !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), "nothing is ordered until 2026-03-02 00:00 UTC") {
			t.Fatal(err)
		}
	}
	if n := strings.Count(s.said.String(), "the daily quota of searches is used up"); n != 1 {
		t.Errorf("told %d times\n%s", n, s.said)
	}
	if c := s.market.count(); c["search"] != 1 {
		t.Errorf("%v", c)
	}
}

// quota is a market whose searches of the day are used up.
type quota struct {
	*fake
	until time.Time
}

func (q *quota) Search(ctx context.Context, _ vastai.Search) (vastai.Found, error) {
	if err := q.ask(ctx, "search"); err != nil {
		return vastai.Found{}, err
	}
	return vastai.Found{}, vastai.QuotaError(q.until)
}

// Tasks are told where in the store their checkpoints are kept: the same place wherever
// they go on.
func TestCheckpointStore(t *testing.T) {
	s := newStand(t, 1)
	s.Checkpoints.Store = "s3://bucket/checkpoints/"
	// A task cannot bring commands of its own for the wrapper.
	wanted := task.Task{ID: s.job(1), Image: "img", Command: []string{"true"}, Env: map[string]string{"PONOS_CHECKPOINT_SAVE": "x"}}
	env, _, err := s.Place(t.Context(), wanted)
	if err != nil || env["PONOS_CHECKPOINT_STORE"] != "s3://bucket/checkpoints/"+string(s.job(1)) || env["PONOS_CHECKPOINT_DIR"] != "/data/checkpoints" || env["PONOS_CHECKPOINT_SAVE"] != "" {
		t.Errorf("%v, %v", env, err)
	}
	s.Checkpoints.Load, s.Checkpoints.Save, s.Checkpoints.Interval = "load", "save", time.Minute
	if env, _, err = s.Place(t.Context(), wanted); err != nil || env["PONOS_CHECKPOINT_LOAD"] != "( load )" || env["PONOS_CHECKPOINT_SAVE"] != "( save )" || env["PONOS_CHECKPOINT_INTERVAL"] != "60" {
		t.Errorf("%v, %v", env, err)
	}
}

// Stop destroys the instance, and waits until a list does not show it.
func TestStopOne(t *testing.T) {
	s := newStand(t, 2)
	s.begin(1).log = "so far\n"
	s.turn()
	if err := s.Stop(t.Context(), s.refs[0]); err != nil {
		t.Fatal(err)
	}
	if len(s.market.instances) != 0 || s.output(1) != "so far\n" {
		t.Errorf("%+v %q", s.market.instances, s.output(1))
	}
	if err := s.Stop(t.Context(), s.refs[0]); err != nil {
		t.Errorf("again: %v", err)
	}
	if j := s.turn()[s.job(1)]; j.State != task.Stopped || !j.Cancelled {
		t.Errorf("%+v", j)
	}
}

// A bill whose time lies ahead, as that of a contract does, leaves out what is still to be
// billed: the estimate counts where it is more.
func TestBillOfTheWholeContract(t *testing.T) {
	s := newStand(t, 1)
	s.BillInterval, s.Limits.CostPerTask, s.Limits.Runtime = time.Hour, 3, 0
	i := s.begin(1)
	i.log = "at work\n"
	s.turn()
	s.market.mu.Lock()
	s.market.charged = []vastai.Charge{{Instance: i.id, Amount: 0.01, Until: s.clock.Now().Add(9 * 24 * time.Hour)}}
	s.market.mu.Unlock()
	s.clock.pass(2 * time.Hour) // at about 0.1 dollars an hour
	if j := s.turn()[s.job(1)]; j.State.Final() {
		t.Errorf("%+v", j)
	}
	s.clock.pass(24 * time.Hour)
	s.turn()
	if j := s.turn()[s.job(1)]; j.State != task.Error || !strings.Contains(j.Reason, "more than max_cost_per_task") || j.Cost < 3 {
		t.Errorf("%+v", j)
	}
}

// What was billed for a task counts from its beginning, however long ago that is.
func TestBillOfALongTask(t *testing.T) {
	s := newStand(t, 1)
	s.BillInterval, s.Limits.Runtime = time.Hour, 0
	s.Limits.CostPerTask = 1000
	i := s.begin(1)
	i.log = "at work\n"
	s.turn()
	s.clock.pass(8 * 24 * time.Hour)
	s.turn()
	if from := s.market.chargedFrom; from.IsZero() || from.After(i.created) {
		t.Errorf("charges since %v, of an instance from %v", from, i.created)
	}
	if _, err := s.Bills(t.Context(), s.clock.Now().Add(-time.Hour)); err != nil || s.market.chargedFrom.After(i.created) {
		t.Errorf("charges since %v, %v", s.market.chargedFrom, err)
	}
}

// A list from before an instance was there does not say that it is gone.
func TestStopAtOnce(t *testing.T) {
	s := newStand(t, 1)
	s.begin(1)
	if err := s.Stop(t.Context(), s.refs[0]); err != nil || len(s.market.instances) != 0 {
		t.Errorf("%v, %+v", err, s.market.instances)
	}
}

// An order that comes through late is found, though lists that others have had since it
// was made do not show it.
func TestLateOrder(t *testing.T) {
	s := newStand(t, 2)
	sub := s.submission(1)
	s.market.create = func(int64) error { return vastai.ErrUnknown }
	if _, err := s.Start(t.Context(), sub); !errors.Is(err, runner.ErrLater) {
		t.Fatal(err)
	}
	o, err := s.read(ordersDir, string(sub.Task)+".1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.List(t.Context(), s.clock.Now()); err != nil {
		t.Fatal(err)
	}
	s.market.create = nil
	if _, err := s.market.Create(t.Context(), 1, vastai.Order{Label: s.label(sub.Task, 1, 1), Env: map[string]string{nonceEnv: o.Nonce}}); err != nil {
		t.Fatal(err)
	}
	s.clock.pass(2 * time.Minute)
	for range 3 {
		job, err := s.Start(t.Context(), sub)
		if err != nil || !job.Adopted {
			t.Errorf("%+v, %v", job, err)
		}
	}
	if s.market.most != 1 {
		t.Errorf("%d instances", s.market.most)
	}
}

// Orders that others look up in one list are not given up by it.
func TestOneListCountsOnce(t *testing.T) {
	s := newStand(t, 2)
	sub := s.submission(1)
	s.market.create = func(int64) error { return vastai.ErrUnknown }
	if _, err := s.Start(t.Context(), sub); !errors.Is(err, runner.ErrLater) {
		t.Fatal(err)
	}
	s.market.create = nil
	s.clock.pass(2 * time.Minute)
	for range 3 { // one list serves them
		if job, err := s.Start(t.Context(), sub); !errors.Is(err, runner.ErrLater) {
			t.Errorf("%+v, %v", job, err)
		}
	}
	s.clock.pass(time.Minute)
	if _, err := s.Start(t.Context(), sub); err != nil || len(s.market.instances) != 1 {
		t.Errorf("%v, %+v", err, s.market.instances)
	}
}

// An instance that has disappeared while the agent was away may have destroyed itself after the
// end of its task. The bill tells how that was; without it the task is not started again.
func TestDestroyedItself(t *testing.T) {
	for _, c := range []struct {
		name   string
		seen   bool          // running, by the agent
		away   time.Duration // of the agent, before the instance has disappeared
		billed string        // the end of the label in the bill, 2 h later
		never  bool          // it is never billed
		noBill error         // of requests for it
		want   string
	}{
		{"the bill tells the end", true, time.Hour, ":end=7", false, nil, "exit code 7"},
		{"not seen before", false, time.Hour, ":end=7", false, nil, "exit code 7"},
		{"the bill does not tell", true, time.Hour, "", false, nil, "whether its task had ended, and how, is not known"},
		{"not billed", true, time.Hour, "", true, nil, "whether its task had ended, and how, is not known"},
		{"the key may not read it", true, time.Hour, "", true, vastai.ErrAuth, "whether its task had ended, and how, is not known"},
		{"the agent was there", true, 0, "", true, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, 2)
			s.Retries, s.BillInterval, s.Limits.Runtime = 1, time.Hour, 0
			s.Switch = Switch{Grace: 30 * time.Minute, Destroy: true}
			i := s.begin(1)
			for range 60 {
				if c.seen {
					s.turn()
				}
			}
			s.clock.pass(c.away)
			label := i.label
			s.market.mu.Lock()
			s.market.instances, s.market.noBill = nil, c.noBill
			s.market.mu.Unlock()
			s.market.count()
			for range 120 {
				s.turn()
			}
			if c.want == "" {
				if n := s.market.count()["order"]; n != 1 {
					t.Errorf("%d orders", n)
				}
				return
			}
			const awaited = "maybe after the end of its task: waiting for the bill, which shows the exit code"
			if j := s.turn()[s.job(1)]; j.State.Final() != (c.noBill != nil) || c.noBill == nil && (strings.Count(s.output(1), awaited) != 1 || strings.Count(s.said.String(), awaited) != 1) {
				t.Errorf("%+v\n%s\n%s", j, s.output(1), s.said)
			}
			s.market.mu.Lock()
			if !c.never {
				s.market.charged = []vastai.Charge{{Instance: i.id, Label: label + c.billed, Amount: 0.01, Until: s.clock.Now()}}
			}
			s.market.mu.Unlock()
			for range 60 {
				s.turn()
			}
			if c.never {
				s.clock.pass(36 * time.Hour)
			}
			if j := s.turn()[s.job(1)]; !j.State.Final() || !strings.Contains(j.Reason, c.want) {
				t.Errorf("%+v", j)
			}
			if n := s.market.count(); n["order"] != 0 || n["charges"] > 12 { // in three hours
				t.Errorf("%v", n)
			}
		})
	}
}

// An end that only the label tells counts where a limit ends the task, even if the log can be
// read: its last lines may not be the container's last word.
func TestLimitAfterTheEnd(t *testing.T) {
	s := newStand(t, 1)
	s.Limits.Runtime = time.Hour
	i := s.begin(1)
	s.turn()
	i.log = "more of a child's words\n"
	i.label += ":end=0"
	s.clock.pass(2 * time.Hour)
	if j := s.turn()[s.job(1)]; j.State != task.Completed {
		t.Errorf("%+v", j)
	}
}

// The logs of tasks that have ended are read side by side, though their instances run on.
func TestManyEndsByLabel(t *testing.T) {
	s := newStand(t, 20)
	s.LogInterval = 24 * time.Hour
	var all []*rented
	for n := range 20 {
		all = append(all, s.begin(n))
	}
	for range 3 { // all logs have been read of late
		s.turn()
	}
	for _, i := range all {
		i.log += fmt.Sprintf("\nPONOS-EXIT %s 0\n", i.env[nonceEnv])
		i.label += ":end=0"
		i.logTime = 300 * time.Millisecond
	}
	s.market.logsAtOnce = 0
	jobs := s.turn()
	if n := s.market.logsAtOnce; n < 2 || n > logReaders {
		t.Errorf("%d logs were read at a time", n)
	}
	for _, j := range jobs {
		if j.State != task.Completed {
			t.Errorf("%+v", j)
		}
	}
}
