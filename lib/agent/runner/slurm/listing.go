package slurm

import (
	"context"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// listing is what one call of squeue has shown, which many tasks look into.
type listing struct {
	rows   []slurm.Job
	ofTask map[string][]*slurm.Job // by comment
	ofID   map[string]*slurm.Job   // by the id that scancel takes
	ended  func() map[string]bool  // see Runner.ended, which is called once
}

func newListing(rows []slurm.Job) *listing {
	l := &listing{rows: rows, ofTask: make(map[string][]*slurm.Job, len(rows)), ofID: make(map[string]*slurm.Job, len(rows))}
	for i := range rows {
		row := &rows[i]
		l.ofID[row.Number()] = row
		if row.Comment != "" {
			l.ofTask[row.Comment] = append(l.ofTask[row.Comment], row)
		}
	}
	return l
}

// young is the age up to which a listing shows the jobs that were there before this process began.
const young = 2 * time.Second

func (r *Runner) recent(ctx context.Context) (*listing, error) { return r.squeue.Recent(ctx, young) }

// existing returns the job that an earlier try has submitted.
func (l *listing) existing(s runner.Submission) *slurm.Job {
	if l == nil {
		return nil
	}
	var found *slurm.Job
	for _, row := range l.ofTask[task.Marks(s.Task)] {
		if slices.Contains(s.Before, row.Number()) {
			continue
		}
		if found == nil || better(row, found) {
			found = row
		}
	}
	return found
}
