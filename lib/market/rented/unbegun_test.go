package rented

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// A container that says that it has not begun the command costs no start: its machine is avoided, and another one is rented
// when it is gone, however the word arrives.
func TestUnbegun(t *testing.T) {
	for _, how := range []string{"log", "label", "label at once"} {
		t.Run(how, func(t *testing.T) {
			s := newStand(t, 3)
			i := s.begin(1)
			if how != "label at once" {
				s.turn()
			}
			if how == "log" {
				i.log += entry.Marker + " " + i.env[entry.NonceEnv] + " unfit it has 2 GPUs instead of 1\n"
			} else {
				i.label += ":end=unfit"
			}
			s.turn()
			var j runner.Job
			for range 4 {
				j = s.turn()[s.job(1)]
			}
			faults := s.events("fault")
			if len(s.market.instances) != 1 || s.market.instances[0] == i || s.market.most != 1 || j.Shows() != task.Running || len(faults) != 1 || len(s.events("lost")) != 0 {
				t.Fatalf("%+v, %+v, %+v\n%s", s.market.instances, j, faults, s.said)
			}
			if how == "log" && !strings.Contains(faults[0].Reason, "does not work: it has 2 GPUs instead of 1") {
				t.Error(faults[0].Reason)
			}
			if avoided, err := s.Avoided(); err != nil || len(avoided) != 1 {
				t.Errorf("%v, %v", avoided, err)
			}
			again := s.market.instances[0]
			again.prints("it runs\n")
			ended(again, 0)
			if j := s.turn()[s.job(1)]; j.Shows() != task.Completed || s.output(1) != "it runs\n" {
				t.Errorf("%+v %q", j, s.output(1))
			}
		})
	}
}

// Nowhere to fetch the program from, or another one there: nothing is rented, and the task waits.
func TestNoProgram(t *testing.T) {
	s := newStand(t, 1)
	for _, broken := range []Program{{}, {URL: "https://example.org/x", Sums: "other"}} {
		good := s.Program
		s.Program = broken
		if _, err := s.Start(t.Context(), s.submission(1)); !errors.Is(err, runner.ErrLater) || len(s.market.instances) > 0 {
			t.Errorf("%v", err)
		}
		if _, err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "vast-entry") && !strings.Contains(err.Error(), "containers would not run it") {
			t.Error(err)
		}
		s.Program = good
	}
	s.begin(1)
	if found, err := s.Check(t.Context()); err != nil || !strings.Contains(found.Detail, "containers fetch vast-entry for amd64 and arm64") {
		t.Errorf("%+v, %v", found, err)
	}
}

