package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/machine"
)

const (
	// checkInterval is how often a pilot checks for tickets, and checks the tasks that it runs.
	checkInterval = time.Second
	// Spare is how much sooner than its job a pilot ends.
	Spare = 30 * time.Second
	// settleTries is how often it tries to record the end of a task, a second apart.
	settleTries = 600
	// endNotice is how long after the end of a task its pilot may learn that it was asked to end.
	endNotice = 2 * time.Second
	// maxTaken is how many tickets a pilot takes at most before it is requeued.
	maxTaken = 1_000_000
)

// worker is a running pilot.
type worker struct {
	Pilot
	dir     string // of the class
	id      string // of the pilot's job
	restart int
	ends    time.Time
	since   time.Time // when the job began, by the clock of the file system; zero: see stale
	dating  sync.Mutex
	out     io.Writer
	pool    pool.Pool
	node    *pool.Node
	bind    bool

	gpuVariable string // names the GPUs of a task
	exec        *executor.Executor
	bash        string
	self        []string // this program, which runs the commands of tasks
	null        *os.File
	recorded    atomic.Int32 // see Ran

	alone   bool                // see supersede
	began   bool                // a task
	taken   int                 // the number of the last ticket
	begun   int                 // tasks
	mine    []string            // tickets that it had before it was requeued
	had     map[string]bool     // all of these, also those that have run
	running map[*running]string // by the names of their tickets
	ended   chan *running
	// problems are the errors that were reported last, by what they are of.
	problems map[string]string
	// settling counts ends that are being recorded.
	settling sync.WaitGroup
}

// work runs the tasks of a pilot. It asks for the end of its job at intervals of ask.
func work(ctx context.Context, dir string, out io.Writer, end func(context.Context, string) (time.Time, error), ask time.Duration) error {
	w := &worker{
		dir: dir, out: out, id: os.Getenv("SLURM_JOB_ID"),
		running: map[*running]string{}, ended: make(chan *running), problems: map[string]string{},
	}
	if w.id == "" || strings.Trim(w.id, "0123456789") != "" {
		return errors.New("a pilot runs in a job of Slurm: invalid SLURM_JOB_ID")
	}
	b, err := os.ReadFile(filepath.Join(dir, pilotFile))
	if err == nil {
		err = json.Unmarshal(b, &w.Pilot)
	}
	if err != nil {
		return err
	}
	if dismissed(dir, w.id) {
		fmt.Fprintf(out, "pilot %s: no task is left for it\n", w.id)
		return nil
	}
	if err := w.begin(); err != nil {
		return err
	}
	fmt.Fprintf(out, "pilot %s: begun on %s, restart %d\n", w.id, machine.Hostname(), w.restart)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	moved := make(chan time.Time)
	go func() {
		for every := time.NewTicker(ask); ; {
			select {
			case <-asking.Done():
				every.Stop()
				return
			case <-every.C:
			}
			if at, err := end(asking, w.id); err == nil && !at.IsZero() {
				select {
				case moved <- at:
				case <-asking.Done():
				}
			}
		}
	}()
	err = w.serve(ctx, moved)
	w.settling.Wait()
	w.exec.Close()
	w.null.Close()
	fmt.Fprintf(out, "pilot %s: ended after %d tasks\n", w.id, w.begun)
	return err
}

