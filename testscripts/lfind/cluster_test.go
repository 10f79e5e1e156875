package lfind

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// requests are those of which Slurm is asked whether it accepts what is found.
func requests() []string {
	var all []string
	for _, gpu := range []string{"", "cuda()", "cuda(mem=10G)", "cuda(mem=14G) * 2", "cuda(model=a100) * 4", "gpu(model=rtx2080)", "cuda() * 5", "cuda(mem=50G)"} {
		for _, cpu := range []string{"", "cpu(cores=4, mem=4G)", "cpu(cores=8, mem=12G)", "cpu(cores=9)"} {
			for _, rest := range []string{"", "duration=4h", "duration=4 days & nodes=2", "duration=8 days"} {
				var terms []string
				for _, term := range []string{gpu, cpu, rest} {
					if term != "" {
						terms = append(terms, term)
					}
				}
				if len(terms) > 0 {
					all = append(all, strings.Join(terms, " & "))
				}
			}
		}
	}
	return append(all, "partition=gpu_spot & cuda(mem=20G)", "qos=high & cpu()", "account=iea* & cuda() & duration=30h", "partition!=gpu & cuda(mem=11G)", "nodes=3 & cuda()",
		"feature=GPU2 & gpu()", "host!=gpu1 & cuda(mem=40G)", "qos=qos_gpu-t3 & duration=20h & cuda()", "qos=qos_gpu-t3 & duration=21h & cuda()")
}

// TestAnswersAreAccepted holds that Slurm accepts whatever is found, and that
// nothing is found only where Slurm has no place either: without a file, with what
// convert writes, and with Slurm asked for a launcher of a file.
func TestAnswersAreAccepted(t *testing.T) {
	for _, name := range []string{"alice", "carol"} {
		s := harness.As(t, name)
		converted, _, status := s.Run("lfind", "convert")
		if status != 0 {
			t.Fatalf("convert: status %d", status)
		}
		s.Write("converted.yaml", converted)
		s.Write("auto.yaml", "slurm:\n  - { id: auto, query_slurm: true, features_regex: ['GPU(?P<cuda_count>\\d+)$', 'GPUM(?P<cuda_memory>\\d+G)'] }\n")
		// The nodes of the tests have more memory than their GPUs are sold with.
		out, _, status := s.Run("lfind", "check", "converted.yaml")
		for line := range strings.Lines(out) {
			if !strings.HasSuffix(line, ": 11G of memory, but NVIDIA GeForce RTX 2080 has 8GiB at most\n") {
				t.Errorf("check of what convert wrote: %s", line)
			}
		}
		if status != 0 {
			t.Errorf("check of what convert wrote: status %d", status)
		}
		accepted, nothing := 0, 0
		known := map[string]string{} // what Slurm said to options before
		for _, spec := range requests() {
			answers := map[string]bool{}
			for _, file := range []string{"", "converted.yaml", "auto.yaml"} {
				args := []string{"lfind", "-f", "lines", spec}
				if file != "" {
					args = append(args, "-c", file)
				}
				out, errs, status := s.Run(args...)
				switch status {
				case 0:
					answers[file] = true
					if _, ok := known[out]; !ok {
						_, refusal, refused := s.Run(append(append([]string{"sbatch", "--test-only"}, strings.Fields(out)...), "--wrap", "true")...)
						known[out] = ""
						if refused != 0 {
							known[out] = refusal
						}
					}
					if known[out] != "" {
						t.Errorf("%s, %s with %q: Slurm refuses %s\n%s", name, spec, file, strings.ReplaceAll(out, "\n", " "), known[out])
					}
					accepted++
				case 1:
					nothing++
				default:
					t.Errorf("%s, %s with %q: status %d\n%s", name, spec, file, status, errs)
				}
			}
			// Conditions on QoS and accounts are about what a file does not say.
			if answers[""] != answers["auto.yaml"] || answers[""] != answers["converted.yaml"] && !strings.Contains(spec, "qos=") && !strings.Contains(spec, "account=") {
				t.Errorf("%s, %s: found without a file %v, with a converted one %v, with query_slurm %v", name, spec, answers[""], answers["converted.yaml"], answers["auto.yaml"])
			}
			if !answers[""] {
				refusedEverywhere(s, spec)
			}
		}
		t.Logf("%s: %d answers accepted (%d different), %d times nothing", name, accepted, len(known), nothing)
	}
}

