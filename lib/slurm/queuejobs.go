package slurm

import (
	"io"
	"strconv"
	"strings"
	"time"
)

// QueueJob is one row of the queue as the views of the queue need it: a job,
// an array (its pending tasks are one row), a component of a heterogeneous job;
// a job that waits for several partitions has a row for each.
type QueueJob struct {
	ID      uint64 // the raw id, by which sprio knows the job
	ArrayID uint64
	Label   string // as squeue prints the id: 12, 14_[5-20], 12+1
	Tasks   string // array task ids: 7, 5-20, 1-6%3; empty if no array

	HetID     uint64
	HetOffset uint64

	User, Account, Partition, QOS, State string

	Priority uint64 // of the job; sprio has the one in each partition
	Nice     int64

	// Seconds since 1970; 0 is unknown. Of a pending job Start and End are what
	// the backfill scheduler expects.
	Submit, Eligible, Accrue, Start, End int64

	Limit time.Duration // 0 if not set
	Nodes uint64
	CPUs  uint64

	TRES TRESCounts // requested or allocated

	GPURequest string // of --gpus and --gpus-per-node, as Slurm writes it

	NodeList, SchedNodes    string
	ReqNodes, Features      string // asked for by name, and what the nodes must have
	Reservation, Dependency string
	Reason, Name            string
}

// queueColumns are the columns asked from squeue. The name comes last: it may
// contain bars and newlines, and only the mark behind it ends the record.
var queueColumns = []string{
	"JobID", "ArrayJobID", "JobArrayID", "ArrayTaskID", "HetJobID", "HetJobOffset",
	"UserName", "Account", "Partition", "QOS", "State", "PriorityLong", "Nice",
	"SubmitTime", "EligibleTime", "AccrueTime", "StartTime", "EndTime", "TimeLimit",
	"NumNodes", "NumCPUs", "tres-alloc", "tres-per-job", "tres-per-node",
	"NodeList", "SchedNodes", "ReqNodes", "Feature", "Reservation", "Dependency", "Reason", "Name",
}

// QueueJobsArgs are squeue's arguments for the rows of ParseQueueJobs. mark ends each
// row; it must not be foreseeable, as users choose the names of their jobs.
// Without partitions, users or jobs, every job is asked for.
func QueueJobsArgs(mark string, states ...string) []string {
	format := strings.Join(queueColumns, ":|,") + ":|~" + mark
	args := []string{"--noheader", "--all", "--local", "--priority", "--noconvert", "--Format=" + format}
	if len(states) > 0 {
		args = append(args, "--states="+strings.Join(states, ","))
	}
	return args
}

// ScanQueueJobs reads the rows of squeue one by one. The row is good for one call.
func ScanQueueJobs(r io.Reader, mark string, row func(*QueueJob) error) error {
	c := newColumns("squeue", r, endOfRecord+mark, queueColumns)
	b := c.cells
	var lastName string
	for c.next() {
		j := QueueJob{
			ID: c.uint(0, b[0]), ArrayID: c.uint(1, b[1]), Label: string(b[2]), Tasks: c.word(b[3]),
			User: c.text(b[6]), Account: c.word(b[7]), Partition: c.text(b[8]), QOS: c.word(b[9]), State: c.text(b[10]),
			Priority: c.uint(11, b[11]), Nice: c.int(12, b[12]),
			Submit: c.stamp(13, b[13]), Eligible: c.stamp(14, b[14]), Accrue: c.stamp(15, b[15]),
			Start: c.stamp(16, b[16]), End: c.stamp(17, b[17]), Limit: c.limit(18, b[18]),
			CPUs: c.uint(20, b[20]), TRES: c.tres(21, b[21]), GPURequest: c.gpuRequest(b[22], b[23]),
			NodeList: c.word(b[24]), SchedNodes: c.word(b[25]), ReqNodes: c.word(b[26]), Features: c.word(b[27]), Reservation: c.word(b[28]),
			Dependency: c.word(b[29]), Reason: c.text(b[30]), Name: recent(b[31], &lastName),
		}
		if het := c.word(b[4]); het != "" && het != "0" {
			j.HetID, j.HetOffset = c.uint(4, b[4]), c.uint(5, b[5])
		}
		low, _, _ := strings.Cut(string(b[19]), "-")
		if n, err := strconv.ParseUint(low, 10, 32); err == nil {
			j.Nodes = n
		} else {
			c.bad(19, b[19], "a number of nodes")
		}
		if c.err != nil {
			return c.err
		}
		if err := row(&j); err != nil {
			return err
		}
	}
	return c.err
}

