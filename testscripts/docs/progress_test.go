package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// onTerminal runs a command line of bash on a terminal until it ends, or until what
// it prints matches; then it is interrupted.
func onTerminal(t *testing.T, env []string, line string, until *regexp.Regexp) string {
	t.Helper()
	return typed(t, env, line, until, "\x03")
}

// leader runs a command line and tells its status. It stays until the terminal is closed:
// when the leader of a session ends, the kernel hangs the terminal up, read or not.
const leader = `trap : INT; bash -c "$1"; printf '\036%d\036' $?; while :; do read -r || exit; done`

// typed runs a command line of bash on a terminal until it ends. When what it prints
// matches, the answer is typed, once.
func typed(t *testing.T, env []string, line string, until *regexp.Regexp, answer string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", leader, "bash", line)
	cmd.Env = append(env, "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer f.Close()
	timeout := time.AfterFunc(harness.Patience, func() { _ = cmd.Process.Kill() })
	defer timeout.Stop()
	var out []byte
	b := make([]byte, 4096)
	for interrupted := false; ; {
		n, err := f.Read(b)
		out = append(out, b[:n]...)
		if m := ended.FindSubmatch(out); m != nil {
			t.Logf("%s: status %s", line, m[1])
			harness.Worded(t, string(out))
			return string(bytes.TrimSuffix(out, m[0]))
		}
		if err != nil {
			t.Fatalf("%s: %q: %v", line, out, err)
		}
		if until != nil && !interrupted && until.Match(out) {
			interrupted = true
			if _, err := f.WriteString(answer); err != nil {
				t.Fatalf("%s: %q is not typed: %v", line, answer, err)
			}
		}
	}
}

// ended is what leader prints at the end.
var ended = regexp.MustCompile("\x1e([0-9]+)\x1e$")

// TestProgressOnATerminal runs the pipeline and ponos-submit as a person does, and
// in a pipe.
func TestProgressOnATerminal(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		// A virtual environment that takes its time: until its progress was seen.
		"bin/python3":                 "#!/bin/bash\n[[ $* != '-I -m venv '* ]] || { until [ -e " + dir + "/seen ]; do sleep 0.1; done; mkdir -p \"${@: -1}/bin\"; exit; }\nexec /usr/bin/python3 \"$@\"\n",
		"code/install_ponos_slurm.sh": "true\n",
	} {
		path := filepath.Join(dir, name)
		executable.Write(t, path, text)
	}
	env := []string{"HOME=" + dir, "PATH=" + filepath.Join(dir, "bin") + ":" + harness.Bin + ":/usr/bin:/bin", "PONOS_CONFIG=" + filepath.Join(dir, "p/ponos.yaml")}
	setUp := "ponos-setup --init ~/p >/dev/null && ponos-submit -d ~/code -- true >/dev/null && "
	pipeline := "ponos-poll | ponos-stop | ponos-start"
	making := regexp.MustCompile(`\rponos-start: \d+s making a virtual environment for a snapshot\x1b\[K`)
	out := typed(t, env, setUp+pipeline+" & read -r; touch ~/seen; wait", making, "\n")
	if !making.MatchString(out) {
		t.Errorf("the pipeline shows no progress: %q", out)
	}
	if !regexp.MustCompile(`\r\x1b\[K\{"event":"started",[^\n]*\}\r\n$`).MatchString(out) {
		t.Errorf("its record does not stand alone: %q", out)
	}
	out = onTerminal(t, env, "ponos-submit --wait --slug patient -- true", regexp.MustCompile(`ponos-submit: patient: pending, \d+s`))
	if !regexp.MustCompile(`(?m)^[0-9a-f-]{36}\r\n\rponos-submit: patient: pending, \d+s\x1b\[K`).MatchString(out) || !regexp.MustCompile(`\r\x1b\[Kponos-submit: task [0-9a-f-]{36} is not stopped: it is pending\r\nponos-submit: hint: to stop it, run ponos-cancel [0-9a-f-]{36}\r\n$`).MatchString(out) {
		t.Errorf("ponos-submit --wait: %q", out)
	}
	// In a pipe there are records only, and nothing on standard error.
	cmd := exec.Command("bash", "-c", "rm -rf ~/p/data/state/environments ~/p/data/environments; ponos-submit -d ~/code -- true >/dev/null; "+pipeline)
	cmd.Env = append(env, "TERM=xterm-256color")
	plain, err := cmd.CombinedOutput()
	// Jobs that still run would write into a directory that is being removed.
	wait := exec.Command("bash", "-c", `for _ in $(seq 3000); do compgen -G ~/p/data/state/local/'[wt]a*/*' >/dev/null || break; sleep 0.1; done; sleep 0.2`)
	wait.Env = env
	defer func() { _ = wait.Run() }()
	if err != nil || strings.Contains(string(plain), "\x1b") || strings.Count(string(plain), "\n") != strings.Count(string(plain), `{"event":`) {
		t.Errorf("in a pipe: %q, %v", plain, err)
	}
}

