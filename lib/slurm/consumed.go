package slurm

import (
	"context"
	"io"
	"strings"
	"time"
)

// Consumed is a run of a job with what it requested and what its steps used, as the
// accounting knows it. Of a run that continues, the steps that have ended count.
type Consumed struct {
	Record
	Hosts   string        // as a hostlist
	Label   string        // 12, 12_3 of an array, 12+1 of a heterogeneous job
	Elapsed time.Duration // without the time in which it was suspended
	Used    []ConsumedStep
}

// ConsumedStep is what a step used: the batch step and the external one, too.
type ConsumedStep struct {
	Name       string // batch, extern, interactive or a number
	Nodes      string // as a hostlist
	NodeCount  int64
	Tasks      int64
	Start, End int64         // seconds since 1970; End is 0 while it runs
	CPU        time.Duration // of all its tasks, user and system
	// Most is the highest that was seen of one of its tasks: mem in MiB,
	// gres/gpuutil in percent of a GPU, added up over the GPUs of the task. nil: it was
	// not measured.
	Most TRES
	TRES TRES // what it was given
}

// consumedRow is a line of sacct: a job or a step.
type consumedRow struct {
	Consumed
	step  ConsumedStep
	nodes string
}

var consumedColumns = append([]column[consumedRow]{
	{"JobID", func(c *columns, i int, r *consumedRow) { r.Label = string(c.cells[i]) }},
	{"ElapsedRaw", func(c *columns, i int, r *consumedRow) { r.Elapsed = time.Duration(c.optional(i)) * time.Second }},
	{"NodeList", func(c *columns, i int, r *consumedRow) { r.nodes = c.text(i) }},
	{"NTasks", func(c *columns, i int, r *consumedRow) { r.step.Tasks = int64(c.optional(i)) }},
	{"TotalCPU", func(c *columns, i int, r *consumedRow) {
		d, ok := parseCPUTime(string(c.cells[i]))
		c.check(ok, i, "a time")
		r.step.CPU = d
	}},
	{"TRESUsageInMax", func(c *columns, i int, r *consumedRow) {
		most, ok := parseMost(string(c.cells[i]))
		c.check(ok, i, "a list of resources")
		r.step.Most = most
	}},
}, lifted(runColumns)...)

// lifted are the columns of a record as those of a line.
func lifted(of []column[Record]) []column[consumedRow] {
	var all []column[consumedRow]
	for _, col := range of {
		all = append(all, column[consumedRow]{col.name, func(c *columns, i int, r *consumedRow) { col.set(c, i, &r.Record) }})
	}
	return all
}

// parseCPUTime reads a time of CPUs: 02:04.512, 01:02:03 or 3-01:02:03.
func parseCPUTime(s string) (time.Duration, bool) {
	if none(s) {
		return 0, true
	}
	s, fraction, _ := strings.Cut(s, ".")
	d, err := ParseDuration(s)
	if err != nil {
		return 0, false
	}
	if fraction != "" {
		f, ok := parseFloat([]byte("0." + fraction))
		if !ok {
			return 0, false
		}
		d += time.Duration(f * float64(time.Second))
	}
	return d, true
}

// parseMost reads of a list like cpu=00:00:01,mem=4096K,gres/gpuutil=97 the amounts
// that are numbers; mem is in bytes there.
func parseMost(s string) (TRES, bool) {
	if none(s) {
		return nil, true
	}
	t := TRES{}
	for item := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(item, "=")
		if !ok {
			return nil, false
		}
		if name = strings.ToLower(name); name != "mem" && name != "gres/gpuutil" {
			continue
		}
		n, ok := parseScaled(value, 1)
		if !ok {
			return nil, false
		}
		if name == "mem" {
			n /= 1 << 20
		}
		t[name] = n
	}
	return t, true
}

// EachConsumed reads jobs with their steps: those of ids, or all that a period tells. Of an
// element of an array, such as 12_3, there may be the others too.
func (c *Client) EachConsumed(ctx context.Context, ids []string, p Period, each func(*Consumed) error) error {
	args := []string{
		"--noheader", "--parsable", "--delimiter=" + string(endLayout.separator), "--duplicates", "--noconvert",
		"--format=" + strings.Join(columnNames(consumedColumns), ","),
	}
	if len(ids) > 0 {
		args = append(args, "--allusers", "--jobs="+strings.Join(arraysOf(ids), ","))
	} else {
		args = append(args, "--starttime="+p.Since.Format(timeLayout), "--endtime="+p.Until.Format(timeLayout))
		if len(p.Users) > 0 {
			args = append(args, "--user="+strings.Join(p.Users, ","))
		} else {
			args = append(args, "--allusers")
		}
		if len(p.Accounts) > 0 {
			args = append(args, "--accounts="+strings.Join(p.Accounts, ","))
		}
	}
	return c.Stream(ctx, func(r io.Reader) error { return ParseConsumed(r, each) }, "sacct", args...)
}

// ParseConsumed reads what sacct prints for EachConsumed: each job before its steps.
func ParseConsumed(r io.Reader, each func(*Consumed) error) error {
	var job *Consumed
	n := 0
	err := rows(r, endLayout, consumedColumns, func(row *consumedRow) error {
		n++
		_, step, isStep := strings.Cut(row.ID, ".")
		if !isStep {
			if job != nil {
				if err := each(job); err != nil {
					return err
				}
			}
			next := row.Consumed
			next.Hosts = orEmpty(row.nodes)
			job = &next
			return nil
		}
		if job == nil || !strings.HasPrefix(row.ID, job.ID+".") {
			return parseError("sacct", n, "step %q does not follow its job", row.ID)
		}
		row.step.Name, row.step.Nodes, row.step.NodeCount, row.step.TRES = step, row.nodes, row.Nodes, row.TRES
		row.step.Start, row.step.End = row.Start, row.End
		job.Used = append(job.Used, row.step)
		return nil
	})
	if err == nil && job != nil {
		err = each(job)
	}
	return err
}
