package jobpool

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

// withSlurm gives a test an empty directory, the Slurm of the tests and a stand-in lfind, which records
// its arguments in "asked-lfind". With --soonest it answers with the file "soonest", or fails.
func withSlurm(t *testing.T) {
	t.Helper()
	fakes, err := filepath.Abs("../../../testscripts/fakeslurm")
	if err != nil {
		t.Fatal(err)
	}
	alone(t)
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("bin", 0o700); err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(dir, "bin", "lfind"), `#!/bin/sh
cd "`+dir+`" || exit
echo "$*" >>asked-lfind
case $* in
*--soonest*)
	[ -e soonest ] && exec cat soonest
	echo "lfind: sbatch --test-only: Access denied" >&2
	exit 3
	;;
*) printf '%s\0' --partition=cpu --time=60 ;;
esac
`)
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+fakes+":"+os.Getenv("PATH"))
	t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
}

// Of several matches, jobs get the one that starts first; without a plan, the first one.
func TestAllocTakesTheSoonest(t *testing.T) {
	soonest := `{"hostname":"","args":["--partition=gpu","--time=30"],"start":"2026-11-25T12:00:00Z","wait_seconds":%,"start_by":"limits"}`
	for name, tt := range map[string]struct {
		soonest string // answer of lfind --soonest; empty: it fails
		options string // of sbatch
		says    string
		asked   int
	}{
		"now":     {strings.Replace(soonest, "%", "0", 1), "--partition=gpu --time=30", "jobpool: a job with --partition=gpu --time=30 is expected to start now, if jobs run to their time limits\n", 1},
		"later":   {strings.Replace(soonest, "%", "300", 1), "--partition=gpu --time=30", "is expected to start in 5min, at 2026-11-25T", 1},
		"no plan": {"", "--partition=cpu --time=60", "jobpool: when a job with --partition=cpu --time=60 starts is not known: sbatch --test-only: Access denied\n", 2},
		"elsewhere": {
			`{"hostname":"far","args":["--partition=x"],"start":"2026-11-25T12:00:00Z","wait_seconds":0,"start_by":"limits"}`,
			"--partition=cpu --time=60", " starts is not known: the first to start is on far\n", 2,
		},
		"an older lfind": {"--partition=cpu", "--partition=cpu --time=60", " starts is not known: lfind --json: ", 2},
	} {
		t.Run(name, func(t *testing.T) {
			withSlurm(t)
			if tt.soonest != "" {
				if err := os.WriteFile("soonest", []byte(tt.soonest), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, stdout, stderr := runTool(t, "true\n", "--alloc", "cpu(cores=1) | cuda()", "--run", "run")
			if code != 0 || stdout != "101\n" || !strings.Contains(stderr, tt.says) || strings.Count(stderr, "a job with") != 1 {
				t.Errorf("status %d, %q, %q", code, stdout, stderr)
			}
			asked, _ := os.ReadFile("asked-lfind")
			want := "--soonest --kind slurm --json -- cpu(cores=1) | cuda()\n--format args0 -- cpu(cores=1) | cuda()\n"
			if lines := strings.Count(string(asked), "\n"); lines != tt.asked || !strings.HasPrefix(want, string(asked)) {
				t.Errorf("lfind was called with %q", asked)
			}
			if slurm, _ := os.ReadFile("asked"); !strings.Contains(string(slurm), "\nsbatch --parsable "+tt.options+" ") {
				t.Errorf("Slurm was called with %s", slurm)
			}
		})
	}
}

func TestAllocWithoutLfind(t *testing.T) {
	alone(t)
	t.Setenv("PATH", t.TempDir())
	code, _, stderr := runTool(t, "true\n", "--alloc", "cpu(cores=1)", "--run", "run")
	if code != 3 || !strings.Contains(stderr, "jobpool: --alloc: lfind: ") || !strings.Contains(stderr, "jobpool: hint: install lfind beside jobpool") {
		t.Errorf("status %d, %q", code, stderr)
	}
}

func TestSizeOf(t *testing.T) {
	for _, c := range []struct {
		options string
		jobs    slots
		want    pool.Need
	}{
		{"--partition=cpu --time=60", slots{}, pool.Need{}},
		{"--nodes=1 --ntasks=1 --cpus-per-task=16 --gres=gpu:a100:2 --mem=4G", slots{}, pool.Need{CPUs: 16, GPUs: 2}},
		{"-c 4 -n2", slots{}, pool.Need{CPUs: 8}},
		{"-c 4 --gres=gpu:a100", slots{}, pool.Need{CPUs: 4, GPUs: 1}},
		{"--gres=gpu:h100,shard:3", slots{}, pool.Need{GPUs: 1}},
		{"--gpus=a100:2,h100:1 -c4", slots{}, pool.Need{CPUs: 4, GPUs: 3}},
		{"--gpus=2 --cpus-per-gpu=4", slots{}, pool.Need{CPUs: 8, GPUs: 2}},
		{"-n 16 -t 5", slots{}, pool.Need{CPUs: 16}},
		{"--nodes=2-4 --ntasks-per-node=2 --cpus-per-task=3 --gpus-per-node=1", slots{}, pool.Need{CPUs: 24, GPUs: 4}},
		{"--exclusive -n1 -G 4 --gres=tmpdisk:5", slots{}, pool.Need{GPUs: 4}},
		{"--cpus-per-task=2", slots{fixed: 8}, pool.Need{CPUs: 8}},
		{"--cpus-per-task=8", slots{of: func(n int) int { return n / 2 }}, pool.Need{CPUs: 4}},
	} {
		options, err := sbatchOptions([]string{c.options})
		if got := sizeOf(options, c.jobs); err != nil || got != c.want {
			t.Errorf("%s: %v, %v; want %v", c.options, got, err, c.want)
		}
	}
}

// The first call submits as many jobs as the tasks that can start fill.
func TestFirstJobs(t *testing.T) {
	after := `{"id":"first","cmd":"true"}` + "\n" + strings.Repeat(`{"cmd":"true","after":["first"]}`+"\n", 1000)
	for _, c := range []struct {
		args  string
		tasks string
		want  int
	}{
		{"--alloc-sbatch=--cpus-per-task=16", strings.Repeat("true\n", 20), 2},
		{"--alloc-sbatch=--cpus-per-task=16 --cpus=4", strings.Repeat("true\n", 20), 5},
		{"--alloc-sbatch=--cpus-per-task=16 --gpus=1", strings.Repeat("true\n", 8), 8},
		{"--alloc-sbatch=--cpus-per-task=16", "#JOBPOOL cpus=16\n" + strings.Repeat("true\n", 8), 8},
		{"--alloc-sbatch=--cpus-per-task=16 --jsonl", after, 1},
		{"--alloc-sbatch=--gres=gpu:a100 --alloc-sbatch=--cpus-per-task=16 --gpus=1", strings.Repeat("true\n", 12), 10},
		{"--alloc-sbatch=--partition=cpu", strings.Repeat("true\n", 20), 10},
	} {
		withSlurm(t)
		code, stdout, stderr := runTool(t, c.tasks, append(strings.Fields(c.args), "--max-jobs", "10", "--run", "run")...)
		if n := len(strings.Fields(stdout)); code != 0 || n != c.want {
			t.Errorf("%s: status %d, %d jobs, want %d: %s", c.args, code, n, c.want, stderr)
		}
	}
}

// A plan is used again for a moment, while its partition is up.
func TestPlanIsKept(t *testing.T) {
	withSlurm(t)
	plan := func(partition string) string {
		return `{"hostname":"","args":["--partition=` + partition + `","--time=30"],"start":"2026-11-25T12:00:00Z","wait_seconds":0,"start_by":"limits"}`
	}
	const request = "cpu(cores=1)"
	for i, tt := range []struct {
		name  string
		kept  *kept // put in the place of the one that there is
		asked int   // how often lfind was asked, from the first call on
	}{
		{"the first", nil, 1},
		{"a moment later", nil, 1},
		{"later", &kept{clock.Now().Add(-planAge), &earliest{Args: []string{"--partition=cpu"}, By: "limits"}}, 2},
		{"of a partition that is away", &kept{clock.Now(), &earliest{Args: []string{"--partition=none"}, By: "limits"}}, 3},
	} {
		if err := os.WriteFile("soonest", []byte(plan("cpu")), 0o600); err != nil {
			t.Fatal(err)
		}
		if tt.kept != nil {
			b, err := json.Marshal(tt.kept)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(planFile(request), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, _, stderr := runTool(t, "true\n", "--alloc", request, "--run", fmt.Sprint("run", i))
		asked, _ := os.ReadFile("asked-lfind")
		if n := strings.Count(string(asked), "\n"); code != 0 || n != tt.asked || strings.Contains(stderr, "as planned at") != (i == 1) {
			t.Errorf("%s: status %d, lfind was asked %d times: %s", tt.name, code, n, stderr)
		}
	}
}
