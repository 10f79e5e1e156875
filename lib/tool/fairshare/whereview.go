package fairshare

import (
	"cmp"
	"context"
	"errors"
	"slices"
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

// whereQuery asks where a job could start.
type whereQuery struct {
	args            []string       // for sbatch, without partition and QoS
	options         sbatch.Options // of the job
	wanted, wantQOS []string
	account         string
}

// whereView is where a job could start, and when.
type whereView struct {
	at         time.Time
	spots      []spot
	skipped    int
	noDatabase bool // the accounts and QOSs of the user are not known
}

// spot is a partition and QoS, and what sbatch and the plan say of them.
type spot struct {
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

// newWhereQuery takes fairshare's own options out of sbatch's, and adds those of the script and the environment.
func newWhereQuery(options sbatch.Options, command []string) (v *whereQuery, err error) {
	v = &whereQuery{}
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

func (q *whereQuery) load(ctx context.Context, a *planner.Asker) (*whereView, error) {
	name, err := nss.Me()
	if err != nil {
		return nil, err
	}
	n := &planner.Planner{}
	var runs []forecast.Past
	load := func(ctx context.Context) error { return n.QueryToReplay(ctx, a) }
	if err := planner.Together(ctx, load, func(ctx context.Context) (err error) {
		runs, _, err = a.Ended(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	if err := n.Turn(ctx); err != nil {
		return nil, err
	}
	v := &whereView{at: n.Now}
	waiting := map[string]int{}
	for i := range n.Jobs {
		if n.Plan.Results[i].Verdict.InLine() && n.Jobs[i].Pending() {
			waiting[n.Jobs[i].Partition] += n.Jobs[i].RunnableTasks()
		}
	}
	if err := checkNames("partition", q.wanted, partitionNames(n.Partitions)); err != nil {
		return nil, err
	}
	charges, err := n.Charges(ctx, a, name)
	failure, failed := slurm.FailureOf(err)
	if v.noDatabase = failed && failure == slurm.NoDatabase; err != nil && !v.noDatabase {
		return nil, err
	}
	var known []string
	for _, m := range charges.Associations {
		known = append(known, m.QOS...)
	}
	if len(known) > 0 {
		if err := checkNames("QoS", q.wantQOS, known); err != nil {
			return nil, err
		}
	}
	m := n.Model(name, charges.Associations)
	m.Accounts, m.Known.Accounts, m.Known.Accounting = charges.Accounts, charges.Known.Accounts, !v.noDatabase
	if v.spots, v.skipped = q.candidates(n, m, waiting); len(v.spots) == 0 {
		return nil, fault.Errorf(fault.Failed, "no partition that %s may use", name)
	}
	if err := q.try(ctx, a, v.spots); err != nil {
		return nil, err
	}
	if err := q.foresee(ctx, a, n, name, forecast.NewHistory(runs), v.spots); err != nil {
		return nil, err
	}
	slices.SortStableFunc(v.spots, compareSpots)
	return v, nil
}

// foresee plans the job in each partition and QoS that takes it: with time limits, and as
// jobs really run, where that is known.
func (q *whereQuery) foresee(
	ctx context.Context, a *planner.Asker, n *planner.Planner, user string, history *forecast.History, spots []spot,
) error {
	for i := range spots {
		r := &spots[i]
		p := n.Partition(r.partition)
		if r.refusal != "" || p == nil {
			continue
		}
		place, err := n.Place(ctx, a, user, q.options, p, r.qos, history)
		if err != nil {
			return err
		}
		r.start, r.nodes, r.expected, r.refusal, r.note = place.Start, place.Nodes, place.Expected, place.Never, place.Note
	}
	return nil
}

// soonest is what an answer is ranked by; later than any start if it has none.
func (r *spot) soonest() int64 {
	return (&planner.Place{Start: r.start, Expected: r.expected}).Soonest()
}

// candidates are the partitions, each with the QOSs, that the user may use as far
// as the model of admission tells. Slurm itself decides.
func (q *whereQuery) candidates(n *planner.Planner, m *admission.Cluster, waiting map[string]int) (spots []spot, skipped int) {
	accounts := []string{q.account}
	if q.account == "" && len(m.Associations) > 0 {
		accounts = nil
		for _, a := range m.Associations {
			if !slices.Contains(accounts, a.Account) {
				accounts = append(accounts, a.Account)
			}
		}
	}
	for i := range n.Partitions {
		p := &n.Partitions[i]
		asked := slices.Contains(q.wanted, p.Name)
		if len(q.wanted) > 0 && !asked || !asked && (p.State != "UP" || p.Hidden) {
			continue
		}
		byDefault := q.defaultQOS(n, m, p)
		names := q.qosOf(m, p, byDefault)
		may := func(qos string) bool {
			return slices.ContainsFunc(accounts, func(account string) bool { return admission.Of(m.May(p, account, qos)) != admission.No })
		}
		if allowed := slices.DeleteFunc(slices.Clone(names), func(q string) bool { return !may(q) }); !asked || len(allowed) > 0 {
			names = allowed
		}
		for _, qos := range names {
			if len(spots) >= maxTries {
				skipped++
				continue
			}
			spots = append(spots, spot{
				partition: p.Name, qos: qos, unasked: len(q.wantQOS) == 0 && qos == byDefault, ahead: waiting[p.Name],
				preemptible: preemptible(n, p), preemptMode: n.PreemptMode(p),
			})
		}
	}
	return spots, skipped
}

// qosOf are the user's QOSs in a partition, or those that were named, the default
// one first; "" is the default where none is known.
func (q *whereQuery) qosOf(m *admission.Cluster, p *slurm.Partition, byDefault string) []string {
	if len(q.wantQOS) > 0 {
		return q.wantQOS
	}
	var names []string
	for _, a := range m.Associations {
		if q.account != "" && a.Account != q.account || a.Partition != "" && a.Partition != p.Name {
			continue
		}
		for _, name := range a.QOS {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return []string{""}
	}
	slices.SortStableFunc(names, func(a, b string) int { return boolInt(a != byDefault) - boolInt(b != byDefault) })
	return names
}

// defaultQOS is the QoS of the job in a partition if it names none.
func (q *whereQuery) defaultQOS(n *planner.Planner, m *admission.Cluster, p *slurm.Partition) string {
	account, _ := n.Account(m.User, p)
	return m.QOSOf(cmp.Or(q.account, account), p.Name)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// merged are the answers with those that differ in the QoS only as one.
func (v *whereView) merged() []spot {
	var rows []spot
	for _, r := range v.spots {
		i := slices.IndexFunc(rows, func(o spot) bool {
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
func preemptible(n *planner.Planner, p *slurm.Partition) bool {
	if n.Config.Get("PreemptType") != "preempt/partition_prio" || n.PreemptMode(p) == "OFF" {
		return false
	}
	mine, _ := hostlist.Expand(p.Nodes)
	for i := range n.Partitions {
		o := &n.Partitions[i]
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
func (q *whereQuery) try(ctx context.Context, a *planner.Asker, spots []spot) error {
	free := make(chan struct{}, triesAtOnce)
	var questions []func(context.Context) error
	for i := range spots {
		questions = append(questions, func(ctx context.Context) error {
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			defer func() { <-free }()
			return q.ask(ctx, a, &spots[i])
		})
	}
	if err := planner.Together(ctx, questions...); err != nil {
		return err
	}
	if other := func(r spot) bool { return r.refusal == "" || r.refusal != spots[0].refusal }; slices.ContainsFunc(spots, other) {
		return nil // one is not refused, or each has its own reason: the table shows them
	}
	return fault.Errorf(fault.Failed, "no partition accepts the job: %s", spots[0].refusal)
}

// compareSpots puts what starts soonest first.
func compareSpots(x, y spot) int {
	return cmp.Or(
		boolInt(x.refusal != "")-boolInt(y.refusal != ""), cmp.Compare(x.soonest(), y.soonest()),
		boolInt(x.preemptible)-boolInt(y.preemptible), cmp.Compare(x.ahead, y.ahead), boolInt(!x.unasked)-boolInt(!y.unasked))
}

// ask asks sbatch when the job could start. sbatch reads the whole script, so the
// answer is as good as a submission; but it submits nothing.
func (q *whereQuery) ask(ctx context.Context, a *planner.Asker, r *spot) error {
	args := []string{"--test-only", "--partition=" + r.partition}
	if r.qos != "" {
		args = append(args, "--qos="+r.qos)
	}
	var said strings.Builder
	_, err := a.Client.Command(ctx, command.Cmd{Name: "sbatch", Args: append(args, q.args...), Env: a.Client.SubmitEnv(), Stderr: &said})
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
	r.bySlurm, r.nodes = estimate.Start.Unix(), estimate.Nodes
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
	for _, r := range v.spots {
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