// What a task prints is shown on a terminal, not obeyed by it.
func TestTaskOutputOnATerminal(t *testing.T) {
	dir := t.TempDir()
	env := []string{"HOME=" + dir, "PATH=" + harness.Bin + ":/usr/bin:/bin", "PONOS_CONFIG=" + filepath.Join(dir, "p/ponos.yaml")}
	agent := exec.Command("bash", "-c", "ponos-setup --init ~/p >/dev/null && exec ponos-poll --every 1s > >(ponos-stop | ponos-start >/dev/null)")
	agent.Env = env
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = agent.Process.Signal(os.Interrupt)
		_ = agent.Wait()
	}()
	submit := `until [ -e ~/p/ponos.pid ]; do sleep 0.1; done; ponos-submit --wait -- printf '\033]0;owned\007\033[31mred\033[0m\033[2J\n'`
	out := onTerminal(t, env, submit, nil)
	if !strings.Contains(out, "^[]0;owned^G\x1b[31mred\x1b[0m^[[2J\r\n") {
		t.Errorf("on a terminal: %q", out)
	}
	if strings.Contains(out, "\x1b]") || strings.Contains(out, "\x1b[2J") {
		t.Errorf("the terminal was commanded: %q", out)
	}
	cmd := exec.Command("bash", "-c", submit)
	cmd.Env = env
	if plain, err := cmd.Output(); err != nil || !strings.Contains(string(plain), "\x1b]0;owned\a\x1b[31mred\x1b[0m\x1b[2J\n") {
		t.Errorf("in a pipe: %q, %v", plain, err)
	}
}

// A run on a terminal is one screen: q leaves it to an agent in the background, and two ^C cancel it.
func TestRunOnATerminal(t *testing.T) {
	dir := t.TempDir()
	env := append([]string{"HOME=" + dir, "PATH=" + harness.Bin + ":/usr/bin:/bin", "PONOS_CONFIG=" + filepath.Join(dir, "p/ponos.yaml")}, harness.Clock()...)
	running := regexp.MustCompile(`  running   x-`)
	command := ` ::: x=1 x=2 -- sh -c 'until [ -e ~/go ]; do sleep 0.1; done; echo no loss; exit {x}'; echo status $?`
	out := typed(t, env, "ponos-setup --init ~/p --mode local >/dev/null; cd; ponos run --group left"+command, running, "q")
	for _, want := range []string{"left: 2 tasks: ", "q leaves the run", "ponos-run: left goes on with an agent in the background; to look: ponos run --group left;", "\r\nstatus 1\r\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("q: no %q in %q", want, out)
		}
	}
	out = typed(t, env, "touch ~/go; ponos run --group left; echo status $?; while [ -e ~/p/ponos.pid ]; do sleep 0.1; done; rm ~/go", nil, "")
	if !strings.Contains(out, "ponos-run: 1 failed: exit code 2 (x-2): no loss\r\n") || !strings.Contains(out, "\r\nstatus 1\r\n") {
		t.Errorf("again: %q", out)
	}
	out = typed(t, env, "cd; ponos run --group cancelled"+command, running, "\x03\x03")
	if !strings.Contains(out, "ponos-run: cancelled: 2 tasks: 2 stopped, in ") || !strings.Contains(out, "\r\nstatus 130\r\n") {
		t.Errorf("^C ^C: %q", out)
	}
}

