package jobpool

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// fourNodes starts jobpool in an allocation of four unequal nodes: two with 4 CPUs,
// two with 8 CPUs and 4 GPUs.
var fourNodes = []string{
	"salloc", "--quiet", "--partition=cpu", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=4",
	":", "--partition=gpu", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=8", "--gres=gpu:4",
}

// inSlurm is a pool that is started on the test cluster.
func inSlurm(t testing.TB, wrap []string, args ...string) *pool {
	p := newPool(t, args...)
	for name, value := range harness.Cluster(t) {
		p.env = append(p.env, name+"="+value)
	}
	p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
	p.wrap = wrap
	return p
}

// slurm runs a command of Slurm, or of the tests' own.
func (p *pool) slurm(name string, args ...string) string {
	p.Helper()
	c := exec.Command(name, args...)
	c.Dir, c.Env = p.dir, append(os.Environ(), p.env...)
	var complaints bytes.Buffer
	c.Stderr = &complaints
	out, err := c.Output()
	if err != nil {
		p.Fatalf("%s %q: %v: %s", name, args, err, &complaints)
	}
	return strings.TrimSpace(string(out))
}

// batch submits a script that runs jobpool, and returns the job's id.
func (p *pool) batch(script string, options ...string) string {
	p.Helper()
	name := filepath.Join(p.dir, "job.sh")
	script = "#!/bin/bash\nPATH=" + harness.Bin + ":$PATH\n" + script
	executable.Write(p, name, script)
	out := p.slurm("sbatch", append(append([]string{"--parsable", "--output=job.out", "--open-mode=append"}, options...), name)...)
	return strings.Split(out, ";")[0]
}

func (p *pool) state(job string) string {
	c := exec.Command("squeue", "-h", "-j", job, "-t", "all", "-o", "%T")
	c.Env = append(os.Environ(), p.env...)
	out, _ := c.Output()
	return strings.TrimSpace(string(out))
}

func (p *pool) output() string {
	b, _ := os.ReadFile(filepath.Join(p.dir, "job.out"))
	return string(b)
}

func TestChaosOverSrun(t *testing.T) {
	p := inSlurm(t, fourNodes, "--jobs", "2")
	chaos(t, p, 400, "srun ")
}

func TestUnequalNodes(t *testing.T) {
	p := inSlurm(t, fourNodes, "--run", "run", "--min-nodes", "4", "-k")
	// A node has the CPUs that its worker sees, which are those of this machine.
	beside := min(2, len(machine.Affinity()))
	var b strings.Builder
	b.WriteString("#JOBPOOL gpus=2\n")
	for range 8 {
		// So many fit at a time, and all of the first ones run before one of them ends.
		fmt.Fprintf(&b, "touch gpu.$JOBPOOL_SEQ; until [ $(ls gpu.* | wc -l) -ge %d ]; do sleep 0.1; done; echo $JOBPOOL_NODE gpus=$CUDA_VISIBLE_DEVICES\n", 2*beside)
	}
	b.WriteString("#JOBPOOL reset\n")
	for range 20 {
		b.WriteString("sleep 0.2; echo $JOBPOOL_NODE cpus=$JOBPOOL_CPUS mask=$(sed -n 's/Cpus_allowed_list:\\t//p' /proc/self/status)\n")
	}
	status, stdout, stderr := p.run(b.String())
	if status != 0 {
		t.Fatalf("exit %d: %s", status, stderr)
	}
	seen := map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
		f := strings.Fields(line)
		if i < 8 {
			seen[f[0]+" "+f[1]]++
			continue
		}
		seen[f[0]]++
		// Tasks are bound to the CPU they are given.
		if f[1][5:] != f[2][5:] {
			t.Errorf("given %s, bound to %s", f[1], f[2])
		}
	}
	if len(seen) < 4+beside || seen["gpu1 gpus=0,1"] == 0 || beside == 2 && seen["gpu2 gpus=2,3"] == 0 || seen["cpu1 gpus="] != 0 || seen["cpu2"] == 0 {
		t.Errorf("tasks ran at %v", seen)
	}
	p.endsOnce(28)
	p.noneLeft()
}

