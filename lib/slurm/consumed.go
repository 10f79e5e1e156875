package slurm

import (
	"context"
	"io"
	"strings"
	"time"
)

// Consumed is a run of a job with its request and the usage of its steps, from accounting.
// While the run continues, only steps that have ended have usage.
type Consumed struct {
	Record
	Hosts   string        // hostlist
	Label   string        // 12, 12_3 of an array, 12+1 of a heterogeneous job
	Elapsed time.Duration // without suspension
	Used    []ConsumedStep
}

// ConsumedStep is the usage of a step, including the batch and extern steps.
type ConsumedStep struct {
	Name       string // batch, extern, interactive or a number
	Nodes      string // hostlist
	NodeCount  int64
	Tasks      int64
	Start, End int64         // seconds since 1970; End is 0 while it runs
	CPU        time.Duration // user and system time of all tasks
	// Most is the highest measured value of any one task: mem in MiB, and gres/gpuutil in
	// percent of a GPU, summed over the GPUs of the task. nil: not measured.
	Most TRES
	TRES TRES // allocated
}

// consumedRow is a row of sacct: a job or a step.
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
}, lifted(runColumns, func(r *consumedRow) *Record { return &r.Record })...)

// lifted makes columns of a row from columns of the Record in it.
func lifted[T any](of []column[Record], in func(*T) *Record) []column[T] {
	var all []column[T]
	for _, col := range of {
		all = append(all, column[T]{col.name, func(c *columns, i int, r *T) { col.set(c, i, in(r)) }})
	}
	return all
}

// parseCPUTime parses a CPU time: 02:04.512, 01:02:03 or 3-01:02:03.
func parseCPUTime(s string) (time.Duration, bool) {
	if noNumber(s) {
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

// parseMost parses mem and gres/gpuutil in a list such as
// cpu=00:00:01,mem=4096K,gres/gpuutil=97, with mem in bytes unless it has a unit. It returns
// mem in MiB.
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
		if noNumber(value) && value != "" {
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

// EachConsumed calls each with the jobs of ids or, without ids, of a period, and their steps.
// If an id is an element of an array, such as 12_3, other elements of the array may be
// included.
func (c *Client) EachConsumed(ctx context.Context, ids []string, p Period, each func(*Consumed) error) error {
	form := c.marked("sacct")
	args := append(form.parsable(columnNames(consumedColumns)), append(p.args(ids), "--duplicates", "--noconvert")...)
	return c.Stream(ctx, func(r io.Reader) error { return parseConsumed(r, form, consumedColumns, each) }, "sacct", args...)
}

// parseConsumed parses the output of sacct, in which each job precedes its steps.
func parseConsumed(r io.Reader, form layout, asked []column[consumedRow], each func(*Consumed) error) error {
	var job *Consumed
	n := 0
	err := rows(r, form, asked, func(row *consumedRow) error {
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
