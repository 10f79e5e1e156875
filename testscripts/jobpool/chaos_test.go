package jobpool

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/needs"
)

// chaos runs tasks while workers, connections and heads are killed at random, goes
// on with --resume until all is done, and looks at what the journal says.
func chaos(t *testing.T, p *pool, n int, connection string) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	var b strings.Builder
	for i := range n {
		daemon := ""
		if i%10 == 0 { // is to be ended with its task, however that ends
			daemon = "(setsid sleep 300 9>&- >/dev/null 2>&1 &); "
		}
		end := ""
		if i >= n-8 { // so that there are tasks until all have been killed that are to be
			end = "until [ -e calm ]; do sleep 0.05; done; "
		}
		fmt.Fprintf(&b, "%s%s%ssleep 0.0%d; (sleep 0.01; :); : %d\n", alone, daemon, end, 2+i%7, i)
	}
	calm := filepath.Join(p.dir, "calm")
	p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
	killed := map[string]int{}
	for start := 1; ; start++ {
		if start > 12 {
			t.Fatal("it does not come to an end")
		}
		if err := os.RemoveAll(calm); err != nil {
			t.Fatal(err)
		}
		c := p.command("--run", "run", "--resume", "--lost-retries", "20")
		var log strings.Builder
		c.Stdin, c.Stderr = strings.NewReader(b.String()), &log
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Wait() }()
		schedulers := killed["scheduler"]
		victims := []string{"worker", connection, "supervisor", connection, "scheduler"}
		if start > 2 {
			victims = nil // let it end
		}
	storm:
		for _, victim := range victims {
			p.eventually("a task runs, or the run has ended", func() bool {
				st := p.status()
				return st != nil && st["running"].(float64) > 0 || len(done) > 0
			})
			select {
			case err := <-done:
				done <- err
				break storm
			case <-time.After(time.Duration(100+r.IntN(300)) * time.Millisecond):
			}
			var pids []int
			p.eventually("there is a "+victim+" to kill, or the run has ended", func() bool {
				pids = p.victims(victim)
				return len(pids) > 0 || len(done) > 0
			})
			if len(pids) > 0 {
				kill(pids[r.IntN(len(pids))])
				killed[victim]++
			}
		}
		if err := os.WriteFile(calm, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := <-done
		// salloc reports success when what it runs is killed.
		if c.ProcessState.ExitCode() == 0 && killed["scheduler"] == schedulers {
			break
		}
		t.Logf("start %d: %v\n%s", start, err, log.String())
		p.noneLeft()
	}
	p.noneLeft()
	p.endsOnce(n)
	p.neverTwice()
	t.Logf("killed %v; %d tasks ran more than once", killed, p.runsExplained())
	for _, victim := range []string{"worker", "supervisor", connection, "scheduler"} {
		if killed[victim] == 0 {
			t.Errorf("no %s was killed", victim)
		}
	}
}

// victims returns the processes of a kind: worker, supervisor, scheduler, or how the command line of a connection begins.
func (p *pool) victims(kind string) (pids []int) {
	switch kind {
	case "scheduler":
		if p.status() != nil {
			pids = p.matching(p.schedulerName())
		}
	case "worker", "supervisor":
		if st := p.status(); st != nil {
			for _, node := range st["nodes"].([]any) {
				if pid, ok := node.(map[string]any)["pid"].(float64); ok {
					pids = append(pids, int(pid))
				}
			}
		}
		if kind == "supervisor" {
			pids = parents(pids)
		}
	default:
		pids = p.matching(kind)
	}
	return pids
}

// parents returns the parents of processes.
func parents(pids []int) (out []int) {
	for _, pid := range pids {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 1 {
			if parent, err := strconv.Atoi(f[1]); err == nil && parent > 1 {
				out = append(out, parent)
			}
		}
	}
	return out
}

// schedulerName is how the command line of the scheduler begins.
func (p *pool) schedulerName() string {
	c := p.command()
	return strings.Join(c.Args[len(p.wrap):], " ")
}

func newPool(t testing.TB, args ...string) *pool {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &pool{TB: t, dir: dir, args: args}
}

func TestChaosOverSSH(t *testing.T) {
	p := newPool(t)
	p.args = append(sshd(t), "--nodes", "2/n[1-4]", "--connect-timeout", "20s")
	chaos(t, p, 400, "ssh ")
}