// recent returns the text, without a copy if it is that of the row before.
func recent(b []byte, last *string) string {
	if string(b) != *last {
		*last = string(b)
	}
	return *last
}

// gpuRequest keeps what says something about GPUs.
func (c *columnReader) gpuRequest(perJob, perNode []byte) string {
	if s := c.word(perJob); s != "" {
		return "job:" + s
	}
	if s := c.word(perNode); s != "" {
		return "node:" + s
	}
	return ""
}

// ParseQueueJobs reads all rows of squeue.
func ParseQueueJobs(r io.Reader, mark string) ([]QueueJob, error) {
	var jobs []QueueJob
	err := ScanQueueJobs(r, mark, func(j *QueueJob) error { jobs = append(jobs, *j); return nil })
	if err != nil {
		return nil, err
	}
	return jobs, nil
}

// Pending reports whether the job waits to be started.
func (j *QueueJob) Pending() bool { return j.State == "PENDING" }

// HoldsNodes reports whether the job has nodes, so that others cannot.
func (j *QueueJob) HoldsNodes() bool {
	switch j.State {
	case "RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING", "STOPPED":
		return true
	}
	return false
}

// TaskCount is how many jobs the row stands for.
func (j *QueueJob) TaskCount() int { return countTasks(j.Tasks) }

// countTasks counts the task ids in 1,3-5,10-20:2%4. Slurm shortens a long list
// with "..."; what is cut off is not counted.
func countTasks(tasks string) int {
	tasks, _, _ = strings.Cut(tasks, "%")
	if tasks == "" {
		return 1
	}
	total := 0
	for part := range strings.SplitSeq(tasks, ",") {
		part, stepText, hasStep := strings.Cut(part, ":")
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(low, 10, 32)
		if err != nil {
			continue
		}
		last, step := first, uint64(1)
		if isRange {
			if last, err = strconv.ParseUint(high, 10, 32); err != nil || last < first {
				continue
			}
		}
		if hasStep {
			if step, err = strconv.ParseUint(stepText, 10, 32); err != nil || step == 0 {
				continue
			}
		}
		total += int((last-first)/step) + 1
	}
	return max(total, 1)
}

// GPUs is the number of GPUs of the whole job. Where GPUs are not among the
// cluster's tracked resources, the request tells.
func (j *QueueJob) GPUs() float64 {
	if n := j.TRES.GPUs(); n > 0 || j.GPURequest == "" {
		return n
	}
	what, list, _ := strings.Cut(j.GPURequest, ":")
	n := gpusIn(list)
	if what == "node" {
		n *= float64(max(j.Nodes, 1))
	}
	return n
}

// gpusIn counts the GPUs in gres:gpu:a100:2,gres/gpu:1 and gpu:2.
func gpusIn(list string) float64 {
	var n float64
	for item := range strings.SplitSeq(list, ",") {
		// A GPU without a type is gpu:(null):2 among those in use.
		item, _, _ = strings.Cut(strings.Replace(item, ":(null):", ":", 1), "(")
		item = strings.TrimPrefix(strings.TrimPrefix(item, "gres:"), "gres/")
		name, rest, _ := strings.Cut(strings.ReplaceAll(item, "=", ":"), ":")
		if name != "gpu" {
			continue
		}
		count := rest[strings.LastIndexByte(rest, ':')+1:]
		if v, err := strconv.ParseFloat(count, 64); err == nil {
			n += v
		} else {
			n++
		}
	}
	return n
}
