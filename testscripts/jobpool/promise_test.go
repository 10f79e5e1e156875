package jobpool

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// ends is how each task that has ended did, as the journal tells it last.
func (p *pool) ends() map[int64]string {
	p.Helper()
	out := map[int64]string{}
	for _, r := range p.journal() {
		if r.Kind == "end" || r.Kind == "output" {
			out[r.Seq] = r.What
		}
	}
	return out
}

// Output of a task that is said to have ended well is whole, wherever there was no
// room for it; what is not is run again when there is.
func TestOutputOnAFullDisk(t *testing.T) {
	t.Parallel()
	needs.Root(t, "to mount a small file system")
	const tasks, size = 20, 100000
	command := "echo begin $JOBPOOL_SEQ; head -c 100000 /dev/zero | tr '\\0' x; echo; echo end $JOBPOOL_SEQ # {}"
	want := func(seq int64) string {
		return fmt.Sprintf("begin %d\n%s\nend %d\n", seq, strings.Repeat("x", size), seq)
	}
	args := []string{command}
	args = append(args, ":::")
	for i := range tasks {
		args = append(args, fmt.Sprint(i))
	}
	printed := func(p *pool, _ int64) string {
		b, _ := os.ReadFile(filepath.Join(p.dir, "full", "printed"))
		more, _ := os.ReadFile(filepath.Join(p.dir, "printed"))
		return string(b) + string(more)
	}
	// Lines of a task may come between those of the one before.
	whole := func(p *pool, seq int64) string {
		all := printed(p, seq)
		count := map[string]int{}
		for line := range strings.SplitSeq(all, "\n") {
			count[strings.TrimRight(line, " 0123456789")]++
			count[line]++
		}
		if count[fmt.Sprintf("begin %d", seq)] > 0 && count[fmt.Sprintf("end %d", seq)] > 0 && count[strings.Repeat("x", size)] >= count["end"] {
			return want(seq)
		}
		return all
	}
	log := func(p *pool, seq int64) string {
		c := exec.Command(filepath.Join(harness.Bin, "jobpool"), "log", "--run", "run", fmt.Sprint(seq))
		c.Dir = p.dir
		out, _ := c.Output()
		return string(out)
	}
	// Temporary files go with their task: only one that is larger than the file system
	// is sure to find no room.
	for _, tt := range []struct {
		name, full string // where there is no room
		size       string // of that file system
		args       []string
		output     func(*pool, int64) string
	}{
		{"files", "run/logs", "256k", []string{"-o", "files"}, log},
		{"merged", "run/logs", "256k", []string{"-o", "merged"}, func(p *pool, _ int64) string {
			files, _ := filepath.Glob(filepath.Join(p.dir, "run/logs/*.out"))
			b, _ := os.ReadFile(strings.Join(files, "")) // there is one
			return string(b)
		}},
		{"results", "full", "256k", []string{"--results", "full/{#}/"}, func(p *pool, seq int64) string {
			b, _ := os.ReadFile(filepath.Join(p.dir, "full", fmt.Sprint(seq), "stdout"))
			return string(b)
		}},
		{"temporary files", "temp", "64k", nil, printed},
		{"temporary files of a node", "temp", "64k", []string{"--nodes", "4/n1", "--via-cmd", "env SLURMD_NODENAME={host} TMPDIR=$PWD/temp {worker}"}, printed},
		{"standard output", "full", "256k", nil, printed},
		{"standard output in order", "full", "256k", []string{"-k"}, printed},
		{"standard output as it comes", "full", "256k", []string{"--line-buffer", "-j1"}, whole},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPool(t, "-j4", "--run", "run")
			p.args = append(p.args, tt.args...)
			full := filepath.Join(p.dir, tt.full)
			if err := os.MkdirAll(full, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("none", full, "tmpfs", 0, "mode=0700,size="+tt.size); err != nil {
				t.Fatalf("no tmpfs: %v", err)
			}
			defer func() { _ = syscall.Unmount(full, syscall.MNT_DETACH) }()
			if tt.name == "temporary files" {
				p.env = append(p.env, "TMPDIR="+full)
			}
			start := func(where string, more ...string) (int, string) {
				out, err := os.OpenFile(filepath.Join(p.dir, where), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
				if err != nil {
					t.Fatal(err)
				}
				defer out.Close()
				c := p.command(append(more, args...)...)
				var said strings.Builder
				c.Stdout, c.Stderr = out, &said
				_ = c.Run()
				return c.ProcessState.ExitCode(), said.String()
			}
			where := "printed"
			if tt.full == "full" {
				where = "full/printed"
			}
			status, said := start(where)
			ends, bad := p.ends(), 0
			for seq := int64(1); seq <= tasks; seq++ {
				if ends[seq] != "ok" {
					bad++
				} else if got := tt.output(p, seq); !strings.Contains(got, want(seq)) {
					t.Errorf("task %d has ended well, and %d bytes are there", seq, len(got))
				}
			}
			if bad == 0 || status != 1 && status != 3 && status != 75 || !strings.Contains(said, "disk is full") && !strings.Contains(said, "no space left on device") {
				t.Errorf("exit %d, %d tasks have not ended well: %s", status, bad, said)
			}
			if err := syscall.Mount("none", full, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
				t.Fatal(err)
			}
			if status, said := start("printed", "--retry-failed"); status != 0 {
				t.Errorf("with more room: exit %d: %s", status, said)
			}
			ends = p.ends()
			for seq := int64(1); seq <= tasks; seq++ {
				if got := tt.output(p, seq); ends[seq] != "ok" || !strings.Contains(got, want(seq)) {
					t.Errorf("with more room: task %d ended as %s, and %d bytes are there", seq, ends[seq], len(got))
				}
			}
		})
	}
}