// refusedEverywhere holds that Slurm has no partition for a request for which
// nothing was found, as far as Slurm itself knows what was asked for.
func refusedEverywhere(s *harness.Someone, spec string) {
	s.T.Helper()
	if strings.ContainsAny(strings.NewReplacer("mem=4G", "", "mem=12G", "", "duration=", "", "nodes=", "", "cores=", "").Replace(spec), "=") {
		return // models, GPU memory and names are not Slurm's to judge
	}
	args := []string{"sbatch", "--test-only", "--wrap", "true"}
	for term := range strings.SplitSeq(spec, " & ") {
		switch {
		case strings.HasPrefix(term, "cuda()"):
			n := "1"
			if _, count, ok := strings.Cut(term, "* "); ok {
				n = count
			}
			args = append(args, "--gpus-per-node="+n)
		case strings.HasPrefix(term, "cpu("):
			var cores, gigabytes int
			if _, err := fmt.Sscanf(term, "cpu(cores=%d, mem=%dG)", &cores, &gigabytes); err == nil {
				args = append(args, fmt.Sprintf("--mem=%dM", gigabytes*1e9>>20+1))
			} else {
				_, _ = fmt.Sscanf(term, "cpu(cores=%d)", &cores)
			}
			args = append(args, fmt.Sprintf("--cpus-per-task=%d", cores))
		case strings.HasPrefix(term, "nodes="):
			args = append(args, "--"+term)
		case term == "duration=4h":
			args = append(args, "--time=4:00:00")
		case term == "duration=4 days":
			args = append(args, "--time=4-0")
		case term == "duration=8 days":
			args = append(args, "--time=8-0")
		}
	}
	for _, p := range []string{"cpu", "gpu", "gpu_small", "gpu_csi_a", "gpu_spot"} {
		if _, _, status := s.Run(append(args, "--partition="+p)...); status == 0 {
			s.T.Errorf("%s: nothing found, but Slurm accepts %v in %s", spec, args[2:], p)
		}
	}
}

// TestJobsLand submits jobs with what is found, and looks where they run and with
// what.
func TestJobsLand(t *testing.T) {
	s := harness.As(t, "alice")
	s.Write("features.yaml", `
slurm:
  - id: manual
    features_regex: ['GPU(?P<cuda_count>\d+)$', 'GPUM(?P<cuda_memory>\d+G)']
    partitions:
      gpu_spot:
        nodes: [{ hosts: ['gpu[1-2]'], features: [GPU4, GPUM40G, a100] }, { hosts: [small1], features: [GPU2, GPUM11G] }]
`)
	const report = `echo "$SLURMD_NODENAME gpus=$(echo $CUDA_VISIBLE_DEVICES | tr , "\n" | grep -c .) cpus=$SLURM_CPUS_PER_TASK partition=$SLURM_JOB_PARTITION"`
	type job struct{ file, spec, want string }
	jobs := []job{
		{"", "cuda(mem=20G) * 2 & duration=10min", "gpu[12] gpus=2 cpus= partition=gpu"},
		{"", "cuda(model=rtx2080) & cpu(cores=2, mem=1G)", "small1 gpus=1 cpus=2 partition=gpu_small"},
		{"", "cpu(cores=3)", "cpu[12] gpus=0 cpus=3 partition=cpu"},
		{"features.yaml", "cuda(mem=12G)", "gpu[12] gpus=1 cpus= partition=gpu_spot"},
		{"features.yaml", "cuda(mem=8G) & feature!=a100", "small1 gpus=1 cpus= partition=gpu_spot"},
	}
	results := make(chan string, len(jobs))
	for _, j := range jobs {
		go func() {
			args := []string{"lfind", "run", "--attach"}
			if j.file != "" {
				args = append(args, "-c", j.file)
			}
			out, errs, status := s.Run(append(args, j.spec, "--", "sh", "-c", report)...)
			got := strings.TrimSpace(out)
			if matched, _ := filepath.Match(j.want, got); !matched || status != 0 {
				results <- fmt.Sprintf("%s with %q: %q, want %q, status %d\n%s", j.spec, j.file, got, j.want, status, errs)
				return
			}
			results <- ""
		}()
	}
	for range jobs {
		if problem := <-results; problem != "" {
			t.Error(problem)
		}
	}
}

