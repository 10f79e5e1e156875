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
}
