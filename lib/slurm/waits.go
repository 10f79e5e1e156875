package slurm

import (
	"context"
	"io"
	"strings"
)

// Waited is a run of a job with what it requested and how it has waited, from accounting. TRES is what it
// requested, whether it has started or not.
type Waited struct {
	Record
	Label    string // 12, 12_3 or 12_[4-9] of an array, 12+1 of a heterogeneous job
	Eligible int64  // since when nothing but the queue kept it; seconds since 1970; 0: not yet
	Hosts    string // hostlist; "": it has not started
	// Reason is the last reason of its wait but Priority and Resources, which accounting does not keep; "": none.
	Reason string
}

// tasks are those of an array that the row stands for, as squeue writes them.
func (w *Waited) tasks() (array, tasks string) {
	array, tasks, _ = strings.Cut(w.Label, "_")
	return array, strings.TrimSuffix(strings.TrimPrefix(tasks, "["), "]")
}

// TaskCount returns how many jobs the row stands for: the tasks of an array that have not started share one.
func (w *Waited) TaskCount() int {
	_, tasks := w.tasks()
	return countTasks(tasks)
}

// Is reports whether the row is of the job, or of a task or component of the job, that a user calls id.
func (w *Waited) Is(id string) bool {
	if w.Label == id || w.ID == id || strings.HasPrefix(w.Label, id+"_") || strings.HasPrefix(w.Label, id+"+") {
		return true
	}
	array, tasks := w.tasks()
	of, task, isTask := strings.Cut(id, "_")
	return isTask && of == array && (&Job{Tasks: tasks}).HasTask(task)
}

var waitColumns = append([]column[Waited]{
	{"JobID", func(c *columns, i int, r *Waited) { r.Label = string(c.cells[i]) }},
	{"Eligible", func(c *columns, i int, r *Waited) { r.Eligible = c.stamp(i) }},
	{"NodeList", func(c *columns, i int, r *Waited) { r.Hosts = orEmpty(c.text(i)) }},
	{"Reason", func(c *columns, i int, r *Waited) { r.Reason = orEmpty(c.text(i)) }},
	{"ReqTRES", func(c *columns, i int, r *Waited) { r.TRES = c.list(i) }},
}, lifted(pick(recordColumns, "JobIDRaw", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End", "Timelimit",
	"NNodes", "JobName"), func(r *Waited) *Record { return &r.Record })...)

// EachWait calls each with the runs of the jobs of ids or, without ids, of a period; each run of a requeued job
// is a row. If an id is an element of an array, other elements may be included.
func (c *Client) EachWait(ctx context.Context, ids []string, p Period, each func(*Waited) error) error {
	form := c.marked("sacct")
	args := append(form.parsable(columnNames(waitColumns)), append(p.args(ids), "--allocations", "--duplicates", "--noconvert")...)
	return c.Stream(ctx, func(r io.Reader) error {
		return rows(r, form, waitColumns, func(w *Waited) error {
			if w.Hosts == "" { // some versions of Slurm give jobs that never started a time
				w.Start = 0
			}
			return each(w)
		})
	}, "sacct", args...)
}
