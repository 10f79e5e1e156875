package submit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/code/source"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
)

// mistakes looks for what would fail on each node, and for what a task silently does not have. What certainly fails is
// an error, and the rest is told. job says that the words run a job script, whose lines were read.
func mistakes(c *cli.Context, words []string, sweep, job bool, stderr io.Writer) error {
	script, code := source.Script(words), wanted(c)
	if code.Directory != "" && !code.InPlace {
		linked, err := source.Linked(c.Context, code.Directory)
		if err != nil {
			return err
		}
		if len(linked) > 0 {
			fmt.Fprintf(stderr, "%s: links to the originals, as git or %s ignores them: %s\n",
				c.App.Name, source.IgnoreFile, task.SomeOf(linked))
		}
	}
	if job {
		script = ""
	}
	for _, warning := range []error{
		unread(c, code.Here(), script), notFound(c, code, words), inactive(c, code, words), numbered(c), untold(c),
	} {
		if warning != nil {
			app.Report(stderr, c.App.Name, warning)
		}
	}
	if !sweep {
		if err := misplaced(words); err != nil {
			app.Report(stderr, c.App.Name, err)
		}
	}
	return nil
}

// maxScript limits how much of a script is read, in bytes.
const maxScript = 1 << 20

// unread is a warning about #SBATCH lines of the script that the task runs: it is no job script of its own.
func unread(c *cli.Context, dir, script string) error {
	if script == "" || dir == "" {
		return nil
	}
	text := textOf(filepath.Join(dir, script))
	if !strings.HasPrefix(text, "#!") && filepath.Ext(script) != ".sh" {
		return nil
	}
	jobs, err := sbatch.Script(text)
	if err != nil || len(jobs) == 0 || len(jobs[0]) == 0 {
		return nil
	}
	var give []string
	for _, o := range jobs[0] {
		if d := sbatch.Lookup(o.Name); d == nil || d.Use&sbatch.ByTask == 0 || given(c, o.Name) {
			continue
		}
		give = append(give, "--sbatch "+shell.Quote(strings.TrimPrefix(o.Arg(), "--")))
	}
	warning := fmt.Errorf("warning: the #SBATCH lines of %s are comments here: %s", task.Clean(script), task.Clean(jobs[0].String()))
	if len(give) == 0 {
		return warning
	}
	return fault.Hint(warning, "to submit it as sbatch does, give it without --; to request the same, give "+strings.Join(give, " "))
}

// textOf is the beginning of a file; "": there is none.
func textOf(name string) string {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() { // a pipe without a writer would not open
		return ""
	}
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxScript))
	if err != nil {
		return ""
	}
	return string(text)
}

// given reports whether an option of sbatch is given to this tool.
func given(c *cli.Context, option string) bool {
	return c.IsSet(option) || slices.ContainsFunc(c.StringSlice("sbatch"), func(s string) bool {
		o, _ := sbatch.Parse(s)
		return o.Name == option
	})
}

// inactive is a warning about an environment of Python that is active in this shell, and will not be in the task, where
// the task has none of its own.
func inactive(c *cli.Context, code source.Wanted, words []string) error {
	if len(words) == 0 || !strings.HasPrefix(words[0], "python") || c.IsSet("image") || c.IsSet("environment") {
		return nil
	}
	dir := code.Here()
	if dir == "" && code.Repository != "" || installs(code) {
		return nil
	}
	active := ActiveHere()
	if active == "" {
		return nil
	}
	return fault.Hint(
		fmt.Errorf("warning: %s, which is active here, will not be active in the task", task.Clean(active)),
		"to use it where nodes have it, give --environment active")
}