// A task that takes its worker down is found: its neighbours succeed, and what waits
// does. It alone is left, and is charged for what it did alone.
func TestTaskThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	p := newPool(t, "-j4", "--lost-retries", "1", "--run", "run", "test {} = 3 && kill -9 $PPID; sleep 0.5; echo {}")
	status, stdout, stderr := p.run("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n")
	if status != 75 || strings.Count(stdout, "\n") != 11 || strings.Contains(stdout, "3\n") {
		t.Errorf("exit %d\n%s", status, stdout)
	}
	// On a slow machine the end of the connection is seen long before that of the worker.
	said := regexp.MustCompile(`(?s)11 tasks succeeded, 1 left\n.*  task 3: lost 2 times with its node: (its worker died|the connection ended)\n`)
	if !said.MatchString(stderr) {
		t.Errorf("nothing said of the task:\n%s", stderr)
	}
	p.noneLeft()
}

// Whatever ends a worker, what its tasks have started ends as well, in sessions of its own
// too; nothing is charged that was not the task's fault.
func TestSignalledWorker(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGPIPE} {
		p := newPool(t, "-j1", "--run", "run", "--lost-retries", "1")
		p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
		c := p.command()
		c.Stdin = strings.NewReader(alone + "setsid sh -c 'sleep 3001 & sleep 3001' & test -e again || sleep 3001\n")
		var said strings.Builder
		c.Stderr = &said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		p.eventually("all of it runs", func() bool { return len(p.matching("sleep 3001")) == 3 })
		if err := os.WriteFile(filepath.Join(p.dir, "again"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		workers := p.workers()
		if len(workers) != 1 {
			t.Fatalf("workers %v", workers)
		}
		_ = syscall.Kill(workers[0], sig)
		want := 0
		if sig == syscall.SIGPIPE { // nothing to a worker
			p.eventually("it is there", func() bool { return len(p.workers()) == 1 && p.workers()[0] == workers[0] })
			for _, pid := range p.matching("sleep 3001") {
				kill(pid)
			}
			want = 1
		}
		_ = c.Wait()
		if code := c.ProcessState.ExitCode(); code != want {
			t.Errorf("%v: exit %d, want %d: %s", sig, code, want, &said)
		}
		p.neverTwice()
		p.noneLeft()
	}
}

// losesAll starts tasks, loses all nodes for good while they run, and goes on when the
// nodes are there again: nothing has failed, and all is done once.
func losesAll(t *testing.T, p *pool, nodes int, lose, back func()) {
	t.Helper()
	const tasks = 60
	p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
	// Most tasks wait until the nodes are lost, so that there are tasks to lose.
	lines := strings.Repeat(alone+"[ $JOBPOOL_SEQ -le 9 ] || until [ -e none ]; do sleep 0.1; done; sleep 0.3\n", tasks)
	c := p.command("--run", "run", "--lost-retries", "0")
	var said strings.Builder
	c.Stdin, c.Stderr = strings.NewReader(lines), &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually("tasks run, and all nodes are there", func() bool { return p.ran() > 4 && len(p.workers()) == nodes })
	lose()
	if err := os.WriteFile(filepath.Join(p.dir, "none"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 3 && code != 75 {
		t.Errorf("exit %d: %s", code, &said)
	}
	for seq, what := range p.ends() {
		if what != "ok" {
			t.Errorf("task %d ended as %s", seq, what)
		}
	}
	p.noneLeft()
	back()
	if status, _, stderr := p.run(lines, "--run", "run", "--resume"); status != 0 {
		t.Errorf("with nodes: exit %d: %s", status, stderr)
	}
	p.endsOnce(tasks)
	p.neverTwice()
	p.runsExplained()
	p.noneLeft()
}

// through puts a program in the place of another one that does not work while the
// nodes are lost, and returns how to lose them and have them back.
func (p *pool) through(program string) (lose, back func()) {
	p.Helper()
	real, err := exec.LookPath(program)
	if err != nil {
		p.Fatal(err)
	}
	dir, lost := filepath.Join(p.dir, "bin"), filepath.Join(p.dir, "lost")
	text := fmt.Sprintf("#!/bin/bash\ntest -e %s && { echo no route to host >&2; exit 255; }\nexec -a %s %s \"$@\"\n", lost, program, real)
	if err := os.Mkdir(dir, 0o755); err != nil {
		p.Fatal(err)
	}
	executable.Write(p, filepath.Join(dir, program), text)
	p.env = append(p.env, "PATH="+dir+":"+os.Getenv("PATH"))
	return func() {
			if err := os.WriteFile(lost, nil, 0o644); err != nil {
				p.Fatal(err)
			}
			for _, pid := range p.matching(program + " ") {
				kill(pid)
			}
		}, func() {
			if err := os.Remove(lost); err != nil {
				p.Fatal(err)
			}
		}
}

func TestAllNodesLostOverSSH(t *testing.T) {
	p := newPool(t)
	p.args = append(sshd(t), "--nodes", "2/n[1-2]", "--connect-timeout", "20s")
	lose, back := p.through("ssh")
	losesAll(t, p, 2, lose, back)
}

func TestAllNodesLostOverSrun(t *testing.T) {
	p := inSlurm(t, fourNodes, "--jobs", "1")
	lose, back := p.through("srun")
	losesAll(t, p, 4, lose, back)
}

func TestOnlyNodeLost(t *testing.T) {
	p := newPool(t, "-j3")
	losesAll(t, p, 1, func() {
		pids := p.workers()
		for _, pid := range append(parents(pids), pids...) {
			kill(pid)
		}
	}, func() {})
}

// workers are the processes of the workers that are connected.
func (p *pool) workers() (pids []int) {
	st := p.status()
	if st == nil {
		return nil
	}
	for _, node := range st["nodes"].([]any) {
		if pid, ok := node.(map[string]any)["pid"].(float64); ok {
			pids = append(pids, int(pid))
		}
	}
	return pids
}

// A job that is suspended while the scheduler, in salloc, is not.
func TestSuspendedAllocation(t *testing.T) {
	t.Parallel()
	p := inSlurm(t, []string{"salloc", "--quiet", "--partition=cpu", "--nodes=2", "--ntasks=2", "--job-name=suspended"},
		"--run", "run", "-j1", "--node-timeout", "15s", "--kill-after", "1s")
	c := p.command()
	c.Stdin = strings.NewReader(strings.Repeat("echo $JOBPOOL_SEQ >>ran; until [ -e resumed ]; do sleep 0.1; done\n", 4))
	report := filepath.Join(p.dir, "report")
	stderr, err := os.Create(report)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	said := func() string {
		text, _ := os.ReadFile(report)
		return string(text)
	}
	c.Stderr = stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually("tasks run", func() bool { return p.ran() == 2 })
	job := p.slurm("squeue", "-h", "-o", "%i", "--name=suspended")
	p.slurm("scontrol", "suspend", job)
	const suspended = "jobpool: the job is suspended: waiting until it is resumed\n"
	p.eventually("it is seen", func() bool { return strings.Contains(said(), suspended) })
	time.Sleep(20 * time.Second) // longer than a node may be silent, and a lease lasts
	p.slurm("scontrol", "resume", job)
	p.eventually("that is seen", func() bool { return strings.Contains(said(), suspended+"jobpool: the job was resumed\n") })
	p.touch("resumed")
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, said())
	}
	if n := p.ran(); n != 4 {
		t.Errorf("4 tasks began %d times: %s", n, said())
	}
	p.endsOnce(4)
	p.noneLeft()
}
