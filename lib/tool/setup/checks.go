package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/guard"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// finding is the result of a check of ponos-setup.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
	// Warning says that the agent still works, but not for all tasks.
	Warning bool  `json:"warning,omitempty"`
	err     error // what failed, where it is more than a wrong configuration
}

// leastOf returns the least version, in the program's own notation.
func leastOf(p assembly.Program) string {
	return strings.TrimSuffix(fmt.Sprintf("%d.%d.%d", p.Least[0], p.Least[1], p.Least[2]), ".0")
}

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)(?:\.(\d+))?[^\s,(]*`)

// programTime is how long a program may take to print its version, on a slow disk. Those of Slurm first contact
// their controller, according to SLURM_CONF, and hang: they have less.
const programTime = time.Minute

// checkPrograms runs each program that the configuration needs, for its version, concurrently.
func checkPrograms(ctx context.Context, run command.Runner, c config.Config) []finding {
	list := assembly.Programs(c)
	checks := make([]finding, len(list))
	var wg sync.WaitGroup
	for i, p := range list {
		wg.Go(func() { checks[i] = checkProgram(ctx, run, p) })
	}
	wg.Wait()
	return checks
}

func checkProgram(ctx context.Context, run command.Runner, p assembly.Program) finding {
	check := finding{Name: p.Name}
	limit := programTime
	if p.Slurm {
		limit = slurm.Soon()
		defer progress.Wait(ctx, "Slurm: "+p.Name)()
	}
	result, err := run.Run(ctx, command.Cmd{Name: p.Name, Args: []string{"--version"}, Env: command.Environ(), Timeout: limit})
	text, _, _ := strings.Cut(strings.TrimSpace(string(result.Stdout)), "\n")
	detail, version := versionOf(text)
	var missing *command.NotFoundError
	switch {
	case errors.As(err, &missing):
		check.Detail, check.Hint = fault.Text(err), fmt.Sprintf("install %s, or put it into PATH", p.Name)
		if p.Without != "" {
			check.OK, check.Warning = true, true
			check.Detail = "program not found: tasks with " + p.Without + " cannot run"
		}
	case err != nil && p.Slurm:
		check.Detail, check.Hint = fault.Text(err), "Slurm's programs need a valid slurm.conf: SLURM_CONF is not set"
		if conf := os.Getenv("SLURM_CONF"); conf != "" {
			check.Hint = fmt.Sprintf("Slurm's programs need a valid slurm.conf: SLURM_CONF is %q", conf)
		}
		if errors.As(err, new(*command.TimeoutError)) { // without slurm.conf they ask the controller for it
			check.err = fault.Wrap(fault.Unavailable, err)
			check.Hint += "; if it is only slow, set PONOS_SLURM_TIMEOUT"
		}
	case err != nil:
		check.Detail, check.Hint = fault.Text(err), fmt.Sprintf(`check the output of "%s --version"`, p.Name)
	case detail == "":
		check.Detail = fmt.Sprintf("expected its version, but it printed %.60q", text)
	default:
		check.Detail = detail
		check.OK = slices.Compare(version[:], p.Least[:]) >= 0
		if !check.OK {
			check.Hint = "at least version " + leastOf(p) + " is needed"
		}
	}
	return check
}

// versionOf returns the first version in a text as it is there, and its numbers; "": there is none.
func versionOf(text string) (detail string, version [3]int) {
	match := versionNumber.FindStringSubmatch(text)
	if match == nil {
		return "", version
	}
	for i := range version {
		version[i], _ = strconv.Atoi(match[i+1]) // "" is 0
	}
	return match[0], version
}

// checkPython creates a virtual environment and queries the version of its ensurepip, from which venv
// takes pip: installing pip would take seconds. Without pip, tasks can run whose code has nothing to
// install. [checkPrograms] reports a missing Python.
func checkPython(ctx context.Context, run command.Runner, c config.Config) []finding {
	if !slices.ContainsFunc(assembly.Programs(c), func(p assembly.Program) bool { return p.Name == c.Environment.Python }) {
		return nil
	}
	check := finding{Name: "virtual environment", Hint: "install what Python's venv needs: on Debian, that is the package python3-venv"}
	dir, err := os.MkdirTemp("", "ponos-setup-")
	if err != nil {
		check.Detail, check.Hint = fault.Text(err), "set TMPDIR to a directory that can be written to"
		return []finding{check}
	}
	defer os.RemoveAll(dir)
	venv := filepath.Join(dir, "venv")
	_, err = run.Run(ctx, command.Cmd{
		Name: c.Environment.Python, Args: []string{"-I", "-m", "venv", "--without-pip", venv},
		Env: command.Environ(), Timeout: 5 * time.Minute, DieWithParent: true,
	})
	if errors.As(err, new(*command.NotFoundError)) {
		return nil
	}
	if err != nil {
		check.Detail = fault.Text(err)
		return []finding{check}
	}
	result, err := run.Run(ctx, command.Cmd{
		Name: filepath.Join(venv, "bin", "python"), Args: []string{"-I", "-m", "ensurepip", "--version"},
		Env: command.Environ(), Timeout: time.Minute, DieWithParent: true,
	})
	if words := strings.Fields(string(result.Stdout)); err == nil && len(words) > 1 {
		return []finding{{Name: check.Name, OK: true, Detail: "created; pip " + words[1]}}
	}
	check.OK, check.Warning, check.Detail = true, true, "without pip: no packages can be installed for tasks"
	return []finding{check}
}

// checkDirectories checks the directories of the agent.
func checkDirectories(c config.Config) []finding {
	checks := []finding{checkPath("state directory", c.StateDir(), false, c.CheckDataDir())}
	var s unix.Statfs_t
	if unix.Statfs(c.DataDir, &s) == nil && s.Flags&unix.ST_NOEXEC != 0 && assembly.Copies(c) {
		checks[0].Detail += ", from which no programs may be run: jobs run a copy of ponos-worker in TMPDIR"
	}
	if name, dir, err := assembly.Directory(c); dir != "" {
		checks = append(checks, checkPath(name, dir, false, err))
	}
	err := guard.Held(c.PIDFile)
	if fault.Is(err, fault.Busy) { // told with the agent that runs
		err = nil
	}
	checks = append(checks, checkPath("pid_file", c.PIDFile, true, err))
	return append(checks, checkParents(c)...)
}

// checkParents warns of directories in which others could put another spool or data_dir in the place of the agent's. In the trees of
// a project that is usual.
func checkParents(c config.Config) []finding {
	paths := []string{c.DataDir, c.Path}
	if _, dir, _ := assembly.Directory(c); dir != "" {
		paths = append(paths, dir)
	}
	var open []string
	for _, path := range paths {
		for _, dir := range place.OpenParents(path) {
			if !slices.Contains(open, dir) {
				open = append(open, dir)
			}
		}
	}
	if open == nil {
		return nil
	}
	return []finding{{
		Name: "directories above", OK: true, Warning: true,
		Detail: fmt.Sprintf("others can replace what is in %s", strings.Join(open, ", ")),
		Hint:   "trust who may write there, or move the configuration, spool and data_dir below a directory of your own",
	}}
}

// checkPath reports the file system of a path, and checks that the path, of a directory or a file, can be
// created or written to. An error is one that is known before.
func checkPath(name, path string, file bool, err error) finding {
	check := finding{Name: name, OK: true, Detail: path}
	there := path
	info, statErr := os.Stat(there)
	for statErr != nil && there != filepath.Dir(there) {
		there = filepath.Dir(there)
		info, statErr = os.Stat(there)
	}
	if err == nil {
		switch mustBeFile := file && there == path; {
		case statErr == nil && mustBeFile && info.IsDir():
			err = unix.EISDIR
		case statErr == nil && !mustBeFile && !info.IsDir():
			err = unix.ENOTDIR
		default:
			err = unix.Access(there, unix.W_OK)
		}
		if err != nil {
			err = fmt.Errorf("%q: %w", there, err)
		}
	}
	if err != nil {
		check.OK, check.Detail, check.Hint = false, fault.Text(err), fault.HintOf(err)
		return check
	}
	switch kind := fileSystem(there); kind {
	case "":
	case "NFS":
		check.Detail += " (on NFS: see NETWORK FILE SYSTEMS in ponos(7))"
	default:
		check.Detail += " (on " + kind + ")"
	}
	return check
}

// fileSystems are the names of kinds of file system, by what statfs(2) calls them.
var fileSystems = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x19830326: "BeeGFS", unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.CIFS_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB", unix.FUSE_SUPER_MAGIC: "FUSE",
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "XFS", unix.BTRFS_SUPER_MAGIC: "btrfs", 0x2fc12fc1: "ZFS",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.TMPFS_MAGIC: "tmpfs",
}

func fileSystem(path string) string {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return ""
	}
	return fileSystems[int64(s.Type)&0xffffffff] //nolint:unconvert // its type differs between architectures
}

// checkSubmission asks the scheduler whether it would accept a job of each kind of task, and submits
// none.
func (r *report) checkSubmission(ctx context.Context, system *assembly.System) {
	try := system.Try()
	if try == nil {
		return
	}
	c := &system.Config
	keys := []string{"slurm.cpu"}
	if len(c.Slurm.GPU) > 0 {
		keys = append(keys, "slurm.gpu")
	}
	for _, key := range keys {
		options, err := try(ctx, runner.Needs{GPU: key == "slurm.gpu"})
		if fault.Is(err, fault.Unavailable) {
			r.check(key, "", err)
			return
		}
		r.Checks = append(r.Checks, submission(key, options.String(), c.Where(key), err))
	}
}

// submission is the answer of sbatch to the options of a key of the configuration.
func submission(key, options, where string, err error) finding {
	if err == nil {
		return finding{Name: key, OK: true, Detail: "sbatch accepts " + options}
	}
	hint := cmp.Or(fault.HintOf(err), fmt.Sprintf("correct slurm.base or %s in %s", key, where))
	return finding{Name: key, Detail: fault.Text(err), Hint: hint}
}
