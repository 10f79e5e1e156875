package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func TestMain(m *testing.M) {
	harness.Main(m, nil, "ponos-setup", "ponos-poll", "ponos-stop", "ponos-start", "ponos-submit", "ponos-list", "ponos-cancel")
}

func source(name string) string { return filepath.Join(harness.Root(), "lib/systemd", name) }

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(source(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// quiet runs a program that must succeed and, unless its output is wanted, say nothing.
func quiet(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestUnits(t *testing.T) {
	harness.Programs(t, "systemd-analyze=systemd")
	for _, unit := range []string{"ponos@.service", "ponos-poll@.service", "ponos-poll@.timer", "vast-reap@.service", "vast-reap@.timer"} {
		quiet(t, "systemd-analyze", "verify", "--man=no", "--recursive-errors=one", source(unit))
	}
	// The threshold is in tenths: an exposure of 3.0.
	for _, unit := range []string{"ponos@.service", "ponos-poll@.service", "vast-reap@.service"} {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=yes", "--threshold=30", source(unit)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
		if m := regexp.MustCompile(`Overall exposure level.*`).Find(out); m != nil {
			t.Logf("%s", m)
		}
	}
	if out, err := exec.Command("systemd-sysusers", "--dry-run", source("ponos.sysusers")).CombinedOutput(); err != nil || strings.Contains(string(out), "Failed") {
		t.Errorf("systemd-sysusers: %v\n%s", err, out)
	}
}

func TestUnitsShareTheirHardening(t *testing.T) {
	hardening := regexp.MustCompile(`(?ms)^# What the agent needs.*?\n\n|^# What the agent needs.*\z`)
	agent := strings.TrimSpace(hardening.FindString(read(t, "ponos@.service")))
	turn := strings.TrimSpace(hardening.FindString(read(t, "ponos-poll@.service")))
	if agent == "" || agent != turn {
		t.Errorf("they differ:\n%s\n---\n%s", agent, turn)
	}
}

// TestCron has the line of cron do what the timer's unit does.
func TestCron(t *testing.T) {
	cron := read(t, "ponos.cron")
	turn := command(t, "ponos-poll@.service", "x").Args
	if !strings.Contains(cron, "* ponos "+turn[len(turn)-1]+"\n") {
		t.Errorf("not the command of the unit:\n%s", cron)
	}
	for line := range strings.Lines(cron) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && !regexp.MustCompile(`^[A-Z_]+=\S+$`).MatchString(line) {
			t.Errorf("as it is installed, it is not silent: %s", line)
		}
	}
}

func TestLogrotate(t *testing.T) {
	harness.Programs(t, "logrotate", "gzip")
	needs.Root(t, "as logrotate changes its user")
	dir, err := os.MkdirTemp("/tmp", "ponos-logs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	text := strings.NewReplacer("/var/log/ponos", dir, "su ponos ponos", "su nobody nogroup").Replace(read(t, "ponos.logrotate"))
	files := map[string]string{"conf": text, "notes.jsonl": "{}\n", "agent/agent.log": "a line\n"}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	quiet(t, "chown", "-R", "nobody:nogroup", filepath.Join(dir, "agent"))
	agent, err := os.OpenFile(filepath.Join(dir, "agent/agent.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	quiet(t, "logrotate", "--force", "--state", filepath.Join(dir, "state"), filepath.Join(dir, "conf"))
	for _, name := range []string{"notes.jsonl.1.gz", "agent/agent.log.1.gz"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := agent.WriteString("after\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "agent/agent.log")); string(b) != "after\n" {
		t.Errorf("the agent's log has %q, %v", b, err)
	}
}

// command is the command of a unit, with the environment that the unit gives it.
func command(t *testing.T, unit, config string) *exec.Cmd {
	t.Helper()
	m := regexp.MustCompile(`(?m)^ExecStart=(/bin/bash) (?:(-o) (pipefail) )?(-c) '(.*)'$`).FindStringSubmatch(read(t, unit))
	if m == nil {
		t.Fatalf("%s has no command", unit)
	}
	var args []string
	for _, word := range m[1:] {
		if word != "" {
			args = append(args, word)
		}
	}
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(harness.Clock(), "PATH="+harness.Bin+":/usr/local/bin:/usr/bin:/bin", "PONOS_CONFIG="+config, "HOME="+t.TempDir())
	return c
}

// spool makes a directory with a configuration and a task.
func spool(t *testing.T) (dir, config string) {
	t.Helper()
	dir = t.TempDir()
	config = filepath.Join(dir, "p/ponos.yaml")
	run(t, nil, "ponos-setup", "--init", filepath.Join(dir, "p"))
	return dir, config
}

func run(t *testing.T, env []string, args ...string) string {
	t.Helper()
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// patience bounds each wait for something to happen, on a machine that is busy.
const patience = harness.Patience

// within waits for a condition.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func TestTurn(t *testing.T) {
	_, config := spool(t)
	env := []string{"PONOS_CONFIG=" + config}
	run(t, env, "ponos-submit", "--slug", "hello", "--", "true")
	within(t, "turns bring the task to its end", func() bool {
		if out, err := command(t, "ponos-poll@.service", config).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.Contains(run(t, env, "ponos-list", "--long"), "completed")
	})
}

// TestAgent ends the agent the way systemd does with KillMode=process: a SIGTERM to
// the main process alone. Nothing of the agent stays, and the task goes on.
func TestAgent(t *testing.T) {
	_, config := spool(t)
	env := []string{"PONOS_CONFIG=" + config}
	flag := filepath.Join(t.TempDir(), "go")
	run(t, env, "ponos-submit", "--", "sh", "-c", "while [ ! -e "+shell.Quote(flag)+" ]; do sleep 0.1; done")
	agent := command(t, "ponos@.service", config)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	agent.Stdout, agent.Stderr = out, out
	agent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	listed := func(state string) func() bool {
		return func() bool { return strings.Contains(run(t, env, "ponos-list", "--long"), state) }
	}
	within(t, "the task runs", listed("running"))
	if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	within(t, "the whole agent ends", func() bool { return syscall.Kill(-agent.Process.Pid, 0) != nil })
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	within(t, "a later turn finds the end of the task", func() bool {
		if out, err := command(t, "ponos-poll@.service", config).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return listed("completed")()
	})
}
