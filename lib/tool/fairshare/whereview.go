package fairshare

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

const whereHelp = `fairshare where - find the partition and QoS in which a job starts soonest

usage: fairshare where [--json] [SBATCH-OPTION...] [SCRIPT [ARG...]]

Asks "sbatch --test-only" for each partition and QoS whether it accepts the job,
and plans the job there. With --partition or --qos, tries only these. Nothing is
submitted. Without SCRIPT and --wrap, the job is an empty script.

options:
  --json      print JSON
  --help, -h  show help

examples:
  fairshare where --gpus=2 --time=4:00:00
  fairshare where --partition=gpu,gpu_spot train.sh
`

// maxTries limits the questions to sbatch: each makes slurmctld think.
const maxTries = 64

// triesAtOnce is how many questions are under way together.
const triesAtOnce = 4

// whereView is where a job could start, and when.
type whereView struct {
	noDatabase      bool // the accounts and QOSs of the user are not known
	asJSON          bool
	args            []string       // for sbatch, without partition and QoS
	options         sbatch.Options // of the job
	wanted, wantQOS []string
	account         string

	at      time.Time
	plan    planner.Planner
	answers []answer
	skipped int
}

// answer is sbatch's answer for one partition and QoS.
type answer struct {
	partition, qos string
	unasked        bool  // the job gets the QoS without asking for it
	start          int64 // as it is planned with time limits, after the jobs that come first; 0: not planned
	expected       int64 // as jobs really run; 0: nothing was learned, or it starts now
	bySlurm        int64 // what sbatch --test-only says
	nodes          string
	note           string // why it is not planned
	refusal        string // why not, in Slurm's words
	preemptible    bool
	preemptMode    string
	ahead          int // jobs in line in the partition
}

// ownOptions are those of fairshare that stand among sbatch's.
var ownOptions = []sbatch.Definition{
	{Name: "json"}, {Name: "help-all"}, {Name: "score"}, {Name: "replay", Form: sbatch.Text}, {Name: "budget", Form: sbatch.Text},
}

// commandLine reads fairshare's own options and sbatch's.
func commandLine(args []string) (options sbatch.Options, command []string, err error) {
	line, err := sbatch.Argv(args, ownOptions...)
	switch {
	case err != nil:
		return nil, nil, fault.Wrap(fault.Usage, err)
	case len(line.Jobs) > 1:
		return nil, nil, planner.ErrHeterogeneous
	case slices.ContainsFunc(args, func(arg string) bool { return strings.ContainsRune(arg, 0) }):
		return nil, nil, fault.Errorf(fault.Usage, "an argument contains a null byte")
	}
	return line.Jobs[0], line.Command, nil
}

// helps reports whether a command line asks for help.
func helps(options sbatch.Options) bool { return options.Has("help") || options.Has("help-all") }

// newWhereView takes fairshare's own options out of sbatch's, and adds those of the script and the environment.
func newWhereView(options sbatch.Options, command []string) (v *whereView, err error) {
	v = &whereView{asJSON: options.Has("json")}
	own := []string{"json", "test-only", "partition", "qos"}
	v.args = slices.DeleteFunc(slices.Clone(options), func(o sbatch.Option) bool { return slices.Contains(own, o.Name) }).Args()
	switch {
	case len(command) > 0 && strings.HasPrefix(command[0], "-") && command[0] != "-":
		v.args = append(v.args, "--")
	case len(command) == 0 && !options.Has("wrap"):
		v.args = append(v.args, "--wrap=true")
	}
	v.args = append(v.args, command...)
	if v.options, err = planner.Options(v.args); err != nil {
		return nil, err
	}
	for _, o := range options {
		if o.Name == "partition" || o.Name == "qos" {
			v.options = v.options.With(o)
		}
	}
	v.account, v.wanted, v.wantQOS = v.options.Value("account"), list(v.options.Value("partition")), list(v.options.Value("qos"))
	return v, nil
}