// The time limit ends a run in time for the batch script to submit itself again;
// the next job goes on with it.
func TestBatchScriptThatSubmitsItselfAgain(t *testing.T) {
	t.Parallel()
	p := inSlurm(t, nil)
	var b strings.Builder
	for range 16 {
		b.WriteString("echo $JOBPOOL_SEQ >> ran; [ $JOBPOOL_SEQ -le 4 ] || until [ -e again ]; do sleep 0.1; done; sleep 1\n")
	}
	if err := os.WriteFile(filepath.Join(p.dir, "tasks.txt"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(harness.Root(), "examples/jobpool/resubmit.sbatch"))
	if err != nil {
		t.Fatal(err)
	}
	// The example as it is, on the nodes there are and for the shortest time there is.
	small := strings.NewReplacer("--nodes=4", "--nodes=2 --open-mode=append --partition=cpu", " --exclusive", "", "04:00:00", "1", "pool.%j.log", "job.out").Replace(string(example))
	executable.Write(t, filepath.Join(p.dir, "resubmit.sbatch"), small)
	p.env = append(p.env, "PATH="+harness.Bin+":"+os.Getenv("PATH"), "POOL_OPTIONS=--end-margin 20s --time-per-task 4s")
	p.slurm("sbatch", "resubmit.sbatch")
	p.eventually("it submits itself again", func() bool { return strings.Contains(p.output(), "submitted again as job") })
	p.touch("again")
	p.eventually("all tasks have ended", func() bool {
		f, err := os.ReadFile(filepath.Join(p.dir, "pool", "joblog"))
		return err == nil && strings.Count(string(f), "\n") == 17
	})
	if err := os.Rename(filepath.Join(p.dir, "pool"), filepath.Join(p.dir, "run")); err != nil {
		t.Fatal(err)
	}
	p.endsOnce(16)
	p.runsExplained()
}

// A preempted job is started again by Slurm, and its pool goes on.
func TestPreemption(t *testing.T) {
	p := inSlurm(t, nil)
	job := p.batch("for i in $(seq 24); do echo 'echo $JOBPOOL_SEQ >> ran; [ $JOBPOOL_SEQ -le 4 ] || until [ -e preempted ]; do sleep 0.1; done; sleep 1'; done > tasks\n"+
		"jobpool --resume --run run -j 2 < tasks\necho ended with $?\n",
		"--partition=gpu_spot", "--nodes=2", "--ntasks=2", "--requeue", "--exclude=small1")
	p.eventually("tasks run", func() bool {
		b, _ := os.ReadFile(filepath.Join(p.dir, "ran"))
		return bytes.Count(b, []byte("\n")) > 4
	})
	// Someone with more right to it takes the place, for a moment.
	// Not by srun, which waits only some seconds until the nodes are ready.
	p.slurm("sbatch", "--wait", "--partition=gpu", "--nodes=2", "--ntasks=2", "--exclusive", "--output=/dev/null", "--wrap=true")
	p.touch("preempted")
	p.eventually("the job has ended", func() bool { return p.state(job) == "COMPLETED" })
	if !strings.Contains(p.output(), "ended with 0") {
		t.Errorf("output:\n%s", p.output())
	}
	p.endsOnce(24)
	if n := p.runsExplained(); n == 0 {
		t.Error("nothing was interrupted")
	}
	p.noneLeft()
}

// Signals that Slurm sends to the steps come to the scheduler by way of the workers.
func TestSignalToTheSteps(t *testing.T) {
	p := inSlurm(t, nil)
	job := p.batch("for i in $(seq 40); do echo '[ $JOBPOOL_SEQ -le 8 ] || until [ -e drained ]; do sleep 0.1; done; sleep 0.5'; done | jobpool --run run -j 2; echo ended with $?\n", "--partition=cpu", "--nodes=2", "--ntasks=2")
	p.eventually("tasks have ended", func() bool {
		b, _ := os.ReadFile(filepath.Join(p.dir, "run", "joblog"))
		return bytes.Count(b, []byte("\n")) > 5
	})
	p.slurm("scancel", "--signal=USR1", job)
	p.eventually("it is drained", func() bool { return strings.Contains(p.output(), "drained by") })
	p.touch("drained")
	p.eventually("the job has ended", func() bool { return strings.Contains(p.output(), "ended with") })
	if !strings.Contains(p.output(), "ended with 75") || !strings.Contains(p.output(), "drained by SIGUSR1 at node cpu2") {
		t.Errorf("output:\n%s", p.output())
	}
	p.noneLeft()
}

// SIGTERM to the steps ends their tasks. If nothing else ends the job, it goes on.
func TestTermToTheSteps(t *testing.T) {
	t.Parallel()
	p := inSlurm(t, nil)
	job := p.batch("for i in $(seq 24); do echo 'echo $JOBPOOL_SEQ >>ran; [ $JOBPOOL_SEQ -le 6 ] || until [ -e replaced ]; do sleep 0.1; done; sleep 1'; done | jobpool --run run -j 1 --node-timeout 6s; echo ended with $?\n", "--partition=cpu", "--nodes=2", "--ntasks=2")
	p.eventually("tasks have ended", func() bool {
		b, _ := os.ReadFile(filepath.Join(p.dir, "run", "joblog"))
		return bytes.Count(b, []byte("\n")) > 2
	})
	p.slurm("scancel", "--signal=TERM", job)
	p.eventually("the worker is replaced", func() bool {
		return strings.Contains(p.output(), "its worker has ended: another one is started") || strings.Contains(p.output(), "ended with")
	})
	p.touch("replaced")
	p.eventually("the job has ended", func() bool { return strings.Contains(p.output(), "ended with") })
	if !strings.Contains(p.output(), "ended with 0") || !strings.Contains(p.output(), "its worker has ended: another one is started") {
		t.Errorf("output:\n%s", p.output())
	}
	p.endsOnce(24)
	p.noneLeft()
}

// Nodes that are not needed any more go back to Slurm while the tail runs.
func TestReleaseIdleNodes(t *testing.T) {
	t.Parallel()
	p := inSlurm(t, nil)
	// The task on the batch script's own node, which cannot go, is the last one; the others wait for it to begin.
	task := "if [ $JOBPOOL_NODE = cpu1 ]; then touch here; until [ -e given ]; do sleep 0.2; done; else until [ -e here ]; do sleep 0.1; done; fi"
	job := p.batch("for i in 1 2 3; do echo '"+task+"'; done | jobpool --run run --place pack -j 1 --release-idle; echo ended with $?\n", "--partition=cpu", "--nodes=2", "--ntasks=2")
	p.eventually("a node is given back", func() bool { return strings.Contains(p.output(), "gave 1 idle node back") })
	if nodes := p.slurm("squeue", "-h", "-j", job, "-o", "%N"); nodes != "cpu1" {
		t.Errorf("the job has %s; want cpu1", nodes)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "given"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p.eventually("the job has ended", func() bool { return strings.Contains(p.output(), "ended with 0") })
	p.noneLeft()
}

// scancel ends everything at once; what ran is run again by the next job.
func TestCancelledJob(t *testing.T) {
	p := inSlurm(t, nil)
	job := p.batch("for i in 1 2 3 4; do echo 'sleep 600'; done | exec jobpool --run run -j 1 --term-grace 1\n", "--partition=cpu", "--nodes=2", "--ntasks=2")
	p.eventually("tasks run", func() bool { st := p.status(); return st != nil && st["running"].(float64) == 2 })
	p.slurm("scancel", job)
	p.noneLeft()
	p.eventually("the job is gone", func() bool { return strings.HasPrefix(p.state(job), "CANCELLED") })
	for _, r := range p.journal() {
		if r.Kind == "end" {
			t.Errorf("task %d has ended as %s", r.Seq, r.What)
		}
	}
}

// A pool in a task of a pool has the CPUs of that task.
func TestPoolInAPool(t *testing.T) {
	p := inSlurm(t, []string{"salloc", "--quiet", "--partition=cpu", "--nodes=1", "--cpus-per-task=4"}, "--run", "run", "-j", "2")
	status, stdout, stderr := p.run("#JOBPOOL cpus=2\njobpool --run inner -v echo {} ::: a b c 2>&1\n")
	if status != 0 || strings.Count(stdout, "\n") != 5 || !strings.Contains(stdout, "3 tasks succeeded") {
		t.Errorf("exit %d\n%s\n%s", status, stdout, stderr)
	}
	p.noneLeft()
}
