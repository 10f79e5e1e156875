package docs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// silentConfig is a configuration for Slurm.
const silentConfig = `queue: "spool:~/p/spool"
data_dir: "~/p/data"
pid_file: "~/p/ponos.pid"
mode: slurm
slurm: {base: {time: 5}}
`

// silentSlurm makes a home where each command of Slurm hangs, with a child that would outlive it.
func silentSlurm(t *testing.T) (home string, env []string) {
	t.Helper()
	home = t.TempDir()
	for _, name := range []string{"sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "sprio", "squeue", "sreport", "srun", "sshare", "sstat"} {
		executable.Write(t, filepath.Join(home, "bin", name), "#!/bin/sh\nsleep 1000 &\nwait\n")
	}
	if err := os.MkdirAll(filepath.Join(home, "p"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "p", "ponos.yaml"), []byte(silentConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return home, append([]string{
		"HOME=" + home, "PATH=" + filepath.Join(home, "bin") + ":" + harness.Bin + ":/usr/bin:/bin",
		"PONOS_CONFIG=" + filepath.Join(home, "p", "ponos.yaml"), "LC_ALL=C.UTF-8",
	}, harness.Clock()...)
}

// left are the processes that have the variable HOME of a test.
func left(home string) (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		if env, err := os.ReadFile(file); err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00HOME="+home+"\x00")) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			found = append(found, string(line))
		}
	}
	return found
}

// TestSilentSlurm has each tool meet a Slurm whose commands hang: it ends at its limit with status 3, one line that
// names the command, and one that says what to do. Nothing of the command stays.
func TestSilentSlurm(t *testing.T) {
	t.Parallel()
	const controller = `check Slurm's controller with "scontrol ping"; if it is only slow, set PONOS_SLURM_TIMEOUT`
	const unchecked = "warning: whether the cluster can run the task was not checked: "
	const accepted = "the task is submitted; it waits while Slurm does not answer, and ends as error if Slurm then refuses it"
	for _, tt := range []struct {
		line    string
		status  int
		command string // that does not answer, as a regular expression
		before  string // what stands between the tool and the command
		hint    string
	}{
		{"fairshare", 3, `s\w+`, "", controller},
		{"fairshare jobs", 3, `s\w+`, "", controller},
		{"fairshare when 1", 3, `s\w+`, "", controller},
		{"fairshare where 'cpu()'", 3, `s\w+`, "", controller},
		{"fairshare holes", 3, `s\w+`, "", controller},
		{"fairshare limits", 3, `s\w+`, "", controller},
		{"fairshare used", 3, `s\w+`, "", controller},
		{"fairshare history", 3, `s\w+`, "", controller},
		{"lfind 'cpu()'", 3, "scontrol", `launcher "slurm": `, controller},
		{"lfind --soonest 'cpu()'", 3, "scontrol", `launcher "slurm": `, controller},
		{"lfind explain 'cpu()' >explained", 3, "scontrol", `launcher "slurm": `, controller},
		{"lfind check", 3, "scontrol", `launcher "slurm": `, controller},
		{"lfind probe", 3, "scontrol", `launcher "slurm": `, controller},
		{"lfind run 'cpu()' -- true", 3, "scontrol", `launcher "slurm": `, controller},
		{"lfind convert", 3, "scontrol", "", controller},
		{"echo x | jobpool --alloc 'cpu()' echo", 3, "scontrol", `--alloc: launcher "slurm": `, controller},
		{"echo x | jobpool --alloc-sbatch=--time=5 echo", 3, "squeue", "", controller},
		{"ponos-setup --init ~/new --mode slurm", 3, "scontrol", "--init: Slurm: ", controller},
		{"ponos-poll", 3, "scontrol", "", controller},
		{"ponos-stop </dev/null", 3, "scontrol", "", controller},
		{"ponos-start </dev/null", 3, "scontrol", "", controller},
		{"ponos-submit --sbatch mem=1G -- true 2>said >id; status=$?; head -2 said; test -s id && exit $status", 0, "scontrol", unchecked, accepted},
		{"ponos-submit --find 'cpu(cores=1)' -- true 2>said >id; status=$?; head -2 said; test -s id && exit $status", 0, `s\w+`, unchecked, accepted},
	} {
		t.Run(tt.line, func(t *testing.T) {
			t.Parallel()
			home, env := silentSlurm(t)
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-c", tt.line)
			cmd.Dir, cmd.Env = home, append(env, "PONOS_SLURM_TIMEOUT=1s")
			var said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &said, &said
			err := cmd.Run()
			harness.Worded(t, said.String())
			if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			tool := regexp.MustCompile(`(ponos-)?(fairshare|lfind|jobpool|setup|poll|stop|start|submit)`).FindString(tt.line)
			want := regexp.MustCompile("^" + tool + ": " + regexp.QuoteMeta(tt.before) + "(?:the request: )?" + tt.command + ": no answer (?:within \\d+s|in time)\n" + tool + ": hint: " + regexp.QuoteMeta(tt.hint) + "\n$")
			if cmd.ProcessState.ExitCode() != tt.status || !want.MatchString(said.String()) {
				t.Errorf("status %d, want %d; printed:\n%swant %s", cmd.ProcessState.ExitCode(), tt.status, said.String(), want)
			}
			if !harness.Wait(func() bool { return len(left(home)) == 0 }) {
				t.Errorf("still running: %s", strings.Join(left(home), "; "))
			}
		})
	}
}

// TestNonsenseTimeout has each tool that may ask Slurm say that the limit cannot be read, also where it does not come to ask.
func TestNonsenseTimeout(t *testing.T) {
	t.Parallel()
	home, env := silentSlurm(t)
	for tool, args := range map[string]string{
		"fairshare": "jobs", "lfind": "cpu()", "jobpool": "true", "ponos-list": "", "ponos-poll": "", "ponos-retry": "x", "ponos-run": "-- true",
		"ponos-setup": "", "ponos-start": "", "ponos-stop": "", "ponos-submit": "-- true",
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(harness.Bin, tool), strings.Fields(args)...)
		cmd.Dir, cmd.Env = home, append(env, "PONOS_SLURM_TIMEOUT=soon")
		said, _ := cmd.CombinedOutput()
		want := tool + `: PONOS_SLURM_TIMEOUT: invalid duration "soon": `
		if cmd.ProcessState.ExitCode() != 2 || !strings.HasPrefix(string(said), want) {
			t.Errorf("%s: status %d, want 2; printed:\n%swant %s...", tool, cmd.ProcessState.ExitCode(), said, want)
		}
	}
}
