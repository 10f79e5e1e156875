package lfind

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

const benchRequest = "duration=4 days & cuda(mem=14G) * 2"

// cost is what the best of several runs of lfind has taken.
type cost struct {
	wall   time.Duration // of the whole process, fakes included
	cpu    time.Duration // the same, but for what others have taken of the machine
	memory int64         // KiB of lfind, the most of all runs
}

// best runs lfind several times.
func best(b *testing.B, env []string, args ...string) cost {
	b.Helper()
	c := cost{wall: time.Hour, cpu: time.Hour}
	// A child begins with the peak of its parent, which is made small here.
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Log(err)
	}
	for range 15 {
		p := exec.Command(filepath.Join(harness.Bin, "lfind"), args...)
		p.Env = env
		var errs bytes.Buffer
		p.Stderr = &errs
		start := time.Now()
		out, err := p.Output()
		took := time.Since(start)
		if err != nil || !strings.Contains(string(out), "--nodes=1 --time=96:00:00 --partition=") {
			b.Fatalf("%v: %.200s %s", err, out, errs.String())
		}
		c.wall = min(c.wall, took)
		c.cpu = min(c.cpu, p.ProcessState.UserTime()+p.ProcessState.SystemTime())
		if usage, ok := p.ProcessState.SysUsage().(*syscall.Rusage); ok {
			c.memory = max(c.memory, usage.Maxrss)
		}
	}
	return c
}

// kind is what the nodes of group i have.
func kind(i int) string {
	return fmt.Sprintf("GPU%d,GPUM%dG,rack%d", []int{2, 4, 8}[i%3], []int{16, 24, 40, 80}[i%4], i)
}

const benchPartitions = 40

// describedCluster writes launchers.yaml with groups of ten hosts.
func describedCluster(b *testing.B, dir string, groups int) []string {
	b.Helper()
	var text strings.Builder
	text.WriteString("slurm:\n  - id: big\n    features_regex: ['GPU(?P<cuda_count>\\d+)', 'GPUM(?P<cuda_memory>\\d+G)']\n    partitions:\n")
	for p := range benchPartitions {
		fmt.Fprintf(&text, "      part%d:\n        nodes:\n", p)
		for i := p; i < groups; i += benchPartitions {
			var hosts []string
			for h := range 10 {
				hosts = append(hosts, fmt.Sprintf("node%05d-%d", i, h))
			}
			fmt.Fprintf(&text, "          - features: [%s]\n            hosts: [%s]\n", strings.ReplaceAll(kind(i), ",", ", "), strings.Join(hosts, ", "))
		}
	}
	write(b, filepath.Join(dir, "launchers.yaml"), text.String())
	return []string{"HOME=" + dir, "PATH=/usr/bin:/bin", "LFIND_CONFIG=" + filepath.Join(dir, "launchers.yaml")}
}

// askedCluster is a cluster of which the fakes tell.
func askedCluster(b *testing.B, dir string, nodes, groups int) []string {
	b.Helper()
	var text strings.Builder
	for i := range nodes {
		k := i % groups
		fmt.Fprintf(&text, "NodeName=node%05d Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.45 AvailableFeatures=%s ActiveFeatures=%s "+
			"Gres=gpu:a100:%d(S:0-1) NodeAddr=10.0.0.1 NodeHostName=node%05d Version=23.02.6 OS=Linux 5.14.0 #1 SMP PREEMPT_DYNAMIC Fri Apr 14 10:57:59 UTC 2023  "+
			"RealMemory=512000 AllocMem=0 FreeMem=505632 Sockets=2 Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=part%d  "+
			"BootTime=2026-11-20T17:40:19 SlurmdStartTime=2026-11-20T17:48:03 LastBusyTime=2026-11-20T17:48:04 ResumeAfterTime=None "+
			"CfgTRES=cpu=64,mem=500G,billing=64,gres/gpu=4 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
			i, kind(k), kind(k), []int{2, 4, 8}[k%3], i, k%benchPartitions)
	}
	write(b, filepath.Join(dir, "nodes"), text.String())
	text.Reset()
	for p := range benchPartitions {
		fmt.Fprintf(&text, "PartitionName=part%d AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A MaxNodes=UNLIMITED MaxTime=7-00:00:00 MinNodes=0 "+
			"MaxCPUsPerNode=UNLIMITED PriorityTier=10 RootOnly=NO ReqResv=NO PreemptMode=OFF State=UP MaxMemPerNode=UNLIMITED\n", p)
	}
	write(b, filepath.Join(dir, "partitions"), text.String())
	write(b, filepath.Join(dir, "associations"), "")
	write(b, filepath.Join(dir, "user"), "")
	write(b, filepath.Join(dir, "qos"), "")
	fakes := filepath.Join(harness.Root(), "testscripts/lfind/fakes")
	return []string{"HOME=" + dir, "PATH=" + fakes + ":/usr/bin:/bin", "FAKE_SLURM=" + dir, "SLURM_CONF=/none"}
}

