package jobpool

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// Schedulers, and commands that add tasks, are killed at system calls that can be seen from outside. Each task that was
// added ends once, and so does each that a killed command may have added, or it is not there at all.
func TestAddedIsTakenOnce(t *testing.T) {
	t.Parallel()
	harness.Programs(t, "strace")
	p := newPool(t)
	killed, added := 0, map[string]bool{} // whether the command has said so
	kill := func(call string, when int) []string {
		return strings.Fields(fmt.Sprintf(
			"strace -f -b execve -qqq -o /dev/null -e trace=%[1]s -e inject=%[1]s:signal=KILL:when=%[2]d", call, when))
	}
	add := func() {
		command := fmt.Sprintf("echo %d >>ran", len(added))
		status, _, _ := p.run("", "ctl", "add", "--run", "run", command)
		added[command] = status == 0
	}
	serve := func() *exec.Cmd {
		c := p.command("serve", "-q", "--run", "run", "-j2", "--node-timeout", "1")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, call := range []string{"openat", "write", "fsync", "renameat", "unlinkat", "mkdirat"} {
		for _, when := range []int{1, 2, 4, 8, 16} {
			p.wrap = kill(call, when)
			scheduler := serve()
			over := make(chan bool)
			go func() { _ = scheduler.Wait(); close(over) }()
			p.wrap = nil
			p.eventually("the run is open, or its scheduler killed", func() bool {
				_, err := os.Stat(filepath.Join(p.dir, "run", "in"))
				select {
				case <-over:
					return true
				default:
					return err == nil
				}
			})
			add()
			p.wrap = kill(call, when)
			add()
			p.wrap = nil
			add()
			select {
			case <-over:
				killed++
			case <-time.After(1500 * time.Millisecond): // it makes fewer calls
				holder, _ := journal.Holder(filepath.Join(p.dir, "run"))
				var pid int
				if _, err := fmt.Sscanf(holder, "process %d on", &pid); err != nil {
					t.Fatalf("the lock says %q", holder)
				}
				_ = syscall.Kill(pid, syscall.SIGKILL)
				<-over
			}
		}
	}
	last := serve() // which opens it, if need be
	p.eventually("the last scheduler is there", func() bool { return p.status() != nil })
	if status, _, stderr := p.run("", "ctl", "close", "--run", "run"); status != 0 || stderr != "" {
		t.Fatalf("close: status %d: %s", status, stderr)
	}
	if status, _, stderr := p.run("", "ctl", "add", "--run", "run", "late"); status != 3 ||
		!strings.HasPrefix(stderr, "jobpool: the run in \"run\" takes no more tasks\n") {
		t.Errorf("a task for a run that is closed: status %d: %s", status, stderr)
	}
	if err := last.Wait(); err != nil {
		t.Errorf("the last scheduler: %v", err)
	}
	ends := map[string]int{}
	for _, r := range p.journal() {
		if r.Kind == "end" {
			ends[r.Hash]++
		}
	}
	unsure := 0
	for command, said := range added {
		n := ends[journal.FormatHash(journal.HashText(command))]
		if n > 1 || n == 0 && said {
			t.Errorf("%s: has ended %d times", command, n)
		} else if n == 1 && !said {
			unsure++
		}
	}
	if killed < 8 {
		t.Errorf("only %d schedulers were killed", killed)
	}
	if left, err := os.ReadDir(filepath.Join(p.dir, "run", "in.closing")); err != nil || len(left) > 0 {
		t.Errorf("left in in.closing: %d, %v", len(left), err)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "run", "in")); err == nil {
		t.Error("in stays")
	}
	t.Logf("%d schedulers were killed over %d additions; %d killed commands had added theirs", killed, len(added), unsure)
}

// Tasks are added to a run whose scheduler is in a job, and is killed again and again: from the host of the user, without
// a step in the job, also between two schedulers. Each ends once, and the one that is cancelled in the same way does not
// run to its end.
func TestAddedToPilotsOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10", "--max-jobs", "2", "--linger", "2s", "--lost-retries", "20", "--node-timeout", "5")
	wait := "until [ -e go ]; do sleep 0.1; done; echo $JOBPOOL_SEQ >>ended\n"
	if status, _, stderr := p.run(wait + wait); status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	ctl := func(stdin string, words ...string) {
		t.Helper()
		c := exec.Command(filepath.Join(harness.Bin, "jobpool"), append(words, "--run", "run")...)
		c.Dir, c.Env, c.Stdin = p.dir, append(os.Environ(), p.env...), strings.NewReader(stdin)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%q: %v: %s", words, err, out)
		}
	}
	await(p, "the journal is there", func() bool { _, err := os.Stat(filepath.Join(p.dir, "run/journal.ndjson")); return err == nil })
	const rounds, each = 5, 8
	ctl(`{"id":"long","cmd":"sleep 1000; echo long >>ended"}`, "ctl", "add", "--jsonl")
	for round := range rounds {
		await(p, "there is a scheduler", func() bool { return p.schedulers() > round && len(p.processes("--elastic")) > 0 })
		for i := range each {
			if i == each/2 {
				for _, pid := range p.processes("--elastic") {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			ctl("echo $JOBPOOL_SEQ >>ended\n", "ctl", "add")
		}
		if round == 2 {
			ctl("", "ctl", "cancel", "long")
		}
	}
	p.touch("go")
	await(p, "the run is over", func() bool { return p.over() >= 0 })
	tasks, ends := 2+1+rounds*each, map[int64]int{}
	for _, r := range p.journal() {
		if r.Kind == "end" {
			ends[r.Seq]++
		}
	}
	for seq := range int64(tasks) {
		if ends[seq+1] != 1 {
			t.Errorf("task %d has ended %d times", seq+1, ends[seq+1])
		}
	}
	b, err := os.ReadFile(filepath.Join(p.dir, "ended"))
	if err != nil || strings.Contains(string(b), "long") || p.over() != 1 || len(ends) != tasks {
		t.Errorf("%d tasks, status %d, %v: %q", len(ends), p.over(), err, b)
	}
	p.noneLeft()
}
