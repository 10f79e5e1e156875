package jobpool

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// contest is one run of one system: its jobs do the same tasks on the same cluster.
type contest struct {
	*pilotChaos
	system  string
	seconds []string // of the tasks
	stop    func()   // ends what start has begun; nil: as that of jobpool
}

// outcome is what it came to.
type outcome struct {
	first, makespan float64 // seconds to the start of the first task, and to the end of the last
	calls, repeated int     // requests to slurmctld, and starts of tasks beyond one each
}

func newContest(b *testing.B, system string, least, most float64) *contest {
	c := &contest{pilotChaos: newPilotChaos(b, 0), system: system}
	c.random = rand.New(rand.NewPCG(1, 3))
	for c.work < chaosTime.Seconds()*float64(c.slots) {
		took := least + (most-least)*c.random.Float64()*c.random.Float64()
		c.work += took
		c.seconds = append(c.seconds, fmt.Sprintf("%.2f", took))
	}
	c.tasks = len(c.seconds)
	return c
}

// task is the command of a task, whose number and time are in variables.
func task(number, seconds string) string {
	return "echo " + number + " >>ran; sleep " + seconds + "; echo " + number + " >>ended"
}

// start submits the tasks.
func (c *contest) start() {
	if c.system == "jobpool" {
		var in strings.Builder
		for _, s := range c.seconds {
			in.WriteString(task("$JOBPOOL_SEQ", s) + "\n")
		}
		if status, _, stderr := c.run(in.String(), "-o", "none"); status != 0 {
			c.Fatalf("status %d: %s", status, stderr)
		}
		return
	}
	server := exec.Command("hq", "--server-dir", c.hqDir(), "server", "start")
	server.Dir, server.Env = c.dir, append(os.Environ(), c.env...)
	log, err := os.Create(filepath.Join(c.dir, "hq.log"))
	if err == nil {
		server.Stdout, server.Stderr = log, log
		err = server.Start()
	}
	if err != nil {
		c.Fatal(err)
	}
	c.stop = func() {
		_ = c.hq("server", "stop").Run()
		_ = server.Wait()
		_ = log.Close()
		_ = c.quietly("scancel", "--user=root")
		await(c.pool, "its jobs end", func() bool { return c.quietly("squeue", "--noheader") == "" })
	}
	await(c.pool, "the server answers", func() bool { return c.hq("server", "info").Run() == nil })
	name := filepath.Join(c.dir, "seconds")
	if err := os.WriteFile(name, []byte(strings.Join(c.seconds, "\n")+"\n"), 0o600); err != nil {
		c.Fatal(err)
	}
	for _, args := range [][]string{
		{
			"alloc", "add", "slurm", "--time-limit", strconv.Itoa(wallTime) + "s", "--backlog", strconv.Itoa(maxJobs), "--max-worker-count", strconv.Itoa(maxJobs),
			"--cpus", strconv.Itoa(jobSlots), "--idle-timeout", "2s", "--no-dry-run", "--", "--partition=cpu,gpu", "--cpus-per-task=2",
		},
		{"submit", "--each-line", name, "--stdout", "none", "--stderr", "none", "--crash-limit", "20", "--", "sh", "-c", task("$HQ_TASK_ID", "$HQ_ENTRY")},
	} {
		if out, err := c.hq(args...).CombinedOutput(); err != nil {
			c.Fatalf("hq %q: %v: %s", args, err, out)
		}
	}
}

func (c *contest) hqDir() string { return filepath.Join(c.dir, "hq") }

func (c *contest) hq(args ...string) *exec.Cmd {
	cmd := exec.Command("hq", append([]string{"--server-dir", c.hqDir()}, args...)...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	return cmd
}

// worker is a process that runs tasks in a job; 0 if there is none.
func (c *contest) worker() int {
	if c.system == "jobpool" {
		pids := c.processes("\x00pilot\x00")
		return append(pids, 0)[0]
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if words := strings.Split(string(args), "\x00"); filepath.Base(words[0]) == "hq" && slices.Contains(words, "worker") && strings.Contains(string(args), c.dir) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			return pid
		}
	}
	return 0
}

func (c *contest) count(name string) int {
	b, _ := os.ReadFile(filepath.Join(c.dir, name))
	return bytes.Count(b, []byte("\n"))
}

// finish runs the tasks to the end. With kill, a worker is killed when a third has ended.
func (c *contest) finish(kill bool) outcome {
	var out outcome
	calls, began := c.calls(), time.Now()
	c.start()
	for left := 10 * time.Minute; c.ended() < c.tasks; left -= 50 * time.Millisecond {
		if left < 0 {
			c.Fatalf("%s: %d of %d tasks have ended\n%s\n%s", c.system, c.ended(), c.tasks, c.quietly("squeue"), c.said())
		}
		if out.first == 0 && c.count("ran") > 0 {
			out.first = time.Since(began).Seconds()
		}
		if kill && c.count("ended") > c.tasks/3 {
			if pid := c.worker(); pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				kill = false
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	info, err := os.Stat(filepath.Join(c.dir, "ended"))
	if err != nil {
		c.Fatal(err)
	}
	out.makespan, out.calls, out.repeated = info.ModTime().Sub(began).Seconds(), c.calls()-calls, c.count("ran")-c.tasks
	if kill {
		c.Logf("%s: no worker was found to kill", c.system)
	}
	if c.end(); c.stop != nil {
		c.stop()
	}
	return out
}

// ended is how many tasks have.
func (c *contest) ended() int {
	b, _ := os.ReadFile(filepath.Join(c.dir, "ended"))
	return len(slices.Compact(slices.Sorted(strings.Lines(string(b)))))
}

// BenchmarkPilots has jobpool and HyperQueue, where "hq" is in PATH, submit jobs for the same
// tasks on the same cluster: the time until the last task has ended, beside what it would be if
// all jobs ran at once without a gap; the requests to slurmctld; and how many tasks had to start
// again. With -time 2m, jobs end meanwhile and others follow: "killed" kills a worker, and in "cut"
// tasks take long enough for many to run when a job ends, and none says how long it takes.
func BenchmarkPilots(b *testing.B) {
	systems := []string{"jobpool"}
	if onPath("hq") {
		systems = append(systems, "hq")
	} else {
		fmt.Println("\nhq is not in PATH: jobpool is measured alone")
	}
	_ = harness.Cluster(b)
	for _, scene := range []struct {
		name        string
		kill        bool
		least, most float64 // seconds of a task
	}{{"short", false, 0.05, 1.5}, {"killed", true, 0.05, 1.5}, {"cut", false, 2, 20}} {
		b.Run(scene.name, func(b *testing.B) {
			for b.Loop() {
				results := map[string]outcome{}
				for _, system := range systems {
					c := newContest(b, system, scene.least, scene.most)
					r := c.finish(scene.kill)
					results[system] = r
					fmt.Printf("%s, %s: %d tasks, %.1f s (at best %.1f s), the first after %.1f s, %d requests to slurmctld, %d tasks started again\n",
						system, scene.name, c.tasks, r.makespan, c.work/float64(c.slots), r.first, r.calls, r.repeated)
				}
				if hq, ok := results["hq"]; ok {
					b.ReportMetric(results["jobpool"].makespan/hq.makespan, "of-hq")
					b.ReportMetric(float64(results["jobpool"].calls)/float64(hq.calls), "calls-of-hq")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