func TestChaosOverAnyCommand(t *testing.T) {
	p := newPool(t, "--via-cmd", "env SLURMD_NODENAME={host} {worker}", "--nodes", "2/n[1-3]")
	temp := filepath.Join(p.dir, "temp")
	if err := os.Mkdir(temp, 0o755); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "TMPDIR="+temp)
	chaos(t, p, 300, "jobpool worker")
	if left, _ := os.ReadDir(temp); len(left) != 0 {
		t.Errorf("left in TMPDIR: %v", left)
	}
}

// Workers that let their tasks end when the scheduler is gone hand the results to the
// next run: nothing runs twice.
func TestSchedulerLostAndTasksFinish(t *testing.T) {
	t.Parallel()
	p := newPool(t, "--on-scheduler-lost", "finish", "--via-cmd", "env SLURMD_NODENAME={host} {worker}", "--nodes", "2/n[1-2]", "-k")
	p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
	lines := ""
	for i := range 8 {
		lines += fmt.Sprintf("echo $JOBPOOL_SEQ >> ran; until [ -e killed ]; do sleep 0.1; done; sleep 1.%d; echo out %d; head -c 40000 /dev/zero | tr '\\0' x; echo\n", i%4, i)
	}
	c := p.command("--run", "run")
	c.Stdin = strings.NewReader(lines)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually("four tasks run", func() bool {
		b, _ := os.ReadFile(filepath.Join(p.dir, "ran"))
		return strings.Count(string(b), "\n") == 4
	})
	kill(c.Process.Pid)
	_ = c.Wait()
	p.touch("killed")
	status, stdout, stderr := p.run(lines, "--run", "run", "--resume")
	if status != 0 {
		t.Fatalf("exit %d: %s", status, stderr)
	}
	for i := range 8 {
		if strings.Count(stdout, fmt.Sprintf("out %d\n%s\n", i, strings.Repeat("x", 40000))) != 1 {
			t.Errorf("output of task %d is not there once", i+1)
		}
	}
	p.endsOnce(8)
	if n := p.runsExplained(); n != 0 {
		t.Errorf("%d tasks ran twice", n)
	}
	p.noneLeft()
	if left, _ := filepath.Glob(filepath.Join(p.dir, "run", "spool", "*")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// The keys of a terminal reach the scheduler only, which ends what runs in order.
func TestInterruptedTwice(t *testing.T) {
	p := newPool(t, "-j2", "--kill-after", "10m", "--term-grace", "10m")
	p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
	c := p.command("--run", "run", "trap 'echo ended; exit' TERM; sleep 100 & touch ready.$JOBPOOL_SEQ; wait; :")
	report := filepath.Join(p.dir, "report")
	stderr, err := os.Create(report)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	var out strings.Builder
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader("1\n2\n3\n"), &out, stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually("tasks run", func() bool {
		ready, _ := filepath.Glob(filepath.Join(p.dir, "ready.*"))
		return len(ready) == 2
	})
	// The kernel makes one of two signals that a process has not yet taken.
	for _, answer := range []string{"interrupted: waiting for 2 tasks", "interrupted: ending 2 tasks"} {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGINT)
		p.eventually(answer, func() bool {
			text, _ := os.ReadFile(report)
			return strings.Contains(string(text), answer)
		})
	}
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit status %d; want 130", code)
	}
	if out.String() != "ended\nended\n" {
		t.Errorf("output %q", out.String())
	}
	p.noneLeft()
}

