// Package entry is the program that runs a task in the container of a rented machine, and what the agent knows of it.
// It is one static file, vast-entry, which the container fetches: see Loader.
//
//	┌─► is there an end on the disk? ── yes, or a beginning ───────────────► over
//	│     │ no
//	│     ▼
//	│   is the instance still wanted? ── no, or no answer for Patience ────► destroyed
//	│     │ yes                       ── its label has a beginning ────────► over
//	│     ▼
//	│   is it the machine that was ordered, and does it work? ── no ───────► over
//	│     │ yes
//	│     ▼
//	│   the beginning is in the label and on the disk, checkpoints are loaded, the command runs,
//	│   checkpoints are saved, the end is on the disk ─────────────────────► over
//	└── the market starts a container again that has ended
//
// Over means: the end is told in the log and in the label of the instance, which is left to the agent for Grace, and then
// destroyed. If the label cannot be written, or the job says so, it is stopped at once instead, which keeps the log.
//
// The market is asked with the instance's own key. Where that may not look at the instance, it counts as wanted: only an
// answer that it is gone, stopped or another's speaks against it. Where it may not write the label, only the disk has the
// beginning: a container on a new disk, as after "vastai recycle instance", begins the command again.
//
// The task sees neither key nor nonce: the program has started itself again without them in its environment, and the kernel
// shows nothing of it to others.
package entry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/market/vastai/own"
)

// Marker begins the line of the log that tells the end: the nonce follows, a word, and in words of its own what there is to
// say. After an exit code that is how many bytes of output there are.
const Marker = "PONOS-EXIT"

// Words of ends that are no exit codes.
const (
	Late     = "late"     // the command has run too long
	Lost     = "lost"     // the container was started again while it ran
	Unloaded = "unloaded" // the checkpoints could not be loaded
	Nowhere  = "nowhere"  // the disk cannot be written
	// Of commands that never began:
	Unarmed  = "unarmed"  // the program could not be fetched or started
	Unfit    = "unfit"    // the machine is not what was ordered, or does not work
	Unwanted = "unwanted" // the instance is not wanted any more
	Unasked  = "unasked"  // the market has not said whether it is
)

// How long things take at most.
const (
	endGrace  = 20 * time.Second // between SIGTERM and SIGKILL
	lastSave  = 10 * time.Minute
	mostPause = 10 * time.Second // between two requests
	lineTime  = time.Second      // after which an incomplete line is written
)

// handed is what the program hands to itself.
type handed struct {
	Own   own.Instance
	Nonce string
	Count string
	Job   Job
}

// Main is the program.
func Main(args []string, stdin, stdout *os.File) int {
	self, args := args[0], args[1:]
	switch {
	case len(args) == 1 && args[0] == "try":
		return 0
	case len(args) == 2 && args[0] == "run":
		fd, err := strconv.Atoi(args[1])
		if err == nil {
			err = run(os.NewFile(uintptr(fd), "job"), stdin, stdout)
		}
		fmt.Fprintln(stdout, "vast-entry:", err)
	case os.Getenv(NonceEnv) == "":
		fmt.Fprintln(stdout, "vast-entry: this is not a container that Ponos has ordered")
	default:
		// A container that ends is started again, with this program as before.
		fmt.Fprintln(stdout, Marker, os.Getenv(NonceEnv), Unarmed, hide(self, stdout))
		time.Sleep(mostPause)
	}
	return 1
}

// hide starts this program again without the key and the job in its environment. It only returns if the job cannot be read.
func hide(self string, stdout io.Writer) error {
	h := handed{Own: own.Of(os.Getenv), Nonce: os.Getenv(NonceEnv), Count: os.Getenv(own.GPUsEnv)}
	var err error
	if h.Job, err = Unpack(os.Getenv); err != nil {
		return fmt.Errorf("the job cannot be read: %w", err)
	}
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("job", 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "job")
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		_, replaced := h.Job.Env[name]
		return IsOurs(name) || replaced || name == own.KeyEnv || name == own.IDEnv
	})
	for name, value := range h.Job.Env {
		env = append(env, name+"="+value)
	}
	err = command.Replace(self, []string{"run", strconv.Itoa(fd)}, env, f)
	(&program{handed: h, out: stdout, file: fileOf(h.Nonce)}).over(Unarmed, err.Error())
	return err // never
}

// program is what runs.
type program struct {
	handed
	out   io.Writer // the log
	lines *Framer
	file  string // where beginning and end are recorded
	exec  *executor.Executor
	stdin *os.File
	write *os.File // the output of all commands
}

func run(f, stdin, stdout *os.File) error {
	p := &program{out: stdout, stdin: stdin, lines: NewFramer(stdout)}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxJob))
	if err == nil {
		err = json.Unmarshal(b, &p.handed)
	}
	f.Close()
	if err != nil {
		return err
	}
	p.file = fileOf(p.Nonce)
	for _, home := range []string{os.Getenv("HOME"), "/root"} {
		if b, err := os.ReadFile(filepath.Join(home, own.KeyFile)); err == nil && strings.TrimSpace(string(b)) == p.Own.Key {
			os.Remove(filepath.Join(home, own.KeyFile))
		}
	}
	p.over(p.live())
	return nil // never
}

