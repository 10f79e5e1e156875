package jobpool

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// head is the job in which the scheduler runs.
func (p *pool) head() string {
	var info struct{ Job string }
	b, _ := os.ReadFile(filepath.Join(p.dir, "run/run.json"))
	_ = json.Unmarshal(b, &info)
	return info.Job
}

// schedulers is how many the run has had.
func (p *pool) schedulers() (n int) {
	for _, r := range p.journal() {
		if r.Kind == "begin" {
			n++
		}
	}
	return n
}

// pilotOf is the process of the pilot that runs the scheduler.
func (p *pool) pilotOf(scheduler int) int {
	for _, pid := range p.processes("\x00pilot\x00") {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, name := range threads {
			more, _ := os.ReadFile(name)
			children = append(children, more...)
		}
		if slices.Contains(strings.Fields(string(children)), fmt.Sprint(scheduler)) {
			return pid
		}
	}
	p.Fatalf("the scheduler %d has no pilot", scheduler)
	return 0
}

// When the job of the scheduler is ended, or its pilot, what runs in the other job continues, and the run
// continues to its end.
func TestHeadEndsOverSlurm(t *testing.T) {
	for _, tt := range []struct {
		name string
		jobs int
		end  func(p *pool, head string)
		// stops: the run continues only when its call is repeated.
		stops bool
	}{
		{name: "cancelled job", jobs: 2, end: func(p *pool, head string) { p.slurm("scancel", head) }},
		{name: "terminated pilot", jobs: 2, end: func(p *pool, head string) { p.slurm("scancel", "--batch", "--signal=TERM", head) }},
		{name: "killed pilot", jobs: 2, end: func(p *pool, _ string) { _ = syscall.Kill(p.pilotOf(p.processes("--elastic")[0]), syscall.SIGKILL) }},
		{name: "cancelled only job", jobs: 1, end: func(p *pool, head string) { p.slurm("scancel", head) }, stops: true},
		{name: "cancelled jobs", jobs: 2, end: func(p *pool, _ string) { p.slurm("scancel", p.jobs()...) }, stops: true},
		{name: "terminated only pilot", jobs: 1, end: func(p *pool, head string) { p.slurm("scancel", "--batch", "--signal=TERM", head) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pilots(t, "--alloc-sbatch=--time=10", "--max-jobs", fmt.Sprint(tt.jobs), "--linger", "2s", "--term-grace", "2s")
			tasks := 2 * tt.jobs
			input := strings.Repeat("echo $JOBPOOL_SEQ >>ran; echo $JOBPOOL_SEQ >>in.$SLURM_JOB_ID; until [ -e go ]; do sleep 0.1; done\n", tasks)
			if status, _, stderr := p.run(input); status != 0 {
				t.Fatalf("status %d: %s", status, stderr)
			}
			await(p, "all tasks run", func() bool { return p.ran() == tasks })
			head, before := p.head(), p.jobs()
			tt.end(p, head)
			await(p, "the job ends", func() bool { return !slices.Contains(p.jobs(), head) })
			ended := []string{head}
			if tt.stops {
				ended = before
				await(p, "all jobs end", func() bool { return len(p.jobsIn("RUNNING,COMPLETING")) == 0 })
				if ids := p.jobs(); len(ids) > 0 || p.over() >= 0 {
					t.Errorf("the jobs %v were submitted in the place of one that was cancelled, status %d", ids, p.over())
				}
				if status, _, stderr := p.run(input, "--resume"); status != 0 {
					t.Fatalf("status %d: %s", status, stderr)
				}
			}
			await(p, "another scheduler continues", func() bool { return p.schedulers() > 1 && p.head() != head })
			p.touch("go")
			await(p, "the run has ended", func() bool { return p.over() >= 0 })
			if p.over() != 0 {
				t.Errorf("status %d\n%s", p.over(), p.said())
			}
			p.endsOnce(tasks)
			ran, _ := os.ReadFile(filepath.Join(p.dir, "ran"))
			var again []string // what the jobs ran that were ended
			for _, job := range ended {
				text, _ := os.ReadFile(filepath.Join(p.dir, "in."+job))
				again = append(again, strings.Fields(string(text))...)
			}
			for seq := 1; seq <= tasks; seq++ {
				want := 1
				if slices.Contains(again, fmt.Sprint(seq)) {
					want = 2
				}
				if n := slices.DeleteFunc(strings.Fields(string(ran)), func(s string) bool { return s != fmt.Sprint(seq) }); len(n) != want {
					t.Errorf("task %d was started %d times, want %d\n%s", seq, len(n), want, p.said())
				}
			}
			p.runsExplained()
			await(p, "all jobs end", func() bool { return len(p.jobs()) == 0 })
			p.noneLeft()
		})
	}
}

