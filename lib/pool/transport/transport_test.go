package transport

import (
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/pool/wire"
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

func TestTo(t *testing.T) {
	env := []string{"A=1", "SLURM_JOB_ID=7", "SLURM_HOSTFILE=/x", "SLURM_NNODES=2", "SLURM_DISTRIBUTION=arbitrary"}
	for _, tt := range []struct {
		reach wire.Reach
		part  wire.Node
		want  string
	}{
		{
			wire.Reach{Kind: "srun"}, wire.Node{Host: "n2", Most: 4, Group: -1},
			"srun --unbuffered --nodes=1 --ntasks=1 --nodelist=n2 --kill-on-bad-exit=0 --wait=0 --export=ALL --job-name=jobpool --overlap --cpu-bind=none --mem=0 --cpus-per-task=4 /bin/sh -c echo 'a b' | A=1 SLURM_JOB_ID=7",
		},
		{
			wire.Reach{Kind: "srun", External: true, Options: []wire.Text{"--quiet"}}, wire.Node{Host: "n2", Group: 1},
			"srun --unbuffered --nodes=1 --ntasks=1 --nodelist=n2 --kill-on-bad-exit=0 --wait=0 --export=ALL --job-name=jobpool --external-launcher --het-group=1 --quiet /bin/sh -c echo 'a b' | A=1 SLURM_JOB_ID=7",
		},
		{
			wire.Reach{Kind: "srun"}, wire.Node{Host: "n2", Job: "9", Pilot: true},
			"srun --jobid=9 --unbuffered --overlap --nodes=1 --ntasks=1 --nodelist=n2 --cpus-per-task=1 --cpu-bind=none --mem=0 --kill-on-bad-exit=0 --wait=0 --export=ALL --job-name=jobpool /bin/sh -c echo 'a b' | A=1",
		},
		{wire.Reach{Kind: "cmd", Command: "x {host} {worker}"}, wire.Node{Host: "n2"}, `/bin/sh -c x n2 /bin/sh -c 'echo '\''a b'\''' | ` + strings.Join(env, " ")},
	} {
		name, args, to := To(tt.reach, tt.part, env, "echo 'a b'")
		if got := name + " " + strings.Join(args, " ") + " | " + strings.Join(to, " "); got != tt.want {
			t.Errorf("%v:\n got %s\nwant %s", tt.reach, got, tt.want)
		}
	}
	if name, args, _ := To(wire.Reach{Kind: "ssh"}, wire.Node{Host: "n2"}, env, "echo 'a b'"); name != "ssh" || args[len(args)-2] != "n2" || args[len(args)-1] != `exec /bin/sh -c 'echo '\''a b'\'''` {
		t.Errorf("%s %q", name, args)
	}
}
