// Package diagnosis says why a pending job waits: one cause with its proof, when the job starts,
// and one action that helps. It is computed from the plan of the queue, its nodes and limits; the
// reason that Slurm gives is a hint, which decides only what the plan does not know.
//
//	rows of the job -> the row that starts first -> verdict of the plan -> cause, proof
//	                                                Slurm's reason      -> cause, where no plan knows it
//	cause            -> start: now · at the latest by limits · never as it is · unknown
//	cause            -> action, tried out in a changed plan
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

// Cause is what keeps a job from starting, as a word for programs.
type Cause string

// The causes.
const (
	Free        Cause = "free"        // nothing: it starts in the next turn of the scheduler
	Nodes       Cause = "nodes"       // it is the next, and its nodes are taken
	Others      Cause = "others"      // other jobs come first
	Away        Cause = "away"        // nodes that could run it are down, drained or kept for others
	Array       Cause = "array"       // the array's own limit of running tasks
	Limit       Cause = "limit"       // a limit of a QoS or an association is used up
	License     Cause = "license"     // licenses are used up
	Dependency  Cause = "dependency"  // another job
	Begin       Cause = "begin"       // its begin time
	Reservation Cause = "reservation" // its reservation has not begun
	Held        Cause = "held"        // a user or an administrator must release it
	Partition   Cause = "partition"   // the partition starts no jobs
	Request     Cause = "request"     // it requests what it can never get
	Slurm       Cause = "slurm"       // something that only Slurm knows
)

// StartKind is what is known of a start.
type StartKind string

// The kinds of starts.
const (
	Unknown StartKind = "unknown"
	Now     StartKind = "now"   // in the next turn of the scheduler
	By      StartKind = "by"    // at that time if all jobs run to their time limits, and none comes before it
	About   StartKind = "about" // roughly at that time, from the work of the jobs before it
	Never   StartKind = "never" // not as the job and the cluster are set up
)

// Diagnosis is why a pending job waits.
type Diagnosis struct {
	Cause  Cause
	Text   string   // a clause: "its array lets 2 tasks run at a time, and 2 run"
	Brief  string   // the same in at most 24 characters
	Proof  []string // sentences with the numbers behind it
	Kind   StartKind
	Start  int64 // of Now, By and About, in seconds since 1970
	Action Action
}

// Starts says when the job starts; "": that is not known. at writes a time.
func (d Diagnosis) Starts(at func(unix int64) string) string {
	switch d.Kind {
	case Now:
		return "it starts in the next turn of the scheduler"
	case By:
		return "it starts " + at(d.Start) + " if jobs run to their time limits"
	case About:
		return "roughly, it starts " + at(d.Start)
	case Never:
		return "it never starts as it is"
	}
	return ""
}

// Action is what would help.
type Action struct {
	Text    string
	Command []string // nil: there is none, or it needs a decision
	Minutes int64    // the time limit with which the job would start now; 0: none
}

// Facts are what diagnoses follow from.
type Facts struct {
	Plan       *forecast.Plan         // nil: not known, and Slurm's reasons decide
	Row        func(j *slurm.Job) int // of the plan, -1: it has none
	Nodes      []slurm.Node           // in the order of the plan's world
	Partitions []slurm.Partition
	QOS        []slurm.QOS
	Now        time.Time           // times near it are written short
	lacks      map[string][]string // what requests that no node can meet have too much of

	// Later forecasts rows of the plan of which it has no start: Unknown, By or About; nil: nothing does.
	Later func(rows []int) (StartKind, int64)
}

// Of says why a job waits. rows are squeue's rows of it, one for each of its partitions, of each component of a heterogeneous job.
func (f *Facts) Of(rows ...*slurm.Job) Diagnosis {
	d := f.decided(rows)
	if d.rest != nil {
		d.rest()
	}
	if d.Kind == "" {
		d.Kind = Unknown
		d.later(rows)
	}
	return d.Diagnosis
}

// Briefly is Of without what looks at all other jobs or tries something out, so that it can be said of each job of a long list: the
// proof is left out, and so is an action that is not known without that.
func (f *Facts) Briefly(rows ...*slurm.Job) Diagnosis {
	d := f.decided(rows)
	if d.Kind = cmp.Or(d.Kind, Unknown); d.Action.Text == "" {
		d.advise("fairshare jobs " + d.job.Label + " tries out what would help")
	}
	return d.Diagnosis
}

func (f *Facts) decided(rows []*slurm.Job) *diagnosing {
	first := f.first(f.component(rows))
	d := diagnosing{Facts: f, job: first, row: -1}
	if f.Plan != nil {
		d.row = f.Row(first)
	}
	if d.decide(); first.HetID != 0 && d.row >= 0 && d.Cause != Free && d.Cause != Held {
		d.Text = "its component " + first.Label + " keeps it: " + d.Text
	}
	if d.Brief = briefly[d.Cause]; d.Brief == "" || d.Cause == causeOf(first) && d.Cause != Others && d.Cause != Nodes {
		d.Brief = first.Brief()
	}
	return &d
}

