package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

// cluster answers for Slurm: what each command prints, and how often it was asked.
type cluster struct {
	mu    sync.Mutex
	rows  []string
	sacct string
	slow  time.Duration
	asked map[string]int
	most  int    // elements of an array; 0: any number
	lost  bool   // sbatch is killed right after it submitted an array
	words string // of a refusal of all but arrays
	texts []string
	size  string // MaxArraySize; "": the controller does not answer
	kept  string // a job that cannot be cancelled
}

// queueColumns is the header of the queue, with what is equal for all jobs.
const queueColumns = "JobArrayID|State|Comment|WorkDir|Reason=None|SubmitTime=2026-11-20T18:02:47|StartTime=2026-11-20T18:02:48|exit_code=0|DerivedEC=0|RestartCnt=0\n"

func row(id, state, comment string) string { return placed(id, state, comment, "/a/state/tasks") }

func placed(id, state, comment, dir string) string {
	return fmt.Sprintf("%s|%s|%s|%s\n", id, state, comment, dir)
}

func (c *cluster) Run(_ context.Context, cmd command.Cmd) (command.Result, error) {
	time.Sleep(c.slow)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[cmd.Name]++
	switch cmd.Name {
	case "squeue":
		queue := strings.NewReader(queueColumns + strings.Join(c.rows, ""))
		return command.Result{}, captures.ReplayText(cmd.Stdout, "the queue of the test", queue, cmd.Name, cmd.Args...)
	case "sacct":
		_, err := io.WriteString(cmd.Stdout, captures.Delimited(c.sacct, cmd.Args...))
		return command.Result{}, err
	case "sbatch":
		if cmd.Args[0] == "--version" {
			return command.Result{Stdout: []byte("slurm 22.05.8\n")}, nil
		}
		id := fmt.Sprint(200 + c.asked["sbatch"])
		label, array := id, false
		for _, arg := range cmd.Args {
			if last, ok := strings.CutPrefix(arg, "--array=0-"); ok {
				label, array = id+"_[0-"+last+"]", true
				if n, err := strconv.Atoi(last); err != nil || c.most > 0 && n >= c.most {
					return command.Result{}, &command.ExitError{Name: "sbatch", Code: 1, Stderr: "sbatch: error: Batch job submission failed: Invalid job array specification"}
				}
				if _, ok := cmd.Stdin.(*os.File); !ok { // of a pipe, half a script may be read
					return command.Result{}, fmt.Errorf("the script comes from %T", cmd.Stdin)
				}
				text, err := io.ReadAll(cmd.Stdin)
				if err != nil {
					return command.Result{}, err
				}
				c.texts = append(c.texts, string(text))
			}
		}
		if !array && c.words != "" {
			return command.Result{}, &command.ExitError{Name: "sbatch", Code: 1, Stderr: c.words}
		}
		for _, arg := range cmd.Args {
			if comment, ok := strings.CutPrefix(arg, "--comment="); ok {
				c.rows = append(c.rows, row(label, "PENDING", comment))
			}
		}
		if array && c.lost {
			return command.Result{}, &command.ExitError{Name: "sbatch", Code: -1, Signal: 9}
		}
		return command.Result{Stdout: []byte(id + "\n")}, nil
	case "scancel":
		cancelled := map[string]bool{}
		for _, id := range cmd.Args {
			cancelled[id] = id != c.kept
		}
		for i, text := range c.rows {
			if id, rest, _ := strings.Cut(text, "|"); cancelled[id] {
				_, rest, _ = strings.Cut(rest, "|")
				c.rows[i] = id + "|CANCELLED|" + rest
			}
		}
		if c.kept != "" && slices.Contains(cmd.Args, c.kept) {
			return command.Result{}, &command.ExitError{Name: "scancel", Code: 1, Stderr: "scancel: error: Kill job error on job id " + c.kept + ": Access/permission denied\n"}
		}
		return command.Result{}, nil
	case "scontrol":
		if slices.Equal(cmd.Args, []string{"show", "config"}) && c.size != "" {
			_, err := fmt.Fprintf(cmd.Stdout, "ClusterName = c\nMaxArraySize = %s\nSLURM_VERSION = 22.05.8\n", c.size)
			return command.Result{}, err
		}
		return command.Result{}, nil
	}
	return command.Result{}, fmt.Errorf("unexpected %s %q", cmd.Name, cmd.Args)
}

func newRunner(c *cluster) *Runner {
	c.asked = map[string]int{}
	r := New(&slurm.Client{Run: c}, config.Slurm{StopWait: config.Duration(time.Second)}, nil)
	r.now = func() time.Time { return now }
	return r
}

func known(refs ...runner.Ref) func() ([]runner.Ref, error) {
	return func() ([]runner.Ref, error) { return refs, nil }
}

