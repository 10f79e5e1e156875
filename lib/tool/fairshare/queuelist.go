package fairshare

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/diagnosis"
	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// factorColumns are the addends of a priority as columns: title, and the parts that belong in it.
var factorColumns = []struct{ title, name string }{
	{"AGE", "age"}, {"FAIR", "fairshare"}, {"SIZE", "jobsize"}, {"PART", "partition"}, {"QOS", "qos"},
	{"ASSOC", "assoc"}, {"TRES", "tres"}, {"SITE", "site"}, {"NICE", "nice"},
}

const factorCount = 9

// shares are the whole-number shares of a row, in the order of factorColumns.
type shares struct {
	value [factorCount]float64
	known bool
}

// sharesOf reads them from sprio directly: a hundred thousand rows are many.
func (v *queueView) sharesOf(i int) shares {
	f := v.standings[i].factors
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

// list writes the table of some rows, one of which may be marked by its label.
func (v *queueView) list(p *page, rows []int, chosen string) {
	t := app.Table{
		Header: []string{" ", "RANK", "JOBID", "USER", "PARTITION", "PRIORITY"}, Right: []string{"RANK", "JOBID", "USER", "PRIORITY"},
		OneLine: true,
		Drop:    []string{"NICE", "SITE", "ASSOC", "SIZE", "PART", "TRES", "QOS", "AGE", "FAIR", "PRIORITY", "START", "PARTITION", "RANK"},
	}
	weights := []string{"", "", "weights", "", "", ""}
	for k, f := range factorColumns {
		t.Header, t.Right, weights = append(t.Header, f.title), append(t.Right, f.title), append(weights, v.weightOf(k))
	}
	t.Header, weights = append(t.Header, "START", "WHY"), append(weights, "", "")
	offset := 0
	factors := slices.ContainsFunc(rows, func(i int) bool { return v.standings[i].factors != nil })
	if factors && v.config.Multifactor() && (p.width == 0 || p.width >= wideEnough) {
		offset = 1
		t.Add(weights...) // as sprio -w shows them
	}
	used, starts := [factorCount]bool{}, false
	cells, why := make([]string, 0, len(t.Header)), map[int]*diagnosis.Diagnosis{}
	for n, i := range v.rows {
		why[i] = &v.why[n]
	}
	for _, i := range rows {
		j, rank, mark := &v.jobs[i], "-", ""
		if j.Label == chosen {
			mark = ">"
		}
		if r := v.standings[i].rank; r > 0 {
			rank = strconv.Itoa(r)
		}
		cells = append(cells[:0], mark, rank, j.Label, j.User, j.Partition, strconv.FormatInt(int64(v.standings[i].priority), 10))
		s := v.sharesOf(i)
		for k, value := range s.value {
			used[k] = used[k] || value != 0
			if s.known {
				cells = append(cells, strconv.FormatInt(int64(value), 10))
			} else {
				cells = append(cells, "-")
			}
		}
		start := unit.ShortTime(cmp.Or(j.Start, why[i].Start), v.at)
		if why[i].Kind == diagnosis.Never {
			start = "never"
		}
		starts = starts || start != ""
		t.Add(append(cells, start, why[i].Text)...)
	}
	if chosen == "" {
		t.Omit = append(t.Omit, " ")
	}
	for k, f := range factorColumns {
		if !used[k] {
			t.Omit = append(t.Omit, f.title)
		}
	}
	if !starts {
		t.Omit = append(t.Omit, "START")
	}
	t.Brief = func(row int) string {
		if row < offset {
			return ""
		}
		return why[rows[row-offset]].Brief
	}
	p.table(&t)
	v.footnotes(p)
}

// footnotes say what the table cannot.
func (v *queueView) footnotes(p *page) {
	if v.hidden {
		p.line("", "Slurm hides the nodes from you (PrivateData=nodes): expected starts are Slurm's own")
	}
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
	"priority":  {"PRIORITY", func(v *queueView, i int) string { return number(v.standings[i].priority, 0) }},
	"rank":      {"RANK", func(v *queueView, i int) string { return strconv.Itoa(v.standings[i].rank) }},
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