// briefly has words for causes; those of Slurm's reason say more where it has the same cause.
var briefly = map[Cause]string{
	Free: "starts in the next turn", Nodes: "next in line", Others: "others come first", Away: "nodes out of service",
	Array: "limit of its array", Limit: "a limit is used up", License: "no license is free",
	Dependency: "waits for other jobs", Begin: "has a begin time",
	Reservation: "waits for a reservation", Held: "held", Partition: "partition starts none", Request: "never as it is",
}

// component are the rows of the component that keeps a heterogeneous job: one that cannot start now by itself, and of these the one that
// is farthest from it. Of other jobs they are all.
func (f *Facts) component(rows []*slurm.Job) (last []*slurm.Job) {
	if rows[0].HetID == 0 {
		return rows
	}
	of := map[uint64][]*slurm.Job{}
	var ids []uint64
	for _, j := range rows {
		if len(of[j.ID]) == 0 {
			ids = append(ids, j.ID)
		}
		of[j.ID] = append(of[j.ID], j)
	}
	farthest, latest := -1, int64(0)
	for _, id := range ids {
		place, start := len(nearest), int64(0)
		if first := f.first(of[id]); f.Plan != nil && f.Row(first) >= 0 {
			row := f.Row(first)
			place = slices.Index(nearest, f.Plan.Results[row].Verdict)
			start = f.Plan.Alone(row)
		}
		if place > farthest || place == farthest && start > latest {
			farthest, latest, last = place, start, of[id]
		}
	}
	return last
}

// later forecasts a job of which the plan has no start, and which waits for nothing but others.
func (d *diagnosing) later(rows []*slurm.Job) {
	if d.Later == nil || d.row < 0 || !slices.Contains([]Cause{Nodes, Others, Array, Limit, License, Dependency, Reservation}, d.Cause) {
		return
	}
	var planned []int
	for _, j := range rows {
		if row := d.Row(j); row >= 0 {
			planned = append(planned, row)
		}
	}
	d.Kind, d.Start = d.Later(planned)
}

// first is the row whose partition decides: the one in which the job starts first, or is nearest to it.
func (f *Facts) first(rows []*slurm.Job) *slurm.Job {
	if f.Plan == nil {
		return rows[0]
	}
	type place struct {
		nearness int
		start    int64
	}
	at := func(j *slurm.Job) place {
		row := f.Row(j)
		if row < 0 {
			return place{len(nearest), 0}
		}
		verdict := f.Plan.Results[row].Verdict
		p := place{slices.Index(nearest, verdict), f.Plan.Results[row].Start}
		if verdict == forecast.Held && f.Plan.World.Jobs[row].Never != "" || p.nearness < 0 {
			p.nearness = len(nearest)
		}
		return p
	}
	return slices.MinFunc(rows, func(a, b *slurm.Job) int {
		x, y := at(a), at(b)
		if x.nearness != y.nearness {
			return x.nearness - y.nearness
		}
		return int(max(-1, min(1, x.start-y.start)))
	})
}

// nearest orders verdicts by how near a start is.
var nearest = []forecast.Verdict{
	forecast.StartsNow, forecast.PlannedLate, forecast.Unplanned, forecast.Beyond, forecast.NotReached, forecast.ArrayThrottle,
	forecast.AtLimit, forecast.NoLicense, forecast.Waits, forecast.NoNodes, forecast.PartitionDown, forecast.Held,
	forecast.Elsewhere, forecast.NeverAsks, forecast.NeverFits,
}

// diagnosing is a diagnosis while it is made.
type diagnosing struct {
	*Facts
	Diagnosis
	job  *slurm.Job
	row  int    // of the plan; -1: none
	rest func() // finds the proof and the action that Briefly leaves out; nil: there are none
}

// time writes a time.
func (d *diagnosing) time(unix int64) string { return unit.ShortTime(unix, d.Now) }

func (d *diagnosing) because(c Cause, format string, args ...any) {
	d.Cause, d.Text = c, fmt.Sprintf(format, args...)
}

func (d *diagnosing) prove(format string, args ...any) {
	d.Proof = append(d.Proof, fmt.Sprintf(format, args...))
}

func (d *diagnosing) advise(text string, command ...string) {
	d.Action = Action{Text: text, Command: command}
}

// update is a command that changes the job; nil for one that is only planned.
func (d *diagnosing) update(change string) []string {
	if d.job.ArrayID == 0 {
		return nil
	}
	return []string{"scontrol", "update", "job=" + d.job.Target(), change}
}

// planned are the reasons of Slurm that the plan explains better.
var planned = []string{
	"", "None", "Priority", "Resources", "Dependency", "DependencyNeverSatisfied", "BeginTime", "ReqNodeNotAvail", "Reservation",
	"JobArrayTaskLimit", "Licenses", "PartitionDown", "PartitionInactive", "PartitionNodeLimit", "PartitionTimeLimit",
	"BadConstraints", "JobHeldUser", "JobHeldAdmin", "NodeDown", "WaitingForScheduling", "Reserved",
}