func TestJobsFindsUntracked(t *testing.T) {
	c := &cluster{rows: []string{
		row("7", "RUNNING", "PONOS_TASK=a"), row("8", "RUNNING", "PONOS_TASK=b"), row("9", "PENDING", "PONOS_TASK=b"),
		row("10", "COMPLETED", "PONOS_TASK=c"), row("11", "RUNNING", "PONOS_TASK=../x"), row("12", "RUNNING", "other"),
	}}
	jobs, err := newRunner(c).Jobs(t.Context(), known(runner.Ref{Task: "a", Job: "7"}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range jobs {
		got = append(got, fmt.Sprintf("%s=%s %s", j.Task, j.ID, j.Shows()))
	}
	if text := strings.Join(got, ", "); text != "a=7 running, b=8 running, c=10 completed" {
		t.Errorf("got %s", text)
	}
	if c.asked["squeue"] != 1 || c.asked["sacct"] != 0 { // squeue says enough of what the agent does not know
		t.Errorf("asked %v", c.asked)
	}
}

// The job of an earlier attempt, which somebody has requeued, is not taken for that of this attempt, which squeue lists late.
func TestJobOfAnEarlierAttemptDoesNotCount(t *testing.T) {
	c := &cluster{rows: []string{row("7", "RUNNING", "PONOS_TASK=a")}}
	for before, want := range map[runner.Jobs]string{"6,7": "8", "6": "7", "77": "7"} {
		jobs, err := newRunner(c).Jobs(t.Context(), known(runner.Ref{Task: "a", Job: "8", Before: before, Dir: t.TempDir(), Attempt: 2}))
		if err != nil || len(jobs) != 1 || jobs[0].ID != want || jobs[0].Sight.Gone() != (want == "8") {
			t.Errorf("after %s: %+v, %v", before, jobs, err)
		}
	}
}

func TestJobsDoesNotBelieveAnEmptyList(t *testing.T) {
	c := &cluster{sacct: "7|RUNNING|0:0||Unknown||ponos-x|\n"}
	jobs, err := newRunner(c).Jobs(t.Context(), known(runner.Ref{Task: "a", Job: "7"}))
	if err != nil || !jobs[0].Sight.Gone() {
		t.Errorf("%+v, %v", jobs, err)
	}
	c.rows = []string{row("8", "RUNNING", "PONOS_TASK=b")}
	jobs, err = newRunner(c).Jobs(t.Context(), known(runner.Ref{Task: "a", Job: "7"}, runner.Ref{Task: "b", Job: "8"}))
	if err != nil || jobs[0].Sight.Sure() || jobs[1].Shows() != task.Running {
		t.Errorf("%+v, %v", jobs, err)
	}
}

// Many starts at once share a look; after an earlier try, the look is newer than the question.
func TestStartListsFirst(t *testing.T) {
	c := &cluster{slow: 2 * time.Millisecond, rows: []string{row("7", "PENDING", "PONOS_TASK=t0"), row("8", "COMPLETED", "PONOS_TASK=t1")}}
	r := newRunner(c)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			s := runner.Submission{Task: task.ID(fmt.Sprintf("t%d", i)), Dir: "/d", Script: "/d/job.sh"}
			if i == 1 {
				s.Before = []string{"8"} // an earlier attempt
			}
			job, err := r.Start(t.Context(), s)
			if err != nil || (job.Claim == runner.Found) != (i == 0) || i == 0 && job.ID != "7" {
				t.Errorf("t%d: %+v, %v", i, job, err)
			}
		})
	}
	wg.Wait()
	if c.asked["sbatch"] != 39 || c.asked["squeue"] > 20 {
		t.Errorf("asked %v; want 39 submissions and few looks", c.asked)
	}
	again, err := r.Start(t.Context(), runner.Submission{Task: "t5", Again: true, Dir: "/d", Script: "/d/job.sh"})
	if err != nil || again.Claim != runner.Found || c.asked["sbatch"] != 39 {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestSubmitErrors(t *testing.T) {
	for words, want := range map[string]error{
		"sbatch: error: Batch job submission failed: Invalid partition name specified":                                    runner.ErrRefused,
		"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting": runner.ErrFull,
		"sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying":                                    runner.ErrFull,
		"sbatch: error: Batch job submission failed: Rate limit exceeded, please retry later":                             runner.ErrFull,
		"sbatch: error: Batch job submission failed: Requested node configuration is not available":                       runner.ErrUnmet,
		"sbatch: error: Batch job submission failed: Required partition not available (inactive or drain)":                runner.ErrUnmet,
		"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)":                nil,
		"sbatch: error: Batch job submission failed: I/O error writing script/environment to file":                        nil,
		"sbatch: error: Batch job submission failed: Message receive failure":                                             nil,
		"sbatch: error: Batch job submission failed: Invalid authentication credential":                                   nil,
	} {
		err := submitError(slurm.Refusal("sbatch", &command.ExitError{Name: "sbatch", Code: 1, Stderr: words}))
		if want == nil {
			want = runner.ErrUnsure
		}
		if !errors.Is(err, want) {
			t.Errorf("%q: %v; want %v", words, err, want)
		}
	}
}

func TestFindTakesItsOptionsFromTheLauncher(t *testing.T) {
	find := func(_ context.Context, request string, _ usage.Learned, _ Job) (sbatch.Options, error) {
		return sbatch.Options{{Name: "partition", Value: "gpu"}, {Name: "time", Value: "1:00:00"}, {Name: "comment", Value: request}}, nil
	}
	got, err := Resolve(t.Context(), find, "slurm.gpu", sbatch.Options{{Name: "find", Value: "cuda(mem=14G)"}, {Name: "time", Value: "9"}})
	if err != nil || len(got) != 3 || got[1].Value != "cuda(mem=14G)" || got[2] != (sbatch.Option{Name: "time", Value: "9"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Resolve(t.Context(), nil, "slurm.gpu", sbatch.Options{{Name: "find", Value: "x"}}); !fault.Is(err, fault.Usage) {
		t.Errorf("got %v", err)
	}
}

// The id of a job that Slurm has forgotten is given to another one, of which accounting has
// no comment yet: it is known by its name.
func TestARecordOfAnotherJob(t *testing.T) {
	e := evidence{ref: runner.Ref{Task: "a", Job: "7", Label: "t049", Submitted: now}}
	for name, want := range map[string]bool{"ponos-t049": true, "ponos-t050": false, "other": false} {
		if got := e.matches(slurm.Record{ID: "7", Name: name, Submit: now.Unix()}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Jobs that squeue does not show are looked for together in accounting; only those that it does not show as ended for ever are asked for.
func TestStopsOfForgottenJobsShareCalls(t *testing.T) {
	const tasks = 100
	c := &cluster{}
	for i := range tasks {
		end := "CANCELLED by 1000"
		switch i {
		case 1:
			end = "CANCELLED" // by a controller that has dropped it
		case 2:
			end = "NODE_FAIL" // and may be requeued
		}
		if i > 0 {
			c.sacct += fmt.Sprintf("%d|%s|0:0|2026-11-20T18:02:47|2026-11-20T18:03:00|PONOS_TASK=t%[1]d|ponos-x|\n", i, end)
		}
	}
	r := newRunner(c)
	r.stopWait = 10 * time.Minute
	var wg sync.WaitGroup
	for i := range tasks {
		wg.Go(func() {
			if err := r.Stop(t.Context(), runner.Ref{Task: task.ID(fmt.Sprintf("t%d", i)), Job: fmt.Sprint(i)}); err != nil {
				t.Errorf("t%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if looks := c.asked["squeue"]; looks > 3 || c.asked["sacct"] > looks || c.asked["scontrol"] != 3 || c.asked["scancel"] > 0 {
		t.Errorf("asked %v for %d stops", c.asked, tasks)
	}
}

// Any number of stops at once takes two or three calls of squeue, and scancel for some hundred jobs each. An error about one job
// is not that of the others.
func TestStopsShareCalls(t *testing.T) {
	const tasks = 5000
	c := &cluster{kept: "7"}
	for i := range tasks {
		c.rows = append(c.rows, row(fmt.Sprint(i), "PENDING", fmt.Sprintf("PONOS_TASK=t%d", i)))
	}
	r := newRunner(c)
	r.stopWait = 10 * time.Minute
	var wg sync.WaitGroup
	for i := range tasks {
		wg.Go(func() {
			err := r.Stop(t.Context(), runner.Ref{Task: task.ID(fmt.Sprintf("t%d", i)), Job: fmt.Sprint(i)})
			if (err != nil) != (i == 7) {
				t.Errorf("t%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if c.asked["squeue"] > 3 || c.asked["scancel"] > tasks/maxCancelled+1 {
		t.Errorf("asked %v for %d stops", c.asked, tasks)
	}
	for i, text := range c.rows {
		if !strings.Contains(text, "|CANCELLED|") && i != 7 {
			t.Errorf("not cancelled: %s", text)
		}
	}
	asked := c.asked["scancel"]
	if err := r.Stop(t.Context(), runner.Ref{Task: "t1", Job: "1"}); err != nil || c.asked["scancel"] != asked {
		t.Errorf("a job that has ended: %v, asked %v", err, c.asked)
	}
}
