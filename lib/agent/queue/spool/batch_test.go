package spool

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

var train = []string{"./train", "--lr", "{lr}"}

func rows(values ...string) []queue.Entry {
	var all []queue.Entry
	for _, v := range values {
		all = append(all, queue.Entry{Slug: "lr=" + v, Command: []string{"./train", "--lr", v}, Parameters: map[string]string{"lr": v}})
	}
	return all
}

// names are those of all tasks of a spool, the oldest first.
func names(t *testing.T, s *Spool) string {
	t.Helper()
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range all {
		out = append(out, e.Slug)
	}
	return strings.Join(out, " ")
}

func TestBatch(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	b, err := q.AddAll("", train, rows("3", "1", "2"))
	if err != nil || b.New != 3 || len(b.IDs) != 3 {
		t.Fatalf("%+v, %v", b, err)
	}
	want := fmt.Sprintf("+%s +%s +%s", b.IDs[0], b.IDs[1], b.IDs[2])
	if got := wishes(t, q); got != want {
		t.Errorf("the agent is offered %s; want %s", got, want)
	}
	if got := files(t, q.Spool); strings.Count(got, " ") != 2 || strings.Contains(got, batchesDir) {
		t.Errorf("files: %s", got)
	}
	if _, err := q.AddAll("", train, make([]queue.Entry, queue.MaxBatch+1)); !fault.Is(err, fault.Usage) {
		t.Errorf("too many tasks: %v", err)
	}
	// One task that cannot be written: none is there.
	bad := rows("4", "5")
	bad[1].Command = []string{strings.Repeat("x", maxEntry)}
	if _, err := q.AddAll("", train, bad); !fault.Is(err, fault.Usage) {
		t.Errorf("a task that is too large: %v", err)
	}
	if got := wishes(t, q); got != want {
		t.Errorf("then the agent is offered %s; want %s", got, want)
	}
}

func TestKey(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	first, err := q.AddAll("k", train, rows("1", "2", "2"))
	if err != nil || first.New != 3 {
		t.Fatalf("%+v, %v", first, err)
	}
	report(t, q, first.IDs[1], task.Completed)
	again, err := q.AddAll("k", train, rows("2", "0", "1", "2"))
	if err != nil || again.New != 1 || again.IDs[0] != first.IDs[1] || again.IDs[2] != first.IDs[0] || again.IDs[3] != first.IDs[2] {
		t.Errorf("with one more: %+v, %v; first %+v", again, err, first)
	}
	if again, err = q.AddAll("k", train, rows("0", "1")); err != nil || again.New != 0 {
		t.Errorf("nothing new: %+v, %v", again, err)
	}
	if got := names(t, q.Spool); strings.Count(got, "lr=") != 4 {
		t.Errorf("tasks: %s", got)
	}
	if _, err := q.AddAll("k", []string{"./other"}, rows("1")); !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), `--key "k": its tasks run another command: that of lr=1 is ./train --lr 1`) {
		t.Errorf("another command: %v", err)
	}
	if other, err := q.AddAll("other", train, rows("1")); err != nil || other.New != 1 {
		t.Errorf("another key: %+v, %v", other, err)
	}
}