// decide finds the cause.
func (d *diagnosing) decide() {
	code := slurm.ReasonCode(d.job.Reason)
	_, limited := slurm.LimitOfReason(code)
	if d.row < 0 || !limited && !slices.Contains(planned, code) && !strings.HasPrefix(code, "Nodes required") {
		d.reason()
		return
	}
	r := &d.Plan.Results[d.row]
	w := &d.Plan.World.Jobs[d.row]
	switch r.Verdict {
	case forecast.StartsNow:
		d.because(Free, "there is room for it on %s", strings.Join(r.Nodes, ","))
		d.Kind, d.Start = Now, r.Start
		d.advise("wait for the next turn of the scheduler")
	case forecast.PlannedLate, forecast.Unplanned, forecast.Beyond, forecast.NotReached:
		d.line(r)
	case forecast.ArrayThrottle:
		d.array(w)
	case forecast.AtLimit:
		d.limit(r, w)
	case forecast.NeverAsks:
		d.because(Request, "%s", strings.TrimSuffix(d.Plan.Explain(d.row), forecast.NeverLikeThis))
		d.Kind = Never
		d.less(r)
	case forecast.NoLicense:
		d.because(License, "%s", d.Plan.Explain(d.row))
		d.advise("wait until others release theirs")
		d.rest = func() { d.ends(func(j *forecast.Job) bool { return j.Licenses[r.License] > 0 }, "holds some of them") }
	case forecast.Waits:
		d.waits(w)
	case forecast.NeverFits:
		d.fits(w)
	case forecast.NoNodes:
		d.because(Away, "the nodes that could run it are out of service or kept for others")
		d.elsewhere()
		d.rest = d.away
	default:
		d.reason()
	}
}

// reason explains what only Slurm knows, by its own reason.
func (d *diagnosing) reason() {
	code := slurm.ReasonCode(d.job.Reason)
	e := d.job.Explain()
	d.because(causeOf(d.job), "%s", e.Plain)
	d.advise(e.Advice)
	if slurm.WillNeverStart(d.job.Reason) {
		d.Kind = Never
	} else if d.job.Start > 0 && d.row < 0 {
		d.Kind, d.Start = By, d.job.Start
	}
	if d.row >= 0 && d.Cause == Away {
		// Slurm holds a job whose request no node has, and may overwrite the reason for it.
		if w := &d.Plan.World.Jobs[d.row]; len(d.Plan.Fitting(d.row)) < max(1, w.Nodes) {
			d.fits(w)
			return
		}
	}
	switch code {
	case "JobHeldUser", "JobHoldMaxRequeue", "RequeueHold", "SpecialExit", "job_requeued_in_held_state", "launch_failed_requeued_held",
		"SystemFailure":
		d.Action.Command = []string{"scontrol", "release", strconv.FormatUint(d.job.ArrayID, 10)}
	case "ReservationDeleted":
		d.Action.Command = d.update("reservationname=")
	case "DependencyNeverSatisfied":
		d.because(Dependency, "it waits for a job that can no longer fulfil its condition (%s)", d.job.Dependency)
		d.advise("cancel it ("+d.cancel()+"), or let it run without the dependency", d.update("dependency=")...)
	case "BadConstraints":
		if d.row >= 0 {
			d.fits(&d.Plan.World.Jobs[d.row])
		}
	case "PartitionConfig", "AccountNotAllowed", "QOSNotAllowed":
		d.access()
	case "PartitionTimeLimit":
		d.tooLong()
	case "PartitionNodeLimit":
		d.nodeCount()
	default:
		d.each(code)
	}
}

// causeOf is the cause that Slurm's reason names.
func causeOf(j *slurm.Job) Cause {
	code := slurm.ReasonCode(j.Reason)
	_, limited := slurm.LimitOfReason(code)
	switch {
	case slurm.WillNeverStart(j.Reason):
		return Request
	case limited:
		return Limit
	case strings.HasPrefix(code, "Nodes required"):
		return Away
	}
	switch code {
	case "Priority", "Reserved", "FedJobLock":
		return Others
	case "Resources":
		return Nodes
	case "Dependency":
		return Dependency
	case "BeginTime":
		return Begin
	case "Reservation":
		return Reservation
	case "ReqNodeNotAvail", "NodeDown", "NodeList", "FrontEndDown", "PowerNotAvail", "PowerReserved", "MaxPoweredUpNodes":
		return Away
	case "AssociationJobLimit", "AssociationResourceLimit", "AssociationTimeLimit", "QOSJobLimit", "QOSResourceLimit", "QOSTimeLimit",
		"QOSUsageThreshold", "AccountingPolicy":
		return Limit
	case "Licenses":
		return License
	case "JobArrayTaskLimit":
		return Array
	case "PartitionDown", "PartitionInactive":
		return Partition
	case "JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "RequeueHold", "SpecialExit", "job_requeued_in_held_state",
		"launch_failed_requeued_held", "ReservationDeleted":
		return Held
	}
	return Slurm
}
