package rented

import (
	_ "embed"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/task"
)

// Orders of the version before phases, as it has written them.
//
//go:embed testdata/orders.tsv
var formerOrders string

// Orders of the version before are read as what they are, written in the new form, and no other machine is ordered.
func TestOrdersOfTheVersionBefore(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.TimeOnly, s)
		if err != nil {
			t.Fatal(err)
		}
		return v.AddDate(2026, 2, 0)
	}
	once := func(d life.Doubt, s string) map[life.Doubt]life.Looks {
		return map[life.Doubt]life.Looks{d: {Times: 1, First: at(s), Last: at(s)}}
	}
	want := map[string]struct {
		life.State
		job task.State
	}{
		"asked": {life.State{
			Phase: life.Asked, Since: at("15:00:00.3"), Asked: at("15:00:00.4"), Doubts: once(life.Unlisted, "15:01:00.4"),
		}, ""},
		"held":  {life.State{Phase: life.Waits, Held: at("15:06:20.8"), Rejected: 5}, ""},
		"boots": {life.State{Phase: life.Boots, Since: at("15:01:25.8")}, task.Pending},
		"runs":  {life.State{Phase: life.Runs, Since: at("15:03:26.4")}, task.Running},
		"offline": {life.State{
			Phase: life.Runs, Since: at("15:03:26.4"), Doubts: once(life.Offline, "15:04:26.6"),
		}, task.Error}, // it has been for an hour
		"silent":   {life.State{Phase: life.Runs, Since: at("15:05:27"), Doubts: once(life.Silent, "15:06:27.2")}, task.Running},
		"unlisted": {life.State{Phase: life.Runs, Since: at("15:07:28.3"), Doubts: once(life.Unlisted, "15:08:28.3")}, task.Running},
		"unbilled": {life.State{Phase: life.Unbilled, Since: at("15:09:29.8"), Doubts: map[life.Doubt]life.Looks{
			life.Unlisted: {Times: 4, First: at("15:22:30.1"), Last: at("15:22:30.1")},
		}}, task.Running},
		"given up": {life.State{
			Phase: life.Waits, Since: at("15:25:37.6"), Doomed: []life.Doomed{{ID: 7000007, Seen: at("15:56:37.6"), Shown: 1}},
		}, task.Pending},
		"over": {life.State{
			Phase: life.Over, Since: at("15:58:42.6"), Doomed: []life.Doomed{{ID: 7000008, Seen: at("15:58:41.8"), Shown: 1}},
		}, task.Failed},
		"closed": {life.State{Phase: life.Over, Since: at("15:58:42.6")}, task.Failed},
	}
	lines := strings.Split(strings.TrimSpace(formerOrders), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d orders", len(lines))
	}
	for _, line := range lines {
		name, text, _ := strings.Cut(line, "\t")
		w := want[name]
		t.Run(name, func(t *testing.T) {
			s := newStand(t, 9)
			s.BillInterval, s.Program = time.Hour, Program{URL: "https://example.org/vast-entry", Sums: "sum", Grace: 10 * time.Minute, Destroy: true}
			var who struct {
				Task     task.ID
				Instance int64
				Nonce    string
			}
			if err := json.Unmarshal([]byte(text), &who); err != nil {
				t.Fatal(err)
			}
			for n := range 9 {
				if s.job(n) == who.Task {
					s.submission(n)
				}
			}
			if err := s.prepare(); err != nil {
				t.Fatal(err)
			}
			dir := ordersDir
			if name == "closed" {
				dir = doneDir
			}
			if err := os.WriteFile(s.orderPath(dir, nameOf(who.Task, 1)), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			o, err := s.read(dir, nameOf(who.Task, 1))
			if err != nil {
				t.Fatal(err)
			}
			w.Instance, w.Number, w.Tries, w.Created, w.Ran, w.Status = o.Instance, o.Number, o.Tries, o.Created, o.Ran, o.Status
			if !reflect.DeepEqual(o.State, w.State) {
				t.Errorf("%+v, want %+v", o.State, w.State)
			}
			if err := s.save(o); err != nil {
				t.Fatal(err)
			}
			again, err := s.read(ordersDir, o.name())
			if err != nil || !reflect.DeepEqual(again.State, o.State) || !reflect.DeepEqual(again.End, o.End) || again.Spent != o.Spent {
				t.Errorf("%+v, %v, want %+v", again, err, o)
			}
			if name == "closed" {
				return
			}
			s.clock.now = at("15:58:43")
			if name != "unbilled" && who.Instance != 0 {
				status := map[string]string{"boots": "loading", "offline": "offline", "silent": "exited"}[name]
				if status == "" {
					status = "running"
				}
				s.market.instances = []*rented{{
					id: who.Instance, label: s.label(who.Task, 1, 1), env: map[string]string{entry.NonceEnv: who.Nonce},
					fields: map[string]any{
						"actual_status": status, "machine_id": int64(1), "num_gpus": 1.0, "gpu_ram": 24564.0,
						"gpu_name": "RTX 4090", "disk_space": 20.0,
					},
				}}
			}
			s.Limits.Boot = 0
			job, shown := s.turn()[who.Task]
			if shown != (w.job != "") || shown && job.State != w.job {
				t.Errorf("%+v, %v", job, shown)
			}
			if orders := s.market.count()["order"]; orders != 0 && name != "given up" { // that one is gone
				t.Errorf("%d orders", orders)
			}
		})
	}
}
