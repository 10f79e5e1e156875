package jobpool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	ours "github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/base/replace"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
)

// base is where runs without --run keep their directories; last is a link to the
// one that was last.
const (
	baseDir = ".jobpool"
	lastRun = ".jobpool/last"
)

// runDir is the run directory: the one named, that of the Slurm job, the last one
// to be resumed, or a new one, which it may create.
func runDir(c *cli.Context, getenv func(string) string, create bool) (string, error) {
	dir := c.String("run")
	if dir == "" && c.IsSet("run") {
		return "", fault.Errorf(fault.Usage, "--run: the directory is not named")
	}
	resume := c.Bool("resume") || c.Bool("retry-failed")
	if dir == "" {
		if err := ownRun(baseDir); err != nil {
			return "", err
		}
		name := clock.Now().Format("20060102-150405.") + fmt.Sprint(os.Getpid())
		if job := getenv("SLURM_JOB_ID"); job != "" && getenv("JOBPOOL_NODE") == "" {
			name = job
		}
		if dir = filepath.Join(baseDir, name); create && !resume {
			dir = newDir(dir)
		}
		if _, err := os.Stat(dir); err != nil && resume && c.String("joblog") == "" {
			if last, err := filepath.EvalSymlinks(lastRun); err == nil {
				dir = last
			}
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err = ownDir(dir); err == nil {
		err = isRun(dir)
	}
	if err == nil {
		err = ownRun(dir)
	}
	return dir, err
}

// newDir creates the directory of a run, with another name if it exists: that of another pool in the same job, or of
// a host or container in which a pool had the same process id in the same second. Two that start together do not get
// the same one.
func newDir(dir string) string {
	_ = os.MkdirAll(filepath.Dir(dir), 0o700) // an error is noticed later
	name := dir
	for n := 1; n < 1000; n++ {
		if err := os.Mkdir(name, 0o700); !errors.Is(err, fs.ErrExist) {
			break
		}
		name = fmt.Sprintf("%s.%d", dir, os.Getpid())
		if n > 1 {
			name += fmt.Sprintf("-%d", n)
		}
	}
	return name
}

// isRun refuses a directory that holds other things than a run.
func isRun(dir string) error {
	refuse := func(why string) error {
		return fault.Hint(
			fault.Errorf(fault.Usage, "run directory %q: %s", dir, why),
			"choose a directory that is new, empty, or that of a run")
	}
	if dir == "/" {
		return refuse("it is the root directory")
	}
	names, err := os.ReadDir(dir)
	if err != nil { // it is new, or cannot be used, which is noticed later
		return nil
	}
	for _, e := range names {
		switch e.Name() {
		case journal.File, journal.RunFile, "lock":
			return nil
		}
	}
	for _, e := range names {
		switch e.Name() {
		case "logs", "nodes", "spool", "bin", "lost+found", "lease", pilot.Dir, journal.Joblog, journal.Socket,
			input.Offered, input.Closing, input.Added:
		default:
			return refuse(fmt.Sprintf("it holds %q and is not the directory of a run", e.Name()))
		}
	}
	return nil
}

// ownDir refuses a directory of another user in a place where everybody may write, as
// in /tmp.
func ownDir(dir string) error {
	for ; dir != "/"; dir = filepath.Dir(dir) {
		st, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		parent, err := os.Stat(filepath.Dir(dir))
		if err != nil || parent.Mode()&os.ModeSticky == 0 || parent.Mode()&0o002 == 0 {
			continue
		}
		if !ours.Mine(st) && ours.Owner(st) != 0 {
			return fault.Hint(fault.Errorf(fault.Usage, "run directory: %q belongs to another user", dir), "choose another with --run")
		}
	}
	return nil
}

// ownRun refuses a directory in which others can write, or have written: nodes run the program that is in the directory of a run, and
// what its files say is believed. A missing one is new.
func ownRun(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return nil // or it cannot be used, which is noticed later
	}
	owner := os.Geteuid()
	if !ours.Mine(info) {
		owner = ours.NewFiles(dir) // the file system may map owners
	}
	err = ours.Dir(dir, owner)
	names, _ := os.ReadDir(dir)
	for _, e := range names {
		if info, failed := e.Info(); err == nil && failed == nil && ours.Owner(info) != owner && ours.Owner(info) != 0 {
			err = fault.Hint(
				fault.Errorf(fault.Usage, "%q belongs to user %s", filepath.Join(dir, e.Name()), ours.UserName(ours.Owner(info))),
				"choose another with --run")
		}
	}
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	return nil
}

// past is what earlier runs in the directory did.
func past(dir, joblog string, resume, serve bool) (*journal.History, error) {
	h, err := journal.Load(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case h.Sessions > 0 && !resume && !serve:
		return nil, hasRun(dir)
	case h.Sessions == 0 && joblog != "":
		st, err := os.Stat(joblog)
		if err != nil || st.Size() == 0 || !st.Mode().IsRegular() {
			return h, nil
		}
		if !resume {
			return nil, fault.Hint(
				fault.Errorf(fault.Usage, "job log %q already contains a run", joblog),
				"resume it with --resume, or choose another")
		}
		return journal.LoadJoblog(joblog)
	}
	return h, nil
}

func hasRun(dir string) error {
	return fault.Hint(
		fault.Errorf(fault.Usage, "run directory %q already contains a run", dir),
		"resume it with --resume, or choose another with --run")
}

// remember lets "last" name a run directory of its own making.
func remember(dir string, named bool) error {
	if named {
		return nil
	}
	if err := renameio.Symlink(filepath.Base(dir), lastRun); err != nil {
		return fault.Hint(err, "choose a run directory with --run")
	}
	journal.Tidy(baseDir, filepath.Base(dir))
	return nil
}

// runInfo is what run.json holds.
type runInfo struct {
	Args    []string  `json:"args"`
	Dir     string    `json:"dir"`
	Version string    `json:"version"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Session string    `json:"session"`
	Job     string    `json:"job,omitempty"`
	Node    string    `json:"node,omitempty"` // of the job, that it is on
	Started time.Time `json:"started"`
}

func writeRun(dir, session string, args []string) error {
	host, _ := os.Hostname()
	cwd, _ := os.Getwd()
	b, err := json.MarshalIndent(runInfo{
		args, cwd, app.Version, host, os.Getpid(), session,
		os.Getenv("SLURM_JOB_ID"), os.Getenv("SLURMD_NODENAME"), clock.Now().Round(time.Second),
	}, "", "  ")
	if err != nil {
		return err
	}
	return replace.File(filepath.Join(dir, journal.RunFile), append(b, '\n'), 0o600)
}

// copyProgram copies a program to DIR/bin, and returns where it is.
func copyProgram(from, dir string) (string, error) {
	to := filepath.Join(dir, "bin", "jobpool")
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", err
	}
	if from == to { // the scheduler of a pilot
		return to, nil
	}
	os.Remove(to)
	if os.Link(from, to) == nil { // stays what it is when another is put in the place of from
		return to, nil
	}
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	out, err := renameio.NewPendingFile(to, renameio.WithTempDir(filepath.Dir(to)), renameio.WithPermissions(0o700))
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Cleanup() }()
	if _, err := io.Copy(out, in); err != nil {
		return "", err
	}
	return to, out.CloseAtomicallyReplace()
}

// ofOwnRun has a command that speaks to a run, or looks into it, refuse what others can write. It too runs the run's program.
func ofOwnRun(command *cli.Command) *cli.Command {
	for _, sub := range command.Subcommands {
		ofOwnRun(sub)
	}
	if act := command.Action; act != nil {
		command.Action = func(c *cli.Context) (err error) {
			dir := existing(c)
			if dir == lastRun {
				err = ownRun(baseDir)
			}
			if err == nil {
				err = ownRun(dir)
			}
			if err == nil {
				err = act(c)
			}
			return err
		}
	}
	return command
}

// existing is the run directory of the commands that speak to a run.
func existing(c *cli.Context) string {
	if dir := c.String("run"); dir != "" {
		return dir
	}
	if dir := os.Getenv("JOBPOOL_RUN"); dir != "" {
		return dir
	}
	return lastRun
}
