package fairshare

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// factorColumns are the addends of a priority as columns: title, and the parts
// that belong in it.
// The larger drop is, the sooner a narrow terminal goes without.
var factorColumns = []struct {
	title, name string
	drop        int
}{
	{"AGE", "age", 12}, {"FAIRSHARE", "fairshare", 11}, {"JOBSIZE", "jobsize", 16}, {"PARTITION", "partition", 15},
	{"QOS", "qos", 13}, {"ASSOC", "assoc", 17}, {"TRES", "tres", 14}, {"SITE", "site", 18}, {"NICE", "nice", 19},
}

const factorCount = 9

// shares are the whole-number shares of a row, in the order of factorColumns.
type shares struct {
	value [factorCount]float64
	known bool
}

// sharesOf reads them from sprio directly: a hundred thousand rows are many.
func (v *queueView) sharesOf(i int) shares {
	f := v.factorsRow(i)
	if f == nil {
		return shares{}
	}
	s := shares{known: true}
	s.value = [factorCount]float64{
		f.Age.Weighted, f.FairShare.Weighted, f.JobSize.Weighted, f.PartitionFactor.Weighted, f.QOS.Weighted,
		f.Assoc.Weighted, 0, f.Site, -f.Nice,
	}
	for _, t := range f.TRES {
		s.value[6] += t.Weighted
	}
	return s
}

func (v *queueView) weightOf(column int) string {
	w := v.weights
	switch factorColumns[column].name {
	case "tres":
		total := 0.0
		for _, t := range w.TRES {
			total += t
		}
		return number(total, 0)
	case "site", "nice":
		return ""
	}
	return number([]float64{w.Age, w.FairShare, w.JobSize, w.Partition, w.QOS, w.Assoc}[column], 0)
}

// wideEnough is the width from which there is room for some factors, and hence
// for their weights.
const wideEnough = 90

// list writes the table of jobs.
func (v *queueView) list(p *page) {
	used := [factorCount]bool{}
	starts := false
	for _, i := range v.rows {
		s := v.sharesOf(i)
		for k, value := range s.value {
			used[k] = used[k] || value != 0
		}
		starts = starts || v.jobs[i].Start > 0
	}
	// Row 0 holds the weights, as sprio -w shows them.
	offset := 0
	if v.factors.At != nil && v.config.Multifactor() && (p.width == 0 || p.width >= wideEnough) {
		offset = 1
	}
	job := func(row int) *slurm.Job {
		if row < offset {
			return nil
		}
		return &v.jobs[v.rows[row-offset]]
	}
	text := func(weights string, value func(*slurm.Job) string) func(int, []byte) []byte {
		return func(row int, b []byte) []byte {
			if j := job(row); j != nil {
				return appendText(b, value(j))
			}
			return append(b, weights...)
		}
	}
	var columns []column
	if v.screen != nil {
		columns = append(columns, column{title: " ", cell: func(row int, b []byte) []byte {
			if j := job(row); j != nil && j.Label == v.screen.chosen {
				return append(b, '>')
			}
			return b
		}})
	}
	columns = append(columns, []column{
		{title: "RANK", right: true, drop: 2, cell: func(row int, b []byte) []byte {
			if row < offset {
				return b
			}
			if r := v.ranks[v.rows[row-offset]]; r > 0 {
				return strconv.AppendInt(b, int64(r), 10)
			}
			return append(b, '-')
		}},
		{title: "JOBID", right: true, cell: text("weights", func(j *slurm.Job) string { return j.Label })},
		{title: "USER", right: true, cell: text("", func(j *slurm.Job) string { return j.User })},
		{title: "PARTITION", drop: 3, cell: text("", func(j *slurm.Job) string { return j.Partition })},
		{title: "PRIORITY", right: true, drop: 5, cell: func(row int, b []byte) []byte {
			if row < offset {
				return b
			}
			return strconv.AppendInt(b, int64(v.priorityOf(v.rows[row-offset])), 10)
		}},
	}...)
	short := map[string]string{"FAIRSHARE": "FAIR", "JOBSIZE": "SIZE", "PARTITION": "PART"}
	for k, f := range factorColumns {
		if !used[k] {
			continue
		}
		title := f.title
		if s, ok := short[title]; ok {
			title = s
		}
		columns = append(columns, column{title: title, right: true, drop: f.drop, cell: func(row int, b []byte) []byte {
			if row < offset {
				return append(b, v.weightOf(k)...)
			}
			s := v.sharesOf(v.rows[row-offset])
			if !s.known {
				return append(b, '-')
			}
			return strconv.AppendInt(b, int64(s.value[k]), 10)
		}})
	}
	if starts {
		start := text("", func(j *slurm.Job) string { return shortTime(j.Start, v.at) })
		columns = append(columns, column{title: "START", drop: 4, cell: start})
	}
	type reason struct {
		code            string
		reserved, named bool
	}
	why := map[reason]string{}
	brief := func(row int) string {
		if j := job(row); j != nil && j.Pending() {
			return j.Brief()
		}
		return ""
	}
	columns = append(columns, column{title: "WHY", brief: brief, cell: text("", func(j *slurm.Job) string {
		if !j.Pending() {
			return strings.ToLower(j.State)
		}
		of := reason{j.Reason, j.Reservation != "", j.ReqNodes != ""}
		plain, ok := why[of]
		if !ok {
			plain = j.Explain().Plain
			why[of] = plain
		}
		return plain
	})})
	if p.table(len(v.rows)+offset, columns) > 0 {
		p.line("", "columns hidden on this narrow terminal; fairshare jobs JOB shows all")
	}
	v.footnotes(p)
}

