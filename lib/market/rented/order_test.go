package rented

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Twenty tasks wait for a machine, and there is none: three requests a pass at most, one if nothing is searched, and
// fewer passes with a search the longer that is so.
func TestWaitingTasks(t *testing.T) {
	s := newStand(t, 0)
	pass := func() map[string]int {
		s.clock.pass(10 * time.Second)
		if _, err := s.Jobs(t.Context(), func() ([]runner.Ref, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		for n := range 20 {
			if _, err := s.Start(t.Context(), s.submission(n)); !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), "no suitable offer") {
				t.Fatal(err)
			}
		}
		return s.market.count()
	}
	searches := 0
	for n := range 60 {
		c := pass()
		if c["all"] > 3 && n > 0 { // once an hour, one more tells which filter removes most
			t.Errorf("pass %d: %v", n, c)
		}
		if c["search"] == 0 && c["all"] > 1 && n%60 != 59 { // once in ten minutes, one more looks at the credit
			t.Errorf("pass %d without a search: %v", n, c)
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
		if j := jobs[s.job(1)]; j.Sight != runner.Unclear || j.Sight.Over() {
			t.Errorf("%+v", j)
		}
		if j := jobs[s.job(2)]; j.Shows() != task.Completed {
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

// A machine that is not what was asked for is destroyed and avoided, and its cost is told.
func TestWrongMachine(t *testing.T) {
	s := newStand(t, 2)
	i := s.begin(1)
	i.fields["disk_space"], i.fields["actual_status"] = 8.5, "loading"
	jobs := s.turn()
	if j := jobs[s.job(1)]; j.Sight.Over() {
		t.Errorf("%+v", j)
	}
	if e := s.events("fault"); len(e) != 1 || !strings.Contains(e[0].Reason, `does not meet "disk 20", and has cost $0.0`) || e[0].Cost <= 0 || e[0].Machine != 1 {
		t.Errorf("%+v", e)
	}
	s.turn()
	if len(s.market.instances) != 1 || s.market.instances[0].offer != 2 {
		t.Errorf("%+v", s.market.instances)
	}
	if avoided, err := s.Avoided(); err != nil || avoided[1].Until.IsZero() {
		t.Errorf("%v %v", avoided, err)
	}
}

// One that is dearer than its offer has said is given back as well.
func TestDearerThanOffered(t *testing.T) {
	s := newStand(t, 2)
	i := s.begin(1)
	i.price, i.fields["actual_status"] = 9, "loading"
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
	if j := s.turn()[s.job(1)]; j.Shows() != task.Error || !strings.Contains(j.Reason, "the image has no /bin/sh") {
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
	if hint := fault.HintOf(err); !strings.HasPrefix(hint, "the variable LONG has 300 bytes, and the market documents a limit of 256 for each; else check image") {
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

// Offers with too little disk are not taken, whatever the market returns.
func TestDiskIsAsked(t *testing.T) {
	s := newStand(t, 0)
	s.offer(1, map[string]any{"disk_space": 8.5, "dph_base": 0.1})
	s.offer(2, nil)
	if i := s.begin(1); i.offer != 2 {
		t.Errorf("offer %d", i.offer)
	}
}

// An order that has no instance yet ends with its task: nothing is kept if nothing came of
// it, and what came of it although the answer was lost is destroyed.
func TestOrderOfNothing(t *testing.T) {
	for name, c := range map[string]struct{ gone, lost bool }{"no offer": {gone: true}, "lost, not made": {}, "lost, made": {lost: true}} {
		t.Run(name, func(t *testing.T) {
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
				if _, err := s.market.Create(t.Context(), o.Last().Machine, vastai.Order{Label: s.label(sub.Task, 1, 1), Env: map[string]string{entry.NonceEnv: o.Nonce}}); err != nil {
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
		})
	}
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
	if _, err := s.market.Create(t.Context(), 1, vastai.Order{Label: s.label(sub.Task, 1, 1), Env: map[string]string{entry.NonceEnv: o.Nonce}}); err != nil {
		t.Fatal(err)
	}
	s.clock.pass(2 * time.Minute)
	for range 3 {
		job, err := s.Start(t.Context(), sub)
		if err != nil || job.Claim != runner.Found {
			t.Errorf("%+v, %v", job, err)
		}
	}
	if s.market.most != 1 {
		t.Errorf("%d instances", s.market.most)
	}
}