// begin finds out what resources the pilot has.
func (w *worker) begin() error {
	w.restart, _ = strconv.Atoi(os.Getenv("SLURM_RESTART_COUNT"))
	w.ends = clock.Now().Add(w.Time)
	if end, err := strconv.ParseInt(os.Getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil && end > 0 {
		w.endAt(time.Unix(end, 0))
	}
	ids := machine.Affinity()
	// If the job may use more CPUs than it has requested, others may use them as well.
	if w.bind = len(ids) == w.CPUs; !w.bind {
		ids = ids[:0]
		for i := range w.CPUs {
			ids = append(ids, i)
		}
	}
	mem := w.Mem
	if mem == 0 {
		mem = 1 << 62
	}
	gpus, variable, err := w.devices()
	if err != nil {
		return err
	}
	w.gpuVariable = variable
	limiter := &executor.Limiter{} // it only measures
	if w.Mem > 0 {
		limiter = executor.NewLimiter()
	}
	w.exec = executor.New(executor.Options{
		System: executor.Programs, Handle: w.event, Grace: w.Grace, Limiter: limiter, Before: w.before,
		Suspended: executor.Suspended,
	})
	if w.bash, err = command.Path("bash"); err != nil {
		return err
	}
	if w.self, err = command.Self("ponos-worker"); err != nil {
		return err
	}
	if w.null, err = os.Open(os.DevNull); err != nil {
		return err
	}
	w.node = pool.NewNode(machine.Hostname(), machine.Topology(os.DirFS("/"), ids), gpus, mem, pool.Named{})
	w.pool.AddNode(w.node)
	own := filepath.Join(w.dir, takenDir, w.id)
	if err := mkdir(own); err != nil {
		return err
	}
	w.had = map[string]bool{}
	if _, err := w.inherit(math.MaxInt); err != nil {
		return err
	}
	// Tickets that were dropped had numbers as well. A second attempt of a task in a job of the same
	// name would not run: its job script would find that the command of that job has ended.
	w.taken = w.restart * maxTaken
	for _, name := range w.mine {
		if n, _, ok := parseTaken(name); ok {
			w.taken = max(w.taken, n)
		}
	}
	return nil
}

// supersede ends earlier starts of the pilot, which may still run on a node that Slurm cannot reach.
// Their tasks do not count as running any more. Before that, no task may begin beside them.
func (w *worker) supersede() error {
	if w.alone {
		return nil
	}
	own := filepath.Join(w.dir, takenDir, w.id)
	err := mkdir(own) // an empty one may have been removed
	if err == nil && w.restart > 0 {
		err = os.WriteFile(filepath.Join(own, startFile+strconv.Itoa(w.restart)), nil, 0o600)
	}
	if err != nil {
		return err
	}
	all, err := names(own)
	for _, name := range all {
		if strings.HasPrefix(name, begunFile) {
			err = errors.Join(err, ignoreMissing(os.Remove(filepath.Join(own, name))))
		}
	}
	w.alone = err == nil
	return err
}

// endAt notes when Slurm ends the pilot, with a monotonic reading: the system clock may be set.
func (w *worker) endAt(t time.Time) {
	now := clock.Now()
	w.ends = now.Add(t.Sub(now))
}

// inherit finds the tickets up to a number that the pilot has from earlier starts. One that still
// runs, on a node that Slurm cannot reach, may take tickets until it sees this one. Inherit returns
// the number of a later start of the pilot, or 0.
func (w *worker) inherit(last int) (later int, err error) {
	all, err := names(filepath.Join(w.dir, takenDir, w.id))
	for _, name := range all {
		if n, _, ok := parseTaken(name); ok && n <= last && !w.had[name] {
			w.had[name] = true
			w.mine = append(w.mine, name)
		}
	}
	return w.later(all), err
}

// later returns the number of a later start of the pilot, or 0, given the names in its directory.
func (w *worker) later(all []string) (later int) {
	for _, name := range all {
		if n, ok := parseStart(name); ok && n > w.restart && !w.stale(name) {
			later = max(later, n)
		}
	}
	return later
}

// stale reports whether a file in the directory of the pilot is older than its job, and so of an earlier
// job with the same id: a controller that has lost its records uses ids again.
func (w *worker) stale(name string) bool {
	w.dating.Lock() // ends are recorded in goroutines of their own
	defer w.dating.Unlock()
	own := filepath.Join(w.dir, takenDir, w.id)
	if w.since.IsZero() {
		begun, err := strconv.ParseInt(os.Getenv("SLURM_JOB_START_TIME"), 10, 64)
		if err != nil {
			return false
		}
		f, err := os.CreateTemp(own, "clock.") // the file system may have a clock of its own
		if err != nil {
			return false
		}
		info, err := f.Stat()
		if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
			return false
		}
		w.since = clock.Modified(info).Add(-clock.Since(time.Unix(begun, 0)))
	}
	info, err := os.Lstat(filepath.Join(own, name))
	return err == nil && clock.Modified(info).Before(w.since)
}

