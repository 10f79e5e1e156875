package rented

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
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
	printed int // bytes of output
	logErr  error
	logTime time.Duration
	created time.Time
	bid     float64
	price   float64 // 0: what was offered
	offered float64
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
	deny      int64                   // the contract that a failed order has made
	account   error
	charged   []vastai.Charge
	noBill    error
	// chargedFrom is since when charges were asked for last.
	chargedFrom time.Time
	// chargesPage is how many charges a page has; 0: all.
	chargesPage int
	pace        func(ctx context.Context, op string) error
	stuck       map[int64]bool // instances that destroys do nothing to
	hidden      map[int64]bool // instances that lists lack
	noShow      error          // of requests for one instance
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
			return vastai.Created{ID: f.deny}, err
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
	i := &rented{id: f.next, offer: offer, label: o.Label, env: o.Env, created: f.clock.Now(), bid: o.Bid, offered: row["dph_base"].(float64), fields: map[string]any{
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
		if label != "" && i.label != label || f.hidden[i.id] {
			continue
		}
		l.Instances = append(l.Instances, i.shown())
	}
	return l, nil
}

// shown is its row.
func (i *rented) shown() vastai.Instance {
	text := func(name string) string { s, _ := i.fields[name].(string); return s }
	facts := map[string]any{}
	for k, v := range i.fields {
		if !strings.HasSuffix(k, "_status") {
			facts[k] = v
		}
	}
	machine, _ := i.fields["machine_id"].(int64)
	price := i.offered
	if i.bid > 0 {
		price = i.bid
	}
	if i.price > 0 {
		price = i.price
	}
	return vastai.Instance{
		ID: i.id, Label: i.label, Machine: machine, Actual: text("actual_status"), Intended: text("intended_status"), Price: price, Started: i.created,
		Variables: i.env, Facts: facts, Bid: i.bid > 0, Message: i.message,
	}
}

func (f *fake) Show(ctx context.Context, id int64) (*vastai.Instance, error) {
	if err := f.ask(ctx, fmt.Sprintf("show %d", id)); err != nil {
		return nil, err
	}
	if f.noShow != nil {
		return nil, f.noShow
	}
	if i := f.find(id); i != nil {
		shown := i.shown()
		return &shown, nil
	}
	return nil, nil
}

func (f *fake) Destroy(ctx context.Context, ids ...int64) error {
	_ = f.ask(ctx, fmt.Sprintf("destroy %v", ids))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instances = slices.DeleteFunc(f.instances, func(i *rented) bool { return slices.Contains(ids, i.id) && !f.stuck[i.id] })
	return nil
}

func (f *fake) Log(ctx context.Context, id int64, lines int) ([]byte, error) {
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
	all := slices.Collect(strings.Lines(i.log))
	return []byte(strings.Join(all[max(0, len(all)-lines):], "")), i.logErr
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
	t.Parallel() // it mostly waits for the disk
	c := &fakeClock{now: time.Date(2026, 3, 1, 15, 0, 0, 0, time.UTC)}
	f := &fake{clock: c, credit: 50, next: 7000000, stuck: map[int64]bool{}, hidden: map[int64]bool{}}
	s := &stand{T: t, market: f, clock: c, said: &strings.Builder{}}
	dir := t.TempDir()
	s.Runner = &Runner{
		Dir: filepath.Join(dir, "vast"), Agent: "unit", Disk: 20, Estimate: vastai.Estimate{Hours: 1},
		Limits: Limits{PricePerHour: 2, CostPerTask: 20, Instances: 100, CreatesPerHour: 500, MinCredit: 1, Boot: 20 * time.Minute, Runtime: 24 * time.Hour},
		Avoid:  6 * time.Hour, Settle: time.Minute, LogInterval: 30 * time.Second, StopWait: 30 * time.Second, Now: c.Now,
		Log:     slog.New(slog.NewTextHandler(s.said, nil)),
		Program: Program{URL: "https://example.org/vast-entry", Sums: "sum"},
		Fetch:   func(context.Context, string) (string, error) { return "sum", nil },
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
	s.track(n, job.ID)
	s.market.mu.Lock()
	defer s.market.mu.Unlock()
	return s.market.instances[len(s.market.instances)-1]
}

// track remembers the job of a task as the agent does.
func (s *stand) track(n int, job string) {
	sub := s.submission(n)
	s.refs = append(s.refs, runner.Ref{Task: sub.Task, Job: job, Dir: sub.Dir})
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

// prints is output of a task.
func (i *rented) prints(text string) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "@%d %s", i.printed, line)
		i.printed += len(line)
	}
	i.log += b.String()
}

// says makes its container end with a word.
func (i *rented) says(word string) {
	i.log += fmt.Sprintf("%s %s %s\n", entry.Marker, i.env[entry.NonceEnv], word)
}

// ended makes an instance's task end with a code: by the log, and stopped by itself.
func ended(i *rented, code int) {
	i.says(strconv.Itoa(code))
	i.fields["actual_status"], i.fields["intended_status"] = "exited", "stopped"
}

// read1 is the order of task 1.
func (s *stand) read1(t *testing.T) *order {
	o, err := s.read(ordersDir, string(s.job(1))+".1")
	if err != nil {
		t.Fatal(err)
	}
	return o
}
