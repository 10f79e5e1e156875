package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/task"
)

// interpreters take a script as their first argument.
var interpreters = []string{"python", "python3", "bash", "sh", "zsh", "perl", "Rscript", "julia", "node", "ruby"}

// Script is the file of the task's code that a command begins with, or that it has an interpreter run; "": none is
// certain.
func Script(words []string) string {
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

// Here is the directory on this machine that has the code as it is now; "": there is none.
func (w Wanted) Here() string {
	if w.Directory != "" {
		return w.Directory
	}
	if info, err := os.Stat(w.Repository); w.Repository == "" || w.Revision != "" || err != nil || !info.IsDir() {
		return ""
	}
	return w.Repository
}

// Absent is an error if a task with this code will not have the script that its command runs: each attempt would fail.
func (w Wanted) Absent(ctx context.Context, words []string) error {
	script, dir := Script(words), w.Here()
	if script == "" || dir == "" && w.Repository != "" {
		return nil
	}
	if dir == "" {
		err := fault.Errorf(fault.Usage, "the task has no code, so no file %s", task.Clean(script))
		if _, here := os.Stat(script); here != nil {
			return err
		}
		return fault.Hint(err, "to run the code of this directory, give --directory . (or --repository . for the last commit)")
	}
	if _, err := os.Stat(dir); err != nil {
		return nil // Make says what is wrong with the directory
	}
	info, err := os.Stat(filepath.Join(dir, script))
	if w.Directory == "" && !w.Dirty {
		mode, failed := committed(ctx, dir, script)
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
	case info.Mode().Perm()&0o111 == 0 && words[0] == script:
		return fault.Hint(
			fault.Errorf(fault.Usage, "%s is not executable", task.Clean(script)), "chmod +x "+shell.Quote(filepath.Join(dir, script)))
	}
	return nil
}

// builds reports whether code may make files of its own.
func builds(dir string) bool {
	return slices.ContainsFunc([]string{environment.InstallScript, "Makefile"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
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
