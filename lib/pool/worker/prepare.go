package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// A node is set up once for a run, by the first of its workers there, and cleared by the last one:
// several jobs of the run may be there, and after a hand-over, the worker of the next scheduler runs
// beside that of the previous one. All of them lock a file in the temporary directory, which names the
// job whose setup has succeeded: shared while their tasks may run, exclusively to set up or clear. The
// supervisor clears, as the worker may have been killed; if the supervisor was killed as well, the next
// worker of the job finds the node set up. When no worker is there, that of another job sets it up
// again: what a job has prepared may have gone with it.
type prepared struct {
	path string
	by   string   // the text of the file, if it is set up by this job
	file *os.File // locked; nil: not held
	done bool
}

// newPrepared returns the state of a node for a run and a job of Slurm, of which there may be several.
// A machine may have several nodes.
func newPrepared(run, job, node string) prepared {
	name := node
	if at := strings.LastIndexByte(node, '@'); at >= 0 && job != "" {
		if number, _, _ := strings.Cut(node[at+1:], "."); number == job { // as pilot.Node.Label has it
			name = node[:at]
		}
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d\x00%s\x00%s\x00%s", os.Getuid(), run, name, proc.Kernel())
	path := place.Unclaimed(filepath.Join(os.TempDir(), fmt.Sprintf("jobpool-node-%016x", h.Sum64())))
	return prepared{path: path, by: fmt.Sprintf("ready by %q of job %q\n", node, job)}
}

// hold locks the file at a path, which may be created, and reports whether the one that is there is
// locked.
func hold(path string, create int, shared bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|create|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if st, e := f.Stat(); e != nil || !place.Alone(st) {
		f.Close()
		return nil, fmt.Errorf("%s: another user has put it there", path)
	}
	if err = lock.File(f, shared); err == nil {
		there, e := os.Stat(path)
		own, err := f.Stat()
		if e == nil && err == nil && os.SameFile(there, own) {
			return f, nil
		}
	}
	f.Close()
	if err == nil {
		err = lock.ErrHeld // the last one has cleared the node meanwhile
	}
	return nil, err
}

// begin reports whether the setup is to be run. While another worker runs it, ready is false.
func (p *prepared) begin() (run, ready bool, err error) {
	if p.file != nil { // it is started once more, by a shell
		return !p.done, true, nil
	}
	for _, shared := range []bool{false, true} {
		f, err := hold(p.path, os.O_CREATE, shared)
		if errors.Is(err, lock.ErrHeld) {
			continue
		}
		if err != nil {
			return false, false, err
		}
		text, err := io.ReadAll(io.LimitReader(f, 1<<10))
		if err == nil && !shared && string(text) != p.by {
			text, err = nil, f.Truncate(0)
		}
		switch {
		case err != nil:
			f.Close()
			return false, false, err
		case len(text) > 0:
			p.file, p.done = f, true
			return false, true, p.share()
		case !shared:
			p.file = f
			return true, true, nil
		}
		f.Close() // another worker runs the setup
	}
	return false, false, nil
}

// share lets other workers use the node as well.
func (p *prepared) share() error { return lock.Share(p.file) }

// end notes how the setup has ended.
func (p *prepared) end(ok bool) error {
	if p.file == nil || p.done {
		return nil
	}
	if !ok {
		err := p.file.Close()
		p.file = nil
		return err
	}
	p.done = true
	_, err := p.file.WriteAt([]byte(p.by), 0)
	return errors.Join(err, p.share())
}

// leaveNode ends the use of the node. If the run has ended, and no other worker of it is there, the
// next run of the same directory sets the node up again. Where the node is to be cleared, the
// supervisor does so.
func (w *worker) leaveNode() {
	p := &w.node
	if p.file == nil {
		return
	}
	if w.bye && w.setup.Teardown == "" && lock.File(p.file, false) == nil {
		os.Remove(p.path)
	}
	p.file.Close()
	p.file = nil
}

// clearing is what a supervisor runs when the last worker of a run has left the node.
type clearing struct {
	Path string      `json:"path"`
	Argv []wire.Text `json:"argv"`
	Dir  wire.Text   `json:"dir"`
	Env  []wire.Text `json:"env"`
}

// prepare handles the command that sets up the node. It reports whether the command is to be run now;
// if not, the job has ended, or is tried again.
func (w *worker) prepare(j *job) bool {
	run, ready, err := w.node.begin()
	if err == nil && ready {
		err = w.noteClearing()
	}
	switch {
	case err != nil:
		w.cannotStart(j, fmt.Errorf("setup of the node: %w", err))
		return false
	case !ready:
		w.again = append(w.again, j)
		return false
	case !run:
		w.end(j, &wire.Done{})
		return false
	}
	return true
}

// noteClearing records, for the supervisor, what to run at the end.
func (w *worker) noteClearing() error {
	if w.setup.Teardown == "" {
		return nil
	}
	r := &wire.Run{Text: w.setup.Teardown}
	argv, err := w.argv(r)
	if err != nil {
		return err
	}
	if argv[0], err = w.find(argv[0], string(w.setup.Dir), w.path); err != nil { // a function or a builtin of the shell
		argv = []string{"/bin/sh", "-c", string(r.Text)}
	}
	b, err := json.Marshal(clearing{Path: w.node.path, Argv: wire.Texts(argv), Dir: w.setup.Dir, Env: wire.Texts(w.taskEnv(r))})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.Temp, clearFile), b, 0o600)
}

// clearFile is the file of a worker's directory with its clearing.
const clearFile = "teardown"

// ClearTime is how long that may take.
const ClearTime = time.Minute

// clear runs the command of a worker's directory, if that was the last worker here.
func clear(temp string, complaints io.Writer) {
	b, err := os.ReadFile(filepath.Join(temp, clearFile))
	if err != nil {
		return // there is none
	}
	var c clearing
	if err := json.Unmarshal(b, &c); err != nil {
		fmt.Fprintf(complaints, "jobpool worker: the teardown of the node: %v\n", fault.Text(err))
		return
	}
	f, err := hold(c.Path, 0, false)
	if errors.Is(err, lock.ErrHeld) || errors.Is(err, fs.ErrNotExist) {
		return // another worker will, or has
	}
	if err == nil {
		defer f.Close()
		defer os.Remove(c.Path)
		argv := wire.Strings(c.Argv)
		_, err = command.System.Run(context.Background(), command.Cmd{
			Name: argv[0], Args: argv[1:], Dir: string(c.Dir), Env: wire.Strings(c.Env),
			Stdout: complaints, Stderr: complaints, Timeout: ClearTime,
		})
	}
	if err != nil {
		fmt.Fprintf(complaints, "jobpool worker: the teardown of the node failed: %v\n", fault.Text(err))
	}
}
