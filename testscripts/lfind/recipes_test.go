package lfind

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestRecipes runs the examples of other programs with the real ones on the cluster.
func TestRecipes(t *testing.T) {
	s := harness.As(t, "root") // whose cache the packages are in
	bin := filepath.Join(harness.Venv(t, harness.Packages{Name: "lfind", File: "testscripts/lfind/recipes/requirements.txt"}), "bin")
	for i, v := range s.Env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			s.Env[i] = "PATH=" + s.Dir + string(os.PathListSeparator) + bin + string(os.PathListSeparator) + path
		}
		// In a job Snakemake takes Slurm's variables away, and the cluster of the tests is not in /etc.
		if conf, ok := strings.CutPrefix(v, "SLURM_CONF="); ok {
			s.Write("srun", "#!/bin/sh\nSLURM_CONF="+conf+" exec /usr/bin/srun \"$@\"\n")
		}
	}
	executable.Settle()
	if err := os.Chmod(filepath.Join(s.Dir, "srun"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"submitit/train.py", "snakemake/Snakefile"} {
		text, err := os.ReadFile(filepath.Join(harness.Root(), "examples", name))
		if err != nil {
			t.Fatal(err)
		}
		s.Write(filepath.Base(name), string(text))
	}
	if out, errs, status := s.Run(filepath.Join(bin, "python3"), "train.py", "cuda(mem=14G) & duration=10min"); out != "trained with 0.1\n" || status != 0 {
		t.Errorf("submitit: %q, %s, status %d", out, errs, status)
	}
	_, errs, status := s.Run(filepath.Join(bin, "snakemake"), "--executor", "slurm", "--jobs", "2", "--seconds-between-status-checks", "1", "--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "60", "--slurm-keep-successful-logs")
	made, err := os.ReadFile(filepath.Join(s.Dir, "model.txt"))
	if status != 0 || err != nil || string(made) != "trained on gpu with 1 GPU\n" {
		logs, _ := filepath.Glob(filepath.Join(s.Dir, ".snakemake/slurm_logs/*/*.log"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			errs += string(text)
		}
		t.Errorf("snakemake: %q, %v, status %d: %s", made, err, status, errs)
	}
	// The file of partitions, as its own reader reads it: the job goes where it can.
	s.Write("partitions.yaml", s.Must("lfind", "convert", "--to", "snakemake"))
	s.Write("Snakefile", "rule train:\n    output: 'second.txt'\n    resources: gpu=3, runtime=10, mem_mb=1000\n    shell: 'echo trained on $SLURM_JOB_PARTITION > {output}'\n")
	_, errs, status = s.Run(filepath.Join(bin, "snakemake"), "--executor", "slurm", "--jobs", "1", "--seconds-between-status-checks", "1", "--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "60", "--slurm-partition-config", "partitions.yaml")
	made, err = os.ReadFile(filepath.Join(s.Dir, "second.txt"))
	if status != 0 || err != nil || !strings.HasPrefix(string(made), "trained on gpu") {
		t.Errorf("snakemake with partitions: %q, %v, status %d: %s", made, err, status, errs)
	}
}

// TestExperimaestro has the newest experimaestro find launchers by the example, and the cluster take what is found.
func TestExperimaestro(t *testing.T) {
	s := harness.As(t, "root") // whose cache the packages are in
	bin := filepath.Join(harness.Venv(t, harness.Packages{Name: "experimaestro", List: []string{"experimaestro"}, Newest: true}), "bin")
	example, err := os.ReadFile(filepath.Join(harness.Root(), "examples/experimaestro/launchers.py"))
	if err != nil {
		t.Fatal(err)
	}
	s.Must("mkdir", "-p", ".config/experimaestro")
	s.Write(".config/experimaestro/launchers.py", string(example))
	s.Write("find.py", `
import sys
from experimaestro.launcherfinder import find_launcher
from experimaestro.launcherfinder.registry import LauncherNotFoundError
for spec in sys.argv[1:]:
    try:
        print(" ".join(find_launcher(spec).options.args()))
    except LauncherNotFoundError:
        print("none")
`)
	out, errs, status := s.Run(filepath.Join(bin, "python3"), "find.py",
		"duration=10 min & cuda(mem=20G) * 2 & cpu(mem=4G, cores=3)", "duration=1h & cpu(cores=2)", "cuda(mem=20G) * 99 | gpu(mem=8G)", "cuda(mem=900G)")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if status != 0 || len(lines) != 4 {
		t.Fatalf("status %d, %q\n%s", status, out, errs)
	}
	for i, want := range []string{"--partition=gpu ", "--partition=cpu ", "--partition=gpu_small,gpu ", "none"} {
		if !strings.Contains(lines[i]+" ", want) {
			t.Errorf("%d: %s", i, lines[i])
		}
		if i < 3 {
			s.Must(append(append([]string{"sbatch", "--test-only"}, strings.Fields(lines[i])...), "--wrap=true")...)
		}
	}
	if !strings.Contains(lines[0], "--gpus-per-node=2") || !strings.Contains(lines[0], "--time=00:10:00") || !strings.Contains(lines[0], "--cpus-per-task=3") {
		t.Error(lines[0])
	}
}
