package setup

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	homedir "github.com/mitchellh/go-homedir"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm"
)

//go:embed ponos.yaml
var example string

// Parts of the example that are replaced for Slurm.
const (
	localWords   = "runs them on this machine."
	localMode    = "\nmode: local\n"
	slurmSection = "# Options of sbatch: for all jobs (base), for tasks without and with a GPU, and for the\n"
)

// dataDir is where the tasks of a new configuration in a directory are, with all that they write: that directory, but for one among the
// user's configurations, which are small and often copied, one of the same name among the user's data.
func dataDir(dir string) string {
	home, err := homedir.Dir()
	if err != nil {
		return dir
	}
	of := func(variable, otherwise string) string {
		if dir := os.Getenv(variable); filepath.IsAbs(dir) {
			return dir
		}
		return filepath.Join(home, otherwise)
	}
	name, err := filepath.Rel(of("XDG_CONFIG_HOME", ".config"), dir)
	if err != nil || !filepath.IsLocal(name) || name == "." {
		return dir
	}
	return filepath.Join(of("XDG_DATA_HOME", ".local/share"), name)
}

// configuration returns the example for a data directory. With mode "slurm", or without a mode if
// Slurm answers, it has a partition and an account of this cluster, and about describes them.
// A warning reports a Slurm that is installed but cannot be used.
func configuration(ctx context.Context, dir, mode, tool string, stderr io.Writer) (text, about string, err error) {
	text = strings.ReplaceAll(example, "@DIR@", dir)
	if mode == "local" {
		return text, "", nil
	}
	var doubts slurm.Doubts
	f, err := find(ctx, &slurm.Client{Run: command.System, Soon: true, Odd: doubts.Add})
	if err != nil {
		if mode == "slurm" {
			return "", "", fault.Errorf(fault.Unavailable, "--init: Slurm: %w", err)
		}
		if !Absent(err) {
			app.Report(stderr, tool, fault.Hint(
				fmt.Errorf("warning: tasks are to run on this machine, because Slurm cannot be used: %w", err),
				"if they are to run on Slurm, remove the file and use --init with --mode slurm"))
		}
		return text, "", nil
	}
	for _, doubt := range doubts.Warnings() {
		app.Report(stderr, tool, fmt.Errorf("warning: %s", doubt))
	}
	text = strings.Replace(text, localWords, "submits them to Slurm.", 1)
	text = strings.Replace(text, localMode, "\nmode: slurm\n", 1)
	before, rest, _ := strings.Cut(text, slurmSection)
	_, after, _ := strings.Cut(rest, "\n\n")
	text = before + f.section() + "\n" + after
	about = fmt.Sprintf("Tasks run on Slurm, in partition %s", f.cpu)
	if f.gpu != "" && f.gpu != f.cpu {
		about += fmt.Sprintf(", those with --gpu in %s", f.gpu)
	}
	if f.account != "" {
		about += "; account " + f.account + " pays"
	}
	return text, about + ". All nodes must see " + dir + ".\n", nil
}

// Absent reports whether Slurm is not installed on this machine, or not configured.
func Absent(err error) bool {
	var e *slurm.Error
	return errors.As(err, &e) && (e.Failure == slurm.NotInstalled || e.Says("Could not establish a configuration source"))
}

// plain reports whether a configuration can name a directory without quoting parts of the name: YAML folds
// what ends a line, and a configuration expands variables.
func plain(dir string) bool {
	return utf8.ValidString(dir) && !strings.ContainsAny(dir, "\"\\%$") &&
		!strings.ContainsFunc(dir, func(r rune) bool { return !unicode.IsGraphic(r) })
}

// Made is a configuration that was written.
type Made struct {
	Path, Data string
	About      string // where tasks run on Slurm; "": on this machine
}

// Write writes the example configuration to a directory, for a mode; "": slurm if Slurm answers. It replaces nothing.
func Write(ctx context.Context, dir, mode, tool string, stderr io.Writer) (m Made, err error) {
	dir, err = config.Expand(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return m, err
	}
	if !plain(dir) {
		return m, fault.Errorf(fault.Usage, "--init %q: the name has a character that a configuration would have to quote", dir)
	}
	m.Data = dataDir(dir)
	if !plain(m.Data) {
		return m, fault.Errorf(fault.Usage,
			"--init: the data directory %q has a character that a configuration would have to quote", m.Data)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return m, fault.Errorf(fault.Usage, "--init: %w", err)
	}
	m.Path = filepath.Join(dir, "ponos.yaml")
	if _, err := os.Lstat(m.Path); err == nil {
		return m, fault.Hint(fault.Errorf(fault.Usage, "--init: %q already exists", m.Path), "name another directory, or remove the file")
	}
	text := ""
	if text, m.About, err = configuration(ctx, m.Data, mode, tool, stderr); err != nil {
		return m, err
	}
	// Whole or not at all: another tool may look for it at the same time.
	return m, lock.WriteNew(m.Path, []byte(text))
}

// initialize writes the example configuration, and says what to do with it.
func initialize(ctx context.Context, dir, mode string, stdout, stderr io.Writer) error {
	m, err := Write(ctx, dir, mode, name, stderr)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s is written. Tasks and what they write go to %s. %sTo try it:\n\n"+
		"  export PONOS_CONFIG=%s\n"+
		"  ponos-setup\n"+
		"  ponos-submit --wait -- echo 'hello, world' &\n"+
		"  ponos-poll --every 1s | ponos-stop | ponos-start\n", m.Path, m.Data, m.About, shell.Quote(m.Path))
	return err
}
