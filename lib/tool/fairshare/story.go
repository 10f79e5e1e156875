package fairshare

import (
	"fmt"
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

// story reports everything about one job: a row for each partition it waits for.
func (v *queueView) story(p *page) {
	j := &v.jobs[v.subject[0]]
	if !j.Pending() {
		p.printf("%s %s\n", p.paint(bold, "job "+j.Label), storyTitle(j))
	} else {
		v.answer(p, j)
	}
	p.line("  ", "user %s, account %s, QoS %s, submitted %s",
		or(j.User, "?"), or(j.Account, "none"), or(j.QOS, "none"), unit.ShortTime(j.Submit, v.at))
	for k, i := range v.subject {
		switch of := &v.jobs[i]; {
		case of.HetID != 0 && (k == 0 || v.jobs[v.subject[k-1]].ID != of.ID):
			p.line("  ", "component %s requests %s", of.Label, request(of))
		case k == 0:
			p.line("  ", "requests %s", request(j))
		}
	}
	if j.HetID != 0 {
		p.line("  ", "all components start together")
	}
	if n := j.TaskCount(); n > 1 {
		p.line("  ", "%d tasks of the array wait: %s", n, j.Tasks)
	}
	if n := len(v.rows) - len(v.subject); n > 0 {
		p.line("  ", "%s", plural(n, "task of the array runs", "tasks of the array run"))
	}
	if j.Dependency != "" {
		p.line("  ", "depends on %s", j.Dependency)
	}
	if j.Reservation != "" {
		p.line("  ", "in the reservation %s", j.Reservation)
	}
	if !j.Pending() {
		v.notWaiting(p, j)
		return
	}
	p.print("\n")
	t := app.Table{
		Header: []string{"PARTITION", "RANK", "PRIORITY", "EXPECTED START", "ON"},
		Right:  []string{"RANK", "PRIORITY"}, Whole: []string{"PARTITION", "EXPECTED START"},
	}
	for _, i := range v.subject {
		t.Add(v.placeOf(i), v.rankText(i), number(v.standings[i].priority, 0), v.startText(i), v.jobs[i].SchedNodes)
	}
	p.table(&t)
	v.factors(p)
	if len(v.subject) > 0 && v.standings[v.subject[0]].eligible {
		v.before(p)
	}
	v.footnotes(p)
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func storyTitle(j *slurm.Job) string {
	return fmt.Sprintf("%q is %s", app.Sanitize(j.Name), strings.ToLower(j.State))
}

// request is what a job requests, in words.
func request(j *slurm.Job) string {
	parts := []string{plural(int(j.Nodes), "node", "nodes"), plural(int(j.CPUs), "CPU", "CPUs")}
	if mem := j.TRES["mem"]; mem > 0 {
		parts = append(parts, memory(mem)+" of memory")
	}
	if g := j.GPUs(); g > 0 {
		parts = append(parts, plural(int(g), "GPU", "GPUs"))
	}
	text := strings.Join(parts, ", ")
	if j.Limit != 0 {
		text += " for " + slurm.FormatDuration(j.Limit)
	}
	return text
}

// shortReason is the reason as a word: some are a sentence, which has been said already.
func shortReason(reason string) string {
	code := slurm.ReasonCode(reason)
	if strings.HasPrefix(code, "Nodes required") {
		return "Resources"
	}
	return code
}

// answer says first why the job waits, when it starts, and what would help.
func (v *queueView) answer(p *page, j *slurm.Job) {
	d := v.diagnosis()
	start := or(d.Starts(func(unix int64) string { return when(unix, v.at) }), "when it starts is not known")
	label := j.Label
	if j.HetID != 0 {
		label = strconv.FormatUint(j.HetID, 10)
	}
	p.line("", "job %s %q waits: %s; %s", label, j.Name, d.Text, start)
	for _, proof := range d.Proof {
		p.line("  ", "%s", proof)
	}
	p.line("  ", "what can be done: %s", d.Action.Text)
	if d.Action.Command != nil {
		p.command("    ", d.Action.Command)
	}
	p.line("  ", "Slurm's reason: %s", or(shortReason(j.Reason), "none"))
	p.print("\n")
}

// diagnosis says why the job of the view's rows waits.
func (v *queueView) diagnosis() diagnosis.Diagnosis {
	rows := make([]*slurm.Job, len(v.subject))
	for n, i := range v.subject {
		rows[n] = &v.jobs[i]
	}
	return v.facts.Of(rows...)
}

// rowDiagnosis says why a job waits in one partition.
func (v *queueView) rowDiagnosis(i int) diagnosis.Diagnosis {
	if !v.jobs[i].Pending() {
		return diagnosis.Diagnosis{Text: strings.ToLower(v.jobs[i].State)}
	}
	return v.facts.Of(v.together(i)...)
}

// brief is rowDiagnosis for a list.
func (v *queueView) brief(i int) diagnosis.Diagnosis {
	if !v.jobs[i].Pending() {
		return diagnosis.Diagnosis{Text: strings.ToLower(v.jobs[i].State)}
	}
	return v.facts.Briefly(v.together(i)...)
}

// together are the rows of the job of a row in its partition: of a heterogeneous job, those of all components, which start together.
func (v *queueView) together(i int) (rows []*slurm.Job) {
	if v.jobs[i].HetID == 0 {
		return []*slurm.Job{&v.jobs[i]}
	}
	for k := range v.jobs {
		if j := &v.jobs[k]; j.HetID == v.jobs[i].HetID && j.Pending() {
			rows = append(rows, j)
		}
	}
	return rows
}

// startText is when a row is expected to start.
func (v *queueView) startText(i int) string {
	d := v.rowDiagnosis(i)
	switch start := v.jobs[i].Start; {
	case d.Kind == diagnosis.Never:
		return "never"
	case start == 0 && d.Start > 0:
		return when(d.Start, v.at)
	default:
		return when(start, v.at)
	}
}

func (v *queueView) rankText(i int) string {
	if v.standings[i].rank == 0 {
		return "not in line"
	}
	return fmt.Sprintf("%d of %d", v.standings[i].rank, v.waiting[v.jobs[i].Partition])
}

// notWaiting is the rest of the story of a job that runs.
func (v *queueView) notWaiting(p *page, j *slurm.Job) {
	p.print("\n")
	if j.Start > 0 {
		p.line("", "it is not pending: %s since %s on %s", strings.ToLower(j.State), unit.ShortTime(j.Start, v.at),
			or(j.NodeList, "its nodes"))
	}
	if j.End > 0 {
		p.line("", "its time limit ends %s", when(j.End, v.at))
	}
}

// factors writes where a job's priority comes from: of the first of its rows all, of others what differs from it.
func (v *queueView) factors(p *page) {
	var rows []int
	for _, i := range v.subject {
		if v.components(i) != nil {
			rows = append(rows, i)
		}
	}
	if len(rows) == 0 {
		return
	}
	p.printf("\n%s\n", p.paint(bold, "where the priority comes from:"))
	first := v.components(rows[0])
	if direct(first, v.standings[rows[0]].priority) {
		p.line("  ", "an administrator has set it to %s; no factor counts", number(v.standings[rows[0]].priority, 0))
		return
	}
	shares := make([]map[string]float64, len(rows)) // of each row, by factor
	for k, i := range rows {
		shares[k] = map[string]float64{}
		for _, part := range v.components(i) {
			shares[k][part.Name] = part.Share
		}
	}
	largest := 1.0
	shown := slices.DeleteFunc(slices.Clone(first), func(part priority.Part) bool {
		counts := func(of map[string]float64) bool { return of[part.Name] != 0 }
		return part.Factor == 0 && !slices.ContainsFunc(shares, counts)
	})
	for _, part := range shown {
		largest = max(largest, part.Share)
	}
	t := app.Table{
		Header: []string{"  FACTOR", "VALUE", "WEIGHT"}, Right: []string{"VALUE", "WEIGHT"}, Drop: []string{"VALUE", "WEIGHT"},
		Paint: func(row int, text string) string {
			if row >= len(shown) {
				return text
			}
			return p.paint(green, text)
		},
	}
	for _, i := range rows {
		t.Header, t.Right = append(t.Header, v.placeOf(i)), append(t.Right, v.placeOf(i))
	}
	t.Header = append(t.Header, "")
	for _, part := range shown {
		cells := []string{"  " + partName(part.Name), number(part.Factor, 4), number(part.Weight, 0)}
		if part.Name == "site" || part.Name == "nice" {
			cells[1], cells[2] = "", ""
		}
		for k := range rows {
			share := shares[k][part.Name]
			if k > 0 && share == part.Share {
				cells = append(cells, "=")
				continue
			}
			cells = append(cells, number(share, 2))
		}
		t.Add(append(cells, bar(part.Share/largest, 20))...)
	}
	sums, said := []string{"  sum", "", ""}, []string{"  Slurm says", "", ""}
	for _, i := range rows {
		sums = append(sums, number(priority.Sum(v.components(i)), 2))
		said = append(said, number(v.standings[i].priority, 0))
	}
	t.Add(append(sums, "")...)
	t.Add(append(said, "")...)
	p.table(&t)
	for _, i := range rows {
		if s := v.standings[i]; s.priority > s.factors.Priority {
			p.line("  ", "here a priority only rises (PriorityFlags=INCR_ONLY): %s is from when the factors were higher",
				number(s.priority, 0))
		}
	}
}

// placeOf is where a row of the job of a story waits.
func (v *queueView) placeOf(i int) string {
	if v.jobs[i].HetID != 0 {
		return v.jobs[i].Partition + " (" + v.jobs[i].Label + ")"
	}
	return v.jobs[i].Partition
}

// partName is what a factor is called in prose.
func partName(name string) string {
	switch name {
	case "fairshare":
		return "fair share"
	case "jobsize":
		return "job size"
	case "qos":
		return "QoS"
	case "assoc":
		return "association"
	}
	if tres, ok := strings.CutPrefix(name, "tres:"); ok {
		return "TRES " + tres
	}
	if name == "tres" {
		return "TRES"
	}
	return name
}

// before compares the job with the one that is considered before it, and says
// what would change the order.
func (v *queueView) before(p *page) {
	for _, i := range v.subject {
		other := v.predecessor(i)
		j := &v.jobs[i]
		if other < 0 {
			p.printf("\n%s\n  no job\n", p.paint(bold, "before it in "+app.Sanitize(j.Partition)+":"))
			continue
		}
		o := &v.jobs[other]
		gap := v.standings[other].priority - v.standings[i].priority
		p.printf("\n%s\n", p.paint(bold, "before it in "+app.Sanitize(j.Partition)+":"))
		if gap < 0 {
			p.line("  ", "job %s of %s, in spite of a lower priority: it has a reservation", o.Label, o.User)
			continue
		}
		p.line("  ", "job %s of %s with priority %s, ahead by %s", o.Label, o.User, number(v.standings[other].priority, 0), number(gap, 0))
		for _, line := range v.change(i, other, gap) {
			p.line("  ", "%s", line)
		}
	}
}

// predecessor is the job right before another in its partition, or -1.
func (v *queueView) predecessor(i int) int {
	last := -1
	for _, k := range v.order {
		if k == i {
			return last
		}
		if v.standings[k].eligible && v.jobs[k].Partition == v.jobs[i].Partition {
			last = k
		}
	}
	return -1
}

// change says in what a job lost against the one before it, and what would help.
func (v *queueView) change(i, other int, gap float64) []string {
	mine, theirs := v.components(i), v.components(other)
	if gap == 0 {
		return []string{"the priorities are equal: the one submitted first comes first"}
	}
	if mine == nil || theirs == nil {
		return nil
	}
	if direct(mine, v.standings[i].priority) || direct(theirs, v.standings[other].priority) {
		return []string{"an administrator has set a priority"}
	}
	var lines []string
	lost := priority.Lost(mine, theirs)
	for k, d := range lost {
		if d.Lag < 0.5 {
			break
		}
		if k == 0 {
			lines = append(lines, fmt.Sprintf("it lost most in %s: %s points. %s", partName(d.Name), number(d.Lag, 1), v.remedy(d.Name, i)))
		} else {
			lines = append(lines, fmt.Sprintf("it also lost %s points in %s", number(d.Lag, 1), partName(d.Name)))
		}
	}
	for k := len(lost) - 1; k >= 0 && lost[k].Lag < -0.5; k-- {
		lines = append(lines, fmt.Sprintf("it leads by %s points in %s", number(-lost[k].Lag, 1), partName(lost[k].Name)))
	}
	lines = append(lines, v.waitingHelps(i, other, gap))
	return lines
}

// remedy is what would change a factor.
func (v *queueView) remedy(name string, i int) string {
	j := &v.jobs[i]
	switch name {
	case "age":
		return "Age grows by itself while the job waits"
	case "fairshare":
		return "Usage decays by itself (fairshare shows when); another account of yours may have a better factor"
	case "jobsize":
		if v.config.Get("PriorityFavorSmall") == "Yes" {
			return "Small jobs are favoured: fewer nodes or CPUs would raise it"
		}
		return "Large jobs are favoured: it is how this cluster weighs them"
	case "partition":
		return "The partition of the other job counts more: fairshare where shows yours"
	case "qos":
		return "A QoS of higher priority would raise it: scontrol update job=" + j.Label + " qos="
	case "tres":
		return "Jobs that request more are favoured there: request only what the job needs"
	case "nice":
		return "The job was submitted with --nice: its owner can only lower the priority further; submit it again without --nice"
	case "site":
		return "The site's own factor decides: ask the administrators"
	}
	return "Ask the administrators"
}

// waitingHelps says whether the job overtakes by waiting. Both grow older at the
// same rate, until the other one reaches the maximum of age; a job of which Slurm tells no
// time of accrual (MaxJobsAccrue and the like) does not.
func (v *queueView) waitingHelps(i, other int, gap float64) string {
	age := func(k int) float64 {
		f := v.standings[k].factors
		if f == nil {
			return 0
		}
		return f.Age.Norm
	}
	maxAge := v.config.Duration("PriorityMaxAge").Seconds()
	mine, theirs := age(i), age(other)
	stands := v.jobs[other].Accrue == 0 // a limit on jobs that grow older keeps it as old as it is
	switch {
	case v.weights.Age == 0:
		return "waiting alone does not overtake it: age does not count here"
	case v.jobs[i].Accrue == 0:
		return "waiting alone does not overtake it: the age of this job does not grow (a limit on the number of jobs whose age grows, or it is not eligible)"
	case theirs < 1 && !stands:
		return "waiting alone does not overtake it: its age grows as fast"
	}
	after, ok := priority.TimeToGain(gap, mine, v.weights.Age, maxAge)
	if !ok {
		return "waiting alone does not overtake it: age counts at most " + number(v.weights.Age, 0)
	}
	in := span(time.Duration(after * float64(time.Second)))
	if stands {
		return "the age of the other does not grow: by age alone this job overtakes it in " + in
	}
	return "the age of the other counts no further: by age alone this job overtakes it in " + in
}
