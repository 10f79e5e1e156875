package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

// A job script becomes the program that runs the command of the task: that of its machine in a job of Slurm, or the one
// that the worker of mode local or a pilot says.
func TestScript(t *testing.T) {
	t.Parallel()
	uname, err := exec.Command("uname", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	store, bin := t.TempDir(), t.TempDir()
	const text = `[ "$1" != --version ] || { echo ponos-worker 1; exit; }; printf '<%s>' "${0##*/}" "$@"; exit 7`
	executable.Write(t, filepath.Join(bin, strings.TrimSpace(string(uname)), "ponos-worker"), "#!/bin/bash\n"+text+"\n")
	mine := filepath.Join(t.TempDir(), "mine")
	executable.Write(t, mine, "#!/bin/bash\n"+text+"\n")
	s := script{
		Task: task.Task{ID: "b", Slug: "odd\n; name"}, Dir: Dir{filepath.Join(store, "b"), "b"}, Env: environment.Environment{Source: "/so urce", Venv: "/venv"},
		Attempt: 3, Tried: 2, Command: []string{"echo", "it's\n$(touch planted)"}, Programs: bin,
	}
	local := s
	local.Programs = ""
	shared := (&Agent{Store: &Store{Dir: store}}).shared(s)
	for _, id := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(store, id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const rest = "<--attempt=3><--tried=2><--source=/so urce><--place=><--venv=/venv><-->"
	for name, tt := range map[string]struct {
		text []byte
		args []string
		env  []string
		want string
	}{
		"job":        {s.text(), nil, []string{"SLURM_JOB_ID=5"}, "<ponos-worker><exec><--task=b><--job=5><--restart=0>"},
		"again":      {s.text(), nil, []string{"SLURM_JOB_ID=5", "SLURM_RESTART_COUNT=2"}, "<ponos-worker><exec><--task=b><--job=5><--restart=2>"},
		"in a pilot": {s.text(), []string{mine, "ponos-worker"}, []string{"PONOS_JOB=p.1"}, "<mine><ponos-worker><exec><--task=b><--job=p.1><--restart=0>"},
		"local":      {local.text(), []string{mine}, []string{"PONOS_JOB=l"}, "<mine><exec><--task=b><--job=l><--restart=0>"},
		"array": {
			shared.Script([]task.ID{"a", "b"}), nil, []string{"SLURM_JOB_ID=9", "SLURM_ARRAY_JOB_ID=8", "SLURM_ARRAY_TASK_ID=1"},
			"<ponos-worker><exec><--task=b><--job=8_1><--restart=0>",
		},
	} {
		path := filepath.Join(t.TempDir(), "job.sh")
		if err := os.WriteFile(path, tt.text, 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.Command("bash", append([]string{"--", path}, tt.args...)...)
		c.Dir, c.Env = store, append([]string{"PATH=" + os.Getenv("PATH")}, tt.env...)
		out, err := c.CombinedOutput()
		if want := tt.want + rest + "<" + filepath.Join(store, "b") + ">"; c.ProcessState.ExitCode() != 7 || string(out) != want {
			t.Errorf("%s: %v, %s; want %s\n%s", name, err, out, want, tt.text)
		}
	}
	if _, err := os.Stat(filepath.Join(store, "planted")); err == nil {
		t.Error("what the command says was run")
	}
}
