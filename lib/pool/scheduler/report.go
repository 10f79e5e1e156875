package scheduler

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/replace"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
	"github.com/ponos-tools/ponos/lib/pool/worker"
)

// show records when progress was last shown.
type show struct{ lineAt, statusAt time.Time }

// progress shows progress, as often as requested.
func (s *scheduler) progress(t time.Time) {
	switch {
	case s.Progress == ProgressTerminal:
		if s.Line != nil {
			s.Line(line(s.core.Status(t)))
		}
	case s.Progress == ProgressLines && t.After(s.show.lineAt):
		if !s.show.lineAt.IsZero() {
			s.Message("%s", line(s.core.Status(t)))
		}
		s.show.lineAt = t.Add(time.Minute)
	}
	if s.Status != "" && t.After(s.show.statusAt) {
		s.show.statusAt = t.Add(time.Second)
		s.writeStatus(false)
	}
}

// line is a status as one line.
func line(st *Status) string {
	up := 0
	for _, n := range st.Nodes {
		if n.State == "up" || n.State == "closed" || n.State == "trial" {
			up++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d done", st.Done+st.Skipped)
	if st.Failed+st.Cancelled > 0 {
		fmt.Fprintf(&b, ", %d failed", st.Failed+st.Cancelled)
	}
	fmt.Fprintf(&b, ", %d running, %d waiting", st.Running, st.Waiting)
	if !st.InputRead {
		b.WriteByte('+')
	}
	if st.Held > 0 {
		fmt.Fprintf(&b, ", %d on hold", st.Held)
	}
	fmt.Fprintf(&b, " | %.4g/s", st.Rate)
	if st.ETA > 0 {
		fmt.Fprintf(&b, ", %s left", input.Seconds(seconds(st.ETA)))
	}
	fmt.Fprintf(&b, " | %d/%d CPUs", st.CPUsUsed, st.CPUs)
	if len(st.Nodes) > 1 {
		fmt.Fprintf(&b, ", %d/%d nodes", up, len(st.Nodes))
	}
	if st.Phase != "running" {
		fmt.Fprintf(&b, " | %s", st.Phase)
	}
	return b.String()
}

// writeStatus replaces the status file.
func (s *scheduler) writeStatus(last bool) {
	if s.Status == "" {
		return
	}
	st := s.core.Status(clock.Now())
	if last {
		st.Phase = "ended"
	}
	b, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return
	}
	if replace.File(s.Status, append(b, '\n'), 0o666) != nil {
		s.Message("status file %q cannot be written", s.Status)
		s.Status = ""
	}
}

// dump shows the user the present state (SIGUSR2).
func (s *scheduler) dump() {
	st := s.core.Status(clock.Now())
	s.Message("%s", line(st))
	for _, n := range st.Nodes {
		s.Message("node %s: %s, %d of %d CPUs free, %d running, %d queued, %d done",
			n.Name, n.State, n.Free, n.CPUs, n.Running, n.Queued, n.Done)
	}
}

func (s *scheduler) clearProgress() {
	if s.Progress == ProgressTerminal && s.Line != nil {
		s.Line("")
	}
}

// summary returns the summary for the user at the end.
func (s *scheduler) summary(r *Result) []string {
	parts := []string{plural(r.Done, "task") + " succeeded"}
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(r.Failed, "failed")
	add(r.Cancelled, "cancelled")
	add(r.Skipped-r.FailedBefore, "done before")
	add(r.FailedBefore, "failed before")
	add(r.Left, "left")
	if !r.InputRead {
		parts = append(parts, "the input was not read to its end")
	}
	first := strings.Join(parts, ", ")
	if r.Why != "" {
		first += ": " + r.Why
	}
	out := []string{first}
	if r.Attempts > 0 {
		out = append(out, fmt.Sprintf("%s, %.4g tasks/s; CPUs: %.0f%% given to tasks, %.0f%% used by them",
			input.Seconds(r.Elapsed), float64(r.Done+r.Failed)/r.Elapsed.Seconds(), 100*min(1, r.Given), 100*r.Used))
	}
	if r.Lost > 0 {
		out = append(out, plural(r.Lost, "attempt")+" lost with the node: run again, so part of that work may have been done twice")
	}
	if len(r.Slowest) > 0 && r.Slowest[0].Seconds >= 1 {
		out = append(out, "slowest:")
		for _, x := range r.Slowest {
			out = append(out, fmt.Sprintf("  task %d, %s on %s: %s",
				x.Task.Seq, input.Seconds(seconds(x.Seconds)), x.Node, short(journal.Command(x.Task))))
		}
	}
	if len(r.Failures) > 0 {
		out = append(out, "failed:")
		for _, x := range r.Failures {
			out = append(out, s.failure(x)...)
		}
		if more := r.Failed + r.Cancelled - int64(len(r.Failures)); more > 0 {
			out = append(out, fmt.Sprintf("  and %d more, see %s", more, filepath.Join(s.Journal.Dir, journal.Joblog)))
		}
	}
	if r.Exceeded > 0 {
		out = append(out, exceeded(r))
	}
	if r.Left > 0 {
		out = append(out, "left:")
		for _, x := range r.Reasons {
			out = append(out, fmt.Sprintf("  %s (task %d): %s", plural(x.Tasks, "task"), x.Seq, x.Why))
		}
	}
	return append(out, s.goOn(r)...)
}

// exceeded says how the memory of tasks that have used too much was limited.
func exceeded(r *Result) string {
	line := plural(r.Exceeded, "task") + " exceeded --mem"
	switch {
	case !slices.Contains(r.Limits, wire.Measured):
		return line + ", a limit that the kernel enforces"
	case len(r.Limits) > 1:
		return line + ": on some nodes the kernel enforces it, on others memory was measured at intervals"
	}
	return line + ": memory was measured at intervals, as the workers have no cgroup of their own"
}

func (s *scheduler) failure(x core.Failure) []string {
	r := x.Result
	where := ""
	if r.Node != "" {
		where = " on " + r.Node
	}
	out := []string{fmt.Sprintf("  task %d%s %s: %s", r.Seq, where, r.Describe(), short(journal.Command(x.Task)))}
	for _, stderr := range []bool{true, false} {
		name := filepath.Join(s.Journal.Dir, worker.LogFile(r.Seq, r.Attempt, stderr))
		if st, err := os.Stat(name); s.Setup.Output.Files && err == nil && st.Size() > 0 {
			return append(out, "    see "+name)
		}
	}
	return out
}

// goOn returns how to continue with what is left, or has failed.
func (s *scheduler) goOn(r *Result) (out []string) {
	if s.Resume == "" {
		return nil
	}
	if r.Left > 0 || !r.InputRead {
		out = append(out, "to continue: "+fmt.Sprintf(s.Resume, "--resume"))
	}
	if r.Failed+r.Cancelled+r.FailedBefore > 0 {
		what := "to continue: "
		if out != nil {
			what = "to also run failed tasks again: "
		}
		out = append(out, what+fmt.Sprintf(s.Resume, "--retry-failed"))
	}
	return out
}

// short returns enough of a command to identify it.
func short(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