// TestRunOnSlurm holds that output and exit status pass through.
func TestRunOnSlurm(t *testing.T) {
	s := harness.As(t, "alice")
	if out, errs, status := s.Run("lfind", "run", "-a", "cpu()", "--", "sh", "-c", "echo out; echo err >&2; exit 7"); out != "out\n" || !strings.Contains(errs, "err\n") || status != 7 {
		t.Errorf("--attach: %q, %q, status %d", out, errs, status)
	}
	if out, errs, status := s.Run("lfind", "run", "--set", "output=/dev/null", "cpu()", "--", "true"); status != 0 || !regexp.MustCompile(`^\d+\n$`).MatchString(out) || errs != "" {
		t.Errorf("submitted: %q, %q, status %d", out, errs, status)
	}
	c := s.Command("lfind", "run", "--attach", "cpu()", "--", "sh", "-c", "cat; exit 5")
	c.Stdin = strings.NewReader("hello\n")
	if out, err := c.Output(); string(out) != "hello\n" || c.ProcessState.ExitCode() != 5 {
		t.Errorf("--attach: %q, %v", out, err)
	}
	if out, errs, status := s.Run("lfind", "run", "--set", "partition=nowhere", "cpu()", "--", "true"); status != 3 || out != "" || !strings.Contains(errs, "lfind: sbatch --test-only --nodes=1 --partition=nowhere ") {
		t.Errorf("refused: %q, %q, status %d", out, errs, status)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	if !harness.Wait(is) {
		t.Fatalf("not within %v: %s", harness.Patience, what)
	}
}

// TestSoonestOnSlurm fills the better GPUs, so that the others are free sooner, and
// tries the environment that --format env sets.
func TestSoonestOnSlurm(t *testing.T) {
	s := harness.As(t, "alice")
	eventually(t, "the jobs of other tests are gone from small1", func() bool {
		out, errs, status := s.Run("squeue", "-h", "-w", "small1", "-o", "%i %T")
		state, _, _ := s.Run("sinfo", "-h", "-n", "small1", "-p", "gpu_small", "-o", "%T")
		return status == 0 && out+errs == "" && strings.TrimSpace(state) == "idle"
	})
	out, errs, status := s.Run("sbatch", "--parsable", "--partition=gpu", "--nodes=2", "--gpus-per-node=4", "--time=60", "--wrap", "sleep 300")
	if status != 0 {
		t.Fatal(errs)
	}
	id := strings.TrimSpace(out)
	defer s.Run("scancel", id)
	eventually(t, "the job runs", func() bool {
		out, _, _ := s.Run("squeue", "-h", "-j", id, "-o", "%T")
		return strings.TrimSpace(out) == "RUNNING"
	})
	out, errs, status = s.Run("lfind", "--soonest", "cuda() & duration=10min & partition!=gpu_spot")
	if status != 0 || !strings.Contains(out, "--partition=gpu_small ") || !strings.HasPrefix(errs, "lfind: would start now on small1 in partition gpu_small") {
		t.Errorf("%q, %q, status %d", out, errs, status)
	}
	out, errs, status = s.Run("lfind", "--soonest", "cuda(mem=20G) & duration=10min & partition!=gpu_spot")
	if status != 0 || !strings.Contains(out, "--partition=gpu ") || !strings.HasPrefix(errs, "lfind: would start in ") {
		t.Errorf("%q, %q, status %d", out, errs, status)
	}
	out, errs, status = s.Run("lfind", "--soonest", "--json", "cuda(mem=20G) & duration=10min & partition!=gpu_spot")
	if status != 0 || !regexp.MustCompile(`"start_by": "(limits|learned)"`).MatchString(out) {
		t.Errorf("%q, %q, status %d", out, errs, status)
	}
	out, errs, status = s.Run("sh", "-c", `eval "$(lfind -f env 'cuda(model=rtx2080) & cpu(cores=2, mem=1G) & duration=30min')"; sbatch --parsable $LFIND_ARGS --begin=now+1hour --wrap true`)
	if status != 0 {
		t.Fatal(errs)
	}
	defer s.Run("scancel", strings.TrimSpace(out))
	job, _, _ := s.Run("scontrol", "-o", "show", "job", strings.TrimSpace(out))
	for _, want := range []string{"Partition=gpu_small", "TimeLimit=00:30:00", "NumCPUs=2", "MinMemoryNode=954M", "TresPerNode=(gres[:/])?gpu:1"} {
		if !regexp.MustCompile(`\b` + want + `\b`).MatchString(job) {
			t.Errorf("%s is not in %s", want, job)
		}
	}
}

// TestSoonestOfClosedPartition closes a partition that was open when Slurm was last asked. While it is DOWN,
// sbatch --test-only would start the job there at once.
func TestSoonestOfClosedPartition(t *testing.T) {
	const request = "gpu(model=rtx2080) & duration=10min"
	for _, state := range []string{"DOWN", "INACTIVE"} {
		s, root := harness.As(t, "alice"), harness.As(t, "root")
		out, errs, status := s.Run("lfind", request)
		if status != 0 || !strings.Contains(out, "--partition=gpu_small ") {
			t.Fatalf("%q, %q, status %d", out, errs, status)
		}
		defer root.Run("scontrol", "update", "PartitionName=gpu_small", "State=UP")
		if _, errs, status := root.Run("scontrol", "update", "PartitionName=gpu_small", "State="+state); status != 0 {
			t.Fatal(errs)
		}
		out, errs, status = s.Run("lfind", "--soonest", request)
		if status != 0 || !strings.Contains(out, "--partition=gpu_spot ") {
			t.Errorf("%s: %q, %q, status %d", state, out, errs, status)
		}
		out, errs, status = s.Run("lfind", "--soonest", request+" & partition=gpu_small")
		if status != 1 || out != "" || !strings.Contains(errs, "nothing matches") {
			t.Errorf("%s: %q, %q, status %d", state, out, errs, status)
		}
		if _, errs, status := root.Run("scontrol", "update", "PartitionName=gpu_small", "State=UP"); status != 0 {
			t.Fatal(errs)
		}
	}
}

// TestLearnOnSlurm takes time and memory from runs of the same name.
func TestLearnOnSlurm(t *testing.T) {
	s := harness.As(t, "alice")
	for i := range 3 {
		if _, errs, status := s.Run("sbatch", fmt.Sprintf("--job-name=teach-%d", i), "--partition=cpu", "--mem=500", "--time=600", "--output=/dev/null", "--wrap", "sleep 3"); status != 0 {
			t.Fatal(errs)
		}
	}
	var out, errs string
	eventually(t, "accounting knows the runs", func() bool {
		var status int
		out, errs, status = s.Run("lfind", "--learn", "teach", "cpu(cores=2) & partition=cpu")
		return status == 0 && strings.Contains(errs, "learned from 3 runs of \"teach\": duration=5min, mem=100MiB")
	})
	if !strings.Contains(out, "--time=00:05:00 ") || !strings.Contains(out, "--mem=100M ") || !strings.Contains(out, "--cpus-per-task=2") {
		t.Errorf("%q, %q", out, errs)
	}
	// What the request says stands, and without a request all is learned.
	out, _, _ = s.Run("lfind", "--learn", "teach-9", "duration=2h & cpu(mem=1G) & partition=cpu")
	if !strings.Contains(out, "--time=02:00:00 ") || !strings.Contains(out, "--mem=954M") {
		t.Errorf("%q", out)
	}
	if out, _, status := s.Run("lfind", "--learn", "teach", "--risk=20%"); status != 0 || !strings.Contains(out, "--time=00:05:00 ") {
		t.Errorf("%q, status %d", out, status)
	}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--learn", "nobody", "cpu()"}, 1, `no job of yours named "nobody" has ended`},
		{[]string{"--learn", "teach", "--risk=0", "cpu()"}, 2, "--risk: invalid risk"},
		{[]string{"--risk=3%", "cpu()"}, 2, "--risk requires --learn"},
	} {
		if _, errs, status := s.Run(append([]string{"lfind"}, c.args...)...); status != c.status || !strings.Contains(errs, c.says) {
			t.Errorf("%q: %q, status %d", c.args, errs, status)
		}
	}
}

