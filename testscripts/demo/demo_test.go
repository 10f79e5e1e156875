// Package demo runs what "make demo" runs: in a fresh home directory, and on the real Slurm.
package demo

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, nil, "ponos", "ponos-run", "ponos-log", "ponos-retry", "ponos-list", "ponos-cancel")
}

// demo runs the demo and returns what it prints.
func demo(t *testing.T, env []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(harness.Root(), "testscripts/demo/run"), args...)
	cmd.Dir = t.TempDir()
	cmd.Env = slices.Concat(harness.Clock(), []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(), "USER=" + harness.User(), "LOGNAME=" + harness.User()}, env)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it cleans up
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	inOrder(t, string(out), steps)
	for _, v := range cmd.Env {
		if dir, ok := strings.CutPrefix(v, "TMPDIR="); ok {
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("it leaves %v in its temporary directory, %v", left, err)
			}
		}
	}
	return string(out)
}

// steps are lines for each step of the demo, each of which it does when the one before is done.
var steps = []string{
	`Everything is in `, `\n\$ ponos run --group squares ::: n=3 n=7 n=12 -- \./square \{n\}\n`, `: 3 tasks: 2 completed, 1 failed, in `,
	`1 failed: exit code 3 \(n-12\): square: 12 has too many digits\n`, `hint: to run what failed again, .*: ponos-retry --group squares && ponos run --group squares\n`,
	`\n\$ ponos-log n-12\n`, `\nsquare: 12 has too many digits\n`, `task failed: exit code 3\n`,
	`\n\$ ponos-retry --group squares\n`, `\n\$ ponos run --group squares\n`, `: 3 tasks: 3 completed, in `,
	`\nname\tgroup\tstate\tattempt\tn\n`, `n-12\tsquares\tcompleted\t2\t12\n`, `\n== All three have ended as expected\.\n`,
}

// inOrder fails unless a text has something for each pattern, behind that for the pattern before it.
func inOrder(t *testing.T, text string, patterns []string) {
	t.Helper()
	rest := text
	for _, pattern := range patterns {
		at := regexp.MustCompile(pattern).FindStringIndex(rest)
		if at == nil {
			t.Errorf("it does not print %q, or not in this order:\n%s", pattern, text)
			return
		}
		rest = rest[at[1]-1:] // a newline may be the end of this one and the begin of the next
	}
}

// TestDemo runs it as on a machine that has only Go and make: without git and Python.
func TestDemo(t *testing.T) {
	bin := t.TempDir()
	programs, err := os.ReadDir("/usr/bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if strings.HasPrefix(p.Name(), "git") || strings.HasPrefix(p.Name(), "python") {
			continue
		}
		if err := os.Symlink(filepath.Join("/usr/bin", p.Name()), filepath.Join(bin, p.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if out := demo(t, []string{"PATH=" + harness.Bin + ":" + bin}); !strings.Contains(out, " started as local job ") {
		t.Errorf("it did not run here:\n%s", out)
	}
}

func TestDemoOnSlurm(t *testing.T) {
	var env []string
	for name, value := range harness.Cluster(t) {
		env = append(env, name+"="+os.Expand(value, os.Getenv))
	}
	out := demo(t, env, "--slurm")
	if !strings.Contains(out, " started as slurm job ") {
		t.Errorf("it did not run on Slurm:\n%s", out)
	}
}

func TestDemoRefusesOtherArguments(t *testing.T) {
	cmd := exec.Command(filepath.Join(harness.Root(), "testscripts/demo/run"), "--vast")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.HasPrefix(string(out), "usage: run") {
		t.Errorf("%v\n%s", err, out)
	}
}
