package rented

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// formerOrders puts the orders of the form before this one in place, and their instances into the market. They are in all phases.
func formerOrders(t *testing.T) (*stand, map[int]*rented) {
	s := newStand(t, 40)
	s.Retries, s.BillInterval = 2, time.Hour
	s.Program.Destroy, s.Program.Grace = true, 30*time.Minute
	s.clock.now = time.Date(2026, 3, 1, 18, 54, 55, 0, time.UTC)
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, markFile), []byte("fa886559\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("testdata/former.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	machines := map[int]*rented{}
	for line := range strings.Lines(string(b)) {
		n++
		if err := os.WriteFile(s.orderPath(ordersDir, string(s.job(n))+".1"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		var f struct {
			Instance, Machine int64
			Nonce             string
			Number            int
			Price             float64
			Created           time.Time
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			f.Instance, f.Number = 7000001, 1
		}
		if n == 3 {
			f.Instance, f.Created = 7000009, s.clock.Now()
		}
		s.track(n, s.label(s.job(n), 1, 1))
		if f.Instance == 0 || n == 7 {
			continue
		}
		machines[n] = &rented{
			id: f.Instance, label: s.label(s.job(n), 1, f.Number), env: map[string]string{entry.NonceEnv: f.Nonce, entry.GraceEnv: "1800"},
			created: f.Created, offered: f.Price, fields: map[string]any{
				"machine_id": f.Machine, "num_gpus": 1.0, "gpu_ram": 24564.0, "gpu_name": "RTX 4090", "actual_status": "running", "intended_status": "running",
			},
		}
		s.market.instances = append(s.market.instances, machines[n])
	}
	s.market.next, s.market.offers = 7000100, s.market.offers[20:]
	machines[1].fields["actual_status"] = "loading"
	ended(machines[9], 3)
	s.market.stuck[7000001], s.market.stuck[7000006] = true, true
	return s, machines
}

// Orders in the form before this one are taken over: nothing of what they know is lost.
func TestFormerOrders(t *testing.T) {
	s, _ := formerOrders(t)
	for n, want := range map[int]string{
		1: "waits 0, label 2, 1 instances, 0 lost, [7000001] doomed, at most 1, $0.11 to $1.18",
		2: "held 0, label 1, 0 instances, 0 lost, [] doomed, at most 0, $0.00 to $0.00",
		3: "asked 0, label 1, 0 instances, 0 lost, [] doomed, at most 1, $0.00 to $0.00",
		4: "boots 7000008, label 1, 1 instances, 0 lost, [] doomed, at most 1, $0.01 to $0.01",
		5: "runs 7000005, label 1, 1 instances, 0 lost, [] doomed, at most 1, $0.07 to $0.07",
		6: "runs 7000004, label 2, 2 instances, 1 lost, [] doomed, at most 1, $1.20 to $1.20",
		7: "unbilled 7000002, label 1, 1 instances, 0 lost, [] doomed, at most 0, $0.31 to $0.31",
		8: "runs 7000007, label 2, 1 instances, 0 lost, [] doomed, at most 1, $0.01 to $0.01",
		9: "over 7000006, label 1, 1 instances, 0 lost, [7000006] doomed, at most 1, $0.01 to $0.01",
	} {
		o, err := s.read(ordersDir, string(s.job(n))+".1")
		if err != nil {
			t.Error(err)
			continue
		}
		now := s.clock.Now()
		least := o.cost(o.Since)
		if o.Phase != life.Waits {
			least = o.cost(now)
		}
		got := fmt.Sprintf("%s %d, label %d, %d instances, %d lost, %v doomed, at most %d, $%.2f to $%.2f",
			o.Phase, o.Instance(), o.Number(), o.Instances(), o.Losses(), o.Doomed(), o.Most(), least, o.cost(now))
		if got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
		if o.Nonce == "" || o.Image != "img" || o.Slug != fmt.Sprintf("task-%d", n) {
			t.Errorf("%d: %+v", n, o)
		}
		// As it is kept now, it is the same.
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseOrder(b)
		if c, _ := json.Marshal(again); err != nil || string(c) != string(b) {
			t.Errorf("%v\n%s\n%s", err, b, c)
		}
	}
}

// And they go on to their ends.
func TestFormerOrdersEnd(t *testing.T) {
	s, m := formerOrders(t)
	m[5].prints("one\ntwo\n")
	m[6].prints("again at work\n")
	for range 3 {
		s.turn()
	}
	for n, text := range map[int]string{5: "one\ntwo\n", 6: "again at work\n"} {
		if got := s.output(n); got != text {
			t.Errorf("%d: %q", n, got)
		}
	}
	if c := s.market.count(); c["order"] != 0 {
		t.Errorf("%v", c)
	}
	s.market.stuck = map[int64]bool{}
	now := s.clock.Now()
	s.market.charged = []vastai.Charge{{
		Instance: 7000002, Label: s.label(s.job(7), 1, 1) + ":end=7", Amount: 0.2, From: now.Add(-4 * time.Hour), Until: now.Add(-time.Hour),
	}}
	for _, n := range []int{3, 4, 5, 6, 8} {
		ended(m[n], n)
	}
	s.clock.pass(2 * time.Hour)
	jobs := map[task.ID]string{}
	for range 8 {
		for id, j := range s.turn() {
			if _, known := jobs[id]; j.Sight.Over() && !known {
				jobs[id] = fmt.Sprint(j.Shows(), " ", j.ExitCode)
			}
		}
		if _, err := s.Start(t.Context(), s.submission(2)); err != nil {
			t.Error(err)
		}
		for _, i := range s.market.instances {
			if strings.Contains(i.label, "0001:1.2") || strings.Contains(i.label, "0002:1") {
				ended(i, 0)
			}
		}
	}
	want := map[int]string{1: "completed 0", 2: "completed 0", 3: "failed 3", 4: "failed 4", 5: "failed 5", 6: "failed 6", 7: "failed 7", 8: "failed 8", 9: "failed 3"}
	for n, w := range want {
		if jobs[s.job(n)] != w {
			t.Errorf("%d: %q, want %q\n%s", n, jobs[s.job(n)], w, s.said)
		}
	}
	if len(s.market.instances) != 0 {
		t.Errorf("%+v", s.market.instances)
	}
	if left, err := s.orders(); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// Whatever a file has: an order, or an error.
func FuzzParseOrder(f *testing.F) {
	b, err := os.ReadFile("testdata/former.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f.Add([]byte(line))
	}
	f.Add([]byte(`{"task":"t","attempt":1,"phase":"held","rejected":-9223372036854775808,"tries":[{"number":1,"looks":{"mute":{}}}]}`))
	f.Add([]byte(`{"number":9223372036854775807,"losses":3,"doomed":[{"id":7,"counted":true}],"past":[{"id":7},{"id":7,"unseen":true}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseOrder(b)
		if err != nil {
			return
		}
		now := time.Date(2026, 3, 1, 18, 54, 55, 0, time.UTC)
		o.rewind(now)
		o.cost(now)
		if n := o.Most(); n < len(o.Doomed()) || o.HeldUntil().Before(o.Since) && o.Phase == life.Held {
			t.Errorf("%+v", o)
		}
	})
}
