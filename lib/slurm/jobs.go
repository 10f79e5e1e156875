package slurm

import (
	"context"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
)

// Job is a row of squeue: a job, an array (its pending tasks are one row) or a component of a
// heterogeneous job. A job that waits for several partitions has a row for each. Columns that
// the query did not request are zero.
type Job struct {
	ID      uint64 // the raw id, by which sprio knows the job
	ArrayID uint64
	Label   string // as squeue prints the id: 12, 14_[5-20], 12+1
	Tasks   string // array task ids: 7, 5-20, 1-6%3; empty if no array

	HetID     uint64
	HetOffset uint64

	User, Account, Partition, QOS string
	State                         string // such as RUNNING

	Priority uint64 // of the job; sprio has one for each partition
	Nice     int64

	// Seconds since 1970; 0 is unknown. Start and End of a pending job are the backfill
	// scheduler's expectation.
	Submit, Eligible, Accrue, Start, End int64

	Limit time.Duration // 0 if not set
	Nodes uint64
	CPUs  uint64

	TRES TRES // requested or allocated

	GPURequest string // from --gpus and --gpus-per-node, in Slurm's format

	NodeList, SchedNodes    string
	ReqNodes, Features      string // --nodelist and --constraint
	Reservation, Dependency string
	Reason, Name            string

	Exit     Exit // of the batch script
	Derived  Exit // the highest of its steps
	Restarts uint64
	Comment  string
	WorkDir  string // as sbatch --chdir had it
}

// jobColumns are the columns of squeue.
var jobColumns = []column[Job]{
	{"JobID", func(c *columns, i int, j *Job) { j.ID = c.uint(i) }},
	{"ArrayJobID", func(c *columns, i int, j *Job) { j.ArrayID = c.uint(i) }},
	{"JobArrayID", func(c *columns, i int, j *Job) { j.Label = string(c.cells[i]) }},
	{"ArrayTaskID", func(c *columns, i int, j *Job) { j.Tasks = c.word(i) }},
	{"HetJobID", func(c *columns, i int, j *Job) { j.HetID = c.optional(i) }},
	{"HetJobOffset", func(c *columns, i int, j *Job) { j.HetOffset = c.optional(i) }},
	{"UserName", func(c *columns, i int, j *Job) { j.User = c.text(i) }},
	{"Account", func(c *columns, i int, j *Job) { j.Account = c.word(i) }},
	{"Partition", func(c *columns, i int, j *Job) { j.Partition = c.text(i) }},
	{"QOS", func(c *columns, i int, j *Job) { j.QOS = c.word(i) }},
	{"State", func(c *columns, i int, j *Job) { j.State = c.state(i) }},
	{"PriorityLong", func(c *columns, i int, j *Job) { j.Priority = c.optional(i) }},
	{"Nice", func(c *columns, i int, j *Job) { j.Nice = c.int(i) }},
	{"SubmitTime", func(c *columns, i int, j *Job) { j.Submit = c.stamp(i) }},
	{"EligibleTime", func(c *columns, i int, j *Job) { j.Eligible = c.stamp(i) }},
	{"AccrueTime", func(c *columns, i int, j *Job) { j.Accrue = c.stamp(i) }},
	{"StartTime", func(c *columns, i int, j *Job) { j.Start = c.stamp(i) }},
	{"EndTime", func(c *columns, i int, j *Job) { j.End = c.stamp(i) }},
	{"TimeLimit", func(c *columns, i int, j *Job) { j.Limit = c.limit(i) }},
	{"NumNodes", func(c *columns, i int, j *Job) {
		low, _, _ := strings.Cut(string(c.cells[i]), "-")
		n, ok := parseNumber(low)
		c.check(ok || noNumber(low), i, "a number of nodes")
		j.Nodes = uint64(n)
	}},
	{"NumCPUs", func(c *columns, i int, j *Job) { j.CPUs = c.optional(i) }},
	{"tres-alloc", func(c *columns, i int, j *Job) { j.TRES = c.list(i) }},
	{"tres-per-job", func(c *columns, i int, j *Job) { j.request("job:", c.word(i)) }},
	{"tres-per-node", func(c *columns, i int, j *Job) { j.request("node:", c.word(i)) }},
	{"NodeList", func(c *columns, i int, j *Job) { j.NodeList = c.word(i) }},
	{"SchedNodes", func(c *columns, i int, j *Job) { j.SchedNodes = c.word(i) }},
	{"ReqNodes", func(c *columns, i int, j *Job) { j.ReqNodes = c.word(i) }},
	{"Feature", func(c *columns, i int, j *Job) { j.Features = c.word(i) }},
	{"Reservation", func(c *columns, i int, j *Job) { j.Reservation = c.word(i) }},
	{"Dependency", func(c *columns, i int, j *Job) { j.Dependency = c.word(i) }},
	{"Reason", func(c *columns, i int, j *Job) { j.Reason = c.text(i) }},
	{"Name", func(c *columns, i int, j *Job) { j.Name = c.recent(i) }},
}

// ownColumns are the columns that the agent requests for its jobs.
var ownColumns = append(append([]column[Job]{
	// The id that other commands accept, also for an element of an array. The raw id of an
	// element changes when it starts.
	{"JobArrayID", func(c *columns, i int, j *Job) {
		j.Label = string(c.cells[i])
		e, ok := parseElements(j.Label)
		c.check(ok, i, "a job id")
		j.ID, j.ArrayID, j.Tasks = e.id, e.array, e.indices
	}},
}, pick(jobColumns, "State", "Reason", "SubmitTime", "StartTime")...),
	column[Job]{"exit_code", func(c *columns, i int, j *Job) { j.Exit = c.exit(i) }},
	column[Job]{"DerivedEC", func(c *columns, i int, j *Job) { j.Derived = c.exit(i) }},
	column[Job]{"RestartCnt", func(c *columns, i int, j *Job) { j.Restarts = c.optional(i) }},
	// recent: the elements of an array share it.
	column[Job]{"Comment", func(c *columns, i int, j *Job) { j.Comment = orEmpty(c.recent(i)) }},
	column[Job]{"WorkDir", func(c *columns, i int, j *Job) { j.WorkDir = orEmpty(c.recent(i)) }},
)