// Before more than one task is cancelled or submitted again, a person is asked. What a name
// or a reason has does not command the terminal.
func TestQuestionsOnATerminal(t *testing.T) {
	dir := t.TempDir()
	env := append([]string{"HOME=" + dir, "PATH=" + harness.Bin + ":/usr/bin:/bin", "PONOS_CONFIG=" + filepath.Join(dir, "p/ponos.yaml")}, harness.Clock()...)
	ask := regexp.MustCompile(`\? \[y/N\] `)
	out := typed(t, env, "ponos-setup --init ~/p >/dev/null && ponos-poll && ponos-submit --group g ::: x=1 x=2 x=3 -- true {x} >/dev/null 2>&1; ponos-cancel --group g; echo status $?", ask, "n\n")
	if !strings.Contains(out, "ponos-cancel: cancel 3 tasks: 3 pending? [y/N] n\r\n\r\x1b[Kponos-cancel: nothing was done\r\nstatus 1\r\n") {
		t.Errorf("no: %q", out)
	}
	out = typed(t, env, "ponos-cancel x-1; ponos-cancel --group g; ponos-list --long", ask, "yes\n")
	if !strings.Contains(out, "cancel 2 tasks: 2 pending? [y/N] ") || strings.Count(out, "stopped before it started") != 3 {
		t.Errorf("yes: %q", out)
	}
	out = typed(t, env, "ponos-retry --group g; ponos-list --ids | wc -l; ponos-list --state pending --ids | wc -l", ask, "y\n")
	if !strings.Contains(out, "ponos-retry: submit 3 tasks again? [y/N] ") || !strings.HasSuffix(out, "3\r\n3\r\n") {
		t.Errorf("again: %q", out)
	}
	out = typed(t, env, "ponos-cancel --yes --group g >/dev/null; ponos-retry", nil, "")
	if !strings.Contains(out, "ponos-retry: no tasks are named\r\nponos-retry: hint: name tasks, give a filter such as --group, or ids on standard input\r\n") {
		t.Errorf("nothing named: %q", out)
	}
	out = onTerminal(t, env, `printf '%s' '{"id":"evil","slug":"\u001b[2Jx\u001b]0;owned\u0007","state":"pending","source":{},"created":"2026-11-20T18:35:05Z"}' >~/p/spool/new/evil.json; ponos-list --name '*x*'; ponos-list --watch`,
		regexp.MustCompile(`(?s)\x1b\[H\x1b\[2JTASK .*evil`))
	if strings.Contains(out, "\x1b]") || strings.Contains(out, "\x1b[2Jx") || !strings.Contains(out, "5 tasks: ") && !strings.Contains(out, "4 tasks: ") {
		t.Errorf("a hostile name: %q", out)
	}
	// The line that says how far a group is.
	out = onTerminal(t, env, "ponos-submit --wait --group wait ::: x=1 x=2 -- true {x}", regexp.MustCompile(`ponos-submit: 2 tasks: 2 pending, \d+s`))
	if !strings.Contains(out, "ponos-submit: 2 tasks submitted, in group wait\r\n") || !strings.Contains(out, "2 tasks: 2 pending, ") {
		t.Errorf("progress of a group: %q", out)
	}
}

// A tool says after a while what of Slurm it waits for, and no line is left when it is interrupted.
func TestSilentSlurmOnATerminal(t *testing.T) {
	var wait sync.WaitGroup
	dir := t.TempDir()
	for _, name := range []string{"sacct", "sacctmgr", "sbatch", "scontrol", "sprio", "squeue", "sshare"} {
		executable.Write(t, filepath.Join(dir, "bin", name), "#!/bin/sh\nexec sleep 1000\n")
	}
	env := []string{"HOME=" + dir, "PATH=" + filepath.Join(dir, "bin") + ":" + harness.Bin + ":/usr/bin:/bin", "PONOS_CONFIG=" + dir + "/p/ponos.yaml"}
	if err := os.MkdirAll(filepath.Join(dir, "p"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "p/ponos.yaml"), []byte(silentConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for tool, lines := range map[string][]string{
		"fairshare":    {"fairshare", "fairshare jobs", "fairshare when 1", "fairshare where --gpus=1", "fairshare limits", "fairshare used"},
		"lfind":        {"lfind 'cpu()'", "lfind convert", "lfind run 'cpu()' -- true"},
		"jobpool":      {"echo x | jobpool --alloc 'cpu()' echo", "echo x | jobpool --alloc-sbatch=--time=5 echo"},
		"ponos-setup":  {"ponos-setup --init ~/x --mode slurm", "ponos-setup"},
		"ponos-poll":   {"ponos-poll"},
		"ponos-submit": {"ponos-submit --sbatch mem=1G -- true", "ponos-submit --find 'cpu()' -- true"},
	} {
		for _, line := range lines {
			wait.Go(func() {
				waiting := regexp.MustCompile(`\r` + tool + `: (?:[3-9]|\d\d+)s waiting for (Slurm: s\w+|lfind)`)
				out := onTerminal(t, env, "cd; "+line+"; echo status $?", waiting)
				if !waiting.MatchString(out) || !strings.HasSuffix(out, "\r\x1b[Kstatus 130\r\n") {
					t.Errorf("%s: %q", line, out)
				}
			})
		}
	}
	wait.Wait()
	if !harness.Wait(func() bool { return len(left(dir)) == 0 }) {
		t.Errorf("left: %q", left(dir))
	}
}
