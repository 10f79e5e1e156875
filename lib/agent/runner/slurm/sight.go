package slurm

import (
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Sight is all that is seen of the jobs of one task at one time: what Slurm shows, and what the job
// scripts have recorded.
type Sight struct {
	Ref     runner.Ref                     // the recorded job
	Queue   []slurm.Job                    // rows of squeue with the task's comment
	Account func(job string) *slurm.Record // what accounting shows of a job; nil: nothing
	// NoAccounting says that the cluster has no accounting.
	NoAccounting bool
	// Siblings says that squeue and accounting show other elements of the job's array.
	Siblings bool
	Owner    string                      // the job that owns the task; "" if none does
	Run      func(job string) record.Run // the journal of a job
	Now      time.Time
}

// Judge returns which job of a task counts, and its state: the decisions of Jobs for a task whose
// directory can be read, without a scheduler and without files.
func Judge(s Sight) runner.Job {
	e := evidence{ref: s.Ref, now: s.Now, siblings: s.Siblings}
	var more []*slurm.Job
	for i := range s.Queue {
		if row := &s.Queue[i]; row.Number() == s.Ref.Job {
			e.queue = row
		} else {
			more = append(more, row)
		}
	}
	if e.queue == nil || len(more) > 0 {
		e.choose(more, s.Owner)
	}
	if e.queue == nil || !Alive(e.queue) {
		if s.NoAccounting {
			e.books = noBooks
		} else {
			e.account = s.Account(e.ref.Job)
		}
	}
	if e.queue == nil || !Alive(e.queue) || e.queue.State == "RUNNING" {
		e.journal, e.run, e.owner = true, s.Run(e.ref.Job), s.Owner
	}
	return e.judge()
}
