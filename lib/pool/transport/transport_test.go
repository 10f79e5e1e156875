package transport

import (
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/command"
)

func TestCPUsPerNode(t *testing.T) {
	for s, want := range map[string][]int{"": nil, "4": {4}, "72(x2),36": {72, 72, 36}} {
		if got, err := CPUsPerNode(s); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"x", "4(x", "4(x2", "0", "4(x99999999)", ","} {
		if got, err := CPUsPerNode(s); err == nil && s != "4(x2" {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func FuzzCPUsPerNode(f *testing.F) {
	f.Add("72(x2),36")
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := CPUsPerNode(s); err == nil && slices.ContainsFunc(got, func(n int) bool { return n < 1 }) {
			t.Errorf("%q: %v", s, got)
		}
	})
}

func TestArguments(t *testing.T) {
	got := strings.Join(Srun([]string{"-v"}, "n1", 4, 1, false, "run"), " ")
	for _, want := range []string{"--overlap", "--unbuffered", "--nodelist=n1", "--cpus-per-task=4", "--het-group=1", "-v /bin/sh -c run"} {
		if !strings.Contains(got, want) {
			t.Errorf("srun %s: no %s", got, want)
		}
	}
	if got := strings.Join(Srun(nil, "n1", 0, -1, false, "run"), " "); strings.Contains(got, "het-group") || strings.Contains(got, "cpus-per-task") {
		t.Errorf("srun %s", got)
	}
	got = strings.Join(Srun(nil, "n1", 4, -1, true, "run"), " ")
	if !strings.Contains(got, "--external-launcher") || strings.Contains(got, "overlap") || strings.Contains(got, "cpu") || strings.Contains(got, "mem") {
		t.Errorf("srun %s", got)
	}
	for version, want := range map[string]bool{"20.11.9": false, "23.02.7": false, "23.11.0-0rc1": true, "24.05.3": true, "26.05": true, "": false, "x": false} {
		if HasExternalLauncher(version) != want {
			t.Errorf("version %q: %v", version, !want)
		}
	}
	got = strings.Join(SSH([]string{"-p", "22"}, "-n1", "run"), " ")
	if !strings.HasSuffix(got, "-p 22 -- -n1 run") {
		t.Errorf("ssh %s", got)
	}
}

func TestEnvironments(t *testing.T) {
	env := []string{"A=1", "SLURM_JOB_ID=7", "SLURM_CPU_BIND=x", "SLURM_MEM_PER_CPU=5", "HOME=/h", "SSH_TTY=/dev/x", "PATH=/bin"}
	if got := SrunEnv(env); !slices.Equal(got, []string{"A=1", "SLURM_JOB_ID=7", "HOME=/h", "SSH_TTY=/dev/x", "PATH=/bin"}) {
		t.Errorf("srun: %q", got)
	}
	if got := RemoteEnv(env); !slices.Equal(got, []string{"A=1", "SLURM_JOB_ID=7", "SLURM_CPU_BIND=x", "SLURM_MEM_PER_CPU=5", "PATH=/bin"}) {
		t.Errorf("ssh: %q", got)
	}
}

func TestVia(t *testing.T) {
	got, err := command.System.Run(t.Context(), command.Cmd{Name: "sh", Args: []string{"-c", Via("printf '%s|' {host} {worker}", "a b", "it's")}})
	if err != nil || string(got.Stdout) != "a b|/bin/sh|-c|it's|" {
		t.Errorf("%q, %v", got.Stdout, err)
	}
	if got := Via("x {host}", "n", "w"); got != "x n /bin/sh -c w" {
		t.Errorf("%q", got)
	}
}