// Who is killed after the commit leaves a batch that anybody makes whole, once.
func TestBatchOnItsWay(t *testing.T) {
	for name, key := range map[string]string{"with a key": "k", "without": ""} {
		t.Run(name, func(t *testing.T) {
			q := open(t, t.TempDir(), "me")
			dir, batch := q.path(tmpDir, "batch-x"), "bx"
			m := manifest{Command: digest(train...)}
			if key != "" {
				batch, m.Key, m.Tasks = generation(key, 1), key, map[string]string{identities(rows("1"))[0]: "one", identities(rows("2"))[0]: "two"}
			}
			err := q.commit(dir, batch, m, func() error {
				if got := wishes(t, q); got != "" {
					t.Errorf("before the commit, the agent is offered %s", got)
				}
				for i, id := range []task.ID{"one", "two"} {
					e := rows("1", "2")[i]
					e.ID, e.State = id, task.Pending
					if err := q.writeNew(dir+"/"+string(id)+".json", e); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			// Killed in the middle of the way.
			if err := os.Rename(q.path(batchesDir, batch)+"/one.json", q.path(newDir, "one.json")); err != nil {
				t.Fatal(err)
			}
			if err := q.Claim(t.Context(), "one"); err != nil {
				t.Fatal(err)
			}
			if key != "" {
				b, err := q.AddAll(key, train, rows("1", "2", "3"))
				if err != nil || b.New != 1 || b.IDs[0] != "one" || b.IDs[1] != "two" {
					t.Errorf("%+v, %v", b, err)
				}
			}
			if got := wishes(t, q); !strings.HasPrefix(got, "+one +") || !strings.Contains(got, "+two") {
				t.Errorf("the agent is offered %q", got)
			}
			if got := files(t, q.Spool); strings.Contains(got, undeliveredDir) || key == "" && strings.Contains(got, batchesDir) {
				t.Errorf("files: %s", got)
			}
		})
	}
}

// Calls with one key and agents at the same time: each task is there once.
func TestKeyAtTheSameTime(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	var values []string
	for i := range 40 {
		values = append(values, fmt.Sprint(i))
	}
	var group sync.WaitGroup
	taken := make(chan task.ID, 1000)
	for range 6 {
		group.Go(func() {
			if b, err := q.AddAll("k", train, rows(values...)); err != nil || len(b.IDs) != 40 {
				t.Errorf("%+v, %v", b, err)
			}
		})
		group.Go(func() {
			other, err := q.For("other")
			if err != nil {
				t.Error(err)
				return
			}
			for range 20 {
				actions, err := other.Actions(t.Context(), nil)
				if err != nil {
					t.Error(err)
				}
				for _, a := range actions {
					if os.Rename(q.path(newDir, string(a.ID)+".json"), q.path(activeDir, string(a.ID)+"@other.json")) == nil {
						taken <- a.ID
					}
				}
			}
		})
	}
	group.Wait()
	close(taken)
	seen := map[task.ID]bool{}
	for id := range taken {
		if seen[id] {
			t.Errorf("task %s was taken twice", id)
		}
		seen[id] = true
	}
	if got := names(t, q.Spool); strings.Count(got, "lr=") != 40 {
		t.Errorf("tasks: %s", got)
	}
}

func TestTidyBatches(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	b, err := q.AddAll("k", train, rows("1"))
	if err != nil {
		t.Fatal(err)
	}
	old := func() {
		for _, name := range []string{generation("k", 1), "bgone"} {
			put(t, q.Spool, undeliveredDir+"/"+name, 48*3600e9)
		}
		age(t, q.path(batchesDir, generation("k", 1)))
		if err := q.Tidy(3600e9); err != nil {
			t.Fatal(err)
		}
	}
	old()
	if got := files(t, q.Spool); strings.Contains(got, "bgone") || !strings.Contains(got, generation("k", 1)+"/manifest") {
		t.Errorf("while its task is there: %s", got)
	}
	if err := os.Remove(q.path(newDir, string(b.IDs[0])+".json")); err != nil {
		t.Fatal(err)
	}
	old()
	if got := files(t, q.Spool); strings.Contains(got, "manifest") {
		t.Errorf("after its task: %s", got)
	}
}

// A batch that was committed is submitted, even if it cannot be delivered now: another call would
// submit it again.
func TestBatchThatCannotBeDelivered(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	first, err := q.AddAll("", train, rows("0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := q.RequestStop(first.IDs[0]); err != nil {
		t.Fatal(err)
	}
	// In the place of a disk that is full: no file can be made in these directories.
	away := func(dir string, bring bool) {
		t.Helper()
		from, to := q.path(dir, ""), q.path(dir, "")+".away"
		if bring {
			if err := os.Remove(from); err != nil {
				t.Fatal(err)
			}
			from, to = to, from
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		if !bring {
			if err := os.WriteFile(q.path(dir, ""), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	away(newDir, false)
	b, err := q.AddAll("", train, rows("1", "2"))
	if err != nil || b.New != 2 {
		t.Errorf("%+v, %v", b, err)
	}
	again := rows("0")
	again[0].RetryOf = first.IDs[0]
	r, err := q.Retry(again)
	if err != nil || r.New != 1 || r.IDs[0] == "" {
		t.Errorf("%+v, %v", r, err)
	}
	away(newDir, true)
	if want := fmt.Sprintf("+%s +%s +%s", b.IDs[0], b.IDs[1], r.IDs[0]); wishes(t, q) != want {
		t.Errorf("the agent is offered %s; want %s", wishes(t, q), want)
	}
}