func jobsArgs(asked []column[Job], mark string, more ...string) []string {
	return append([]string{"--noheader", "--all", "--local", "--priority", "--noconvert", squeueFormat(columnNames(asked), mark)}, more...)
}

func squeueFormat(names []string, mark string) string {
	return "--Format=" + strings.Join(names, ":"+mark+",") + ":" + mark
}

// squeue runs squeue and calls each with its rows as they arrive.
func (c *Client) squeue(ctx context.Context, asked []column[Job], each func(*Job) error, more ...string) error {
	form := c.marked("squeue")
	return c.Stream(ctx, func(r io.Reader) error { return rows(r, form, asked, each) }, "squeue", jobsArgs(asked, form.mark, more...)...)
}

// EachJob calls each with the rows of all users. A row is valid during the call. Without
// states, these are pending, running and completing jobs.
func (c *Client) EachJob(ctx context.Context, each func(*Job) error, states ...string) error {
	var more []string
	if len(states) > 0 {
		more = []string{"--states=" + strings.Join(states, ",")}
	}
	return c.squeue(ctx, jobColumns, each, more...)
}

// Queue returns all jobs of a user that the controller knows, including those that ended
// recently (MinJobAge). Only Label, State, Reason, Submit, Start, Exit, Derived, Restarts,
// Comment and WorkDir are set, and ID, which is the id of the array for its elements, with
// ArrayID and Tasks.
func (c *Client) Queue(ctx context.Context, uid int) ([]Job, error) {
	var jobs []Job
	if err := c.squeue(ctx, ownColumns, collect(&jobs), "--states=all", "--user="+strconv.Itoa(uid)); err != nil {
		return nil, err
	}
	return jobs, nil
}

// request sets GPURequest, unless an earlier column has set it.
func (j *Job) request(what, list string) {
	if j.GPURequest == "" && list != "" {
		j.GPURequest = what + list
	}
}

// Number returns the id that other commands accept: 12, or 12_3 for an element of an array.
func (j *Job) Number() string {
	if j.Label != "" {
		return j.Label
	}
	return strconv.FormatUint(j.ID, 10)
}

// Pending reports whether the job is pending.
func (j *Job) Pending() bool { return j.State == "PENDING" }

// HoldsNodes reports whether nodes are allocated to the job.
func (j *Job) HoldsNodes() bool {
	switch j.State {
	case "RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING", "STOPPED":
		return true
	}
	return false
}

// TaskCount returns how many jobs the row stands for.
func (j *Job) TaskCount() int { return countTasks(j.Tasks) }

// RunnableTasks returns how many of them the array may run at the same time (%LIMIT).
func (j *Job) RunnableTasks() int {
	n := j.TaskCount()
	if _, limit, ok := strings.Cut(j.Tasks, "%"); ok {
		if k, err := strconv.Atoi(limit); err == nil && k > 0 {
			n = min(n, k)
		}
	}
	return n
}

// HasTask reports whether a task, as squeue writes it, is among those of the row.
func (j *Job) HasTask(task string) bool {
	if j.Tasks == task {
		return true
	}
	n, err := strconv.ParseUint(task, 10, 32)
	if err != nil {
		return false
	}
	for r := range taskRanges(j.Tasks) {
		if n >= r.first && n <= r.last && (n-r.first)%r.step == 0 {
			return true
		}
	}
	return false
}

// countTasks counts the task ids of a row; 1 if it names none.
func countTasks(tasks string) int {
	total := 0
	for r := range taskRanges(tasks) {
		total += int((r.last-r.first)/r.step) + 1
	}
	return max(total, 1)
}

// taskRange is the task ids first, first+step and so on up to last.
type taskRange struct{ first, last, step uint64 }

// taskRanges reads 1,3-5,10-20:2%4. Slurm shortens a long list with "..."; the ids after that are
// not known. What is not a range is skipped.
func taskRanges(tasks string) iter.Seq[taskRange] {
	return func(yield func(taskRange) bool) {
		tasks, _, _ := strings.Cut(tasks, "%")
		for part := range strings.SplitSeq(tasks, ",") {
			part, stepText, hasStep := strings.Cut(part, ":")
			low, high, isRange := strings.Cut(part, "-")
			first, err := strconv.ParseUint(low, 10, 32)
			if err != nil {
				continue
			}
			r := taskRange{first, first, 1}
			if isRange {
				if r.last, err = strconv.ParseUint(high, 10, 32); err != nil || r.last < first {
					continue
				}
			}
			if hasStep {
				if r.step, err = strconv.ParseUint(stepText, 10, 32); err != nil || r.step == 0 {
					continue
				}
			}
			if !yield(r) {
				return
			}
		}
	}
}

// GPUs returns the number of GPUs of the whole job: from TRES or, if the cluster does not track
// GPUs, from the request.
func (j *Job) GPUs() float64 {
	if n := j.TRES.GPUs(); n > 0 || j.GPURequest == "" {
		return n
	}
	what, list, _ := strings.Cut(j.GPURequest, ":")
	n := float64(gpusIn(list))
	if what == "node" {
		n *= float64(max(j.Nodes, 1))
	}
	return n
}
