package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// margin is the time in seconds until a user has changed a job.
const margin = 60

// cancel is the command that cancels the job, and all of its array.
func (d *diagnosing) cancel() string { return "scancel " + strconv.FormatUint(d.job.ArrayID, 10) }

// anew advises to submit the job with something else; one that is only planned is not there to be cancelled.
func (d *diagnosing) anew(with string) {
	what := "submit it with " + with
	if d.job.ArrayID != 0 {
		what = "cancel it (" + d.cancel() + "), and " + what
	}
	d.advise(what)
}

// line is a job that waits for nodes, alone or behind others.
func (d *diagnosing) line(r *forecast.Result) {
	partition := d.job.Partition
	switch {
	case r.Verdict == forecast.NotReached:
		d.because(Others, "%s", d.Plan.Explain(d.row))
	case r.Rank > 1:
		d.because(Others, "%s before it in %s", count(r.Rank-1, "job comes", "jobs come"), partition)
	default:
		d.because(Nodes, "it is next in line in %s, and no %s it requests", partition, lacking(&d.Plan.World.Jobs[d.row]))
	}
	if r.Start > 0 {
		d.Kind, d.Start = By, r.Start
	}
	d.rest = func() { d.inLine(r) }
}

// inLine is what a job that waits for nodes waits behind, and whether it would start now with a shorter time limit.
func (d *diagnosing) inLine(r *forecast.Result) {
	if r.Verdict == forecast.Unplanned || r.Verdict == forecast.Beyond {
		d.prove("%s", d.Plan.Explain(d.row))
	}
	if r.Start > 0 && d.Cause == Nodes {
		d.takers(r)
	}
	d.away()
	if d.job.HetID == 0 && d.job.Reservation == "" {
		if minutes, nodes, delays, ok := d.Plan.ShorterLimit(d.row, margin); ok {
			text := fmt.Sprintf("there is room now on %s for %s: with that time limit it starts, and is ended then",
				strings.Join(nodes, ","), slurm.FormatDuration(time.Duration(minutes)*time.Minute))
			if len(delays) > 0 {
				text += ". It would delay " + some(delays)
			}
			d.advise(text)
			d.Action.Minutes = minutes
			if d.job.TaskCount() == 1 {
				d.Action.Command = d.update("timelimit=" + strconv.FormatInt(minutes, 10))
			}
			return
		}
	}
	d.advise("wait (fairshare when " + d.job.Label +
		" knows how long jobs really run), or look where it would start sooner (fairshare where)")
}

// lacking is what is not free, for "no ... it requests".
func lacking(j *forecast.Job) string {
	if j.Nodes > 1 {
		return strconv.Itoa(j.Nodes) + " nodes are free with what"
	}
	return "node has free what"
}

// takers names the jobs that have the nodes for which a job waits.
func (d *diagnosing) takers(r *forecast.Result) {
	for _, name := range r.Nodes[:min(len(r.Nodes), 3)] {
		var labels []string
		until := int64(0)
		for i := range d.Plan.World.Jobs {
			j := &d.Plan.World.Jobs[i]
			if _, on := j.Uses[name]; on && j.Running {
				labels, until = append(labels, j.Label), max(until, j.End)
			}
		}
		switch {
		case len(labels) == 0:
		case until == forecast.Forever:
			d.prove("%s is taken by %s", name, some(labels))
		default:
			d.prove("%s is taken by %s, until %s by their time limits", name, some(labels), d.time(until))
		}
	}
}

// away names the nodes that could run the job and are out of service, with why.
func (d *diagnosing) away() {
	var words []string
	all := d.Plan.Fitting(d.row)
	for _, n := range all {
		if node := &d.Nodes[n]; !node.Startable() {
			state := strings.ToLower(node.State)
			if node.Reason != "" {
				state += ": " + node.Reason
			}
			words = append(words, node.Name+" ("+state+")")
		}
	}
	if len(words) > 0 {
		d.prove("%d of the %s that could run it %s out of service: %s",
			len(words), count(len(all), "node", "nodes"), isAre(len(words)), some(words))
	}
}

