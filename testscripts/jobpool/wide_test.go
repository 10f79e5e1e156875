package jobpool

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// pi compiles the example, a program of MPI.
func (p *pool) pi() {
	p.Helper()
	harness.Programs(p, "mpicc.mpich=libmpich-dev", "gcc", "mpirun.mpich=mpich")
	p.compile("mpicc.mpich")
}

func (p *pool) compile(compiler string) {
	p.Helper()
	c := exec.Command(compiler, "-O2", "-o", filepath.Join(p.dir, "pi"), filepath.Join(harness.Root(), "examples/mpi/pi.c"))
	if out, err := c.CombinedOutput(); err != nil {
		p.Fatalf("%v: %s", err, out)
	}
}

// ranks fails unless so many tasks have printed pi, each by so many ranks.
func ranks(t *testing.T, status int, stdout, stderr string, tasks, ranks int) {
	t.Helper()
	want := strings.Repeat(fmt.Sprintf("pi is 3.141593, by %d ranks\n", ranks), tasks)
	if status != 0 || stdout != want {
		t.Errorf("exit %d, printed %q; want %q: %s", status, stdout, want, stderr)
	}
}

// A program of MPI runs on two nodes of a job, started by mpirun and by srun.
func TestMPIOnNodesOfAJob(t *testing.T) {
	t.Parallel()
	p := inSlurm(t, []string{"salloc", "--quiet", "--partition=cpu", "--nodes=2", "--ntasks-per-node=1"}, "--run", "run", "--task-nodes", "2")
	p.pi()
	status, stdout, stderr := p.run("mpirun.mpich ./pi 100000\nsrun --mpi=pmi2 ./pi 100000\nmpirun.mpich ./pi 100000\n")
	ranks(t, status, stdout, stderr, 3, 2)
	p.endsOnce(3)
	p.noneLeft()
}

// It runs on all four nodes of a heterogeneous job, beside tasks of one node.
func TestMPIOnFourNodes(t *testing.T) {
	t.Parallel()
	p := inSlurm(t, fourNodes, "--run", "run", "--min-nodes", "4", "-k")
	p.pi()
	status, stdout, stderr := p.run("#JOBPOOL nodes=4\nmpirun.mpich ./pi 100000\nmpirun.mpich ./pi 100000\n#JOBPOOL reset\ntrue\n#JOBPOOL nodes=4\nmpirun.mpich ./pi 100000\n")
	ranks(t, status, stdout, stderr, 3, 4)
	p.endsOnce(4)
	p.noneLeft()
}

// So does one of Open MPI, whose mpirun starts a daemon on each node.
func TestOpenMPIOnFourNodes(t *testing.T) {
	t.Parallel()
	p := inSlurm(t, fourNodes, "--run", "run", "--min-nodes", "4", "-k")
	harness.Programs(t, "mpicc.openmpi=libopenmpi-dev", "gcc", "mpirun.openmpi=openmpi-bin")
	p.compile("mpicc.openmpi")
	p.env = append(p.env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		// The nodes of the cluster are this machine: their addresses would make them one.
		"OMPI_MCA_if_base_do_not_resolve=1")
	// Two mpirun at a time, in one temporary directory, make and remove one directory there, and now and then fail.
	own := func(s string) string {
		return `d=$(mktemp -d) && mpirun.openmpi --mca orte_tmpdir_base "$d" ` + s + `; e=$?; rm -rf "$d"; exit $e`
	}
	status, stdout, stderr := p.run("#JOBPOOL nodes=4\n" + own("sh -c 'echo $SLURMD_NODENAME' | sort") + "\n" + own("./pi 100000") + "\n")
	if want := "cpu1\ncpu2\ngpu1\ngpu2\npi is 3.141593, by 4 ranks\n"; status != 0 || stdout != want {
		t.Errorf("exit %d, printed %q; want %q: %s", status, stdout, want, stderr)
	}
	p.endsOnce(2)
	p.noneLeft()
}

func TestMPIOverSSH(t *testing.T) {
	t.Parallel()
	p := newPool(t, append([]string{"--run", "run", "--task-nodes", "2", "-k", "--nodes", "1/n[1-2]", "--min-nodes", "2"}, sshd(t)...)...)
	p.pi()
	status, stdout, stderr := p.run("mpirun.mpich ./pi 100000\nmpirun.mpich ./pi 100000\n")
	ranks(t, status, stdout, stderr, 2, 2)
	p.noneLeft()
}

