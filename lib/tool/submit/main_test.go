package submit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

// parsed is a command line, without what a tool does with it.
func parsed(t *testing.T, args ...string) *cli.Context {
	t.Helper()
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	for _, f := range Flags() {
		if err := f.Apply(set); err != nil {
			t.Fatal(err)
		}
	}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return cli.NewContext(&cli.App{Flags: Flags()}, set, nil)
}

// What a command line is as a task, or why it is refused.
func TestEntry(t *testing.T) {
	s, err := spool.Make(filepath.Join(t.TempDir(), "spool"), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []queue.Entry{{ID: "aaaaaaaa", Slug: "one"}, {ID: "bbbbbbbb", Slug: "two"}} {
		if err := s.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	env := filepath.Join(dir, "env")
	if err := os.WriteFile(env, []byte("A=1\nno variable\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--", "/bin/true", "x"}, "true [/bin/true x]"},
		{[]string{"--", "."}, ". [.]"},
		{[]string{"--", "a\x1bb"}, "task [a\x1bb]"}, // no name of a task
		{[]string{"--repository", "r"}, "task []"},
		{[]string{"--repository", "r", "--worker", "w"}, "w []"},
		{[]string{"--image", "registry:5000/x/y:1"}, "y []"},
		{[]string{"--image", "@x"}, "task []"},
		{[]string{"--image", "x:1", "--", "run"}, "run [run]"},
		{[]string{"--after", "two", "--after", "aaaaaaaa", "--", "x"}, "x [x] bbbbbbbb aaaaaaaa"},

		{nil, `error no command to run; give a command after "--", a --repository with a .arkindex.yml, or an --image`},
		{[]string{"--", ""}, "error the first word of the command, its program, is empty"},
		{[]string{"--", "", "x"}, "error the first word of the command, its program, is empty"},
		{[]string{"--", "a\tb"}, `error the command "a b" is one word with spaces in it, and runs without a shell; ` +
			"leave the quotes out, or run a shell: -- sh -c 'a\tb'"},
		{[]string{"--name", "", "--", "x"}, "error --name: the name is empty"},
		{[]string{"--name", strings.Repeat("x", 256), "--", "x"}, `error --name: name "xxxxxxxxxxxxxxxxxxxx"... is longer than 255 bytes`},
		{[]string{"--group", "", "--", "x"}, "error --group: the name is empty"},
		{[]string{"--key", "a\nb", "--", "x"}, `error --key: key "a\nb" has a control character`},
		{[]string{"--process", "../x", "--", "x"}, `error --process: task id "../x" has a '.': expected letters, digits, '-' and '_'`},
		{[]string{"--worker", "w"}, `error no command to run; give a command after "--", a --repository with a .arkindex.yml, or an --image`},
		{[]string{"--worker", "w", "--repository", "r", "--", "x"}, "error --worker cannot be combined with a command: it names one of the repository's"},
		{[]string{"--image", "-x"}, `error --image: invalid image "-x": expected a name such as registry.example.org/worker:1.2`},
		{[]string{"--image", "é"}, `error --image: invalid image "é": expected a name such as registry.example.org/worker:1.2`},
		{[]string{"--image", "x", "--file", env}, "error --image cannot be combined with --file: an image is run unchanged"},
		{[]string{"--after", "three", "--", "x"}, `error --after: no task has the id or the name "three"`},
		{[]string{"--file", dir, "--", "x"}, "error --file \"DIR\" is not a plain file"},
		{[]string{"--file", "/dev/null", "--", "x"}, `error --file "/dev/null" is not a plain file`},
		{[]string{"--file", dir + "/nothing", "--", "x"}, "error --file: stat DIR/nothing: no such file or directory"},
		{[]string{"--env-file", env, "--", "x"}, "error DIR/env:2: expected NAME=VALUE, and only letters, digits and _ in NAME"},
		{[]string{"--env-file", dir + "/nothing", "--", "x"}, "error --env-file: open DIR/nothing: no such file or directory"},
	} {
		c := parsed(t, append([]string{"--spool", s.Dir}, tt.args...)...)
		e, err := entry(c, c.Args().Slice(), false)
		if err == nil {
			e.After, err = parents(c, s)
		}
		words := []string{e.Slug, "[" + strings.Join(e.Command, " ") + "]"}
		for _, id := range e.After {
			words = append(words, string(id))
		}
		if got := strings.ReplaceAll(result(strings.Join(words, " "), err), dir, "DIR"); got != tt.want {
			t.Errorf("%q: %s; want %s", tt.args, got, tt.want)
		}
	}
}

// What is said of a command that this machine may not be able to run, or that is one task only.
func TestWarnings(t *testing.T) {
	bin, venv := t.TempDir(), t.TempDir()
	for _, name := range []string{"retro", "jobpool", "parallel", "x", "awk"} {
		executable.Write(t, filepath.Join(bin, name), "")
	}
	if err := os.WriteFile(filepath.Join(venv, "pyproject.toml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	const missing = `warning: program "retry" was not found in PATH on this machine`
	for args, want := range map[string]string{
		"--gpu -- retry":                    missing + "; to do that, use ponos-retry",
		"-- retry train":                    missing + "; did you mean retro?",
		"--directory x -- retry":            missing + "; to do that, use ponos-retry",
		"--directory x -- retri x":          `warning: program "retri" was not found in PATH on this machine; did you mean retro?`,
		"-- FOO=1 true":                     `warning: program "FOO=1" was not found in PATH on this machine; to set a variable, give -- env FOO=VALUE COMMAND, or --env-file`,
		"-- source env.sh":                  `warning: program "source" was not found in PATH on this machine; source is a command of the shell: -- bash -lc 'source ... && COMMAND'`,
		"--in-place -- retry":               missing + "; to do that, use ponos-retry",
		"--directory " + venv + " -- retry": "",
		"--repository https://x/y -- retry": "",
		"-i x -- retry":                     "",
		"-e x -- retry":                     "", // it may set PATH
		"-- {program}":                      "",
		"-- bin/retry":                      "",
		"-- BIN/retry":                      "warning: BIN/retry is not on this machine",
		"-- " + venv:                        "warning: " + venv + " is a directory",
		"-- " + venv + "/pyproject.toml":    "warning: " + venv + "/pyproject.toml is not executable",
		"--repository x":                    "",
		"-- BIN/jobpool x ::: 1":            "",
		"-- BIN/parallel ::: 1":             "",
		"-- BIN/x :::1":                     "",
		"-- BIN/x --lr={lr}": "warning: the command gets the word --lr={lr} as it is, as there are no values for it; " +
			"to give values, put them before the command (::: NAME=VALUE...), or into a table (--each FILE)",
		"-- BIN/awk {print}": "", "-- BIN/x {} a{b}c {{d}}": "",
		"-- BIN/x a ::: 1": `warning: one task is submitted: ":::" after the command is passed to it; ` +
			"for one task for each value, put the values before the command: ::: x=1 x=2 -- ./train {x}",
		"--name 4 -- BIN/x":    "warning: the name of the task is 4, as -n is --name here; for the number of tasks of the job, give --ntasks=4",
		"--name run4 -- BIN/x": "",
	} {
		c := parsed(t, strings.Fields(strings.ReplaceAll(args, "BIN", bin))...)
		got := ""
		for _, err := range []error{misplaced(c.Args().Slice()), notFound(c, wanted(c), c.Args().Slice()), numbered(c)} {
			if err != nil {
				got += strings.TrimSuffix(strings.ReplaceAll(err.Error(), bin, "BIN")+"; "+fault.HintOf(err), "; ")
			}
		}
		if got != want {
			t.Errorf("%s: %s; want %s", args, got, want)
		}
	}
}

func TestSummary(t *testing.T) {
	for _, tt := range []struct {
		all, fresh int
		group      string
		want       string
	}{
		{1, 1, "", "1 task submitted"}, {2, 2, "g", "2 tasks submitted, in group g"},
		{2, 0, "g", "0 tasks submitted, 2 submitted before"}, {2, 1, "g", "1 task submitted, 1 submitted before, in group g"},
	} {
		var stderr strings.Builder
		all := make([]queue.Entry, tt.all)
		all[0].Group = tt.group
		if summary(&stderr, all, queue.Batch{IDs: make([]task.ID, tt.all), New: tt.fresh}); stderr.String() != "ponos-submit: "+tt.want+"\n" {
			t.Errorf("%+v: %s", tt, &stderr)
		}
	}
}

// Options as people type them for sbatch, and the short ones that are others here.
func TestLikeSbatch(t *testing.T) {
	for _, variable := range []string{"HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		t.Setenv(variable, t.TempDir())
	}
	s, err := spool.Make(filepath.Join(t.TempDir(), "spool"), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"-p long -A lab -q high -t 2:00:00 --mem 8G -C a100": "[time=2:00:00 account=lab qos=high partition=long constraint=a100 mem=8G]",
		"--cpus-per-task=4 --ntasks 2 -G a100:2 --time 2h":   "[time=2h cpus-per-task=4 gpus=a100:2 ntasks=2]",
		"--gres gpu:1 --sbatch nodes=1":                      "[nodes=1 gres=gpu:1]",
		"--mem 8Q":                                           `ponos-submit: --mem: invalid value "8Q": expected megabytes, or a whole number and K, M, G or T`,
		"--mem 8G --sbatch mem=4G":                           `ponos-submit: --sbatch: option "mem" is given twice`,
		"--sbatch time_limit=10":                             `ponos-submit: --sbatch: sbatch has no option "time-limit"; did you mean "time"?`,
		"--sbatch nodes=+2":                                  "[nodes=+2]",
		"--sbatch memory=8G":                                 `ponos-submit: --sbatch: sbatch has no option "memory"; did you mean "mem"?`,
	} {
		var out, errs strings.Builder
		line := append([]string{name, "--spool", s.Dir}, append(strings.Fields(args), "--", "true")...)
		got := ""
		if run(t.Context(), line, strings.NewReader(""), &out, &errs) == 0 {
			e, err := s.Find(task.ID(strings.TrimSpace(out.String())))
			got = result(fmt.Sprint(e.Request.Sbatch), err)
		} else {
			got, _, _ = strings.Cut(errs.String(), "\n")
		}
		if got != want {
			t.Errorf("%s: %s; want %s", args, got, want)
		}
	}
	for args, want := range map[string]string{
		"--name x -c 4":       "--spool cannot be combined with --config: it reads no configuration|-c is --config here: as in sbatch, give --cpus-per-task=VALUE",
		"-N 2":                "unknown option -N|for the option of sbatch, give --sbatch nodes=VALUE",
		"-N2":                 "unknown option -N2|for the option of sbatch, give --sbatch nodes=VALUE",
		"-H":                  `unknown option -H|see "ponos-submit --help"`,
		"--exclusive":         "unknown option --exclusive|for the option of sbatch, give --sbatch exclusive",
		"--ntasks-per-node=2": "unknown option --ntasks-per-node|for the option of sbatch, give --sbatch ntasks-per-node=VALUE",
		"--env A=1":           "unknown option --env|give --env-file FILE, with lines NAME=VALUE, or run env NAME=VALUE COMMAND",
		"--array=1-10":        "unknown option --array|for many tasks, give --each FILE, or ::: lists before the command, and for its limit --at-most N",
		"-o out":              "unknown option -o|the output is kept in the task's log: see ponos-log",
		"--memory=8G":         "unknown option --memory|did you mean --mem?",
		"--groop=x":           "unknown option --groop|did you mean --group?",
		"-c 4":                "reading the configuration: open 4: no such file or directory|-c is --config here: as in sbatch, give --cpus-per-task=VALUE",
		"-a 1-10":             `--after: no task has the id or the name "1-10"|-a is --after here: for many tasks, give --each FILE, or ::: lists before the command, and for its limit --at-most N`,
		"-d afterok:12":       "--directory: \"afterok:12\" does not exist|-d is --directory here: to start after a task, give --after TASK",
		"-e err.log":          "--env-file: open err.log: no such file or directory|-e is --env-file here: the output is kept in the task's log: see ponos-log",
		"-w node1":            "--worker cannot be combined with a command: it names one of the repository's|-w is --worker here: for the option of sbatch, give --sbatch nodelist=VALUE",
		"-p":                  `option -p needs a value|see "ponos-submit --help"`,
	} {
		var out, errs strings.Builder
		if !strings.HasPrefix(args, "-c") {
			args = "--spool " + s.Dir + " " + args
		}
		status := run(t.Context(), append([]string{name}, append(strings.Fields(args), "--", "true")...), strings.NewReader(""), &out, &errs)
		message, hint, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(errs.String(), "ponos-submit: "), "\n"), "\nponos-submit: hint: ")
		if got := message + "|" + hint; got != want || status != 2 || out.Len() > 0 {
			t.Errorf("%s: status %d, %q; want %q", args, status, got, want)
		}
	}
}

// The options of a job script are those of this tool, and what became of the others is said.
func TestJobScript(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "job.sh")
	for _, tt := range []struct {
		lines, args string
		want        string // options, command, note
	}{
		{"", "", ""}, // no job script
		{"#SBATCH --mem=2G -p gpu", "", "[mem=2G partition=gpu] /bin/sh job.sh a"},
		{"#SBATCH -t 2h", "", "[time=2:00:00] /bin/sh job.sh a"},
		{"#SBATCH --mem=2G", "--mem 3G", "[] /bin/sh job.sh a"},
		{"#SBATCH -J train -o x -e y --comment=z", "",
			"[] name=train /bin/sh job.sh a; --output and --error: the output is in the log of the task (ponos-log); ignored: --comment"},
		{"#SBATCH --array=1-2%1", "", "[] name=job-{SLURM_ARRAY_TASK_ID} at-most=1 " +
			"/usr/bin/env -- SLURM_ARRAY_TASK_ID={SLURM_ARRAY_TASK_ID} SLURM_ARRAY_TASK_COUNT=2 /bin/sh job.sh a"},
		{"#SBATCH --export=NONE,A=1", "", "[] /usr/bin/env -- A=1 /bin/sh job.sh a"},
		{"#SBATCH --mail-type=END --mail-user=me@example.org", "", "[mail-type=END mail-user=me@example.org] /bin/sh job.sh a"},
		{"#SBATCH --mail-type=END,FAIL --array=1 --mail-user=me@example.org", "", "[] name=job-{SLURM_ARRAY_TASK_ID} " +
			`on-end=mail -s "$PONOS_GROUP: $PONOS_COMPLETED of $PONOS_TASKS tasks completed" me@example.org </dev/null ` +
			"/usr/bin/env -- SLURM_ARRAY_TASK_ID={SLURM_ARRAY_TASK_ID} SLURM_ARRAY_TASK_COUNT=1 /bin/sh job.sh a; " +
			"--mail-type: one mail when all tasks have ended (--on-end)"},
		{"#SBATCH --mail-type=ARRAY_TASKS --array=1", "", "[mail-type=ARRAY_TASKS] name=job-{SLURM_ARRAY_TASK_ID} " +
			"/usr/bin/env -- SLURM_ARRAY_TASK_ID={SLURM_ARRAY_TASK_ID} SLURM_ARRAY_TASK_COUNT=1 /bin/sh job.sh a"},
		{"#SBATCH --export=A", "", "error PATH: --export A: a task does not have the variables of the shell: give --env-file"},
		{"#SBATCH --input=x", "", "error PATH: a task cannot have the option --input of its #SBATCH lines"},
		{"#SBATCH --memory=2G", "", `error PATH: sbatch has no option "memory"; did you mean "mem"?`},
		{"#SBATCH --signal=B:USR1@60", "", `error PATH: option "signal": with B: only the job script gets the signal, and not the command; ` +
			"ponos-task run saves before the time limit"},
		{"#SBATCH --mem=2G\r", "", `error PATH has the line breaks of DOS (\r\n)`},
		{"#SBATCH --mem=2G\ncd /tmp\n#SBATCH -p gpu", "",
			"[mem=2G] /bin/sh job.sh a; line 4 is not read, as by sbatch: #SBATCH lines come before the first command"},
		{"true\n#SBATCH -p gpu", "", ""}, // a program
		{"#SBATCH --array=2-1", "", `error PATH: invalid --array "2-1"`},
	} {
		executable.Write(t, path, "#!/bin/sh\n"+tt.lines+"\n")
		args := append(strings.Fields(tt.args), path, "a")
		c := parsed(t, args...)
		j, err := jobScript(c, append([]string{name}, args...), c.Args().Slice())
		got := ""
		switch {
		case err != nil:
			got = strings.ReplaceAll("error "+err.Error(), path, "PATH")
		case j != nil:
			got = fmt.Sprint(c.StringSlice("sbatch"))
			for _, o := range []string{"name", "at-most", "on-end"} {
				if c.IsSet(o) && c.String(o) != "job" {
					got += fmt.Sprintf(" %s=%v", o, c.Value(o))
				}
			}
			got += " " + strings.Join(j.words, " ")
			if note := j.note(); note != "" {
				got += strings.Replace(note, j.name+":", ";", 1)
			}
			got = strings.ReplaceAll(got, path, "job.sh")
		}
		if got != tt.want {
			t.Errorf("%s %s:\n%s; want\n%s", tt.lines, tt.args, got, tt.want)
		}
	}
}

