package jobpool

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// alone is a task that tells if it runs twice at the same time.
const alone = `exec 9>>lock.$JOBPOOL_SEQ; flock -n 9 || echo $JOBPOOL_SEQ >>twice; echo $JOBPOOL_SEQ >>ran; `

// neverTwice fails if a task ran while another attempt at it did.
func (p *pool) neverTwice() {
	p.Helper()
	if b, err := os.ReadFile(filepath.Join(p.dir, "twice")); err == nil {
		p.Errorf("tasks that ran twice at the same time: %q", b)
	}
}

// ran is how many tasks have begun.
func (p *pool) ran() int {
	b, _ := os.ReadFile(filepath.Join(p.dir, "ran"))
	return strings.Count(string(b), "\n")
}

// The worker of a lost node cannot end its tasks, as it does not run; they run again
// when its supervisor has ended them.
func TestFrozenWorker(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	p.args = append(sshd(t), "--nodes", "1/n[1-2]", "--node-timeout", "20s", "--kill-after", "1s", "--run", "run")
	p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
	c := p.command()
	// The one at n1 runs until it is ended.
	task := alone + "touch at.$JOBPOOL_NODE; until [ -e at.n1 ]; do sleep 0.1; done; [ $JOBPOOL_NODE = n2 ] || [ -e frozen ] || sleep 1000\n"
	c.Stdin = strings.NewReader(strings.Repeat(task, 2))
	var log strings.Builder
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually("both tasks have begun", func() bool { return p.ran() == 2 })
	worker := 0
	for _, node := range p.status()["nodes"].([]any) {
		if n := node.(map[string]any); n["name"] == "n1" {
			worker = int(n["pid"].(float64))
		}
	}
	_ = syscall.Kill(worker, syscall.SIGSTOP)
	p.touch("frozen")
	for _, pid := range p.matching("ssh ") {
		args, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if strings.Contains(string(args), "\x00--\x00n1\x00") {
			kill(pid)
		}
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, log.String())
	}
	if n := p.runsExplained(); n != 1 {
		t.Errorf("%d tasks ran twice; want 1\n%s", n, log.String())
	}
	p.neverTwice()
	p.endsOnce(2)
	p.noneLeft()
}

// A scheduler that goes on with the run of one that was killed waits for what that one's
// workers are still ending.
func TestNextSchedulerWaits(t *testing.T) {
	t.Parallel()
	p := newPool(t, "-j2", "--run", "run", "--resume", "--kill-after", "3s")
	p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
	lines := strings.Repeat("trap '' TERM; "+alone+"[ -e killed ] || sleep 1000\n", 2)
	c := p.command()
	c.Stdin = strings.NewReader(lines)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually("both tasks run", func() bool { return p.ran() == 2 })
	kill(c.Process.Pid)
	_ = c.Wait()
	p.touch("killed")
	if status, _, stderr := p.run(lines + "echo at once\n"); status != 0 {
		t.Errorf("exit %d: %s", status, stderr)
	}
	if n := p.runsExplained(); n != 2 {
		t.Errorf("%d tasks ran twice; want 2", n)
	}
	p.neverTwice()
	p.endsOnce(3)
	p.noneLeft()
}

// What is still knocking at nodes when the run ends is ended with it.
func TestEndedWhileOpening(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGUSR1: 75, syscall.SIGINT: 130} {
		p := newPool(t, "-q", "--run", "run", "--via-cmd", "trap '' HUP; sleep 600; {worker}", "--nodes", "n[1-3]", "true")
		p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
		c := p.command()
		c.Stdin = strings.NewReader("1\n")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		p.eventually("nodes are being opened", func() bool { return len(p.matching("sleep 600")) == 3 })
		_ = c.Process.Signal(sig)
		_ = c.Wait()
		if code := c.ProcessState.ExitCode(); code != want {
			t.Errorf("%v: exit status %d; want %d", sig, code, want)
		}
		// They have been killed; a busy machine takes its time to end them.
		p.eventually("the connections end", func() bool { return len(p.matching("sleep 600")) == 0 })
		p.noneLeft()
	}
}

// A job that is suspended, as Slurm does to let another run, goes on where it was.
func TestSuspendedJob(t *testing.T) {
	t.Parallel()
	p := newPool(t, "-j2", "--run", "run", "--node-timeout", "10s", "--kill-after", "1s", "--timeout", "25s")
	p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
	c := p.command()
	c.Stdin = strings.NewReader(strings.Repeat("echo $JOBPOOL_SEQ >>ran; until [ -e resumed ]; do sleep 0.1; done\n", 2))
	var log strings.Builder
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually("both tasks run", func() bool { return p.ran() == 2 })
	time.Sleep(time.Second)
	all := func(sig syscall.Signal) {
		for _, pid := range p.matching("") {
			if pid != os.Getpid() {
				_ = syscall.Kill(pid, sig)
			}
		}
	}
	all(syscall.SIGSTOP)
	all(syscall.SIGSTOP)         // what was started meanwhile
	time.Sleep(30 * time.Second) // longer than a task may take, a node may be silent, and a lease lasts
	all(syscall.SIGCONT)
	p.touch("resumed")
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, log.String())
	}
	if n := p.ran(); n != 2 {
		t.Errorf("2 tasks began %d times: %s", n, log.String())
	}
	p.endsOnce(2)
	p.noneLeft()
}