func (d *diagnosing) elsewhere() {
	switch {
	case d.job.ReqNodes != "":
		d.advise("wait until the nodes are back, or submit it without --nodelist")
	default:
		d.advise("wait until the nodes are back, or look where else it could run (fairshare where)")
	}
}

// array is the limit that an array has set itself.
func (d *diagnosing) array(w *forecast.Job) {
	d.because(Array, "its array lets %s run at a time, and as many run", count(w.AtOnce, "task", "tasks"))
	d.rest = func() { d.raise(w) }
}

// raise tries a higher limit of an array out.
func (d *diagnosing) raise(w *forecast.Job) {
	d.ends(func(j *forecast.Job) bool { return j.ArrayID == w.ArrayID }, "runs")
	more := *w
	more.AtOnce++
	id := strconv.FormatUint(w.ArrayID, 10)
	if d.Plan.Instead(d.row, more).Results[d.row].Verdict == forecast.StartsNow {
		d.advise("raise the array's limit: one more would start now",
			"scontrol", "update", "job="+id, "arraytaskthrottle="+strconv.Itoa(more.AtOnce))
		return
	}
	d.advise("wait: a higher limit of the array would start none now")
}

// ends tells which jobs have what is waited for, and when the first of them ends.
func (d *diagnosing) ends(has func(*forecast.Job) bool, what string) {
	first := int64(forecast.Forever)
	var labels []string
	for i := range d.Plan.World.Jobs {
		if j := &d.Plan.World.Jobs[i]; j.Running && has(j) {
			labels, first = append(labels, j.Label), min(first, j.End)
		}
	}
	if len(labels) == 0 {
		return
	}
	subject := "job " + some(labels) + " " + what
	if len(labels) > 1 {
		subject = "jobs " + some(labels) + " " + plainly(what)
	}
	if first == forecast.Forever {
		d.prove("%s", subject)
		return
	}
	d.prove("%s; the first ends %s at the latest", subject, d.time(first))
	if d.Cause == Array {
		d.Kind, d.Start = By, first
	}
}

// limit is a limit that is used up.
func (d *diagnosing) limit(r *forecast.Result, w *forecast.Job) {
	if r.Limit < 0 {
		d.reason()
		return
	}
	d.because(Limit, "%s", d.Plan.Explain(d.row))
	l := &d.Plan.World.Limits[r.Limit]
	if l.Decays {
		d.advise("wait until usage has decayed (fairshare shows when): no end of a job helps; " +
			"or use another account or QoS (fairshare where)")
		return
	}
	d.advise("wait for one of these jobs to end, or use another QoS or account (fairshare where)")
	d.rest = func() {
		d.ends(func(j *forecast.Job) bool {
			return slices.ContainsFunc(j.Limits, func(a forecast.Ask) bool { return a.Limit == r.Limit })
		}, "counts against it")
		d.frees(r, w)
	}
}

// frees computes from when on a limit leaves room for the job, if all jobs run to their time limits
// and nothing else starts.
func (d *diagnosing) frees(r *forecast.Result, w *forecast.Job) {
	l := &d.Plan.World.Limits[r.Limit]
	type end struct {
		at     int64
		amount float64
	}
	var ends []end
	for i := range d.Plan.World.Jobs {
		j := &d.Plan.World.Jobs[i]
		for _, a := range j.Limits {
			if j.Running && a.Limit == r.Limit && j.End != forecast.Forever {
				ends = append(ends, end{j.End, a.Amount})
			}
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return cmp.Compare(a.at, b.at) })
	used := l.Used
	for _, a := range w.Limits {
		for _, e := range ends {
			if a.Limit != r.Limit {
				break
			}
			if used -= e.amount; used+a.Amount <= l.Max {
				d.prove("it leaves room for this job from %s on at the latest, if no other takes it", d.time(e.at))
				d.Kind, d.Start = By, e.at
				return
			}
		}
	}
}