// Tasks that are to run again do so once, whatever happens to the schedulers meanwhile.
func TestRetryOutlivesSchedulersOverSlurm(t *testing.T) {
	const tasks = 6
	p := pilots(t, "--alloc-sbatch=--time=10", "--linger", "2s")
	// The first attempt fails, and so does the second of tasks with an odd number. Two tasks at a time
	// run, and wait from the third on.
	input := strings.Repeat("echo $JOBPOOL_SEQ >>ran; [ -e ok ] || exit 1; [ $JOBPOOL_SEQ -lt 3 ] || until [ -e go ]; do sleep 0.1; done; [ $((JOBPOOL_SEQ % 2)) = 0 ]\n", tasks)
	submit := func(more ...string) {
		if status, _, stderr := p.run(input, more...); status != 0 {
			t.Fatalf("status %d: %s", status, stderr)
		}
	}
	submit()
	await(p, "all tasks have failed", func() bool { return p.over() == 1 })
	p.touch("ok")
	submit("--resume", "--retry-failed")
	await(p, "some have run again", func() bool { return p.ran() == tasks+4 })
	for range 2 {
		schedulers := p.schedulers()
		for _, pid := range p.processes("--elastic") {
			kill(pid)
		}
		await(p, "another scheduler continues", func() bool { return p.schedulers() > schedulers })
	}
	p.touch("go")
	await(p, "the run has ended", func() bool { return p.over() >= 0 })
	if p.over() != 1 {
		t.Errorf("status %d\n%s", p.over(), p.said())
	}
	ends := map[int64]string{}
	for _, r := range p.journal() {
		if r.Kind == "end" {
			ends[r.Seq] += r.What + " "
		}
	}
	for seq := int64(1); seq <= tasks; seq++ {
		if want := []string{"failed ok ", "failed failed "}[seq%2]; ends[seq] != want {
			t.Errorf("task %d ended as %q, want %q\n%s", seq, ends[seq], want, p.said())
		}
	}
	p.runsExplained()
	await(p, "all jobs end", func() bool { return len(p.jobs()) == 0 })
	p.noneLeft()
}

// The jobs of a run that is over run nothing any more, though Slurm may have them for a while: the call that
// continues the run waits for their end, and gets another job.
func TestRetryWhileTheLastJobEndsOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10")
	const task = "touch begun; until [ -e go ]; do sleep 0.1; done; [ -e ok ]\n"
	status, stdout, stderr := p.run(task)
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	first := strings.TrimSpace(stdout)
	await(p, "the task runs", func() bool { return p.quietly("ls", "begun") != "" })
	last := p.pilotOf(p.processes("--elastic")[0])
	_ = syscall.Kill(last, syscall.SIGSTOP)
	defer func() { _ = syscall.Kill(last, syscall.SIGCONT) }()
	p.touch("go")
	await(p, "the run has ended", func() bool {
		said := p.quietly(filepath.Join(harness.Bin, "jobpool"), "ctl", "status", "--run", "run")
		return p.over() == 1 && strings.HasPrefix(said, "ended at ")
	})
	p.touch("ok")
	c := p.command("--retry-failed")
	c.Stdin = strings.NewReader(task)
	said, err := os.Create(filepath.Join(p.dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	c.Stderr = said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	await(p, "the call says what it waits for", func() bool {
		return p.quietly("cat", "said") == "jobpool: waiting for job "+first+" to end: the run in "+p.dir+"/run is over"
	})
	_ = syscall.Kill(last, syscall.SIGCONT)
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.quietly("cat", "said"))
	}
	await(p, "the failed task has run again", func() bool { return p.over() == 0 && len(p.jobs()) == 0 })
	if n := p.submitted(); n != 2 {
		t.Errorf("%d jobs were submitted", n)
	}
	p.noneLeft()
}

// What a user has drained stays drained when the scheduler's job ends: what runs in another job ends
// there, no task begins, and the run is over. The same call continues it.
func TestDrainOutlivesSchedulersOverSlurm(t *testing.T) {
	const tasks = 8
	p := pilots(t, "--alloc-sbatch=--time=10", "--max-jobs", "2", "--linger", "60s", "--term-grace", "2s")
	input := strings.Repeat("echo $JOBPOOL_SEQ >>ran; touch job.$SLURM_JOB_ID; until [ -e go ]; do sleep 0.1; done\n", tasks)
	if status, _, stderr := p.run(input); status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	await(p, "tasks run in both jobs", func() bool {
		begun, _ := filepath.Glob(filepath.Join(p.dir, "job.*"))
		return len(begun) == 2 && p.ran() == 4
	})
	if out := p.quietly(filepath.Join(harness.Bin, "jobpool"), "ctl", "drain", "--run", "run"); out != "" {
		t.Errorf("ctl drain: %q", out)
	}
	if status, stdout, stderr := p.run(input, "--resume"); status != 0 || stdout != "" || !strings.Contains(stderr, "jobpool: drained by request: the run in "+p.dir+"/run starts nothing new: ") {
		t.Errorf("again: status %d, %q, %q", status, stdout, stderr)
	}
	head := p.head()
	p.slurm("scancel", head)
	await(p, "another scheduler continues", func() bool { return p.schedulers() > 1 && p.head() != head })
	await(p, "it waits for what runs", func() bool {
		return strings.HasPrefix(p.quietly(filepath.Join(harness.Bin, "jobpool"), "ctl", "status", "--run", "run"), "draining")
	})
	p.touch("go")
	await(p, "the run has ended", func() bool { return p.over() >= 0 && len(p.jobs()) == 0 })
	ended := 0
	for _, r := range p.journal() {
		if r.Kind == "end" {
			ended++
		}
	}
	if p.over() != 75 || p.ran() != 4 || ended != 2 || p.submitted() != 2 {
		t.Errorf("status %d, %d tasks were started and %d have ended, in %d jobs\n%s", p.over(), p.ran(), ended, p.submitted(), p.said())
	}
	p.noneLeft()
	if status, _, stderr := p.run(input, "--resume"); status != 0 {
		t.Fatalf("to continue: status %d: %s", status, stderr)
	}
	await(p, "the run is complete", func() bool { return p.over() == 0 && len(p.jobs()) == 0 })
	p.endsOnce(tasks)
	p.runsExplained()
	p.noneLeft()
}
