package jobpool

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/executor/outside"
)

// TestWhatIsCutOffHasNotSucceeded ends jobs and steps while tasks run whose shells go on when their
// program is killed, and succeed. None of these ends counts, and no task that had ended before is run
// again. Which way Slurm finds the processes of a step makes a difference: see PONOS_CLUSTER_PROCTRACK.
func TestWhatIsCutOffHasNotSucceeded(t *testing.T) {
	const pilot, own = true, false
	for _, tt := range []struct {
		name   string
		pilots bool
		trap   string
		cut    []string // the command that ends the job, whose id follows
	}{
		{"scancel of a pilot", pilot, "", []string{"scancel"}},
		{"scancel of a pilot, with traps", pilot, "trap : TERM; ", []string{"scancel"}},
		{"SIGTERM", pilot, "trap : TERM; ", []string{"scancel", "--full", "--signal=TERM"}},
		{"SIGKILL", pilot, "", []string{"scancel", "--full", "--signal=KILL"}},
		{"SIGUSR1", pilot, "trap : USR1; ", []string{"scancel", "--full", "--signal=USR1"}},
		{"requeue", pilot, "trap : TERM; ", []string{"scontrol", "requeue"}},
		{"scancel of a job", own, "trap : TERM; ", []string{"scancel"}},
		{"scancel of the step of a worker", own, "", []string{"sh", "-c", `scancel "$0.0"; sleep 3; scancel "$0"`}},
		{"SIGTERM to the step of a worker", own, "trap : TERM; ", []string{"sh", "-c", `scancel --signal=TERM "$0"; sleep 3; scancel "$0"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // one job at a time each, so that none waits for another
			cutOff(t, tt.pilots, tt.trap, tt.cut)
		})
	}
}

func cutOff(t *testing.T, byPilots bool, trap string, cut []string) {
	const quick, long = 30, 60
	var b strings.Builder
	for range quick {
		b.WriteString("echo $JOBPOOL_SEQ >>ran; sleep 0.3; touch whole.$JOBPOOL_SEQ\n")
	}
	for range long {
		b.WriteString(trap + "echo $JOBPOOL_SEQ >>ran; touch begun.$JOBPOOL_SEQ; [ $JOBPOOL_ATTEMPT -gt 1 ] || sleep 300; [ $JOBPOOL_ATTEMPT = 1 ] || touch whole.$JOBPOOL_SEQ; true\n")
	}
	input, tasks := b.String(), quick+long
	var p *pool
	var run func() (job string)
	if byPilots {
		p = pilots(t, "--alloc-sbatch=--time=10", "--jobs", fmt.Sprint(long), "--max-jobs", "1", "--linger", "1s", "--kill-after", "2s", "--term-grace", "2s")
		run = func() string {
			status, stdout, stderr := p.run(input, "--resume")
			if status != 0 && status != 4 {
				t.Fatalf("status %d: %s", status, stderr)
			}
			return strings.TrimSpace(stdout)
		}
	} else {
		p = inSlurm(t, nil)
		if err := os.WriteFile(filepath.Join(p.dir, "tasks"), []byte(input), 0o600); err != nil {
			t.Fatal(err)
		}
		run = func() string {
			return p.batch(fmt.Sprintf("exec jobpool --resume --run run --jobs %d --kill-after 2s --term-grace 2s <tasks\n", long/2), "--partition=cpu", "--nodes=2", "--time=10")
		}
	}
	has := func(pattern string) int {
		names, _ := filepath.Glob(filepath.Join(p.dir, pattern))
		return len(names)
	}
	job := run()
	t.Cleanup(func() { _ = p.quietly("scancel", job) })
	await(p, "all tasks have begun", func() bool { return has("whole.*") == quick && has("begun.*") == long })
	time.Sleep(20 * outside.Notice) // Until then the time grows for which it stays open how they ended.
	p.slurm(cut[0], append(cut[1:], job)...)
	time.Sleep(6 * time.Second) // which is longer than KillWait
	next := time.Now()
	await(p, "the run is over", func() bool {
		state := p.state(job)
		if over := p.over() >= 0 || !byPilots && state == "COMPLETED"; over {
			return true
		}
		if time.Now().After(next) && len(p.jobs()) == 0 && !slices.Contains([]string{"PENDING", "RUNNING", "COMPLETING"}, state) {
			job, next = run(), time.Now().Add(15*time.Second)
		}
		return false
	})
	p.endsOnce(tasks)
	ran := p.timesRun()
	for seq := int64(1); seq <= int64(tasks); seq++ {
		if _, err := os.Stat(filepath.Join(p.dir, fmt.Sprint("whole.", seq))); err != nil {
			t.Errorf("task %d has succeeded, and has not done what it should", seq)
		}
		if seq <= quick && ran[seq] != 1 {
			t.Errorf("task %d had ended, and ran %d times", seq, ran[seq])
		}
	}
}