// less says how a request fits below a limit that it exceeds by itself.
func (d *diagnosing) less(r *forecast.Result) {
	l := &d.Plan.World.Limits[r.Limit]
	if l.Resource == "job wall" {
		limit := time.Duration(l.Max) * time.Minute
		d.advise("lower its time limit", d.update("timelimit="+slurm.FormatDuration(limit))...)
		return
	}
	d.anew(fmt.Sprintf("at most %s %s", forecast.PlainNumber(l.Max), l.What))
}

// waits is a job that waits for a time, a reservation or other jobs.
func (d *diagnosing) waits(w *forecast.Job) {
	switch {
	case len(w.After) > 0:
		d.because(Dependency, "it waits for other jobs (%s)", cmp.Or(d.job.Dependency, "singleton"))
		d.advise("wait for them, or let it run without the dependency", d.update("dependency=")...)
		d.rest = func() { d.after(w) }
	case w.Eligible > d.Plan.World.Now:
		d.because(Begin, "it is to begin at %s", d.time(w.Eligible))
		d.Kind, d.Start = By, w.Eligible
		d.advise("wait, or let it begin now", d.update("starttime=now")...)
	case w.Reservation != "":
		d.because(Reservation, "its reservation %s has not begun", w.Reservation)
		if at := d.Plan.World.NotBefore([]int{d.row}); at > 0 {
			d.Text = fmt.Sprintf("its reservation %s begins at %s", w.Reservation, d.time(at))
			d.Kind, d.Start = By, at
		}
		d.advise("wait, or let it run outside of the reservation", d.update("reservationname=")...)
	default:
		d.reason()
	}
}

// after tells of the jobs that must end before.
func (d *diagnosing) after(w *forecast.Job) {
	for i := range d.Plan.World.Jobs {
		j := &d.Plan.World.Jobs[i]
		if !slices.Contains(w.After, j.ID) && !slices.Contains(w.After, j.ArrayID) || len(d.Proof) > 4 {
			continue
		}
		switch {
		case j.Held:
			d.prove("job %s is held", j.Label)
		case !j.Running:
			d.prove("job %s waits itself", j.Label)
		case j.End == forecast.Forever:
			d.prove("job %s runs", j.Label)
		default:
			d.prove("job %s runs, until %s at the latest", j.Label, d.time(j.End))
		}
	}
}

// fits is a job that no node of its partition can run: which of its requests is too much.
func (d *diagnosing) fits(w *forecast.Job) {
	d.Kind = Never
	request := fmt.Sprintln(w.Partition, w.Nodes, w.Need, w.GPUType, w.Features, w.Required, w.Excluded)
	lacks, known := d.lacks[request]
	if !known { // many jobs of a list may request the same
		if d.lacks == nil {
			d.lacks = map[string][]string{}
		}
		lacks = d.Plan.Lacking(d.row)
		d.lacks[request] = lacks
	}
	partition := d.job.Partition
	need := count(max(1, w.Nodes), "node", "nodes")
	if len(lacks) == 0 {
		d.because(Request, "no node of partition %s has what it requests", partition)
	} else {
		d.because(Request, "partition %s has not %s with %s", partition, need, strings.Join(lacks, " or "))
	}
	d.prove("%s", cmp.Or(strings.TrimSpace(d.largest(partition)), "the partition has no nodes"))
	d.anew("less, or elsewhere (fairshare where)")
}

// largest is what the nodes of a partition have at most.
func (d *diagnosing) largest(partition string) string {
	var cpus, gpus int64
	mem := 0.0
	nodes := 0
	for i := range d.Nodes {
		if n := &d.Nodes[i]; n.Partitions.Has(partition) {
			nodes++
			cpus, gpus, mem = max(cpus, n.JobCPUs()), max(gpus, n.GPUs), max(mem, float64(n.JobMemMB()))
		}
	}
	if nodes == 0 {
		return ""
	}
	text := fmt.Sprintf("its %s at most %s and %s of memory",
		count(nodes, "node has", "nodes have"), count(int(cpus), "CPU", "CPUs"), unit.ShortSize(int64(mem)<<20))
	if gpus > 0 {
		text += ", " + count(int(gpus), "GPU", "GPUs")
	}
	return text
}