// fileOf is where beginning and end of the command are recorded.
func fileOf(nonce string) string { return filepath.Join(os.TempDir(), ".ponos-"+nonce) }

// guarded has the kernel keep the task out of this process: its memory and its files.
func guarded() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("its kernel does not keep the key of the instance from the task: %w", err)
	}
	return nil
}

// live runs the task, unless something speaks against it, and returns how it has ended.
func (p *program) live() (word, more string) {
	if word, begun := p.recorded(); begun {
		return word, ""
	}
	if err := guarded(); err != nil {
		return Unfit, err.Error()
	}
	// As the first process of its container it adopts them anyway; else they end with that.
	_ = executor.AdoptOrphans()
	if word, more := p.ask(); word != "" {
		return word, more
	}
	r, w, err := os.Pipe()
	if err != nil {
		return Nowhere, err.Error()
	}
	p.write = w
	read := make(chan struct{})
	go func() { p.pump(r); close(read) }()
	p.exec = executor.New(executor.Options{
		System: func(h executor.Handler) executor.System { return executor.NewSpawner(1, h) },
		Handle: func(e executor.Event) *executor.Command {
			if e.Err != nil || e.End != nil {
				e.Of.(chan executor.Event) <- e
			}
			return nil
		},
		Grace: endGrace, Suspended: executor.Suspended, Orphans: proc.Orphans(), Family: mark,
	})
	ticks := time.NewTicker(executor.Period)
	defer ticks.Stop()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case <-ticks.C:
				p.exec.Tick(clock.Now())
			case s := <-signals:
				p.exec.Pass(s.(syscall.Signal))
			case <-over:
				return
			}
		}
	}()
	defer close(over)
	if why := p.Job.Machine.lacks(seen{p.Count, p.driver(), memoryHere(), diskHere(os.TempDir())}); why != "" {
		return Unfit, why
	}
	p.begin()
	f, err := os.OpenFile(p.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		if errors.Is(err, os.ErrExist) {
			return Lost, ""
		}
		return Nowhere, err.Error()
	}
	defer f.Close()
	word = p.task()
	p.exec.Close()
	w.Close()
	<-read
	if _, err := f.WriteString(word + "\n"); err != nil {
		return word, err.Error()
	}
	return word, strconv.FormatInt(p.lines.Written(), 10)
}

// recorded returns the end that an earlier start of the container has recorded.
func (p *program) recorded() (word string, begun bool) {
	b, err := os.ReadFile(p.file)
	if err != nil {
		return "", false
	}
	if word = strings.TrimSpace(string(b)); word == "" {
		word = Lost
	}
	return word, true
}

// Elsewhere is told of a command that was begun or ended by another container of the instance: the disk of this one is new.
const Elsewhere = "its output was on another disk"

// ask asks the market whether the instance is wanted, and returns why the command must not begin; "": it may.
func (p *program) ask() (word, more string) {
	until := clock.Now().Add(p.Job.Patience)
	for pause := time.Second / 2; ; pause = min(2*pause, mostPause) {
		a, err := p.Own.Ask(context.Background())
		label, end, _ := strings.Cut(a.Label, EndMark)
		switch {
		case errors.Is(err, own.ErrSecret):
			return "", ""
		case err == nil && (!a.There || label != "" && label != p.Job.Label):
			return Unwanted, ""
		case err == nil && end == Begun:
			return Lost, Elsewhere
		case err == nil && end != "":
			return end, Elsewhere
		case err == nil:
			return "", ""
		case clock.Now().After(until):
			return Unasked, ""
		}
		time.Sleep(pause)
	}
}

// begin tells the market that the command begins, which a container on a new disk finds. Some keys may not write labels.
func (p *program) begin() {
	for n := 0; n < 3 && !p.tell(Begun); n++ {
		time.Sleep(time.Second)
	}
}

// EndMark separates the label of an instance from the end that is told behind it, or from Begun.
const EndMark = ":end="

// Begun is there instead of an end while the command runs.
const Begun = "begun"

// mark begins the entry of the environment by which processes of the task are known.
const mark = "PONOS_TASK="

// start runs a command to its end. The error says that it could not be started.
func (p *program) start(argv []string, out *os.File, limit time.Duration) (*executor.End, error) {
	path, err := find(argv[0])
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	told := make(chan executor.Event, 1)
	p.exec.Start(&executor.Command{
		Launch: executor.Launch{
			Path: path, Argv: argv, Env: os.Environ(), Dir: dir, Files: []uintptr{p.stdin.Fd(), out.Fd(), out.Fd()},
		},
		Of: told, Limit: limit, Marks: []string{mark + os.Getenv(strings.TrimSuffix(mark, "="))},
	})
	e := <-told
	return e.End, e.Err
}

