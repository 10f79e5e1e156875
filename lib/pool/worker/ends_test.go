package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/pool/wire"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

// How programs end, and what is reported of those that cannot be started.
func TestEnds(t *testing.T) {
	s := open(t, nil)
	executable.Write(t, filepath.Join(s.dir, "here"), "#!/bin/sh\necho here\n")
	executable.Write(t, filepath.Join(s.dir, "script"), "echo \"script $0\"\n")
	executable.Write(t, filepath.Join(s.dir, "bin/tool"), "#!/bin/sh\necho tool\n")
	if err := os.WriteFile(filepath.Join(s.dir, "data"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		name, text string
		edit       func(*wire.Run)
		want       string
	}{
		{name: "well", text: "true", want: "ok"},
		{name: "an exit status", text: "exit 3", want: "exit 3"},
		{name: "the highest", text: "exit 255", want: "exit 255"},
		{name: "a signal", text: "kill -9 $$", want: "signal 9"},
		{name: "a signal of its own", text: "kill -SEGV $$", want: "signal 11"},
		{name: "both streams", text: "echo one; echo two >&2; exit 1", want: `exit 1 out "one\n" err "two\n"`},
		{name: "no shell", text: "echo one  'two  words'", want: `ok out "one two  words\n"`},
		{name: "arguments", text: "printf\x00%s.\x00a  b\x00$HOME", edit: func(r *wire.Run) { r.Argv = true }, want: `ok out "a  b.$HOME."`},
		{name: "bytes that are not text", text: "printf '\\377\\000'", want: `ok out "\xff\x00"`},
		{name: "standard input", text: "cat", edit: func(r *wire.Run) { r.Stdin = "a\nb" }, want: `ok out "a\nb"`},
		{name: "no standard input", text: "cat", want: "ok"},
		{name: "long standard input", text: "wc -c", edit: func(r *wire.Run) { r.Stdin = wire.Text(strings.Repeat("x", 3<<20)) }, want: `ok out "3145728\n"`},
		{name: "its directory", text: "pwd; ls bin", edit: func(r *wire.Run) { r.Dir = wire.Text(s.dir) }, want: `ok out "DIR\ntool\n"`},
		{name: "another directory", text: "pwd", edit: func(r *wire.Run) { r.Dir = wire.Text(filepath.Join(s.dir, "bin")) }, want: `ok out "DIR/bin\n"`},
		{name: "no such directory", text: "pwd", edit: func(r *wire.Run) { r.Dir = "/nowhere" }, want: `nostart exit 125 "directory \"/nowhere\": no such file or directory"`},
		{name: "no such program", text: "nosuchprogram -x", want: `nostart exit 127 "\"nosuchprogram\": program not found"`},
		{name: "no such program, for the shell", text: "nosuchprogram 2>/dev/null; exit $?", want: "exit 127"},
		{name: "no such path", text: "./nowhere", want: `nostart exit 127 "\"./nowhere\": program not found"`},
		{name: "a program here", text: "here", want: `nostart exit 127 "\"here\": program not found in PATH, but there is ./here"`},
		{name: "a program here, with a path", text: "./here", want: `ok out "here\n"`},
		{name: "no program", text: "./data", want: `nostart exit 126 "\"./data\": permission denied"`},
		{name: "a directory", text: "/etc", want: `nostart exit 126 "\"/etc\": permission denied"`},
		{name: "a script without an interpreter", text: "./script 'a b'", want: `ok out "script ./script\n"`},
		{name: "a PATH of its own", text: "tool", edit: func(r *wire.Run) { r.Env = []wire.Text{wire.Text("PATH=" + s.dir + "/bin:/bin:/usr/bin")} }, want: `ok out "tool\n"`},
		{name: "a PATH below the directory", text: "tool", edit: func(r *wire.Run) { r.Env = []wire.Text{"PATH=bin:/bin:/usr/bin"} }, want: `ok out "tool\n"`},
		{name: "a PATH with the directory", text: "here", edit: func(r *wire.Run) { r.Env = []wire.Text{"PATH=:/bin:/usr/bin"} }, want: `ok out "here\n"`},
		{name: "a PATH with a file that is no program", text: "data", edit: func(r *wire.Run) { r.Env = []wire.Text{wire.Text("PATH=" + s.dir)} }, want: `nostart exit 126 "\"data\": permission denied"`},
		{name: "a NUL", text: "echo a\x00b", want: `nostart exit 125 "command has a NUL in it"`},
		{name: "a long argument", text: "true " + strings.Repeat("x", 200<<10), want: `nostart exit 126 "\"true\": argument list too long"`},
		{name: "a slot", text: "echo {%}", edit: func(r *wire.Run) { r.Mark, r.Slot = true, 7 }, want: `ok out "7\n"`},
		{name: "a time limit", text: "echo begun; exec sleep 1000", edit: func(r *wire.Run) { r.Timeout = 3 }, want: `timeout signal 15 out "begun\n"`},
		{name: "a time limit that is enough", text: "true", edit: func(r *wire.Run) { r.Timeout = 1000 }, want: "ok"},
	} {
		r := task(int64(i+1), tt.text)
		if tt.edit != nil {
			tt.edit(r)
		}
		before := clock.Now()
		s.run(r)
		d := s.done(r.Seq)
		if got := s.ended(d); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if at := time.UnixMicro(int64(d.Start * 1e6)); at.Before(before.Add(-time.Millisecond)) || at.After(clock.Now()) || d.Seconds < 0 || d.Seconds > long.Seconds() {
			t.Errorf("%s: began at %v for %v s; it was sent at %v", tt.name, at, d.Seconds, before)
		}
	}
	for _, m := range s.bye() {
		if m.Started == nil {
			t.Errorf("unexpected message %+v", m)
		}
	}
}

// Commands without a shell, and with one always.
func TestShells(t *testing.T) {
	for _, tt := range []struct {
		shell  wire.Text
		always bool
		text   string
		want   string
	}{
		{"", false, "echo 'a  b' $HOME", `ok out "'a b' $HOME\n"`},
		{"", false, "  ", `nostart exit 125 "command is empty"`},
		{"/bin/sh", true, "exit", "ok"}, // a builtin
		{"/bin/sh", false, "exit", "ok"},
		{"/nowhere/sh", true, "true", `nostart exit 127 "\"/nowhere/sh\": program not found"`},
		{"/nowhere/sh", false, "true", "ok"},
	} {
		s := open(t, func(_ *Options, setup *wire.Setup) { setup.Shell, setup.Always = tt.shell, tt.always })
		s.run(task(1, tt.text))
		if got := s.ended(s.done(1)); got != tt.want {
			t.Errorf("shell %q, always %v: %q: %s, want %s", tt.shell, tt.always, tt.text, got, tt.want)
		}
	}
}

// What a task finds in its environment.
func TestEnvironment(t *testing.T) {
	named, err := pool.ParseNamed("licence=1.5")
	if err != nil {
		t.Fatal(err)
	}
	setup := func(o *Options, s *wire.Setup) {
		o.Environ = append(o.Environ, "CUDA_VISIBLE_DEVICES=all")
		s.Session, s.HideGPUs, s.GPUVar, s.Env = "run1", true, "CUDA_VISIBLE_DEVICES", []wire.Text{"WHO=setup", "MORE=a b"}
	}
	const common = "CUDA_VISIBLE_DEVICES=; JOBPOOL_ATTEMPT=1; JOBPOOL_CPUS=; JOBPOOL_GPUS=; JOBPOOL_NCPUS=1; JOBPOOL_NODE=n1; JOBPOOL_SEQ=5; " +
		"JOBPOOL_SLOT=1; JOBPOOL_TASK=run1/5.1; MORE=a b; OMP_NUM_THREADS=1; PARALLEL_JOBSLOT=1; PARALLEL_SEQ=5; WHO=setup; "
	for _, tt := range []struct {
		name string
		edit func(*wire.Run)
		want string
	}{
		{"a task", func(*wire.Run) {}, common},
		{"variables of its own", func(r *wire.Run) { r.Env = []wire.Text{"WHO=task", "OMP_NUM_THREADS=8"} },
			strings.NewReplacer("WHO=setup", "WHO=task", "OMP_NUM_THREADS=1", "OMP_NUM_THREADS=8").Replace(common)},
		{"an id", func(r *wire.Run) { r.ID = "x y" },
			strings.Replace(common, "JOBPOOL_NCPUS", "JOBPOOL_ID=x y; JOBPOOL_NCPUS", 1)},
		{"CPUs and GPUs", func(r *wire.Run) { r.Need.CPUs, r.CPUs, r.GPUs, r.Slot = 3, []int{0, 1, 2}, []string{"2", "5"}, 4 },
			strings.NewReplacer("DEVICES=;", "DEVICES=2,5;", "JOBPOOL_GPUS=;", "JOBPOOL_GPUS=2,5;", "JOBPOOL_CPUS=;", "JOBPOOL_CPUS=0-2;", "NCPUS=1", "NCPUS=3",
				"THREADS=1", "THREADS=3", "SLOT=1", "SLOT=4").Replace(common)},
		{"a part of a GPU, and a resource", func(r *wire.Run) { r.Need.Share, r.GPUs, r.Need.Named = 250, []string{"1"}, named },
			strings.NewReplacer("DEVICES=;", "DEVICES=1;", "JOBPOOL_GPUS=;", "JOBPOOL_GPUS=1; JOBPOOL_GPU_SHARE=0.25;", "JOBPOOL_SEQ", "JOBPOOL_RESOURCE_LICENCE=1.5; JOBPOOL_SEQ").Replace(common)},
		{"a second attempt", func(r *wire.Run) { r.Attempt = 2 }, strings.NewReplacer("ATTEMPT=1", "ATTEMPT=2", "5.1", "5.2").Replace(common)},
	} {
		s := open(t, setup)
		r := task(5, "env | grep -v -e ^PATH= -e ^PWD= -e ^_= | LC_ALL=C sort | tr '\\n' ';' | sed 's/;/; /g'")
		tt.edit(r)
		s.run(r)
		if d := s.done(5); string(d.Out) != tt.want || d.Exit != 0 {
			t.Errorf("%s:\n%s, want\n%s", tt.name, d.Out, tt.want)
		}
	}
}

// Niceness and CPUs are those of the task; GPUs that it did not get stay visible unless they are hidden.
func TestNiceAndPinned(t *testing.T) {
	cpu := machine.Affinity()[0]
	s := open(t, func(o *Options, s *wire.Setup) {
		s.Nice, s.Pin = 19, true
		o.Environ = append(o.Environ, "CUDA_VISIBLE_DEVICES=all")
	})
	r := task(1, "nice; grep Cpus_allowed_list /proc/self/status; echo $CUDA_VISIBLE_DEVICES")
	r.CPUs = []int{cpu}
	s.run(r)
	if got, want := string(s.done(1).Out), fmt.Sprintf("19\nCpus_allowed_list:\t%d\nall\n", cpu); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Ways in which a task is ended.
func TestKill(t *testing.T) {
	const stubborn = "exec 2>/dev/null; trap '' TERM; echo ready; while :; do sleep 0.05; done"
	for _, tt := range []struct {
		name  string
		text  string
		grace float64
		kill  wire.Kill
		want  string
	}{
		{"asked to end", "echo ready; exec sleep 1000", 60, wire.Kill{Why: wire.Cancelled}, `cancelled signal 15 out "ready\n"`},
		{"ends by itself", "exec 2>/dev/null; trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done", 60, wire.Kill{Why: wire.Stopped}, `stopped exit 3 out "ready\nbye\n"`},
		{"does not listen", stubborn, 0.2, wire.Kill{Why: wire.Cancelled}, `cancelled signal 9 out "ready\n"`},
		{"at once", stubborn, 600, wire.Kill{Why: wire.Cancelled, Now: true}, `cancelled signal 9 out "ready\n"`},
		{"is stopped", "echo ready; kill -STOP $$; echo on", 600, wire.Kill{Why: wire.Cancelled}, `cancelled signal 15 out "ready\n"`},
	} {
		s := open(t, func(_ *Options, setup *wire.Setup) { setup.Grace, setup.Output.Live = tt.grace, true })
		s.run(task(1, tt.text))
		live := s.next("what it prints", func(m *wire.Message) bool { return m.Data != nil })
		s.runs(1)
		tt.kill.Key = wire.Key{Seq: 1, Attempt: 1}
		s.send(&wire.Message{Kill: &tt.kill})
		d := s.done(1)
		for _, m := range s.said {
			if m.Data != nil { // the rest may also have been sent before the end
				live.Data.Bytes = append(live.Data.Bytes, m.Data.Bytes...)
			}
		}
		d.Out = append(live.Data.Bytes, d.Out...)
		if got := s.ended(d); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A second request may be stronger than the first, and does not change why.
func TestKillTwice(t *testing.T) {
	s := open(t, func(_ *Options, setup *wire.Setup) { setup.Grace, setup.Output.Live = 600, true })
	s.run(task(1, "exec 2>/dev/null; trap 'echo term' TERM; echo ready; while :; do sleep 0.05; done"))
	printed := func(text string) {
		s.next(text, func(m *wire.Message) bool { return m.Data != nil && string(m.Data.Bytes) == text })
	}
	printed("ready\n")
	key := wire.Key{Seq: 1, Attempt: 1}
	s.send(&wire.Message{Kill: &wire.Kill{Key: key, Why: wire.Cancelled}})
	printed("term\n")
	s.send(&wire.Message{Kill: &wire.Kill{Key: key, Why: wire.Stopped, Now: true}})
	s.send(&wire.Message{Kill: &wire.Kill{Key: wire.Key{Seq: 9, Attempt: 1}, Why: wire.Stopped}}) // of none
	if got := s.ended(s.done(1)); got != "cancelled signal 9" {
		t.Error(got)
	}
}

// Tasks that follow get the slot of the one before; they can be taken back and ended until then.
func TestFollow(t *testing.T) {
	s := open(t, nil)
	first := task(1, "read line < go; echo $JOBPOOL_SLOT")
	first.CPUs, first.Slot = []int{3}, 8
	if err := syscall.Mkfifo(filepath.Join(s.dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(first)
	for seq := int64(2); seq <= 5; seq++ {
		r := task(seq, "echo $JOBPOOL_SEQ $JOBPOOL_SLOT $JOBPOOL_CPUS")
		r.Follow, r.Slot = true, 0
		if seq == 5 {
			r.Need.CPUs = 2 // no slot of that need becomes free
		}
		s.run(r)
	}
	key := func(seq int64) *wire.Key { return &wire.Key{Seq: seq, Attempt: 1} }
	s.send(&wire.Message{Unrun: key(3)})
	if m := s.next("task 3 back", func(m *wire.Message) bool { return m.Back != nil }); m.Back.Seq != 3 {
		t.Errorf("task %d is given back", m.Back.Seq)
	}
	s.send(&wire.Message{Unrun: key(1)}) // runs: it is not given back
	s.send(&wire.Message{Kill: &wire.Kill{Key: *key(2), Why: wire.Cancelled}})
	if got := s.ended(s.done(2)); got != "cancelled ok" {
		t.Errorf("a task that waited: %s", got)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "go"), []byte("on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := s.done(1)
	if d.Next == nil || *d.Next != *key(4) || string(d.Out) != "8\n" {
		t.Errorf("the first: %+v", d)
	}
	if d = s.done(4); d.Next != nil || string(d.Out) != "4 8 3\n" {
		t.Errorf("the one that followed: %+v, %q", d, d.Out)
	}
	// The scheduler starts what has no slot to follow on.
	last := task(5, "echo $JOBPOOL_SLOT")
	last.Again, last.Slot, last.Need.CPUs = true, 2, 2
	s.run(last)
	if d = s.done(5); string(d.Out) != "2\n" {
		t.Errorf("the last: %+v, %q", d, d.Out)
	}
	for _, m := range s.bye() {
		if m.Started == nil {
			t.Errorf("unexpected message %+v", m)
		}
	}
}

// A task that waits for room at the node starts when there is some, or ends without a start.
func TestBusyNode(t *testing.T) {
	var s *session
	available := func() int64 {
		if _, err := os.Stat(filepath.Join(s.dir, "free")); err == nil {
			return 5
		}
		return 0
	}
	s = open(t, func(o *Options, setup *wire.Setup) { o.Available, setup.MemFree = available, 2 })
	s.run(task(1, "echo run"))
	s.run(task(2, "echo run"))
	s.send(&wire.Message{Kill: &wire.Kill{Key: wire.Key{Seq: 1, Attempt: 1}, Why: wire.Cancelled}})
	if got := s.ended(s.done(1)); got != "cancelled ok" {
		t.Errorf("at a busy node: %s", got)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "free"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.ended(s.done(2)); got != `ok out "run\n"` {
		t.Errorf("at a node that is free again: %s", got)
	}
}

// What a task leaves behind is ended with it, wherever it has gone, unless it is to be kept.
func TestLeftovers(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s := open(t, func(_ *Options, setup *wire.Setup) { setup.Keep = keep })
		s.run(task(1, "sleep 1000 >/dev/null 2>&1 & a=$!; setsid sleep 1000 >/dev/null 2>&1 & echo $a $!"))
		d := s.done(1)
		var group, own int
		if n, err := fmt.Sscan(string(d.Out), &group, &own); n != 2 {
			t.Fatalf("%v: %s", err, s.ended(d))
		}
		t.Cleanup(func() { _, _ = syscall.Kill(group, syscall.SIGKILL), syscall.Kill(own, syscall.SIGKILL) })
		if _, err := os.Stat(filepath.Join(s.temp, keepFile)); (err == nil) != keep {
			t.Errorf("keep %v: the supervisor is told %v", keep, err == nil)
		}
		if !keep {
			until(t, "the processes of a task end with it", func() bool { return gone(group) && gone(own) })
		}
		s.bye()
		if gone(group) == keep || gone(own) == keep {
			t.Errorf("keep %v: gone: %v, %v", keep, gone(group), gone(own))
		}
	}
}

// A task that uses more memory than it has requested is ended.
func TestMemory(t *testing.T) {
	s := open(t, func(_ *Options, setup *wire.Setup) { setup.LimitMem = true })
	r := task(1, "(head -c 90000000 /dev/zero; exec sleep 1000) | tail -c 80000000 | wc -c")
	r.Need.Mem = 30 << 20
	s.run(r)
	d := s.done(1)
	if d.What != wire.OutOfMemory || d.Signal == 0 && d.Exit == 0 || !strings.Contains(string(d.Error), "its limit") || !strings.Contains(string(d.Error), "30M") {
		t.Errorf("%s", s.ended(d))
	}
	little := task(2, "echo little")
	little.Need.Mem = 1 << 30
	s.run(little)
	if got := s.ended(s.done(2)); got != `ok out "little\n"` {
		t.Errorf("a task within its limit: %s", got)
	}
}