// A full disk loses nothing: what is known is kept, nothing new is started, and
// the run goes on where it was ended.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	needs.Root(t, "to mount a small file system")
	p := newPool(t, "-j2", "-q")
	dir := filepath.Join(p.dir, "run")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, "mode=0700,size=128k"); err != nil {
		t.Fatalf("no tmpfs: %v", err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	lines := strings.Repeat("echo $JOBPOOL_SEQ >> ran; echo "+strings.Repeat("x", 100)+"\n", 1000)
	status, _, stderr := p.run(lines, "--run", "run")
	if status != 3 || !strings.Contains(stderr, "no space left on device") {
		t.Fatalf("exit %d: %s", status, stderr)
	}
	if err := syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := p.run(lines, "--run", "run", "--resume"); status != 0 {
		t.Fatalf("exit %d: %s", status, stderr)
	}
	p.endsOnce(1000)
	p.runsExplained()
}

// Where the run directory can have no more files, as at a quota of files, the journal can still be written. The run
// stops as with a full disk, so that the jobs of a pool wait for room, and it goes on where it was ended.
func TestNoMoreFiles(t *testing.T) {
	t.Parallel()
	needs.Root(t, "to mount a small file system")
	p := newPool(t, "-j2", "-q", "--output", "files", "--run", "run")
	dir := filepath.Join(p.dir, "run")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, "mode=0700,size=8m,nr_inodes=100"); err != nil {
		t.Fatalf("no tmpfs: %v", err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	lines := strings.Repeat("echo $JOBPOOL_SEQ >> ran; echo x\n", 300)
	status, _, stderr := p.run(lines)
	if status != 3 || !strings.Contains(stderr, "no space left on device") {
		t.Fatalf("exit %d: %s", status, stderr)
	}
	if err := syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=8m,nr_inodes=10000"); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := p.run(lines, "--resume"); status != 0 {
		t.Fatalf("exit %d: %s", status, stderr)
	}
	p.endsOnce(300)
}

// Few files may be open: fewer tasks run at a time, none is lost.
func TestFewOpenFiles(t *testing.T) {
	t.Parallel()
	p := newPool(t, "-j40", "--run", "run")
	p.wrap = []string{"sh", "-c", `ulimit -n 30; exec "$@"`, "sh"}
	status, stdout, stderr := p.run(strings.Repeat("sleep 0.05; echo $JOBPOOL_SEQ >> ran; echo x\n", 200))
	if status != 0 || strings.Count(stdout, "x\n") != 200 {
		t.Fatalf("exit %d, %d lines: %s", status, strings.Count(stdout, "x\n"), stderr)
	}
	p.endsOnce(200)
}

// One connection for each of many nodes; where few files may be open, for as many as
// there can be.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		files, nodes int
		want         string
	}{
		{4096, 120, ""},
		{120, 20, "jobpool: only 120 files may be open (ulimit -n): using 20 of the 120 nodes\n"},
	} {
		p := newPool(t, "-q", "--run", "run", "--via-cmd", "env SLURMD_NODENAME={host} {worker}", "--nodes", "1/n[001-120]", "--min-nodes", strconv.Itoa(tt.nodes), "--connect-timeout", "10m")
		p.wrap = []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, tt.files), "sh"}
		status, stdout, stderr := p.run(strings.Repeat("sleep 0.5; echo $JOBPOOL_NODE\n", 2*tt.nodes))
		seen := map[string]bool{}
		for name := range strings.FieldsSeq(stdout) {
			seen[name] = true
		}
		if status != 0 || stderr != tt.want || len(seen) != tt.nodes {
			t.Errorf("exit %d, %d nodes: %s", status, len(seen), stderr)
		}
		p.noneLeft()
	}
}

// A million tasks that start nothing: what is left is the pool itself. A pipe feeds
// them faster than they can end, which takes no memory.
func TestManyTasks(t *testing.T) {
	t.Parallel()
	const n = 1000000
	p := newPool(t, "-j8", "--run", "run", "--noop", "-q", "--read-ahead", "20000")
	c := p.command()
	c.Stdin = io.LimitReader(forever{}, n*int64(len(line)))
	var log strings.Builder
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	used := 0.0
	for running := true; running; {
		select {
		case err := <-done:
			if running = false; err != nil {
				t.Fatalf("%v: %s", err, log.String())
			}
		case <-time.After(100 * time.Millisecond):
			used = max(used, peak(c.Process.Pid))
		}
	}
	if used < 1 || used > 100 {
		t.Errorf("the scheduler took %.0f MiB", used)
	}
	f, err := os.Open(filepath.Join(p.dir, "run", "joblog"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ended := make([]bool, n+1)
	lines := bufio.NewScanner(f)
	for lines.Scan(); lines.Scan(); {
		number, _, _ := strings.Cut(lines.Text(), "\t")
		seq, err := strconv.Atoi(number)
		if err != nil || seq < 1 || seq > n || ended[seq] {
			t.Fatalf("the job log has %q", lines.Text())
		}
		ended[seq] = true
	}
	if i := slices.Index(ended[1:], false); i >= 0 {
		t.Errorf("task %d has not ended", i+1)
	}
}

const line = "simulate --mesh fine --seed 12345\n"

// forever is that line again and again.
type forever struct{}

func (forever) Read(b []byte) (int, error) {
	n := len(b) / len(line) * len(line)
	if n == 0 {
		return copy(b, line), nil
	}
	for i := 0; i < n; i += len(line) {
		copy(b[i:], line)
	}
	return n, nil
}