func write(b *testing.B, path, text string) {
	b.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func report(b *testing.B, c cost) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(milliseconds(c.wall), "ms")
	b.ReportMetric(milliseconds(c.cpu), "ms-cpu")
	b.ReportMetric(float64(c.memory)/1024, "MiB")
}

// BenchmarkExample is a file of the size of the documented example.
func BenchmarkExample(b *testing.B) {
	path := filepath.Join(harness.Root(), "lib/advise/launcher/testdata/features.yaml")
	var took cost
	for range b.N {
		took = best(b, []string{"HOME=" + b.TempDir(), "PATH=/usr/bin:/bin"}, "-c", path, benchRequest)
	}
	report(b, took)
}

// BenchmarkFile reads and searches files of groups of ten hosts each; "growth" is
// the CPU time for each group, compared with that of the smallest file.
func BenchmarkFile(b *testing.B) {
	var perGroup float64
	for _, groups := range []int{1000, 2000, 4000, 8000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			env := describedCluster(b, b.TempDir(), groups)
			var took cost
			for range b.N {
				took = best(b, env, benchRequest)
			}
			report(b, took)
			growth(b, &perGroup, took, groups)
		})
	}
}

// BenchmarkSlurm asks Slurm (a scontrol that prints a file) each time; "cached" is
// the time of the next request, "x-scontrol" how many
// times as long it takes as the listing of nodes alone.
func BenchmarkSlurm(b *testing.B) {
	var perGroup float64
	for _, c := range []struct{ nodes, groups int }{{5000, 3281}, {10000, 1000}, {1000, 1000}, {2000, 2000}, {4000, 4000}, {8000, 8000}} {
		b.Run(fmt.Sprintf("nodes=%d/groups=%d", c.nodes, c.groups), func(b *testing.B) {
			env := askedCluster(b, b.TempDir(), c.nodes, c.groups)
			var took, again, explained cost
			for range b.N {
				took = best(b, env, "--refresh", benchRequest)
				again = best(b, env, benchRequest)
				explained = best(b, env, "explain", benchRequest)
			}
			report(b, took)
			b.ReportMetric(milliseconds(again.wall), "ms-cached")
			b.ReportMetric(milliseconds(explained.wall), "ms-explain")
			b.ReportMetric(float64(took.wall)/float64(bare(b, env)), "x-scontrol")
			if c.nodes == c.groups {
				growth(b, &perGroup, took, c.groups)
			}
		})
	}
}

// bare is the best time of the scontrol that lfind asks for the nodes.
func bare(b *testing.B, env []string) time.Duration {
	b.Helper()
	least := time.Hour
	for range 5 {
		p := exec.Command(filepath.Join(harness.Root(), "testscripts/lfind/fakes/scontrol"), "--all", "--oneliner", "--details", "show", "node")
		p.Env = env
		start := time.Now()
		if err := p.Run(); err != nil {
			b.Fatal(err)
		}
		least = min(least, time.Since(start))
	}
	return least
}

func growth(b *testing.B, first *float64, took cost, groups int) {
	b.Helper()
	each := float64(took.cpu) / float64(groups)
	if *first == 0 {
		*first = each
	}
	b.ReportMetric(each / *first, "growth")
}
