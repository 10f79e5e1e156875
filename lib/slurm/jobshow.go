package slurm

import (
	"context"
	"errors"
	"io"
	"slices"
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

var detailsArgs = []string{"--all", "--oneliner", "--details", "show", "job"}

// JobDetails returns the details of a job. One that the controller does not know has none.
func (c *Client) JobDetails(ctx context.Context, job string) ([]JobDetail, error) {
	details, err := show(ctx, c, parseJobDetails, append(slices.Clip(detailsArgs), job)...)
	var e *Error
	if errors.As(err, &e) && e.Says("Invalid job id") {
		return nil, nil
	}
	return details, err
}

// maxApart limits the jobs that AllJobDetails asks for one by one.
const maxApart = 16

// AllJobDetails returns the details of the jobs of which keep says so: there may be a hundred thousand. A job of which a user has
// made up a second record, in a name or a comment with newlines, is asked for apart, where only its own text is printed. If there
// are many of these, the details of the others are left out.
func (c *Client) AllJobDetails(ctx context.Context, keep func(*JobDetail) bool) ([]JobDetail, error) {
	var sure []JobDetail
	count := map[uint64]uint8{}
	var doubtful []uint64
	err := c.Stream(ctx, func(r io.Reader) error {
		return eachJobDetail(r, c.Odd, func(j *JobDetail) {
			switch count[j.ID] {
			case 0:
				if count[j.ID] = 1; keep(j) {
					sure = append(sure, *j)
				}
			case 1:
				count[j.ID] = 2
				doubtful = append(doubtful, j.ID)
			}
		})
	}, "scontrol", detailsArgs...)
	if err != nil {
		return nil, err
	}
	if len(doubtful) > 0 {
		sure = slices.DeleteFunc(sure, func(j JobDetail) bool { return count[j.ID] > 1 })
	}
	for i, id := range doubtful[:min(len(doubtful), maxApart+1)] {
		unsure := parseError("scontrol show job", 1, "job %d: several records", id)
		if i == maxApart {
			unsure = parseError("scontrol show job", 1, "job %d and others: several records", id)
		} else if apart, err := c.JobDetails(ctx, strconv.FormatUint(id, 10)); err != nil {
			return nil, err
		} else if apart = slices.DeleteFunc(apart, func(j JobDetail) bool { return j.ID != id }); len(apart) < 2 {
			sure = append(sure, apart...) // none: there is no such job
			continue
		}
		if c.Odd == nil {
			return nil, unsure
		}
		c.Odd(unsure)
	}
	return sure, nil
}

// A jobKey is a key of a job's record that counts. It comes once: a second one is in the name, the command or another
// free text.
type jobKey struct {
	bit uint
	set func(s *records, j *JobDetail, key, value []byte)
}

var jobKeys = func() map[string]jobKey {
	keys := map[string]jobKey{}
	add := func(name string, set func(s *records, j *JobDetail, key, value []byte)) {
		keys[name] = jobKey{uint(len(keys)), set}
	}
	word := func(of func(*JobDetail) *string) func(*records, *JobDetail, []byte, []byte) {
		return func(s *records, j *JobDetail, _, value []byte) { *of(j) = s.word(value) }
	}
	add("JobId", func(s *records, j *JobDetail, key, value []byte) { j.ID = uint64(s.number(key, value)) })
	add("ArrayJobId", func(s *records, j *JobDetail, key, value []byte) { j.ArrayID = uint64(s.number(key, value)) })
	add("ArrayTaskId", word(func(j *JobDetail) *string { return &j.Indices }))
	add("UserId", func(s *records, j *JobDetail, key, value []byte) { // alice(1001)
		_, id, _ := strings.Cut(strings.TrimSuffix(string(value), ")"), "(")
		n, ok := parseNumber(id)
		s.check(ok, key, value, "a user with an id")
		j.UserID = uint32(n)
	})
	add("JobState", word(func(j *JobDetail) *string { return &j.State }))
	add("ExitCode", func(s *records, j *JobDetail, key, value []byte) {
		var ok bool
		j.Exit, ok = parseExit(string(value))
		s.check(ok, key, value, "an exit code")
	})
	add("TimeMin", func(s *records, j *JobDetail, key, value []byte) {
		if noNumber(string(value)) {
			return
		}
		if limit, ok := parseTimeLimit(string(value)); ok && limit != Unlimited {
			j.TimeMin = limit
		}
	})
	add("ExcNodeList", word(func(j *JobDetail) *string { return &j.ExcNodes }))
	add("CoreSpec", func(*records, *JobDetail, []byte, []byte) {})
	add("MinCPUsNode", func(*records, *JobDetail, []byte, []byte) {})
	add("OverSubscribe", func(_ *records, j *JobDetail, _, value []byte) { j.WholeNodes = wholeNodes(value) })
	// Since 26.05, which prints OverSubscribe=NO for any job.
	add("Exclusive", func(_ *records, j *JobDetail, _, value []byte) { j.WholeNodes = string(value) != "NO" })
	add("Licenses", word(func(j *JobDetail) *string { return &j.Licenses }))
	add("TresPerTask", word(func(j *JobDetail) *string { return &j.GRESPerTask }))
	add("Comment", func(s *records, j *JobDetail, _, value []byte) { j.Comment = s.text(value) })
	add("StdOut", func(_ *records, j *JobDetail, _, value []byte) { j.StdOut = string(value) })
	return keys
}()

func wholeNodes(shared []byte) bool {
	switch string(shared) {
	case "NO", "USER", "MCS", "TOPO":
		return true
	}
	return false
}

// ParseJobDetails parses scontrol -o -d show job.
func ParseJobDetails(r io.Reader) ([]JobDetail, error) { return parseJobDetails(r, nil) }

func parseJobDetails(r io.Reader, odd func(error)) (all []JobDetail, err error) {
	if err = eachJobDetail(r, odd, func(j *JobDetail) { all = append(all, *j) }); err != nil {
		return nil, err
	}
	return all, nil
}

func eachJobDetail(r io.Reader, odd func(error), each func(*JobDetail)) error {
	s := newRecords("job", "JobId", r, odd)
	s.empty = true
	read := func(j *JobDetail) {
		var seen uint
		var here *Placement
		s.fields(func(key, value []byte) bool {
			if known, ok := jobKeys[string(key)]; ok {
				if seen&(1<<known.bit) != 0 {
					s.check(false, key, value, "one "+string(key)+": a text of the job looks like output of Slurm")
				}
				seen |= 1 << known.bit
				known.set(s, j, key, value)
				return s.bad == nil
			}
			has := func(name string) bool { return seen&(1<<jobKeys[name].bit) != 0 }
			if !has("CoreSpec") || has("MinCPUsNode") {
				return true // its placements are between these
			}
			switch string(key) { // each group of nodes has Nodes, CPU_IDs, Mem and GRES
			case "Nodes":
				j.Placements = append(j.Placements, Placement{JobID: j.ID, Nodes: string(value)})
				here = &j.Placements[len(j.Placements)-1]
			case "CPU_IDs", "Mem", "GRES":
				if s.check(here != nil, key, value, "Nodes before"); here != nil {
					s.place(here, key, value)
				}
			}
			return s.bad == nil
		})
		s.check(j.ID != 0 && j.State != "" && seen&(1<<jobKeys["ExitCode"].bit) != 0,
			[]byte("JobId"), []byte(strconv.FormatUint(j.ID, 10)), "a job with JobState and ExitCode")
	}
	return readEach(s, read, each)
}

// place sets what a job has of a group of nodes.
func (s *records) place(p *Placement, key, value []byte) {
	if noNumber(string(value)) {
		return
	}
	switch string(key) {
	case "CPU_IDs":
		n, ok := countIDs(string(value))
		s.check(ok, key, value, "a list of CPUs")
		p.CPUs = n
	case "Mem":
		mem, err := ParseMemory(string(value))
		s.check(err == nil, key, value, "an amount of memory")
		p.MemMB = mem
	case "GRES":
		p.GPUs = gpusIn(string(value))
	}
}