func (v *whereView) load(ctx context.Context, a *planner.Asker) error {
	v.at = a.Now()
	name, err := nss.Me()
	if err != nil {
		return err
	}
	n := &v.plan
	var runs []forecast.Past
	load := func(ctx context.Context) error { return n.QueryToReplay(ctx, a) }
	if err := planner.Together(ctx, load, func(ctx context.Context) (err error) {
		runs, _, err = a.Ended(ctx)
		return err
	}); err != nil {
		return err
	}
	if err := n.Turn(ctx); err != nil {
		return err
	}
	v.at = n.Now
	waiting := map[string]int{}
	for i := range n.Jobs {
		if n.Plan.Results[i].Verdict.InLine() && n.Jobs[i].Pending() {
			waiting[n.Jobs[i].Partition] += n.Jobs[i].RunnableTasks()
		}
	}
	if err := checkNames("partition", v.wanted, partitionNames(n.Partitions)); err != nil {
		return err
	}
	charges, err := n.Charges(ctx, a, name)
	failure, failed := slurm.FailureOf(err)
	if v.noDatabase = failed && failure == slurm.NoDatabase; err != nil && !v.noDatabase {
		return err
	}
	var known []string
	for _, m := range charges.Associations {
		known = append(known, m.QOS...)
	}
	if len(known) > 0 {
		if err := checkNames("QoS", v.wantQOS, known); err != nil {
			return err
		}
	}
	m := n.Model(name, charges.Associations)
	m.Accounts, m.Known.Accounts, m.Known.Accounting = charges.Accounts, charges.Known.Accounts, !v.noDatabase
	v.candidates(m, waiting)
	if len(v.answers) == 0 {
		return fault.Errorf(fault.Failed, "no partition that %s may use", name)
	}
	if err := v.try(ctx, a); err != nil {
		return err
	}
	if err := v.foresee(ctx, a, name, forecast.NewHistory(runs)); err != nil {
		return err
	}
	v.sort()
	return nil
}

// foresee plans the job in each partition and QoS that takes it: with time limits, and as
// jobs really run, where that is known.
func (v *whereView) foresee(ctx context.Context, a *planner.Asker, user string, history *forecast.History) error {
	for i := range v.answers {
		r := &v.answers[i]
		p := v.plan.Partition(r.partition)
		if r.refusal != "" || p == nil {
			continue
		}
		place, err := v.plan.Place(ctx, a, user, v.options, p, r.qos, history)
		if err != nil {
			return err
		}
		r.bySlurm = r.start
		r.start, r.nodes, r.expected, r.refusal, r.note = place.Start, place.Nodes, place.Expected, place.Never, place.Note
	}
	return nil
}

// soonest is what an answer is ranked by; later than any start if it has none.
func (r *answer) soonest() int64 {
	return (&planner.Place{Start: r.start, Expected: r.expected}).Soonest()
}

// candidates are the partitions, each with the QOSs, that the user may use as far
// as the model of admission tells. Slurm itself decides.
func (v *whereView) candidates(m *admission.Cluster, waiting map[string]int) {
	accounts := []string{v.account}
	if v.account == "" && len(m.Associations) > 0 {
		accounts = nil
		for _, a := range m.Associations {
			if !slices.Contains(accounts, a.Account) {
				accounts = append(accounts, a.Account)
			}
		}
	}
	for i := range v.plan.Partitions {
		p := &v.plan.Partitions[i]
		asked := slices.Contains(v.wanted, p.Name)
		if len(v.wanted) > 0 && !asked || !asked && (p.State != "UP" || p.Hidden) {
			continue
		}
		names := v.qosOf(m, p)
		may := func(qos string) bool {
			return slices.ContainsFunc(accounts, func(account string) bool { return admission.Of(m.May(p, account, qos)) != admission.No })
		}
		if allowed := slices.DeleteFunc(slices.Clone(names), func(q string) bool { return !may(q) }); !asked || len(allowed) > 0 {
			names = allowed
		}
		for _, qos := range names {
			if len(v.answers) >= maxTries {
				v.skipped++
				continue
			}
			v.answers = append(v.answers, answer{
				partition: p.Name, qos: qos, unasked: len(v.wantQOS) == 0 && qos == v.defaultQOS(m, p), ahead: waiting[p.Name],
				preemptible: v.preemptible(p), preemptMode: v.plan.PreemptMode(p),
			})
		}
	}
}

// qosOf are the user's QOSs in a partition, or those that were named, the default
// one first; "" is the default where none is known.
func (v *whereView) qosOf(m *admission.Cluster, p *slurm.Partition) []string {
	if len(v.wantQOS) > 0 {
		return v.wantQOS
	}
	var names []string
	for _, a := range m.Associations {
		if v.account != "" && a.Account != v.account || a.Partition != "" && a.Partition != p.Name {
			continue
		}
		for _, q := range a.QOS {
			if !slices.Contains(names, q) {
				names = append(names, q)
			}
		}
	}
	if len(names) == 0 {
		return []string{""}
	}
	byDefault := v.defaultQOS(m, p)
	slices.SortStableFunc(names, func(a, b string) int { return boolInt(a != byDefault) - boolInt(b != byDefault) })
	return names
}

