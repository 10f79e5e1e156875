package slurm

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/task"
)

// Accounting that hangs is asked rarely, each time with more patience, and warned of once. When it has
// answered slowly, the next query has more time than that took.
func TestAccountingThatHangs(t *testing.T) {
	var warnings []string
	at := now
	a := Accounting{
		File: filepath.Join(t.TempDir(), "accounting.json"), base: 4 * time.Millisecond,
		Warn: func(text string) { warnings = append(warnings, text) },
	}
	asked := 0
	hang := func(ctx context.Context) error {
		asked++
		<-ctx.Done()
		return context.Cause(ctx)
	}
	seen := func() time.Time { return at }
	for i, pause := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		if err := a.ask(t.Context(), seen, hang); err == nil || asked != i+1 {
			t.Fatalf("query %d: %v, asked %d times", i, err, asked)
		}
		if p := a.read(); p.Limit != a.base<<(i+1) || !p.Next.Equal(at.Add(pause)) {
			t.Errorf("after query %d: %+v; want a pause of %v", i, p, pause)
		}
		at = at.Add(pause - time.Second)
		if err := a.ask(t.Context(), seen, hang); !errors.Is(err, errSilent) || asked != i+1 {
			t.Errorf("within the pause: %v, asked %d times", err, asked)
		}
		at = at.Add(time.Second)
	}
	if len(warnings) != 1 {
		t.Errorf("%q", warnings)
	}
	slow := 2 * a.base
	err := a.ask(t.Context(), seen, func(context.Context) error {
		time.Sleep(slow)
		return nil
	})
	if p := a.read(); err != nil || p.Limit < 2*slow || !p.Next.IsZero() || p.Pauses != 0 {
		t.Errorf("%v: %+v after an answer in %v", err, p, slow)
	}
}

// The recorded end of a command is reported although accounting does not answer.
func TestARecordedEndWithoutAccounting(t *testing.T) {
	e := evidence{journal: true, owner: "7", books: silent, now: now, run: record.Run{Begun: true, Ended: true, Closed: true, Code: 4}}
	e.ref.Job = "7"
	if job := e.judge(); job.Shows() != task.Failed || job.ExitCode != 4 || !job.Sight.Sure() {
		t.Errorf("%+v", job)
	}
	e.run.Closed = false // the job script runs
	if job := e.judge(); job.Sight.Sure() || isPacked(job.ID) {
		t.Errorf("%+v", job)
	}
}
