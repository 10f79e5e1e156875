package fairshare

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/diagnosis"
	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

const whenHelp = `fairshare when - forecast when a job will start

usage: fairshare when [OPTION...] JOB...
       fairshare when [OPTION...] [SBATCH-OPTION...] [SCRIPT [ARG...]]
       fairshare when --score [--json]
       fairshare when --replay FILE [--json]

Simulates the queue many times, with run times and arrivals drawn from past
jobs. Nothing is submitted.

options:
  --budget TIME  answer within this time; more makes the answer better (5s)
  --score        print the accuracy of past forecasts on this cluster
  --replay FILE  forecast the jobs in FILE: output of sacct, or a trace in SWF
  --json         print JSON
  --help, -h     show help

examples:
  fairshare when 349
  fairshare when --gpus=2 --time=4:00:00 -p gpu train.sh
`

// whenQuery asks when a job starts.
type whenQuery struct {
	score  bool
	replay string
	ids    []string
	where  *whereQuery // options of sbatch
	budget time.Duration
}

// whenView is when a job starts.
type whenView struct {
	whenQuery
	at      time.Time
	plan    planner.Planner
	history *forecast.History
	noRuns  string // why nothing was learned
	kept    *planner.Kept
	scored  []forecast.Scored // by which answers are calibrated
	notKept string            // why forecasts cannot be kept
	answers []startAnswer
}

// startAnswer is the answer for one job.
type startAnswer struct {
	label      string
	partitions []string
	running    int64 // since when it runs
	diagnosis.Diagnosis
	slurm int64 // Slurm's own; 0: none
	planner.Start
}

// whenLine reads a command line: jobs of the queue, among which own options may stand, or a job for sbatch.
func whenLine(args []string) (ids []string, options sbatch.Options, command []string, err error) {
	options, command, err = commandLine(args)
	for all, rest := options, command; err == nil && len(rest) > 0 && jobLabel.MatchString(rest[0]); {
		var more sbatch.Options
		ids = append(ids, rest[0])
		if more, rest, err = commandLine(rest[1:]); len(rest) == 0 {
			return ids, all.Then(more...), nil, err
		}
		all = all.Then(more...)
	}
	return nil, options, command, err
}

func newWhenQuery(ids []string, options sbatch.Options, command []string) (*whenQuery, error) {
	v := &whenQuery{score: options.Has("score"), replay: options.Value("replay")}
	var err error
	if v.budget, err = budget(cmp.Or(options.Value("budget"), defaultBudget)); err != nil {
		return nil, err
	}
	own := []string{"json", "score", "replay", "budget"}
	options = slices.DeleteFunc(slices.Clone(options), func(o sbatch.Option) bool { return slices.Contains(own, o.Name) })
	job := len(ids) > 0 || len(options) > 0 || len(command) > 0
	switch {
	case (v.score || v.replay != "") && job || v.score && v.replay != "":
		return nil, fault.Errorf(fault.Usage, "--score and --replay cannot be combined with a job or with each other")
	case v.score || v.replay != "":
	case !job:
		return nil, fault.Hint(
			fault.Errorf(fault.Usage, "no job and no sbatch option is given"),
			"for example: fairshare when 349, or fairshare when --gpus=1 --time=2:00:00")
	case len(ids) > 0 && len(options) == 0:
		v.ids = ids
	default:
		var err error
		v.where, err = newWhereQuery(options, append(ids, command...))
		return v, err
	}
	return v, nil
}

// showWhen runs the command.
func showWhen(ctx context.Context, a *planner.Asker, q *whenQuery, asJSON bool, stdout io.Writer) error {
	if q.replay != "" {
		return showReplay(ctx, q.replay, asJSON, a.Now(), stdout)
	}
	v, err := q.load(ctx, a)
	if err != nil {
		return err
	}
	return printTo(stdout, stdout, v, asJSON)
}