// ActiveHere is the directory of the environment of Python that is active in this shell; "": none is.
func ActiveHere() string { return cmp.Or(os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")) }

// environmentOf is the environment of Python that the task is to use; "": what is made of its code.
func environmentOf(c *cli.Context) (string, error) {
	switch value := c.String("environment"); {
	case !c.IsSet("environment"), value == "own":
		return "", nil
	case value != "active":
		return "", fault.Errorf(fault.Usage, "--environment: invalid value %q: expected active or own", task.Clean(value))
	}
	dir := ActiveHere()
	if !filepath.IsAbs(dir) {
		return "", fault.Errorf(fault.Usage, "--environment active: no environment of Python is active here")
	}
	if _, err := os.Stat(filepath.Join(dir, "bin")); err != nil {
		return "", fault.Errorf(fault.Usage, "--environment active: %w", err)
	}
	return dir, nil
}

// ofShell are commands that shells have, and no directory of PATH.
var ofShell = []string{"cd", "source", ".", "export", "set", "unset", "ulimit", "umask", "alias", "eval", "exec", "module", "ml"}

// notFound is a warning about a program that this machine does not have, where the task brings none
// along: a word that was mistyped, or meant as a command of this tool.
func notFound(c *cli.Context, code source.Wanted, words []string) error {
	if c.IsSet("image") || c.IsSet("env-file") || code.Repository != "" && code.Here() == "" || installs(code) {
		return nil
	}
	switch {
	case len(words) == 0 || strings.Contains(words[0], "{"):
		return nil
	case filepath.IsAbs(words[0]):
		if _, err := command.Path(words[0]); err != nil {
			return fmt.Errorf("warning: %s %s", task.Clean(words[0]), whyNot(words[0]))
		}
		return nil
	case strings.Contains(words[0], "/"): // of the code
		return nil
	}
	if _, err := command.Path(words[0]); err == nil {
		return nil
	}
	err := fmt.Errorf("warning: program %q was not found in PATH on this machine", task.Clean(words[0]))
	if near := tools[words[0]]; near != "" && len(words) == 1 {
		return fault.Hint(err, "to do that, use "+near)
	}
	if name, _, ok := strings.Cut(words[0], "="); ok && task.IsVariable(name) {
		return fault.Hint(err, fmt.Sprintf("to set a variable, give -- env %s=VALUE COMMAND, or --env-file", name))
	}
	if slices.Contains(ofShell, words[0]) {
		return fault.Hint(err, fmt.Sprintf("%s is a command of the shell: -- bash -lc '%[1]s ... && COMMAND'", words[0]))
	}
	if near := spelling.Nearest(words[0], programs()); near != "" {
		return fault.Hint(err, fmt.Sprintf("did you mean %s?", task.Clean(near)))
	}
	return err
}

// whyNot is why a file cannot be run as a program.
func whyNot(path string) string {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is not on this machine"
	case err != nil:
		return "cannot be looked at: " + fault.Text(err)
	case info.IsDir():
		return "is a directory"
	}
	return "is not executable"
}

// untold is a warning about a command for the end of the group whose program this machine does not have.
func untold(c *cli.Context) error {
	line := c.String("on-end")
	if line == "none" {
		return nil
	}
	for _, word := range strings.Fields(line) {
		if name, _, set := strings.Cut(word, "="); set && !strings.ContainsAny(name, "/'\"$`(") {
			continue // A=1 PROGRAM
		}
		if strings.ContainsAny(word, "'\"$`\\();&|<>{}*?[]~!#") {
			return nil // the shell decides
		}
		// A shell also has words that are no programs.
		look := []string{"-c", `command -v -- "$1"`, "sh", word}
		_, err := command.System.Run(c.Context, command.Cmd{Name: "/bin/sh", Args: look, Env: os.Environ()})
		if errors.As(err, new(*command.ExitError)) {
			return fault.Hint(
				fmt.Errorf("warning: --on-end: program %q was not found on this machine", task.Clean(word)),
				"the command runs on the host of the agent; if that has none either, ponos-list says so when the group has ended")
		}
		return nil
	}
	return nil
}

// installs reports whether the code gets an environment of its own, with programs that this machine need not have.
func installs(code source.Wanted) bool {
	dir := code.Here()
	return dir != "" && !code.InPlace && environment.Installed(func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// programs are the names in the directories of PATH.
func programs() (names []string) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	return names
}
