package slurm

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// Placement is what a running job has on a group of nodes; CPUs, MemMB (MiB) and GPUs are per
// node.
type Placement struct {
	JobID uint64
	Nodes string // hostlist
	CPUs  int64
	MemMB float64
	GPUs  int64
}

// JobDetail has the fields of a job that only scontrol show job reports.
type JobDetail struct {
	ID         uint64
	ArrayID    uint64 // 0: not an array
	Indices    string // the array elements that the record stands for
	State      string
	Exit       Exit
	WholeNodes bool // --exclusive
	Placements []Placement

	UserID      uint32
	ExcNodes    string        // hostlist of --exclude
	Licenses    string        // such as matlab:2
	GRESPerTask string        // such as gres:gpu:a100:1
	TimeMin     time.Duration // --time-min; 0: not set
	Evaluated   int64         // last evaluation by the scheduler, in seconds since 1970; 0: never
	StdOut      string
	Comment     string
}

// Numbers returns the ids of the jobs that the record stands for, in the form that other
// commands accept.
func (j *JobDetail) Numbers() []string {
	if j.ArrayID == 0 {
		return []string{strconv.FormatUint(j.ID, 10)}
	}
	return Elements(strconv.FormatUint(j.ArrayID, 10) + "_[" + j.Indices + "]")
}

// JobDetails returns the details of a job or, for "", of all jobs. A job that the controller
// does not know has none.
func (c *Client) JobDetails(ctx context.Context, job string) ([]JobDetail, error) {
	args := []string{"--all", "--oneliner", "--details", "show", "job"}
	if job != "" {
		args = append(args, job)
	}
	details, err := stream(ctx, c, ParseJobDetails, "scontrol", args...)
	var e *Error
	if job != "" && errors.As(err, &e) && e.Says("Invalid job id") {
		return nil, nil
	}
	return details, err
}

// ParseJobDetails parses scontrol -o -d show job.
func ParseJobDetails(r io.Reader) ([]JobDetail, error) {
	s := newRecords("job", "JobId", r)
	s.loose = true
	return readAll(s, func(j *JobDetail) {
		var here *Placement
		var known struct{ state, exit, share bool }
		s.fields(func(key, value []byte) bool {
			switch string(key) {
			case "JobId":
				if j.ID == 0 {
					j.ID = uint64(s.number(key, value))
				}
			case "ArrayJobId":
				j.ArrayID = uint64(s.number(key, value))
			case "ArrayTaskId":
				if j.Indices == "" {
					j.Indices = s.word(value)
				}
			case "UserId": // alice(1001)
				if _, id, ok := strings.Cut(strings.TrimSuffix(string(value), ")"), "("); ok && j.UserID == 0 {
					n, _ := parseNumber(id)
					j.UserID = uint32(n)
				}
			case "ExcNodeList":
				j.ExcNodes = s.word(value)
			case "Licenses":
				j.Licenses = s.word(value)
			case "TresPerTask":
				j.GRESPerTask = s.word(value)
			case "TimeMin":
				if limit, ok := parseTimeLimit(orEmpty(string(value))); ok && limit != Unlimited {
					j.TimeMin = limit
				}
			case "LastSchedEval":
				j.Evaluated, _ = ParseTime(string(value))
			case "StdOut":
				j.StdOut = string(value)
			case "Comment":
				j.Comment = s.text(value)
			case "JobState":
				if !known.state {
					j.State, known.state = s.text(value), true
				}
			case "ExitCode":
				if !known.exit {
					j.Exit, known.exit = parseExit(string(value))
					s.check(known.exit, key, value, "an exit code")
				}
			case "OverSubscribe":
				if !known.share {
					known.share = true
					switch string(value) {
					case "NO", "USER", "MCS", "TOPO":
						j.WholeNodes = true
					}
				}
			// Each group of nodes has a line with Nodes, CPU_IDs, Mem and GRES.
			case "Nodes":
				here = &Placement{JobID: j.ID, Nodes: string(value)}
			case "CPU_IDs":
				cpus, ok := countIDs(string(value))
				if here == nil {
					return true // the name or the command of a job may contain the word
				}
				s.check(ok, key, value, "a list of CPUs")
				here.CPUs = cpus
				j.Placements = append(j.Placements, *here)
				here = &j.Placements[len(j.Placements)-1]
			case "Mem":
				if here != nil && here.CPUs > 0 {
					mem, err := ParseMemory(string(value))
					s.check(err == nil, key, value, "an amount of memory")
					here.MemMB = mem
				}
			case "GRES":
				if here != nil && here.CPUs > 0 {
					here.GPUs, here = gpusIn(string(value)), nil
				}
			}
			return s.err == nil
		})
		s.check(known.exit && known.state, []byte("JobId"), []byte(strconv.FormatUint(j.ID, 10)), "followed by JobState and ExitCode")
	})
}