// footnotes say what the table cannot.
func (v *queueView) footnotes(p *page) {
	switch {
	case !v.config.Multifactor():
		p.line("", "%s: jobs are taken in the order of their submission, there are no factors", v.config["PriorityType"])
	case v.noFactors != "":
		p.line("", "without factors: %s", v.noFactors)
	case v.weights.Zero():
		p.line("", "all weights are zero: only nice and site count, and then the order of submission")
	}
}

// field is a column of --format: the raw value.
type field struct {
	title string
	value func(v *queueView, i int) string
}

func jobField(title string, value func(*slurm.Job) string) field {
	return field{title, func(v *queueView, i int) string { return value(&v.jobs[i]) }}
}

func factorField(title string, k int) field {
	return field{title, func(v *queueView, i int) string {
		s := v.sharesOf(i)
		if !s.known {
			return ""
		}
		return number(s.value[k]+0, 0)
	}}
}

func stampField(title string, value func(*slurm.Job) int64) field {
	return jobField(title, func(j *slurm.Job) string {
		if t := value(j); t != 0 {
			return time.Unix(t, 0).Format("2006-01-02T15:04:05")
		}
		return "N/A"
	})
}

func countField(title string, value func(*slurm.Job) float64) field {
	return jobField(title, func(j *slurm.Job) string { return number(value(j), 0) })
}

// fields are the names that --format understands.
var fields = map[string]field{
	"jobid":        jobField("JOBID", func(j *slurm.Job) string { return j.Label }),
	"rawid":        countField("RAWID", func(j *slurm.Job) float64 { return float64(j.ID) }),
	"user":         jobField("USER", func(j *slurm.Job) string { return j.User }),
	"account":      jobField("ACCOUNT", func(j *slurm.Job) string { return j.Account }),
	"partition":    jobField("PARTITION", func(j *slurm.Job) string { return j.Partition }),
	"qos":          jobField("QOS", func(j *slurm.Job) string { return j.QOS }),
	"name":         jobField("NAME", func(j *slurm.Job) string { return j.Name }),
	"state":        jobField("STATE", func(j *slurm.Job) string { return j.State }),
	"reason":       jobField("REASON", func(j *slurm.Job) string { return j.Reason }),
	"dependency":   jobField("DEPENDENCY", func(j *slurm.Job) string { return j.Dependency }),
	"reservation":  jobField("RESERVATION", func(j *slurm.Job) string { return j.Reservation }),
	"plannednodes": jobField("PLANNEDNODES", func(j *slurm.Job) string { return j.SchedNodes }),
	"timelimit": jobField("TIMELIMIT", func(j *slurm.Job) string {
		if j.Limit == 0 {
			return "NOT_SET"
		}
		return slurm.FormatDuration(j.Limit)
	}),
	"nodes":     countField("NODES", func(j *slurm.Job) float64 { return float64(j.Nodes) }),
	"cpus":      countField("CPUS", func(j *slurm.Job) float64 { return float64(j.CPUs) }),
	"gpus":      countField("GPUS", (*slurm.Job).GPUs),
	"mem":       jobField("MEM", func(j *slurm.Job) string { return number(j.TRES["mem"], 0) + "M" }),
	"tasks":     countField("TASKS", func(j *slurm.Job) float64 { return float64(j.TaskCount()) }),
	"submit":    stampField("SUBMIT", func(j *slurm.Job) int64 { return j.Submit }),
	"eligible":  stampField("ELIGIBLE", func(j *slurm.Job) int64 { return j.Eligible }),
	"start":     stampField("START", func(j *slurm.Job) int64 { return j.Start }),
	"end":       stampField("END", func(j *slurm.Job) int64 { return j.End }),
	"priority":  {"PRIORITY", func(v *queueView, i int) string { return number(v.priorityOf(i), 0) }},
	"rank":      {"RANK", func(v *queueView, i int) string { return strconv.Itoa(v.ranks[i]) }},
	"age":       factorField("AGE", 0),
	"fairshare": factorField("FAIRSHARE", 1),
	"jobsize":   factorField("JOBSIZE", 2),
	"partprio":  factorField("PARTPRIO", 3),
	"qosprio":   factorField("QOSPRIO", 4),
	"assoc":     factorField("ASSOC", 5),
	"tres":      factorField("TRES", 6),
	"site":      factorField("SITE", 7),
	"nice":      jobField("NICE", func(j *slurm.Job) string { return strconv.FormatInt(j.Nice, 10) }),
	"sum": {"SUM", func(v *queueView, i int) string {
		if components := v.components(i); components != nil {
			return number(priority.Sum(components), 2)
		}
		return ""
	}},
}

func fieldNames() []string {
	return slices.Sorted(maps.Keys(fields))
}

// raw writes the fields of --format, one job a line, separated by bars as all of
// Slurm's commands do.
func (v *queueView) raw(p *page) {
	if !v.noHeader {
		for k, f := range v.fields {
			if k > 0 {
				p.print("|")
			}
			p.print(f.title)
		}
		p.print("\n")
	}
	var b []byte
	for _, i := range v.rows {
		for k, f := range v.fields {
			if k > 0 {
				p.print("|")
			}
			b = appendText(b[:0], strings.ReplaceAll(f.value(v, i), "\n", " "))
			p.bytes(b)
		}
		p.print("\n")
	}
}
