package fairshare

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// deepNodes and deepRuns are the nodes of the deep queue's cluster, and the jobs that have ended there in a month.
const (
	deepNodes = 5000
	deepRuns  = 50_000
)

// deepQueue writes answers of a full cluster of 5,000 nodes, on each of which a job runs, and for which benchJobs wait that all
// have a record of scontrol; accounting knows the jobs of the last month. It returns the environment in which they are given.
func deepQueue(b testing.TB, dir string) []string {
	b.Helper()
	recorded := filepath.Join(harness.Root(), "lib/slurm/testdata/22.05.8/queue")
	for _, name := range []string{"config.txt", "sshare.table", "now", "licenses.txt"} {
		text, err := os.ReadFile(filepath.Join(recorded, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	at, err := harness.RecordedAt(recorded)
	if err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(recorded, "now"))
	if err != nil {
		b.Fatal(err)
	}
	seconds, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Unix(seconds, 0).UTC()
	stamp := func(t time.Time) string { return t.Format("2006-01-02T15:04:05") }

	partitions, nodes := create(b, dir, "partitions.txt"), create(b, dir, "node.txt")
	queue, factors, shown, ended := create(b, dir, "squeue.table"), create(b, dir, "sprio.table"), create(b, dir, "job.txt"), create(b, dir, "sacct-ended.table")
	for name, of := range map[string]string{"batch": "c[0001-4000]", "gpu": "c[4001-5000]"} {
		fmt.Fprintf(partitions, "PartitionName=%s AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO "+
			"GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=7-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=%s PriorityJobFactor=10 PriorityTier=10 RootOnly=NO ReqResv=NO "+
			"OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=640000 TotalNodes=4000 SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED "+
			"MaxMemPerNode=UNLIMITED TRES=cpu=640000,mem=2000000G,node=4000,billing=640000,gres/gpu=4000\n", name, of)
	}
	fmt.Fprint(queue, "JobID|ArrayJobID|JobArrayID|ArrayTaskID|HetJobID|HetJobOffset|UserName|Account|Partition|QOS|State|PriorityLong|Nice|"+
		"SubmitTime|EligibleTime|AccrueTime|StartTime|EndTime|TimeLimit|NumNodes|NumCPUs|tres-alloc|tres-per-job|tres-per-node|NodeList|SchedNodes|"+
		"ReqNodes|Feature|Reservation|Dependency|Reason|Name\n")
	fmt.Fprintf(factors, "%s\n", "%i|%r|%u|%Y|%a|%A|%b|%B|%f|%F|%j|%J|%p|%P|%q|%Q|%S|%N|%t|%T")
	fmt.Fprint(ended, "JobIDRaw|JobName|User|Account|Partition|QOS|State|Submit|Start|End|Timelimit|NNodes|AllocTRES\n")
	record := func(id int, user, account, state, more string) {
		fmt.Fprintf(shown, "JobId=%d JobName=train UserId=%s(%d) GroupId=users(100) MCS_label=N/A Priority=4000 Nice=0 Account=%s QOS=normal JobState=%s Reason=None Dependency=(null) "+
			"Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 DerivedExitCode=0:0 RunTime=00:00:00 TimeLimit=10:00:00 TimeMin=N/A LastSchedEval=2026-11-20T18:26:05 Scheduler=Backfill:* "+
			"AllocNode:Sid=login1:7033 ExcNodeList=(null) NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* %sMinTmpDiskNode=0 Features=(null) "+
			"DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=/home/%s/train/train.sh WorkDir=/home/%[2]s/train StdErr=/home/%[2]s/train/slurm-%[1]d.out "+
			"StdIn=/dev/null StdOut=/home/%[2]s/train/slurm-%[1]d.out Power= \n", id, user, 1000+id%700, account, state, more, user)
	}
	of := func(i int) (user, account, partition string) {
		return fmt.Sprintf("user%03d", i%700), fmt.Sprintf("account%02d", i%60), []string{"batch", "batch", "batch", "gpu"}[i%4]
	}
	for i := range deepNodes {
		user, account, _ := of(i)
		name, partition, gres, gpus := fmt.Sprintf("c%04d", i+1), "batch", "(null)", ""
		if i >= 4000 {
			partition, gres, gpus = "gpu", "gpu:a100:4", ",gres/gpu=4"
		}
		fmt.Fprintf(nodes, "NodeName=%s Arch=x86_64 CoresPerSocket=64 CPUAlloc=96 CPUEfctv=128 CPUTot=128 CPULoad=96.9 AvailableFeatures=milan ActiveFeatures=milan Gres=%s GresDrain=N/A GresUsed=gpu:0 "+
			"NodeAddr=%[1]s NodeHostName=%[1]s Port=6818 Version=22.05.8 RealMemory=512000 AllocMem=200000 FreeMem=21827 Sockets=2 Boards=1 State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A "+
			"MCS_label=N/A Partitions=%[3]s CfgTRES=cpu=128,mem=500G,billing=128%[4]s AllocTRES=cpu=96,mem=200000M\n", name, gres, partition, gpus)
		id, start := 500_000+i, now.Add(-time.Duration(i*7%30000)*time.Second)
		fmt.Fprintf(queue, "%d|%d|%d|N/A|0|0|%s|%s|%s|normal|RUNNING|4000|0|%s|%s|%s|%s|%s|10:00:00|1|96|cpu=96,mem=200000M,node=1,billing=96%s|N/A|N/A|%s|(null)||(null)|(null)|(null)|None|train-%d\n",
			id, id, id, user, account, partition, stamp(start), stamp(start), stamp(start), stamp(start), stamp(start.Add(10*time.Hour)), gpus, name, i)
		record(id, user, account, "RUNNING", fmt.Sprintf("JOB_GRES=(null) Nodes=%s CPU_IDs=0-95 Mem=200000 GRES= ", name))
	}
	for i := range benchJobs {
		user, account, partition := of(i)
		id, prio, cpus := 1_000_000+i, 1000+i*7919%90000, 1+i*37%128
		submit := stamp(now.Add(-time.Duration(i%86400) * time.Second))
		fmt.Fprintf(queue, "%d|%d|%d|N/A|0|0|%s|%s|%s|normal|PENDING|%d|0|%s|%s|%s|N/A|N/A|%d:00:00|1|%d|cpu=%d,mem=%dM,node=1,billing=%d|N/A|N/A||(null)||(null)|(null)|(null)|%s|train-%d-of-the-model\n",
			id, id, id, user, account, partition, prio, submit, submit, submit, 1+i%23, cpus, cpus, 1000*cpus, cpus, []string{"Priority", "Resources"}[i%2], i)
		fmt.Fprintf(factors, "%d|%s|%s|%d|0.%07d|%d|0.0000000|0|0.%07d|%d|0.1178571|59|0.5000000|500|0.1000000|200|0|0|cpu=0.06,mem=0.02|cpu=6,mem=2\n",
			id, partition, user, prio, i%10_000_000, i/10_000, (i*31)%10_000_000, (i*31)%10_000_000/1000)
		record(id, user, account, "PENDING", "")
	}
	for i := range deepRuns {
		user, account, partition := of(i * 3)
		start := now.Add(-time.Duration(i*50) * time.Second)
		cpus := 1 + i*37%128
		fmt.Fprintf(ended, "%d|train-%d-of-the-model|%s|%s|%s|normal|COMPLETED|%s|%s|%s|%02d:00:00|1|billing=%d,cpu=%d,mem=%dM,node=1\n", 100_000+i, i, user, account, partition,
			stamp(start.Add(-time.Duration(i*131%40000)*time.Second)), stamp(start), stamp(start.Add(time.Duration(60+i*97%30000)*time.Second)), 1+i%23, cpus, cpus, 1000*cpus)
	}
	for _, f := range []interface{ Flush() error }{partitions, nodes, queue, factors, shown, ended} {
		if err := f.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	return append(os.Environ(), "RECORDED="+dir, "ANSWERS=", "COMMON="+filepath.Join(harness.Root(), "testscripts/fairshare/answers"),
		"TZ=UTC", "ASKED="+os.DevNull, clock.Variable+"="+at, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
}

// BenchmarkDeepQueue measures what is said of one job of a hundred thousand that wait for 5,000 nodes, beside the list of all, and
// how soon a signal ends it.
func BenchmarkDeepQueue(b *testing.B) {
	env := deepQueue(b, b.TempDir())
	job := strconv.Itoa(1_000_000 + benchJobs/2)
	list, listCPU, _ := measure(b, env, "fairshare", "jobs")
	for name, args := range map[string][]string{
		"jobs-one": {"fairshare", "jobs", job}, "when": {"fairshare", "when", job}, "when-1s": {"fairshare", "when", "--budget=1s", job},
	} {
		b.Run(name, func(b *testing.B) {
			var ours, cpu time.Duration
			var memory int64
			for b.Loop() {
				wall, used, rss := measure(b, env, args...)
				ours, cpu, memory = ours+wall, cpu+used, max(memory, rss)
			}
			n := float64(b.N)
			b.ReportMetric(ours.Seconds()/n/list.Seconds(), "times-list")
			b.ReportMetric(cpu.Seconds()/n/listCPU.Seconds(), "times-list-cpu")
			b.ReportMetric(ours.Seconds()/n, "s")
			b.ReportMetric(cpu.Seconds()/n, "cpu-s")
			b.ReportMetric(float64(memory)/(1<<20), "MiB")
		})
	}
	for _, after := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 4 * time.Second} {
		b.Run("signal-after-"+after.String(), func(b *testing.B) {
			var slowest time.Duration
			for b.Loop() {
				cmd := exec.Command("fairshare", "when", "--budget=1m", job)
				cmd.Env = env
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				time.Sleep(after)
				began := time.Now()
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					b.Fatal(err)
				}
				var exit *exec.ExitError
				if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGTERM) {
					b.Errorf("it ended with %v", err)
				}
				slowest = max(slowest, time.Since(began))
			}
			b.ReportMetric(slowest.Seconds(), "s-until-ended")
		})
	}
}
