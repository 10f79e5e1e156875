package fairshare

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

const benchJobs = 100_000

// longQueue writes answers of squeue and sprio for a long queue: every job on its
// own, as a cluster without arrays has it; one in ten waits in two partitions.
func longQueue(b testing.TB, dir string) {
	b.Helper()
	recorded := filepath.Join(harness.Root(), "lib/slurm/testdata/22.05.8/queue")
	for _, name := range []string{"config.txt", "partitions.txt", "node.txt", "reservation.txt", "sshare.table"} {
		text, err := os.ReadFile(filepath.Join(recorded, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	queue, factors := create(b, dir, "squeue.table"), create(b, dir, "sprio.table")
	fmt.Fprint(queue, "JobID|ArrayJobID|JobArrayID|ArrayTaskID|HetJobID|HetJobOffset|UserName|Account|Partition|QOS|State|PriorityLong|Nice|"+
		"SubmitTime|EligibleTime|AccrueTime|StartTime|EndTime|TimeLimit|NumNodes|NumCPUs|tres-alloc|tres-per-job|tres-per-node|NodeList|SchedNodes|"+
		"ReqNodes|Feature|Reservation|Dependency|Reason|Name\n")
	fmt.Fprintf(factors, "%s\n", "%i|%r|%u|%Y|%a|%A|%b|%B|%f|%F|%j|%J|%p|%P|%q|%Q|%S|%N|%t|%T")
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range benchJobs {
		user, prio := fmt.Sprintf("user%03d", i%700), 1000+i*7919%90000
		partitions := []string{[]string{"cpu", "gpu", "gpu_small"}[i%3]}
		if i%10 == 0 {
			partitions = append(partitions, "gpu_spot")
		}
		submit := begin.Add(time.Duration(i) * 13 * time.Second).Format("2006-01-02T15:04:05")
		for k, partition := range partitions {
			start, nodes := "N/A", "(null)"
			if i < 500 {
				start, nodes = begin.AddDate(0, 1, i%30).Format("2006-01-02T15:04:05"), "gpu1"
			}
			id := 1_000_000 + i
			fmt.Fprintf(queue, "%d|%d|%d|N/A|0|0|%s|account%02d|%s|normal|PENDING|%d|0|%s|%s|%s|%s|N/A|%d:00:00|1|%d|cpu=%d,mem=%dM,node=1,billing=%d,gres/gpu=%d|gres:gpu:%d|N/A||%s||(null)|(null)|(null)|%s|train-%d-of-the-model\n",
				id, id, id, user, i%60, partition, prio, submit, submit, submit, start, 1+i%23, 1+i%8, 1+i%8, 500*(1+i%8), 1+i%8, i%4, i%4, nodes,
				[]string{"Priority", "Resources", "QOSMaxJobsPerUserLimit"}[i%3], i)
			fmt.Fprintf(factors, "%d|%s|%s|%d|0.%07d|%d|0.0000000|0|0.%07d|%d|0.1178571|59|0.5000000|500|0.1000000|200|0|0|cpu=0.06,mem=0.02,gres/gpu=0.25|cpu=6,mem=2,gres/gpu=125\n",
				id, partition, user, prio-k, i%10_000_000, i/10_000, (i*31)%10_000_000, (i*31)%10_000_000/1000)
		}
	}
	for _, f := range []*bufio.Writer{queue, factors} {
		if err := f.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}

func create(b testing.TB, dir, name string) *bufio.Writer {
	b.Helper()
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return bufio.NewWriterSize(f, 1<<20)
}

// rawCalls are the calls that "fairshare jobs" makes, each of which a user would
// have to make by hand.
var rawCalls = [][]string{
	{"squeue", "--noheader", "--all", "--local", "--priority", "--noconvert", "--Format=Name:|~0123456789abcdef", "--states=PENDING"},
	{"sprio", "--noheader", "--local", "--format=%i|%r|%Y|%A|%F|%J|%P|%Q|%T|~"},
	{"scontrol", "--all", "--oneliner", "show", "partitions"},
	{"scontrol", "show", "config"},
}

// measure runs a command with its output thrown away.
func measure(b *testing.B, env []string, args ...string) (wall, cpu time.Duration, memory int64) {
	b.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	var errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, nil, &errs
	began := time.Now()
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		b.Fatalf("%s: %v: %s", args[0], err, errs.String())
	}
	wall = time.Since(began)
	return wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss * 1024
}

// BenchmarkLongQueue compares fairshare with the plain calls to Slurm, side by
// side, for a hundred thousand pending jobs.
func BenchmarkLongQueue(b *testing.B) {
	dir := b.TempDir()
	longQueue(b, dir)
	env := append(os.Environ(), "RECORDED="+dir, "ANSWERS=", "COMMON="+filepath.Join(harness.Root(), "testscripts/fairshare/answers"), "TZ=UTC", "ASKED="+os.DevNull)
	for name, args := range map[string][]string{
		"jobs": {"fairshare", "jobs"}, "jobs-user": {"fairshare", "jobs", "-u", "user007"}, "jobs-json": {"fairshare", "jobs", "--json"},
		"holes": {"fairshare", "holes"},
	} {
		b.Run(name, func(b *testing.B) {
			var raw, slowest, ours, cpu time.Duration
			var memory int64
			for b.Loop() {
				longest := time.Duration(0)
				for _, call := range rawCalls {
					wall, _, _ := measure(b, env, call...)
					raw += wall
					longest = max(longest, wall)
				}
				slowest += longest
				wall, used, rss := measure(b, env, args...)
				ours += wall
				cpu += used
				memory = max(memory, rss)
			}
			b.ReportMetric(ours.Seconds()/raw.Seconds(), "times-raw")
			b.ReportMetric(ours.Seconds()/slowest.Seconds(), "times-slowest-call")
			b.ReportMetric(raw.Seconds()/float64(b.N), "s-raw")
			b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-s")
			b.ReportMetric(ours.Seconds()/float64(b.N), "s-fairshare")
			b.ReportMetric(float64(memory)/(1<<20), "MiB")
		})
	}
}