// mkdir creates a directory, but not its parents.
func mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// serve runs tasks. It receives the end of the job when it may have changed.
func (w *worker) serve(ctx context.Context, moved <-chan time.Time) error {
	tick, limits := time.NewTicker(checkInterval), time.NewTicker(executor.Period)
	defer tick.Stop()
	defer limits.Stop()
	idle, done := clock.Now(), ctx.Done()
	for {
		later, err := w.inherit(w.restart * maxTaken)
		w.report("tickets", "", err)
		if later > 0 && ctx.Err() == nil { // for Slurm, the pilot does not run on this node
			return errors.Join(errors.New("the job has ended or was requeued, although this process still ran"), w.killAll())
		}
		late := false // pending tasks need more time than the pilot has left
		err = w.supersede()
		w.report("start", "no task begins while an earlier start may still run: ", err)
		if err == nil && ctx.Err() == nil {
			late, err = w.fill()
			w.report("waiting", "", err)
		}
		if len(w.running) > 0 {
			idle = clock.Now()
		} else if ctx.Err() != nil || late || clock.Since(idle) >= w.Linger || clock.Until(w.ends) < Spare {
			if late {
				left := clock.Until(w.ends).Round(time.Second)
				fmt.Fprintf(w.out, "pilot %s: its time ends in %v, too soon for tasks that wait\n", w.id, left)
			}
			return context.Cause(ctx)
		}
		for limited := true; limited; {
			limited = false
			select {
			case r := <-w.ended:
				w.finish(ctx, r)
			case end := <-moved:
				before := w.ends
				if w.endAt(end); w.ends.Sub(before).Abs() > Spare {
					fmt.Fprintf(w.out, "pilot %s: Slurm now ends the job at %s\n", w.id, end.Format(time.RFC3339))
				}
			case <-limits.C:
				limited = true
				w.exec.Tick(clock.Now())
			case <-tick.C:
				if orphaned() {
					return w.abandon()
				}
				for r, name := range w.running {
					if r.end.Why == "" && w.cancelled(name) && w.note(r, End{Why: Stopped}) {
						w.exec.End(&r.command, Stopped, executor.Asked)
					}
				}
			case <-done:
				if orphaned() { // which this process is asked to end by as well
					return w.abandon()
				}
				done = nil
				w.exec.Pass(syscall.SIGTERM)
			}
		}
	}
}

// report prints an error that may pass, when it has changed; nil: it has passed.
func (w *worker) report(of, prefix string, err error) {
	if err == nil {
		delete(w.problems, of)
		return
	}
	text := prefix + fault.Text(err)
	if w.problems[of] != text {
		fmt.Fprintf(w.out, "pilot %s: %s\n", w.id, text)
		w.problems[of] = text
	}
}

// abandon ends a pilot whose other process is gone. For Slurm, the job has ended with that: it kills
// this process at any moment, but without cgroups it does not find the tasks.
func (w *worker) abandon() error {
	for r := range w.running {
		_ = syscall.Kill(-r.pid, syscall.SIGKILL)
	}
	return errors.Join(errors.New("the process that watches the pilot is gone"), w.killAll())
}

// killAll kills all tasks, and waits for their end.
func (w *worker) killAll() error {
	for r := range w.running {
		w.exec.End(&r.command, Killed, executor.Killed)
	}
	for range w.running {
		<-w.ended
	}
	return nil
}

// fill starts tasks while there is room: first those that the pilot had before it was requeued, then
// the oldest pending ones. Late says that some need more time than is left.
func (w *worker) fill() (late bool, err error) {
	mine, full := w.mine, false
	w.mine = nil
	for _, name := range mine {
		_, t, ok := parseTaken(name)
		switch {
		case !ok:
		case !w.node.HasRoom(need(t)):
			w.mine, full = append(w.mine, name), true
		default:
			w.run(name, t)
		}
	}
	if full || w.node.Free().CPUs == 0 {
		return false, nil
	}
	waiting, err := names(filepath.Join(w.dir, waitingDir))
	if err != nil {
		return false, err
	}
	own := filepath.Join(w.dir, takenDir, w.id)
	if len(waiting) > 0 {
		if err = mkdir(own); err != nil { // an empty one may have been removed
			return false, err
		}
	}
	for _, name := range waiting {
		t, ok := parseTicket(name)
		switch {
		case !ok:
			continue
		case clock.Until(w.ends) < t.Limit+Spare:
			late = true
			continue
		case !w.node.HasRoom(need(t)):
			return late, nil // or a task that needs much would never run
		}
		mine := taken(w.taken+1, name)
		path := filepath.Join(own, mine)
		if err := os.Rename(filepath.Join(w.dir, waitingDir, name), path); err != nil {
			// If a request was sent twice, NFS may report the result of the second one.
			if _, statErr := os.Lstat(path); statErr != nil {
				if ignoreMissing(err) != nil {
					return late, err
				}
				continue // another pilot has it
			}
		}
		if w.taken++; !w.began { // submitters now know that pilots do begin tasks
			w.began = ignoreMissing(os.Remove(filepath.Join(w.dir, triesFile))) == nil
		}
		w.run(mine, t)
	}
	return late, err
}

// Script returns the job script of a pilot of the class in a directory, of the programs in bin.
func Script(bin, dir string) []byte {
	return []byte("#!/bin/bash\n# A pilot: a job that runs short tasks, made by ponos-start.\n" +
		"ponos_dir=" + shell.Quote(dir) + "\nset -- pilot \"$ponos_dir\"\n" + program.Text(bin))
}