// Each option of sbatch in a line of a job script has one fate: it is an option of the job, it is one of this tool, it is ignored and
// named, or the script is refused and it is named. The manual lists those that are neither of the first nor of the last kind.
func TestJobScriptFates(t *testing.T) {
	page, err := os.ReadFile("../../../man/ponos-submit.1.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := func(kind string) []string {
		_, text, _ := strings.Cut(string(page), "\n"+kind+"\n:   ")
		text, _, _ = strings.Cut(text, "\n\n")
		return strings.FieldsFunc(text, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') })
	}
	value := map[sbatch.Form]string{
		sbatch.Text: "x", sbatch.Count: "1", sbatch.Whole: "1", sbatch.Range: "1", sbatch.Size: "1G", sbatch.Time: "1:00",
		sbatch.GPUs: "1", sbatch.TaskGPUs: "1", sbatch.GRES: "gpu:1", sbatch.TRES: "cpu:1",
	}
	special := map[string]string{"array": "1-2", "export": "A=1", "mail-type": "FAIL", "nice": "1", "chdir": t.TempDir()}
	script := filepath.Join(t.TempDir(), "job.sh")
	count := map[string]int{}
	for _, d := range sbatch.All() {
		line := "--" + d.Name
		switch {
		case special[d.Name] != "":
			line += "=" + special[d.Name]
		case d.Form == sbatch.Word:
			line += "=" + d.Words[0]
		case d.Form != sbatch.Flag:
			line += "=" + value[d.Form]
		}
		executable.Write(t, script, "#!/bin/sh\n#SBATCH "+line+"\n")
		c := parsed(t, script)
		flags := c.NumFlags()
		j, err := jobScript(c, []string{name, script}, c.Args().Slice())
		fate := ""
		switch {
		case err != nil:
			if want := script + ": a task cannot have the option --" + d.Name + " of its #SBATCH lines"; err.Error() != want {
				t.Errorf("%s: %v; want %s", line, err, want)
			}
			fate = "Refused"
		case slices.Contains(j.ignored, "--"+d.Name) && j.note() == script+": ignored: --"+d.Name:
			fate = "Ignored"
		case slices.ContainsFunc(c.StringSlice("sbatch"), func(s string) bool { return strings.HasPrefix(s+"=", d.Name+"=") }):
			fate = "Honoured"
		case j.array != nil, len(j.logged) > 0, len(j.words) > 2, c.NumFlags() > flags+2: // beside in-place and name
			fate = "Mapped"
		case d.Name == "job-name" && c.String("name") == "x":
			fate = "Mapped"
		default:
			t.Errorf("%s is dropped without a word", line)
		}
		count[fate]++
		task := d.Use&sbatch.ByTask != 0
		for kind, want := range map[string]bool{
			"Honoured": task, "Ignored": slices.Contains(listed("Ignored"), d.Name),
			"Mapped": slices.Contains(listed("Mapped"), d.Name) && !task,
		} {
			if want != (fate == kind) {
				t.Errorf("%s is %s, by table and manual it is %s: %v", line, fate, kind, want)
			}
		}
	}
	for _, fate := range []string{"Honoured", "Mapped", "Ignored", "Refused"} {
		if count[fate] < 6 {
			t.Errorf("%s: %d options only", fate, count[fate])
		}
	}
}