// task runs the command, with its checkpoints, and returns how it has ended.
func (p *program) task() string {
	save := func() {}
	if p.Job.Save != "" {
		err := os.MkdirAll(os.Getenv(CheckpointsEnv), 0o750)
		if err == nil {
			err = p.shell(p.Job.Load, 0)
		}
		if err != nil {
			return Unloaded // an empty directory must not replace a task's work
		}
		save = func() {
			if p.shell(p.Job.Save, lastSave) != nil {
				fmt.Fprintln(p.write, "[the checkpoints could not be saved]")
			}
		}
	}
	over, saved := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(saved)
		for p.Job.Save != "" {
			select {
			case <-time.After(p.Job.Interval):
				save()
			case <-over:
				save()
				return
			}
		}
	}()
	end, err := p.start(p.Job.Command, p.write, p.Job.Runtime)
	close(over)
	select {
	case <-saved:
	case <-time.After(lastSave):
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		fmt.Fprintf(p.write, "%s: not found\n", p.Job.Command[0])
		return "127"
	case err != nil:
		fmt.Fprintf(p.write, "%s: %v\n", p.Job.Command[0], err)
		return "126"
	case end.Why == executor.Timeout:
		return Late
	}
	return strconv.Itoa(end.Code())
}

func (p *program) shell(script string, limit time.Duration) error {
	end, err := p.start([]string{"/bin/sh", "-c", script}, p.write, limit)
	if err == nil && (end.Code() != 0 || end.Why != "") {
		err = errors.New("it has failed")
	}
	return err
}

// driver asks the driver for its GPUs; nil: there is no program that does.
func (p *program) driver() func() (string, error) {
	if _, err := find("nvidia-smi"); err != nil {
		return nil
	}
	return func() (string, error) {
		fd, err := unix.MemfdCreate("gpus", unix.MFD_CLOEXEC)
		if err != nil {
			return "", err
		}
		f := os.NewFile(uintptr(fd), "gpus")
		defer f.Close()
		argv := []string{"nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"}
		end, err := p.start(argv, f, driverTime)
		if err != nil {
			return "", err
		}
		b, err := io.ReadAll(io.NewSectionReader(f, 0, 64<<10))
		text := strings.TrimSpace(string(b))
		switch {
		case err != nil:
		case end.Why == executor.Timeout:
			err = fmt.Errorf("nvidia-smi does not answer within %v", driverTime)
		case end.Code() != 0:
			err = fmt.Errorf("nvidia-smi: exit code %d: %.200s", end.Code(), strings.Join(strings.Fields(text), " "))
		}
		return text, err
	}
}

// pump writes the output of commands to the log until all of them have closed it.
func (p *program) pump(r *os.File) {
	defer r.Close()
	b := make([]byte, 256<<10)
	for {
		_ = r.SetReadDeadline(clock.Now().Add(lineTime))
		n, err := r.Read(b)
		_, _ = p.lines.Write(b[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = p.lines.Flush()
		case err != nil:
			_ = p.lines.Flush()
			return
		}
	}
}

func (p *program) mark(word, more string) {
	fmt.Fprintln(p.out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", Marker, p.Nonce, word, strings.Join(strings.Fields(more), " "))))
}

func (p *program) tell(word string) bool {
	return p.Own.Tell(context.Background(), p.Job.Label+EndMark+word) == nil
}

// leave destroys the instance.
func (p *program) leave() {
	for {
		_ = p.Own.Destroy(context.Background())
		time.Sleep(mostPause)
	}
}

// keep records a word of a command that has not begun, before it is told: where the container is started again, the command
// does not begin either, as another machine may run it by then.
func (p *program) keep(word, more string) (kept, why string) {
	f, err := os.OpenFile(p.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return word, more // of an earlier start, or of the command
	}
	if err == nil {
		_, err = f.WriteString(word + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return Nowhere, err.Error()
	}
	return word, more
}

// over tells the end, and leaves the instance to the agent for a while.
func (p *program) over(word, more string) {
	word, more = p.keep(word, more)
	p.mark(word, more)
	if word == Unwanted || word == Unasked {
		p.leave()
	}
	pause := min(mostPause, p.Job.Grace/4)
	told := p.tell(word)
	if !told {
		time.Sleep(pause / 4)
		told = p.tell(word)
	}
	ctx, stop := context.Background(), p.Job.Stop || !told
	for until := clock.Now().Add(p.Job.Grace); ; {
		time.Sleep(pause)
		late := clock.Now().After(until)
		if late && p.tell(word) && p.Own.Destroy(ctx) == nil {
			continue // until it is gone
		}
		if late {
			_ = p.Own.Destroy(ctx)
		}
		if late || stop {
			_ = p.Own.Stop(ctx)
		}
	}
}
