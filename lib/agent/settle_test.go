package agent

import (
	"log/slog"
	"os"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// A job that Slurm has forgotten may begin as late as this: then no other one runs its task. The claim of one that has ended is
// removed.
func TestAForgottenJobThatClaimsLateKeepsItsTask(t *testing.T) {
	for _, forgotten := range []bool{true, false} {
		store := testStore(t)
		d, err := store.Create("a")
		if err != nil {
			t.Fatal(err)
		}
		r := Record{ID: "a", Slug: "x", Attempt: 1, Job: "7", Intent: clock.Now()}
		if err := d.Write(r); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("7", d.file(record.Owner(1))); err != nil {
			t.Fatal(err)
		}
		a := &Agent{Queue: plainQueue{}, Runner: plainRunner{}, Store: store, Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s"}
		job := runner.Job{Task: "a", ID: "7", State: task.Error, NotBegun: true, Forgotten: forgotten, Reason: "x"}
		k, err := a.submitAgain(t.Context(), d, r.tracked(), job, nil)
		if err != nil {
			t.Fatal(err)
		}
		owner, err := record.ReadOwner(d.Path, 1)
		if err != nil {
			t.Fatal(err)
		}
		after, err := d.Read()
		if err != nil {
			t.Fatal(err)
		}
		if kept := k != nil && owner == "7" && after.Job == "7" && after.Tries == 0; kept != forgotten {
			t.Errorf("forgotten %v: %+v, owner %q, record %+v", forgotten, k, owner, after)
		}
	}
}