// Tasks of two of three nodes, each with a program at the other one, while workers are
// killed, and the scheduler: each ends once, and never has two attempts at a time.
func TestNodesOfTasksAreKilled(t *testing.T) {
	t.Parallel()
	const tasks = 8
	p := newPool(t, "--run", "run", "--task-nodes", "2", "--lost-retries", "1000", "--nodes", "1/n1,1/n2,1/n3", "--min-nodes", "2",
		"--via-cmd", "env SLURMD_NODENAME={host} {worker}")
	script := `echo $JOBPOOL_SEQ >>ran
mkdir task.$JOBPOOL_SEQ 2>/dev/null || until ! kill -0 $(cat task.$JOBPOOL_SEQ/pid) 2>/dev/null; do echo $JOBPOOL_SEQ >>twice; sleep 0.1; done
echo $$ >task.$JOBPOOL_SEQ/pid
$JOBPOOL_RSH ${JOBPOOL_NODELIST#*,} 'sleep 1; echo at $JOBPOOL_NODE' >>at || exit
test -e go || sleep 1
`
	if err := os.WriteFile(filepath.Join(p.dir, "task.sh"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	lines := strings.Repeat("sh task.sh\n", tasks)
	ended := func() (n int) {
		for _, r := range p.journal() {
			if r.Kind == "end" {
				n++
			}
		}
		return n
	}
	start := func(more ...string) *exec.Cmd {
		c := p.command(more...)
		c.Stdin = strings.NewReader(lines)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		p.eventually("the pool answers", func() bool { return p.status() != nil })
		return c
	}
	c := start()
	for i := range 4 {
		p.eventually("a task runs", func() bool { st := p.status(); return st == nil || st["running"].(float64) > 0 })
		if pids := p.workers(); len(pids) > 0 {
			kill(pids[i%len(pids)])
		}
		before := ended()
		p.eventually("a task ends, or the pool", func() bool { return ended() > before || p.status() == nil })
	}
	kill(c.Process.Pid)
	_ = c.Wait()
	status := 0
	for range 10 {
		if status, _, _ = p.run(lines, "--resume"); status == 0 {
			break
		}
	}
	if status != 0 {
		t.Errorf("exit %d", status)
	}
	p.endsOnce(tasks)
	p.runsExplained()
	if b, err := os.ReadFile(filepath.Join(p.dir, "twice")); err == nil {
		t.Errorf("two attempts ran at a time: %q", b)
	}
	p.noneLeft()
}

// The nodes of a task are those of one pilot where that has enough: a step of srun runs there. Where a
// pilot has one node, mpirun reaches the other one, and srun refuses.
func TestTasksOfSeveralNodesInPilots(t *testing.T) {
	run := func(nodes, jobs, tasks string, more ...string) (int, string, string, *pool) {
		p := pilots(t, append([]string{
			"--alloc-sbatch=--time=10 --exclusive --nodes=" + nodes, "--max-jobs", jobs, "--scheduler", "here", "-k", "--task-nodes", "2",
		}, more...)...)
		p.pi()
		status, stdout, stderr := p.run(tasks)
		return status, regexp.MustCompile(`^(\d+\n)*`).ReplaceAllString(stdout, ""), stderr, p // without the ids of the jobs
	}
	status, stdout, stderr, p := run("2", "1", "srun sh -c 'echo $SLURMD_NODENAME' | sort\nsrun --mpi=pmi2 ./pi 100000\n#JOBPOOL nodes=9\ntrue\n")
	if want := "cpu1\ncpu2\npi is 3.141593, by 2 ranks\n"; status != 1 || stdout != want {
		t.Errorf("exit %d, printed %q; want %q: %s\n%s", status, stdout, want, stderr, p.said())
	}
	if want := "task 3: the pool never has what the task needs: 9 nodes with 1 CPU each; it has 1 job of at most 2 nodes each"; !strings.Contains(stderr, want) {
		t.Errorf("%q, want %q", stderr, want)
	}
	p.noneLeft()
	// Where the nodes of a pilot have unequal numbers of CPUs, each is used.
	status, stdout, stderr, p = run("3", "1", "#JOBPOOL nodes=3\nfor h in $(echo $JOBPOOL_NODELIST | tr , ' '); do $JOBPOOL_RSH $h 'echo $SLURMD_NODENAME'; done | sort\n",
		"--alloc-sbatch=--partition=gpu_spot")
	if want := "gpu1\ngpu2\nsmall1\n"; status != 0 || stdout != want {
		t.Errorf("exit %d, printed %q; want %q: %s\n%s", status, stdout, want, stderr, p.said())
	}
	p.noneLeft()
	status, stdout, stderr, p = run("1", "2", "mpirun.mpich ./pi 100000\nsrun hostname 2>&1\n")
	want := "pi is 3.141593, by 2 ranks\nsrun: error: Invalid numeric value \"the nodes of this task are in several jobs: use mpirun or JOBPOOL_RSH\" for --jobid.\n"
	if status != 1 || stdout != want {
		t.Errorf("exit %d, printed %q; want %q: %s\n%s", status, stdout, want, stderr, p.said())
	}
	p.noneLeft()
}

// The other nodes of a pilot come back when their step has ended, while tasks run at the first one.
func TestNodesOfAPilotComeBackOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10 --exclusive --nodes=2", "--scheduler", "here", "--node-resource", "cpu1:first=1")
	c := p.command()
	c.Stdin = strings.NewReader("#JOBPOOL need=first=1\nuntil test -e go; do sleep 0.1; done\n")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	events := func(what string) (n int) {
		for _, r := range p.journal() {
			if r.Kind == "node" && r.What == what {
				n++
			}
		}
		return n
	}
	await(p, "both nodes are up", func() bool { return p.status() != nil && events("up") == 2 && len(p.jobs()) == 1 })
	_ = p.quietly("scancel", p.jobs()[0]+".0")
	await(p, "one is lost", func() bool { return events("lost") == 1 })
	_ = p.quietly(filepath.Join(harness.Bin, "jobpool"), "ctl", "add", "--run", "run", "--task-nodes", "2", "touch go")
	await(p, "a task of both nodes has run", func() bool { _, err := os.Stat(filepath.Join(p.dir, "go")); return err == nil })
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, p.said())
	}
	p.endsOnce(2)
	p.noneLeft()
}