func (q *whenQuery) load(ctx context.Context, a *planner.Asker) (*whenView, error) {
	v := &whenView{whenQuery: *q, plan: planner.Planner{Budget: q.budget}}
	var runs []forecast.Past
	load := func(ctx context.Context) error { return v.plan.QueryToReplay(ctx, a) }
	if err := planner.Together(ctx, load, func(ctx context.Context) (err error) {
		runs, v.noRuns, err = a.Ended(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	if err := v.plan.Turn(ctx); err != nil {
		return nil, err
	}
	v.at = v.plan.Now
	v.history = forecast.NewHistory(runs)
	if err := v.settle(ctx, a); err != nil {
		return nil, err
	}
	if v.score {
		return v, nil
	}
	learn, cancel := context.WithTimeout(ctx, v.plan.Left()/4)
	defer cancel()
	v.scored = v.kept.Taught(func() bool { return learn.Err() != nil }, v.at.Unix(), runs)
	switch {
	case v.where != nil:
		return v, v.submitted(ctx, a)
	}
	return v, v.queued(ctx)
}

// settle learns the outcomes of past forecasts.
func (v *whenView) settle(ctx context.Context, a *planner.Asker) (err error) {
	if v.kept, err = planner.LoadKept(v.plan.Config.Get("ClusterName")); err != nil {
		v.notKept, v.kept = fault.Text(err), &planner.Kept{}
		return nil
	}
	seen := map[string]int64{}
	for i := range v.plan.Jobs {
		j := &v.plan.Jobs[i]
		if seen[planner.RawID(j.ID)] = j.Start; j.Pending() {
			seen[planner.RawID(j.ID)] = 0
		}
	}
	changed, err := v.kept.Settle(ctx, a, v.noRuns == "", seen)
	if err == nil && changed {
		v.save()
	}
	return err
}

// save keeps the forecasts. That they cannot be kept changes nothing in the answer.
func (v *whenView) save() {
	if v.notKept != "" {
		return
	}
	if err := v.kept.Save(); err != nil {
		v.notKept = fault.Text(err)
	}
}

// queued answers for jobs in the queue.
func (v *whenView) queued(ctx context.Context) error {
	for n, id := range v.ids {
		var rows []int
		for i := range v.plan.Jobs {
			if j := &v.plan.Jobs[i]; isJob(j, id) || isComponent(j, id) {
				rows = append(rows, i)
			}
		}
		if len(rows) == 0 {
			return fault.Hint(fault.Errorf(fault.Usage, "job %s is not in the queue", id), hasEnded+id)
		}
		j := &v.plan.Jobs[rows[0]]
		answer := startAnswer{label: j.Label}
		if !j.Pending() {
			answer.running = j.Start
			v.answers = append(v.answers, answer)
			continue
		}
		rows = slices.DeleteFunc(rows, func(i int) bool { return oneJob(&v.plan.Jobs[i]) != oneJob(j) })
		if j.HetID != 0 {
			answer.label = strconv.FormatUint(j.HetID, 10)
		}
		for _, i := range rows {
			answer.partitions = append(answer.partitions, v.plan.Jobs[i].Partition)
		}
		waiting := make([]*slurm.Job, len(rows))
		for k, i := range rows {
			waiting[k] = &v.plan.Jobs[i]
		}
		facts := v.plan.Facts()
		answer.Diagnosis = facts.Of(waiting...)
		err := v.forecast(ctx, v.plan.Left()/time.Duration(len(v.ids)-n), &answer, v.plan.Plan, rows, j.Start)
		if err != nil {
			return err
		}
		scorable := answer.Basis == planner.Replays && answer.Certain == 0 && answer.Estimate.Median != forecast.Forever
		if answer.Kind != diagnosis.Never && scorable && j.TaskCount() == 1 {
			v.remember(j, &answer)
		}
		v.answers = append(v.answers, answer)
	}
	return nil
}

// forecast fills in when the job of some rows starts.
func (v *whenView) forecast(
	ctx context.Context, left time.Duration, answer *startAnswer, p *forecast.Plan, rows []int, bySlurm int64,
) (err error) {
	if answer.Kind == diagnosis.Never {
		return nil
	}
	if answer.slurm = bySlurm; bySlurm < v.at.Unix() {
		answer.slurm = 0
	}
	answer.Start, err = v.plan.StartOf(ctx, left, p, rows, v.history, v.scored)
	return err
}

// remember keeps a forecast, to be scored when the job has started. Of several within ten
// minutes the first counts.
func (v *whenView) remember(j *slurm.Job, answer *startAnswer) {
	now := v.at.Unix()
	id := planner.RawID(j.ID)
	for _, t := range v.kept.All {
		if t.Job == id && t.Submit == j.Submit && now-t.Made < 600 {
			return
		}
	}
	t := planner.Told{
		Job: id, Submit: j.Submit, Made: now, Limits: -1, Slurm: -1,
		Median: float64(max(0, answer.Estimate.Median-now)), Low: answer.Low, High: answer.High,
		RawMedian: answer.RawMedian, RawLow: answer.RawLow, RawHigh: answer.RawHigh,
	}
	if math.IsInf(t.High, 0) || math.IsInf(t.RawHigh, 0) {
		return
	}
	if answer.Limits > 0 {
		t.Limits = float64(answer.Limits - now)
	}
	if answer.slurm > 0 {
		t.Slurm = float64(answer.slurm - now)
	}
	v.kept.All = append(v.kept.All, t)
	v.save()
}

// submitted answers for a job that is not submitted yet.
func (v *whenView) submitted(ctx context.Context, a *planner.Asker) error {
	user, err := nss.Me()
	if err != nil {
		return err
	}
	wanted := v.where.wanted
	if err := checkNames("partition", wanted, partitionNames(v.plan.Partitions)); err != nil {
		return err
	}
	w := *v.plan.World
	w.Jobs = slices.Clone(w.Jobs)
	var rows []int
	qos := ""
	if len(v.where.wantQOS) > 0 {
		qos = v.where.wantQOS[0]
	}
	for i := range v.plan.Partitions {
		p := &v.plan.Partitions[i]
		if !slices.Contains(wanted, p.Name) && (len(wanted) > 0 || !p.Default) {
			continue
		}
		job, err := v.plan.JobFor(ctx, a, user, v.where.options, p, qos)
		if err != nil {
			return err
		}
		job.ID, job.ArrayID = 1<<61, 1<<61
		rows = append(rows, len(w.Jobs))
		w.Jobs = append(w.Jobs, job)
	}
	if len(rows) == 0 {
		return fault.Hint(fault.Errorf(fault.Usage, "no default partition"), "name one with --partition")
	}
	answer := startAnswer{label: "this job"}
	for _, row := range rows {
		answer.partitions = append(answer.partitions, w.Jobs[row].Partition)
	}
	test := spot{partition: strings.Join(answer.partitions, ","), qos: qos}
	if err := v.where.ask(ctx, a, &test); err != nil {
		return err
	}
	if test.refusal != "" {
		return fault.Errorf(fault.Failed, "Slurm would not accept the job: %s", test.refusal)
	}
	plan := forecast.NewPlan(v.plan.Over(ctx), &w, true)
	answer.Diagnosis = v.plan.Judge(plan, rows)
	if err := v.forecast(ctx, v.plan.Left(), &answer, plan, rows, test.bySlurm); err != nil {
		return err
	}
	v.answers = append(v.answers, answer)
	return nil
}

// about is a time of waiting as people say it.
func about(seconds float64) string {
	switch {
	case math.IsInf(seconds, 1):
		return "more than 30 days"
	case seconds < 1:
		return "now"
	case seconds < 150:
		return fmt.Sprintf("%.0f s", math.Ceil(seconds/10)*10)
	case seconds < 5400:
		return plural(int(math.Round(seconds/60)), "minute", "minutes")
	}
	d := time.Duration(seconds) * time.Second
	if d > 24*time.Hour {
		return span(d.Round(time.Hour))
	}
	return span(d.Round(5 * time.Minute))
}