// partition is the partition of the job, or nil.
func (d *diagnosing) partition() *slurm.Partition {
	for i := range d.Partitions {
		if d.Partitions[i].Name == d.job.Partition {
			return &d.Partitions[i]
		}
	}
	return nil
}

// tooLong is a time limit above that of the partition.
func (d *diagnosing) tooLong() {
	p := d.partition()
	if p == nil || p.MaxTime <= 0 || p.MaxTime == slurm.Unlimited {
		return
	}
	most := slurm.FormatDuration(p.MaxTime)
	d.because(Request, "it requests %s, and partition %s allows %s", slurm.FormatDuration(d.job.Limit), p.Name, most)
	d.advise("lower its time limit, or use another partition (fairshare where)", d.update("timelimit="+most)...)
}

// nodeCount is a number of nodes that the partition does not allow.
func (d *diagnosing) nodeCount() {
	p := d.partition()
	if p == nil {
		return
	}
	has := int64(min(d.job.Nodes, 1<<31))
	var allowed int64
	var bound string
	switch {
	case p.MaxNodes.Set && has > p.MaxNodes.Max:
		allowed, bound = p.MaxNodes.Max, "at most"
	case has < p.MinNodes:
		allowed, bound = p.MinNodes, "at least"
	default:
		return
	}
	d.because(Request, "it requests %s, and partition %s allows %s %d", count(int(has), "node", "nodes"), p.Name, bound, allowed)
	n := strconv.FormatInt(allowed, 10)
	d.advise("change the number of nodes, or use another partition (fairshare where)", d.update("numnodes="+n+"-"+n)...)
}

// access is an account or a QoS that the partition does not take.
func (d *diagnosing) access() {
	p := d.partition()
	if p == nil {
		return
	}
	for _, of := range []struct {
		kind, is    string
		allow, deny []string
	}{{"account", d.job.Account, p.AllowAccounts, p.DenyAccounts}, {"QoS", d.job.QOS, p.AllowQOS, p.DenyQOS}} {
		allowed := of.allow == nil || slices.Contains(of.allow, of.is)
		if of.is == "" || allowed && (of.allow != nil || !slices.Contains(of.deny, of.is)) {
			continue
		}
		d.because(Request, "partition %s does not take its %s %s", p.Name, of.kind, of.is)
		if of.allow != nil {
			d.prove("it takes %s", some(of.allow))
		}
		d.advise("use another " + of.kind + ", or another partition (fairshare where)")
		return
	}
}

// each is a request beyond what a QoS demands of, or allows, each job.
func (d *diagnosing) each(code string) {
	kind, limited := slurm.LimitOfReason(code)
	if !limited || kind.Per != "Job" || !kind.OfQOS {
		return
	}
	for i := range d.QOS {
		q := &d.QOS[i]
		if q.Name != d.job.QOS {
			continue
		}
		if kind.Bound == "Max" && kind.Resource == "wall" && q.MaxWall.Set && d.job.Limit > q.MaxWall.Max {
			most := slurm.FormatDuration(q.MaxWall.Max)
			d.because(Request, "it requests %s, and QoS %s allows %s", slurm.FormatDuration(d.job.Limit), q.Name, most)
			d.advise("lower its time limit, or use another QoS (fairshare where)", d.update("timelimit="+most)...)
		}
		if kind.Bound != "Min" {
			continue
		}
		for _, name := range sorted(q.MinTRESPerJob) {
			if has := d.job.TRES[name]; has < q.MinTRESPerJob[name] {
				d.because(Request, "QoS %s demands at least %s %s of each job, and it requests %s",
					q.Name, forecast.PlainNumber(q.MinTRESPerJob[name]), forecast.PlainTRES(name), forecast.PlainNumber(has))
				d.anew("more, or with another QoS (fairshare where)")
			}
		}
	}
}

func sorted(t slurm.TRES) []string {
	var names []string
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// plainly is the plural of a verb at the beginning of a phrase.
func plainly(phrase string) string {
	verb, rest, _ := strings.Cut(phrase, " ")
	return strings.TrimSpace(strings.TrimSuffix(verb, "s") + " " + rest)
}

// some lists the first of names.
func some(names []string) string {
	const most = 6
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
