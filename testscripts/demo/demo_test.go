// Package demo runs what "make demo" runs: in a fresh home directory, with a Python
// that has no pip, and on the real Slurm.
package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, nil, "ponos-setup", "ponos-poll", "ponos-stop", "ponos-start", "ponos-submit", "ponos-list", "ponos-cancel")
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
	`Three tasks go through a queue in `, `\n== ponos-setup: check `, `(?m)^queue +ok `,
	`\n== ponos-submit: three tasks`, `(?m)^\S+ +write +pending `, `\n== the agent: ponos-poll `, `\ntask write has ended\n`, `\ntask add has ended\n`,
	`\n== the agent is stopped; ponos-list`, ` fail   failed .*exit code 3\n`, ` add    completed `, ` write  completed `,
	`\n== log of write\n`, `wrote numbers.txt\n`, `\n== log of add\n`, `the total is 55\n`, `\n== log of fail\n`, `this task fails on purpose\n`,
	`task failed: exit code 3\n`, `\n== all three ended as expected\n`,
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
	if strings.Count(text, "\ntask fail has ended\n") != 1 {
		t.Errorf("it does not print once that task fail has ended:\n%s", text)
	}
}

// TestDemo runs it as on Debian without python3-venv, where a virtual environment
// can be had only without pip.
func TestDemo(t *testing.T) {
	harness.Programs(t, "python3")
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script := fmt.Sprintf(`#!/bin/bash
if [[ "$*" == "-I -m venv "* && "$*" != *--without-pip* ]]; then
	echo "The virtual environment was not created successfully because ensurepip is not available."
	exit 1
fi
exec %s "$@"
`, python)
	executable.Write(t, filepath.Join(bin, "python3"), script)
	out := demo(t, []string{"PATH=" + bin + ":" + os.Getenv("PATH")})
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "local ok ready") {
		t.Errorf("it did not run here:\n%s", out)
	}
}

// TestDemoWithoutGitAndPython runs it as on a machine that has only Go and make.
func TestDemoWithoutGitAndPython(t *testing.T) {
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
	tools, err := exec.LookPath("ponos-setup")
	if err != nil {
		t.Fatal(err)
	}
	out := demo(t, []string{"PATH=" + filepath.Dir(tools) + ":" + bin})
	for _, want := range []string{"git warning program not found: tasks with a git repository cannot run", "python3 warning program not found: tasks with a virtual environment cannot run", "queue ok "} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("it does not print %q:\n%s", want, out)
		}
	}
}

func TestDemoOnSlurm(t *testing.T) {
	var env []string
	for name, value := range harness.Cluster(t) {
		env = append(env, name+"="+os.Expand(value, os.Getenv))
	}
	out := demo(t, env, "--slurm")
	if !strings.Contains(out, `"runner":"slurm"`) {
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