// TestReservedForOthers asks for two nodes of which one is reserved: sbatch takes the
// job, though --test-only says that it can never be.
func TestReservedForOthers(t *testing.T) {
	root, s := harness.As(t, "root"), harness.As(t, "alice")
	if _, errs, status := root.Run("scontrol", "create", "reservation", "reservationname=lfind", "starttime=now", "duration=5:00:00", "nodes=cpu1", "flags=ignore_jobs", "users=carol"); status != 0 {
		t.Fatal(errs)
	}
	defer root.Run("scontrol", "delete", "reservationname=lfind")
	out, errs, status := s.Run("lfind", "--refresh", "cpu(cores=2) & nodes=2 & partition=cpu & duration=1h")
	if status != 0 || !strings.Contains(out, "--nodes=2 ") {
		t.Fatalf("%q, %q, status %d", out, errs, status)
	}
	if !regexp.MustCompile(`^lfind: note: nodes of partition cpu are reserved \(lfind\) until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d: the job may wait for them\n$`).MatchString(errs) {
		t.Errorf("%q", errs)
	}
	id, errs, status := s.Run("sh", "-c", "sbatch --parsable "+strings.TrimSpace(out)+" --wrap true")
	if status != 0 {
		t.Fatal(errs)
	}
	s.Run("scancel", strings.TrimSpace(id))
}

