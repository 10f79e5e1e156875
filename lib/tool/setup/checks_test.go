package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/vastai"
)

// programsOf answers for programs.
type programsOf func(c command.Cmd) (string, error)

func (p programsOf) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	text, err := p(c)
	return command.Result{Stdout: []byte(text)}, err
}

// said is a finding in a line.
func said(f finding) string {
	result := "FAILED"
	switch {
	case f.OK && f.Warning:
		result = "warning"
	case f.OK:
		result = "ok"
	}
	return strings.TrimSuffix(fmt.Sprintf("%s %s: %s; %s", f.Name, result, f.Detail, f.Hint), "; ")
}

func TestPrograms(t *testing.T) {
	missing, failed := &command.NotFoundError{Name: "x"}, errors.New("exit status 1")
	python, git, bash := assembly.Program{Name: "python3", Least: [3]int{3, 8}}, assembly.Program{Name: "git", Least: [3]int{2, 20}, Without: "a repository"}, assembly.Program{Name: "bash", Least: [3]int{4, 4}}
	sbatch, market := assembly.Program{Name: "sbatch", Least: [3]int{20, 11}, Slurm: true}, assembly.Program{Name: "vastai", Least: vastai.Oldest}
	for _, tt := range []struct {
		p    assembly.Program
		text string
		err  error
		conf string
		want string
	}{
		{git, "git version 2.39.5\n", nil, "", "git ok: 2.39.5"},
		{git, "git version 2.39.5 (Apple Git-154)\n", nil, "", "git ok: 2.39.5"},
		{git, "git version 2.20\n", nil, "", "git ok: 2.20"},
		{git, "git version 2.9.9\n", nil, "", "git FAILED: 2.9.9; at least version 2.20 is needed"},
		{git, "", missing, "", "git warning: program not found: tasks with a repository cannot run; install git, or put it into PATH"},
		{bash, "", missing, "", "bash FAILED: " + missing.Error() + "; install bash, or put it into PATH"},
		{bash, "GNU bash, version 5.2.15(1)-release (x86_64-pc-linux-gnu)\nCopyright\n", nil, "", "bash ok: 5.2.15"},
		{bash, "GNU bash, version 3.2.57(1)-release\n", nil, "", "bash FAILED: 3.2.57; at least version 4.4 is needed"},
		{python, "Python 3.10.0rc1\n", nil, "", "python3 ok: 3.10.0rc1"},
		{python, "Python 3.7.17\n", nil, "", "python3 FAILED: 3.7.17; at least version 3.8 is needed"},
		{python, "", nil, "", `python3 FAILED: expected its version, but it printed ""`}, // Python 2 prints to stderr
		{python, "", failed, "", `python3 FAILED: exit status 1; check the output of "python3 --version"`},
		{python, "\n  Python 99999999999999999999.1\n", nil, "", "python3 ok: 99999999999999999999.1"},
		{python, strings.Repeat("\x1b", 100), nil, "", `python3 FAILED: expected its version, but it printed "` + strings.Repeat(`\x1b`, 60) + `"`},
		{sbatch, "slurm-wlm 20.11.4\n", nil, "", "sbatch ok: 20.11.4"},
		{sbatch, "slurm 26.05.0-0rc1\n", nil, "", "sbatch ok: 26.05.0-0rc1"},
		{sbatch, "slurm 20.02.7\n", nil, "", "sbatch FAILED: 20.02.7; at least version 20.11 is needed"},
		{sbatch, "", failed, "", "sbatch FAILED: exit status 1; Slurm's programs need a valid slurm.conf: SLURM_CONF is not set"},
		{sbatch, "", failed, "/x/slurm.conf", `sbatch FAILED: exit status 1; Slurm's programs need a valid slurm.conf: SLURM_CONF is "/x/slurm.conf"`},
		{market, "1.5.5\n", nil, "", "vastai FAILED: 1.5.5; at least version 1.5.6 is needed"},
		{market, "1.5.6\n", nil, "", "vastai ok: 1.5.6"},
	} {
		t.Setenv("SLURM_CONF", tt.conf)
		if got := said(checkProgram(t.Context(), programsOf(func(command.Cmd) (string, error) { return tt.text, tt.err }), tt.p)); got != tt.want {
			t.Errorf("%q, %v: %s; want %s", tt.text, tt.err, got, tt.want)
		}
	}
	for _, tt := range []struct{ mode, via, queue, want string }{
		{"local", "", "arkindex", "git py bash"},
		{"local", "", "spool:/x", "git(a git repository) py(a virtual environment) bash"},
		{"slurm", "", "arkindex", "git py bash sbatch squeue sacct scancel scontrol"},
		{"vast", "cli", "spool:/x", "vastai"},
		{"vast", "api", "spool:/x", ""},
	} {
		c := config.Config{Mode: tt.mode, Queue: tt.queue}
		c.Vast.Via, c.Environment.Python = tt.via, "py"
		var names []string
		for _, p := range assembly.Programs(c) {
			if names = append(names, p.Name); p.Without != "" {
				names[len(names)-1] += "(" + p.Without + ")"
			}
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func FuzzVersion(f *testing.F) {
	f.Add("GNU bash, version 5.2.15(1)-release (x86_64-pc-linux-gnu)")
	f.Fuzz(func(t *testing.T, text string) {
		detail, version := versionOf(text)
		if !strings.Contains(text, detail) || detail == "" && version != [3]int{} || version[0] < 0 {
			t.Errorf("%q: %q, %v", text, detail, version)
		}
	})
}

func TestPython(t *testing.T) {
	failed := errors.New("exit status 1")
	const hint = "; install what Python's venv needs: on Debian, that is the package python3-venv"
	for _, tt := range []struct {
		name, mode string
		venv       error
		pip        string
		pipErr     error
		want       string
	}{
		{"all", "local", nil, "pip 24.0\n", nil, "virtual environment ok: created; pip 24.0"},
		{"no pip", "local", nil, "", failed, "virtual environment warning: without pip: no packages can be installed for tasks" + hint},
		{"nothing of pip", "local", nil, "pip\n", nil, "virtual environment warning: without pip: no packages can be installed for tasks" + hint},
		{"no venv", "local", failed, "", nil, "virtual environment FAILED: exit status 1" + hint},
		{"no python, which is reported elsewhere", "local", fmt.Errorf("run: %w", &command.NotFoundError{}), "", nil, ""},
		{"images", "vast", failed, "", nil, ""},
	} {
		var c config.Config
		c.Mode, c.Queue, c.Environment.Python = tt.mode, "arkindex", "py"
		got := ""
		for _, f := range checkPython(t.Context(), programsOf(func(c command.Cmd) (string, error) {
			if c.Name == "py" {
				return "", tt.venv
			}
			return tt.pip, tt.pipErr
		}), c) {
			got += said(f)
		}
		if got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
	found := checkPython(t.Context(), programsOf(func(command.Cmd) (string, error) { return "", nil }), config.Config{Mode: "local", Queue: "arkindex"})
	if len(found) != 1 || found[0].OK || !strings.HasPrefix(found[0].Hint, "set TMPDIR") {
		t.Errorf("without a directory for temporary files: %+v", found)
	}
}

func TestCheckPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		file bool
		err  error
		want string
	}{
		{"sub", false, nil, "x ok: DIR/sub"},
		{"new/in/new", false, nil, "x ok: DIR/new/in/new"},
		{"file", true, nil, "x ok: DIR/file"},
		{"new", true, nil, "x ok: DIR/new"},
		{"file", false, nil, `x FAILED: "DIR/file": not a directory`},
		{"file/in/it", false, nil, `x FAILED: "DIR/file": not a directory`},
		{"file/in", true, nil, `x FAILED: "DIR/file": not a directory`},
		{"sub", true, nil, `x FAILED: "DIR/sub": is a directory`},
		{"sub", false, fault.Hint(fs.ErrPermission, "do this"), "x FAILED: permission denied; do this"},
	} {
		got := strings.ReplaceAll(said(checkPath("x", filepath.Join(dir, tt.path), tt.file, tt.err)), dir, "DIR")
		if before, _, ok := strings.Cut(got, " (on "); ok { // the file system
			got = before
		}
		if got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestSubmission(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "slurm.gpu ok: sbatch accepts --partition=gpu"},
		{fault.Errorf(fault.Usage, "no"), "slurm.gpu FAILED: no; correct slurm.base or slurm.gpu in x.yaml:3"},
		{fault.Hint(fault.Errorf(fault.Usage, "no"), "do this"), "slurm.gpu FAILED: no; do this"},
	} {
		if got := said(submission("slurm.gpu", "--partition=gpu", "x.yaml:3", tt.err)); got != tt.want {
			t.Errorf("%v: %s", tt.err, got)
		}
	}
}

func TestFailures(t *testing.T) {
	err := failures([]finding{
		{Name: "a", OK: true, Detail: "fine"}, {Name: "b", OK: true, Warning: true, Detail: "nearly"},
		{Name: "sbatch", Detail: "sbatch: no answer", Hint: "do this"}, {Name: "spool", Detail: "sbatch: no"},
	})
	if !fault.Is(err, fault.Usage) || err.Error() != "sbatch: no answer\nspool: sbatch: no" || fault.HintOf(err) != "do this" {
		t.Errorf("%v; %s", err, fault.HintOf(err))
	}
	if err := failures([]finding{{OK: true}, {OK: true, Warning: true}}); err != nil {
		t.Errorf("without a failure: %v", err)
	}
}
