package jobpool

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool/machine"
)

// allocations are options of jobs of at most two nodes; the GPUs are those of their partition.
func allocations(r *rand.Rand) [][]string {
	var all [][]string
	for _, memory := range []func() string{
		func() string { return fmt.Sprint("--mem=", 100*(1+r.IntN(30))) },
		func() string { return fmt.Sprint("--mem-per-cpu=", 100*(1+r.IntN(9))) },
		func() string { return "--mem=0" },
		func() string { return "--exclusive" },
		func() string { return fmt.Sprintf("--mem-per-gpu=%d --gres=gpu:%d", 100*(1+r.IntN(20)), 1+r.IntN(4)) },
		func() string { return fmt.Sprintf("--mem=%d --gres=gpu:%d", 100*(1+r.IntN(20)), 1+r.IntN(4)) },
	} {
		for nodes := range 2 {
			words := fmt.Sprintf("--partition=gpu --nodes=%d --cpus-per-task=%d %s", nodes+1, 1+r.IntN(6), memory())
			all = append(all, strings.Fields(words))
		}
	}
	return all
}

// TestNodesHaveWhatTheJobHas compares what workers have with what Slurm says that their job has there, over
// srun and in pilots.
func TestNodesHaveWhatTheJobHas(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 3))
	for _, options := range allocations(random) {
		t.Run(strings.Join(options[1:], " "), func(t *testing.T) {
			const task = "until [ -e enough ]; do sleep 0.1; done"
			p := inSlurm(t, nil)
			var job string
			if random.IntN(2) == 0 {
				job = p.batch("jobpool --run run --min-nodes ${SLURM_JOB_NUM_NODES} '"+task+"; true' ::: 1\n", options...)
			} else {
				p = pilots(t, "--alloc-sbatch="+strings.Join(options, " "), "--max-jobs", "1", "--linger", "1s", "--min-nodes", "1")
				p.args = append(p.args[:len(p.args):len(p.args)], "--jobs", "100%")
				_, stdout, stderr := p.run(task + "\n")
				if job = strings.TrimSpace(stdout); job == "" {
					t.Fatal(stderr)
				}
			}
			t.Cleanup(func() { _ = p.quietly("scancel", job) })
			var details string
			placed := regexp.MustCompile(`Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)`)
			await(p, "the job runs", func() bool {
				details = p.quietly("scontrol", "show", "job", "-d", "-o", job)
				return strings.Contains(details, "JobState=RUNNING") && placed.MatchString(details)
			})
			want := map[string]string{}
			for _, m := range placed.FindAllStringSubmatch(details, -1) {
				hosts, err := hostlist.Expand(m[1])
				if err != nil {
					t.Fatal(err)
				}
				mib, _ := strconv.ParseInt(m[3], 10, 64)
				cpus := min(len(machine.ParseList(m[2])), len(machine.Affinity())) // a worker has no more than it sees
				text := fmt.Sprintf("%d CPU", cpus)
				if cpus > 1 {
					text += "s"
				}
				if count := regexp.MustCompile(`^gpu:[^:]*:(\d+)`).FindStringSubmatch(m[4]); count != nil {
					if text += ", " + count[1] + " GPU"; count[1] != "1" {
						text += "s"
					}
				}
				for _, host := range hosts {
					want[host] = text + ", " + unit.ShortSize(mib<<20)
				}
			}
			got := map[string]string{}
			await(p, "all nodes are reached", func() bool {
				if _, err := os.Stat(filepath.Join(p.dir, "run/journal.ndjson")); err != nil {
					return false
				}
				for _, r := range p.journal() {
					if r.Kind == "node" && r.What == "up" {
						host, _, _ := strings.Cut(r.Node, "@")
						got[host], _, _ = strings.Cut(r.Error, ", process")
					}
				}
				return len(got) == len(want)
			})
			p.touch("enough")
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("workers have %v; the job has %v", got, want)
			}
		})
	}
}
