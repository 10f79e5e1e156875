package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/executor/proc"
)

// sh is a command whose output is in a file of its directory.
func sh(t *testing.T, script string) *Command {
	t.Helper()
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	mark := fmt.Sprintf("EXECUTOR_TEST=%d %s", os.Getpid(), t.Name())
	return &Command{
		Launch: Launch{
			Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH"), mark}, Dir: dir,
			Files: []uintptr{out.Fd(), out.Fd(), out.Fd()}, Outlives: true,
		},
		Name: fmt.Sprintf("test-%d", os.Getpid()), Marks: []string{mark},
	}
}

func (c *Command) printed(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.Dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// greedy uses 200 MB until it is killed.
const greedy = "dd if=/dev/zero of=/dev/null bs=200M count=1000000 status=none"

// How a command ends, and why.
func TestRun(t *testing.T) {
	const limit = 300 * time.Millisecond
	for name, tt := range map[string]struct {
		script string
		edit   func(*Options, *Command)
		want   string
		prints string
	}{
		"by itself":              {"echo out; exit 3", nil, `3 ""`, "out\n"},
		"by a signal of its own": {"kill -9 $$", nil, `137 ""`, ""},
		"at its limit":           {"trap 'exit 0' TERM; echo ready; sleep 600 & wait", func(o *Options, c *Command) { o.Grace, c.Limit = time.Minute, limit }, `0 "timeout"`, "ready\n"},
		"at its limit, deaf":     {"trap '' TERM; echo ready; sleep 600", func(_ *Options, c *Command) { c.Limit = limit }, `137 "timeout"`, "ready\n"},
		"of its memory":          {"exec " + greedy, func(o *Options, c *Command) { o.Limiter, c.Memory = NewLimiter(), 50<<20 }, `137 "oom"`, ""},
		"of the memory of what a script runs": {greedy + "; echo $?", func(o *Options, c *Command) {
			o.Limiter, c.Memory, c.Script = NewLimiter(), 50<<20, true
		}, `0 "oom"`, "137\n"},
		"nice, on no CPU of the machine": {"exec nice", func(_ *Options, c *Command) { c.CPUs, c.Nice = []int{1000}, 19 }, `0 ""`, "19\n"},
	} {
		t.Run(name, func(t *testing.T) {
			o, c := Options{System: Programs, Grace: 500 * time.Millisecond}, sh(t, tt.script)
			if tt.edit != nil {
				tt.edit(&o, c)
			}
			if c.Script { // its own end comes after that of what it runs
				o.Grace = time.Minute
			}
			end, err := Run(o, c)
			for l := 2 * limit; c.Limit > 0 && c.printed(t) == ""; l *= 2 { // a busy machine had not begun it by then
				c = sh(t, tt.script)
				c.Limit = l
				end, err = Run(o, c)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%d %q", end.Code(), end.Why)
			if got != tt.want || !strings.HasSuffix(c.printed(t), tt.prints) {
				t.Errorf("%s, want %s; it printed %q, want %q", got, tt.want, c.printed(t), tt.prints)
			}
		})
	}
}

func TestCannotStart(t *testing.T) {
	c := sh(t, "true")
	c.Path = "/nowhere"
	if end, err := Run(Options{System: Programs}, c); end != nil || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v, %v", end, err)
	}
}

// Nothing is left of an ended command, whatever session and parent it has now.
func TestLeft(t *testing.T) {
	c := sh(t, `sleep 61 & setsid sleep 61 & (setsid sh -c 'sleep 61 & sleep 61' &) ; until [ "$(ls /proc/*/environ | xargs grep -lFz "$EXECUTOR_TEST" 2>/dev/null | wc -l)" -ge 5 ]; do sleep 0.1; done`)
	c.Marks = append(c.Marks, "PATH="+os.Getenv("PATH"))
	if end, err := Run(Options{System: Programs}, c); err != nil || end.Code() != 0 {
		t.Fatalf("%+v, %v: %s", end, err, c.printed(t))
	}
	if left := proc.WithVariables(c.Marks[0], ""); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A process that ends after the list was read leaves its children to be found in the next list.
func TestKillAllFindsWhatAnEndedProcessLeaves(t *testing.T) {
	events := make(chan Event, 2)
	e := New(Options{System: Programs, Handle: func(e Event) *Command { events <- e; return nil }})
	// Their own parent does not wait for them: they stay zombies.
	c := sh(t, "sleep 1000 & a=$!; sleep 1000 & echo $a $!; exec sleep 1000")
	e.Start(c)
	<-events
	var parent, child int
	for n := 0; n < 2; time.Sleep(5 * time.Millisecond) {
		n, _ = fmt.Sscan(c.printed(t), &parent, &child)
	}
	dead := func(pid int) bool { _, zombie := proc.Session(pid); return zombie }
	lists := 0
	list := func() []int {
		if lists++; lists > 1 {
			return []int{child}
		}
		for _ = syscall.Kill(parent, syscall.SIGKILL); !dead(parent); {
			time.Sleep(time.Millisecond)
		}
		return []int{parent}
	}
	if !KillAll(list, func() {}) || !dead(child) {
		t.Errorf("the child is dead: %v", dead(child))
	}
	e.End(c, "over", Killed)
	<-events
}

// The limit of a command does not pass while this process is suspended.
func TestSuspended(t *testing.T) {
	events := make(chan Event, 2)
	e := New(Options{System: Programs, Suspended: Suspended, Grace: time.Minute, Handle: func(e Event) *Command { events <- e; return nil }})
	c := sh(t, "sleep 60")
	c.Limit = 30 * time.Minute
	e.Start(c)
	<-events
	now := clock.Now()
	pass := func(steps int, step time.Duration) {
		for range steps {
			now = now.Add(step)
			e.Tick(now)
		}
	}
	pass(3, time.Second)
	pass(1, time.Hour)
	pass(28*60, time.Second)
	if why := e.Why(c); why != "" {
		t.Errorf("ended: %s", why)
	}
	pass(2*60, time.Second)
	if end := (<-events).End; end.Why != Timeout || end.Away != time.Hour {
		t.Errorf("%+v", end)
	}
	e.Close()
}

// A command that is to end before it runs gets its signal when it does, and others get what is passed on.
func TestSignals(t *testing.T) {
	events := make(chan Event, 2)
	e := New(Options{System: Programs, Grace: time.Minute, Handle: func(e Event) *Command { events <- e; return nil }})
	c := sh(t, "sleep 60")
	e.End(c, "early", Asked)
	e.Start(c)
	<-events
	if end := (<-events).End; end.Why != "early" || end.Code() != 143 {
		t.Errorf("%+v", end)
	}
	c = sh(t, "trap 'echo asked; exit 0' TERM; echo ready; sleep 60 & wait")
	e.Start(c)
	<-events
	for c.printed(t) != "ready\n" {
		time.Sleep(10 * time.Millisecond)
	}
	e.Pause(true)
	e.Pause(false)
	e.Pass(syscall.SIGTERM)
	if end := (<-events).End; end.Why != "" || end.Code() != 0 || c.printed(t) != "ready\nasked\n" {
		t.Errorf("%+v, %q", end, c.printed(t))
	}
}