// defaultQOS is the QoS of the job in a partition if it names none.
func (v *whereView) defaultQOS(m *admission.Cluster, p *slurm.Partition) string {
	account, _ := v.plan.Account(m.User, p)
	return m.QOSOf(cmp.Or(v.account, account), p.Name)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// merged are the answers with those that differ in the QoS only as one.
func (v *whereView) merged() []answer {
	var rows []answer
	for _, r := range v.answers {
		i := slices.IndexFunc(rows, func(o answer) bool {
			return o.partition == r.partition && o.start == r.start && o.nodes == r.nodes &&
				o.refusal == r.refusal && o.expected == r.expected && o.note == r.note
		})
		if i >= 0 {
			rows[i].qos += ", " + r.qos
			continue
		}
		rows = append(rows, r)
	}
	return rows
}

// preemptible reports whether jobs of the partition lose their place to those of
// others: it has a lower tier than another one on the same nodes.
func (v *whereView) preemptible(p *slurm.Partition) bool {
	if v.plan.Config.Get("PreemptType") != "preempt/partition_prio" || v.plan.PreemptMode(p) == "OFF" {
		return false
	}
	mine, _ := hostlist.Expand(p.Nodes)
	for i := range v.plan.Partitions {
		o := &v.plan.Partitions[i]
		if o.PriorityTier <= p.PriorityTier {
			continue
		}
		theirs, _ := hostlist.Expand(o.Nodes)
		if slices.ContainsFunc(mine, func(n string) bool { return slices.Contains(theirs, n) }) {
			return true
		}
	}
	return false
}

// try asks sbatch about every candidate.
func (v *whereView) try(ctx context.Context, a *planner.Asker) error {
	free := make(chan struct{}, triesAtOnce)
	var questions []func(context.Context) error
	for i := range v.answers {
		questions = append(questions, func(ctx context.Context) error {
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			defer func() { <-free }()
			return v.ask(ctx, a, &v.answers[i])
		})
	}
	if err := planner.Together(ctx, questions...); err != nil {
		return err
	}
	v.sort()
	for _, r := range v.answers {
		if r.refusal == "" {
			return nil
		}
	}
	for _, r := range v.answers {
		if r.refusal != v.answers[0].refusal {
			return nil // each has its own reason: the table shows them
		}
	}
	return fault.Errorf(fault.Failed, "no partition accepts the job: %s", v.answers[0].refusal)
}

// sort puts what starts soonest first.
func (v *whereView) sort() {
	sort.SliceStable(v.answers, func(i, j int) bool {
		x, y := v.answers[i], v.answers[j]
		switch {
		case (x.refusal == "") != (y.refusal == ""):
			return x.refusal == ""
		case x.soonest() != y.soonest():
			return x.soonest() < y.soonest()
		case x.preemptible != y.preemptible:
			return y.preemptible
		case x.ahead != y.ahead:
			return x.ahead < y.ahead
		}
		return x.unasked && !y.unasked
	})
}

// ask asks sbatch when the job could start. sbatch reads the whole script, so the
// answer is as good as a submission; but it submits nothing.
func (v *whereView) ask(ctx context.Context, a *planner.Asker, r *answer) error {
	args := []string{"--test-only", "--partition=" + r.partition}
	if r.qos != "" {
		args = append(args, "--qos="+r.qos)
	}
	var said strings.Builder
	_, err := a.Client.Command(ctx, command.Cmd{Name: "sbatch", Args: append(args, v.args...), Env: a.Client.SubmitEnv(), Stderr: &said})
	var exit *command.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		exit.Stderr = said.String()
		if slurm.Unreachable(slurm.Refusal("sbatch", exit)) {
			return fault.Errorf(fault.Unavailable, "sbatch: %s", slurm.TestRefusal(said.String()))
		}
		r.refusal = or(slurm.TestRefusal(said.String()), fault.Text(err))
		if isUsage(said.String()) {
			return fault.Errorf(fault.Usage, "sbatch: %s", r.refusal)
		}
		return nil
	default:
		return err
	}
	estimate, err := slurm.ParseStartEstimate(said.String())
	if err != nil {
		return err
	}
	r.start, r.nodes = estimate.Start.Unix(), estimate.Nodes
	return nil
}

// isUsage reports whether sbatch rejects the options, not the job.
func isUsage(said string) bool {
	for _, words := range []string{
		"unrecognized option", "invalid option", "requires an argument", "Unable to open file", "is not a batch script",
		"Invalid numeric value", "Invalid --", "This does not look like a batch script", "Try \"sbatch --help\"",
		"Invalid time limit specification",
	} {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// now reports whether a start is as good as now.
func (v *whereView) now(start int64) bool { return start > 0 && start <= v.at.Unix() }

// combination is the value for --partition that lets Slurm take whichever of the
// soonest comes free first, with the QOS they share, "" if they get it without --qos; preemptible partitions are
// a decision of the user's own.
func (v *whereView) combination() (partitions []string, qos string) {
	unasked := true
	for _, r := range v.answers {
		if r.refusal != "" || r.preemptible || r.soonest() == forecast.Forever {
			continue
		}
		if len(partitions) == 0 {
			qos = r.qos
		}
		if r.qos == qos && !slices.Contains(partitions, r.partition) && len(partitions) < 4 {
			partitions = append(partitions, r.partition)
			unasked = unasked && r.unasked
		}
	}
	if unasked {
		qos = ""
	}
	return partitions, qos
}
