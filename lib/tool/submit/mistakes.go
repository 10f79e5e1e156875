package submit

import (
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
// an error, and the rest is told.
func mistakes(c *cli.Context, words []string, sweep bool, stderr io.Writer) error {
	script := scriptOf(words)
	if err := absent(c, script); err != nil {
		return err
	}
	for _, warning := range []error{unread(c, script), notFound(c, words), inactive(c, words), numbered(c)} {
		if warning != nil {
			app.Report(stderr, name, warning)
		}
	}
	if !sweep {
		if err := misplaced(words); err != nil {
			app.Report(stderr, name, err)
		}
	}
	return nil
}

// interpreters take a script as their first argument.
var interpreters = []string{"python", "python3", "bash", "sh", "zsh", "perl", "Rscript", "julia", "node", "ruby"}

// scriptOf is the file of the task's code that a command begins with, or that it has an interpreter run; "": none is
// certain.
func scriptOf(words []string) string {
	if len(words) > 1 && slices.Contains(interpreters, filepath.Base(words[0])) {
		words = words[1:]
		if filepath.Ext(words[0]) == "" && !strings.Contains(words[0], "/") { // may be a module, or an option
			return ""
		}
	} else if len(words) == 0 || !strings.Contains(words[0], "/") {
		return ""
	}
	if filepath.IsAbs(words[0]) || words[0][0] == '-' || strings.ContainsAny(words[0], "{$") {
		return ""
	}
	return words[0]
}

// codeDir is the directory here that has the code of the task as it is now; "" if there is none.
func codeDir(c *cli.Context) string {
	if dir := c.String("directory"); dir != "" {
		return dir
	}
	dir := c.String("repository")
	if info, err := os.Stat(dir); dir == "" || c.IsSet("revision") || err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// absent is an error if the task will not have its script: each attempt would fail.
func absent(c *cli.Context, script string) error {
	dir := codeDir(c)
	if script == "" || c.IsSet("image") || dir == "" && c.IsSet("repository") {
		return nil
	}
	if dir == "" {
		err := fault.Errorf(fault.Usage, "the task has no code, so no file %s", task.Clean(script))
		if _, here := os.Stat(script); here != nil {
			return err
		}
		return fault.Hint(err, "to run the code of this directory, give --directory . (or --repository . for the last commit)")
	}
	info, err := os.Stat(filepath.Join(dir, script))
	if c.IsSet("repository") && !c.Bool("dirty") {
		mode, failed := source.Committed(c.Context, dir, script)
		switch {
		case failed != nil || mode != "":
			return nil // or there is no commit: that is refused later
		case err == nil && !builds(dir):
			return fault.Hint(fault.Errorf(fault.Usage, "%s is not committed", task.Clean(filepath.Join(dir, script))),
				"commit it, or include it with --dirty")
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if builds(dir) {
			return nil
		}
		err := fault.Errorf(fault.Usage, "%s has no file %s", task.Clean(dir), task.Clean(script))
		if near := nearest(dir, script); near != "" {
			return fault.Hint(err, fmt.Sprintf("did you mean %s?", task.Clean(near)))
		}
		return err
	case err != nil:
		return fault.Errorf(fault.Usage, "%s: %w", task.Clean(script), err)
	case info.IsDir():
		return nil // python runs a directory
	case info.Mode().Perm()&0o111 == 0 && c.Args().First() == script:
		return fault.Hint(
			fault.Errorf(fault.Usage, "%s is not executable", task.Clean(script)), "chmod +x "+shell.Quote(filepath.Join(dir, script)))
	}
	return nil
}

// builds reports whether code may make files of its own.
func builds(dir string) bool {
	return slices.ContainsFunc([]string{environment.InstallScript, "Makefile"}, func(name string) bool { return exists(dir, name) })
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// nearest is the name in the directory of a missing file that comes nearest to its own, as it would be typed.
func nearest(dir, missing string) string {
	entries, err := os.ReadDir(filepath.Join(dir, filepath.Dir(missing)))
	if err != nil {
		return ""
	}
	var names []string
	for _, e := range entries[:min(len(entries), 1000)] {
		names = append(names, e.Name())
	}
	near := spelling.Nearest(filepath.Base(missing), names)
	if near == "" {
		return ""
	}
	return strings.TrimSuffix(missing, filepath.Base(missing)) + near
}

// maxScript limits how much of a script is read, in bytes.
const maxScript = 1 << 20

// unread is a warning about #SBATCH lines of the script that the task runs: it is no job script of its own.
func unread(c *cli.Context, script string) error {
	dir := codeDir(c)
	if script == "" || dir == "" {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, script))
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxScript))
	if err != nil || !strings.HasPrefix(string(text), "#!") && filepath.Ext(script) != ".sh" {
		return nil
	}
	jobs, err := sbatch.Script(string(text))
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
	return fault.Hint(warning, "to request the same, give "+strings.Join(give, " "))
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
func inactive(c *cli.Context, words []string) error {
	if len(words) == 0 || !strings.HasPrefix(words[0], "python") || c.IsSet("image") {
		return nil
	}
	dir := codeDir(c)
	if dir == "" && c.IsSet("repository") || dir != "" && environment.Installed(func(name string) bool { return exists(dir, name) }) {
		return nil
	}
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		dir := os.Getenv(variable)
		if dir == "" {
			continue
		}
		return fault.Hint(
			fmt.Errorf("warning: %s, which is active here, will not be active in the task", task.Clean(dir)),
			"to use it where nodes have it, give its program: "+shell.Quote(filepath.Join(dir, "bin", words[0])))
	}
	return nil
}

// notFound is a warning about a program that this machine does not have, where the task brings none
// along: a word that was mistyped, or meant as a command of this tool.
func notFound(c *cli.Context, words []string) error {
	for _, brings := range []string{"repository", "directory", "image", "file", "env-file"} {
		if c.IsSet(brings) {
			return nil
		}
	}
	if len(words) == 0 || strings.ContainsAny(words[0], "/{") {
		return nil
	}
	if _, err := command.Path(words[0]); err == nil {
		return nil
	}
	err := fmt.Errorf("warning: program %q was not found in PATH on this machine", task.Clean(words[0]))
	if near := tools[words[0]]; near != "" && len(words) == 1 {
		return fault.Hint(err, "to do that, use "+near)
	}
	return err
}