// TestProbe holds that a job of a minute finds out what the nodes of a kind have.
func TestProbe(t *testing.T) {
	root, s := harness.As(t, "root"), harness.As(t, "alice")
	features := root.Must("scontrol", "--oneliner", "show", "node", "gpu1")
	_, features, _ = strings.Cut(features, "AvailableFeatures=")
	features, _, _ = strings.Cut(features, " ")
	set := func(to string) {
		root.Must("scontrol", "update", "nodename=gpu[1-2]", "availablefeatures="+to, "activefeatures="+to)
	}
	set("plain") // which of the two A100 is not told
	defer set(features)
	s.Write("nvidia-smi", "#!/bin/sh\n[ \"$1\" = -L ] || echo 'NVIDIA A100-SXM4-80GB, 81920, Disabled, 8.0'\n")
	executable.Settle()
	if err := os.Chmod(filepath.Join(s.Dir, "nvidia-smi"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.Env = append(s.Env, "PATH="+s.Dir+":"+os.Getenv("PATH"))
	if _, errs, status := s.Run("lfind", "cuda(mem=60G)"); status != 1 || !strings.Contains(errs, `"lfind probe" lists them`) {
		t.Fatalf("status %d, %s", status, errs)
	}
	out := s.Must("lfind", "probe", "--submit", "--json")
	var rows []struct{ Nodes, Job string }
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 1 || rows[0].Nodes != "gpu[1-2]" || rows[0].Job == "" {
		t.Fatalf("%v, %s", err, out)
	}
	for deadline := time.Now().Add(harness.Patience); ; time.Sleep(200 * time.Millisecond) {
		found, _, status := s.Run("lfind", "cuda(mem=60G)")
		if status == 0 && strings.Contains(found, "--partition=gpu") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("status %d, %s\n%s", status, found, root.Must("scontrol", "show", "job", rows[0].Job))
		}
	}
	if out := s.Must("lfind", "explain", "cuda(mem=60G)"); !strings.Contains(out, "by the probe of gpu") {
		t.Error(out)
	}
	if out := s.Must("lfind", "probe"); strings.Contains(out, "gpu1") {
		t.Error(out)
	}
}

// TestClusters holds that clusters are searched by name, and that Slurm takes the answer.
func TestClusters(t *testing.T) {
	s := harness.As(t, "alice")
	here := s.Must("lfind", "cuda(mem=20G) & duration=10min")
	out := strings.TrimSpace(s.Must("lfind", "-M", "testbed", "cuda(mem=20G) & duration=10min"))
	if !strings.HasSuffix(out, " --clusters=testbed") || !strings.Contains(out, "--account=") || strings.Contains(here, "--clusters") {
		t.Errorf("%s, and %s", out, here)
	}
	s.Must(append(append([]string{"sbatch", "--test-only"}, strings.Fields(out)...), "--wrap=true")...)
	if again := s.Must("lfind", "cuda(mem=20G) & duration=10min"); again != here { // each has its own cache
		t.Errorf("%s, and %s", again, here)
	}
	out, errs, status := s.Run("lfind", "-M", "testbed,elsewhere", "cuda(mem=900G)")
	if out != "" || status != 3 || !strings.Contains(errs, "elsewhere") || !strings.Contains(errs, `hint: "sacctmgr show clusters" lists`) {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	// One that cannot be asked is passed over.
	other, errs, status := s.Run("lfind", "-M", "elsewhere,testbed", "cuda(mem=20G) & duration=10min")
	if strings.TrimSpace(other) != strings.TrimSpace(s.Must("lfind", "-M", "testbed", "cuda(mem=20G) & duration=10min")) || status != 0 ||
		!strings.Contains(errs, "note: cluster elsewhere could not be asked: ") {
		t.Errorf("status %d, %s%s", status, other, errs)
	}
}