// Long variables and commands arrive as they are; what cannot be carried is refused before anything is rented.
func TestCarried(t *testing.T) {
	s := newStand(t, 1)
	sub := s.submission(1)
	parents := strings.Repeat(`"00000000-0000-4000-8000-000000000000":"a slug of a parent",`, 200)
	script := strings.Repeat("echo one more line; ", 500)
	if err := errors.Join(
		os.WriteFile(filepath.Join(sub.Dir, runner.EnvFile), []byte("TASK_PARENTS="+parents+"\x00SHORT=s\x00"), 0o600),
		os.WriteFile(filepath.Join(sub.Dir, runner.CommandFile), []byte("sh\x00-c\x00"+script+"\x00"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	i := s.market.instances[0]
	job, err := entry.Unpack(func(name string) string { return i.env[name] })
	if err != nil || job.Env["TASK_PARENTS"] != parents || job.Command[2] != script || i.env["SHORT"] != "s" || job.Label != i.label || job.Runtime != 24*time.Hour {
		t.Errorf("%+v, %v", job, err)
	}
	for name, value := range i.env {
		if len(name)+len(value) > 256 {
			t.Errorf("%s has %d bytes", name, len(value))
		}
	}
	var long strings.Builder
	for n := range 6000 {
		long.WriteString(strings.Repeat(string(rune('a'+n*7919%26)), 1+n*n%5))
		long.WriteByte(byte('0' + n*n*31%10))
	}
	much := task.Task{ID: s.job(2), Image: "img", Command: []string{"x"}, Env: map[string]string{"LONG": long.String() + random6(t)}}
	if _, _, err = s.Place(t.Context(), much); err == nil || !strings.Contains(err.Error(), "command and variables have") {
		t.Error(err)
	}
	many, slugs := task.Task{Image: "img", Command: []string{"x"}}, random6(t)
	for n := range 1999 {
		many.Parents = append(many.Parents, task.Parent{ID: task.ID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)), Slug: slugs[30*n:][:30]})
		if n == 200 && s.Carries(many) != nil {
			t.Error("200 parents are too many")
		}
	}
	if err := s.Carries(many); err == nil || !strings.Contains(err.Error(), "TASK_PARENTS has") && !strings.Contains(err.Error(), "command and variables have") {
		t.Error(err)
	}
	for _, c := range []task.Task{{Command: []string{"x", strings.Repeat("x", 1<<17)}}, {Env: map[string]string{"X": strings.Repeat("x", 1<<17)}}} {
		c.Image = "img"
		if err := s.Carries(c); err == nil || !strings.Contains(err.Error(), "and a program takes 131071") {
			t.Error(err)
		}
	}
}

func random6(t *testing.T) string {
	text, err := random(30_000)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A container of a build before vast-entry has no offsets in its log: its end counts, and the end of its output is published
// with it, once.
func TestOutputWithoutOffsets(t *testing.T) {
	for lines, cut := range map[int]bool{100: false, 20_000: true} {
		t.Run(fmt.Sprint(lines), func(t *testing.T) {
			s := newStand(t, 1)
			i := s.begin(1)
			for n := range lines {
				i.log += fmt.Sprintf("line %d\n", n)
			}
			if s.turn(); s.output(1) != "" {
				t.Errorf("%q", s.output(1))
			}
			ended(i, 3)
			j := s.turn()[s.job(1)]
			s.turn()
			out, last := s.output(1), fmt.Sprintf("\nline %d\n", lines-1)
			if j.Shows() != task.Failed || j.ExitCode != 3 || !strings.HasSuffix(out, last) || strings.Count(out, last) != 1 ||
				strings.HasPrefix(out, missing+"line ") != cut {
				t.Errorf("%+v, %d bytes, from %.60q", j, len(out), out)
			}
		})
	}
}

// Killed between any two of its steps, the runner publishes each byte once.
func TestPublishedOnce(t *testing.T) {
	s := newStand(t, 1)
	i := s.begin(1)
	i.prints("one\n")
	s.turn()
	path := filepath.Join(s.submission(1).Dir, runner.Output)
	// Killed after output was written, and before the order was.
	before, err := os.ReadFile(s.orderPath(ordersDir, string(s.job(1))+".1"))
	if err != nil {
		t.Fatal(err)
	}
	i.prints("two\n")
	s.turn()
	write := func(b []byte) {
		if err := os.WriteFile(s.orderPath(ordersDir, string(s.job(1))+".1"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(before)
	s.turn()
	// Killed in the middle of a write.
	if err := os.Truncate(path, 6); err != nil {
		t.Fatal(err)
	}
	s.turn()
	if out := s.output(1); out != "one\ntwo\n" {
		t.Fatalf("%q", out)
	}
	// Killed when a gap was recorded, before its line was written.
	i.log, i.printed = "", 100
	i.prints("three\n")
	o := s.read1(t)
	if err := s.moved(o, int64(len("one\ntwo\n")+len(missing)), 100); err != nil {
		t.Fatal(err)
	}
	s.turn()
	i.prints("four\n")
	ended(i, 0)
	s.turn()
	if out := s.output(1); out != "one\ntwo\nthree\nfour\n" {
		t.Errorf("%q", out)
	}
}
