package scheduler

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/base/replace"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/pool/core"
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
	if st.Failed > 0 {
		fmt.Fprintf(&b, ", %d failed", st.Failed)
	}
	if st.Cancelled > 0 {
		fmt.Fprintf(&b, ", %d cancelled", st.Cancelled)
	}
	fmt.Fprintf(&b, ", %d running, %d waiting", st.Running, st.Waiting)
	if !st.InputRead {
		b.WriteByte('+')
	}
	if st.Held > 0 {
		fmt.Fprintf(&b, ", %d on hold", st.Held)
	}
	if st.Rate > 0 {
		fmt.Fprintf(&b, " | %s", progress.Rate(st.Rate))
		if st.ETA > 0 {
			fmt.Fprintf(&b, ", %s left", progress.Left(seconds(st.ETA)))
		}
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
	add(r.Skipped-r.FailedBefore-r.CancelledBefore, "done before")
	add(r.FailedBefore, "failed before")
	add(r.CancelledBefore, "cancelled before")
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
		out = append(out, fmt.Sprintf("%s, %s; CPUs: %.0f%% given to tasks, %.0f%% used by them",
			progress.Seconds(r.Elapsed), progress.Rate(float64(r.Done+r.Failed)/r.Elapsed.Seconds()), 100*min(1, r.Given), 100*r.Used))
	}
	if r.Lost > 0 {
		out = append(out, plural(r.Lost, "attempt")+" lost with the node: run again, so part of that work may have been done twice")
	}
	if len(r.Slowest) > 0 && r.Slowest[0].Seconds >= 1 {
		out = append(out, "slowest:")
		for _, x := range r.Slowest {
			out = append(out, fmt.Sprintf("  task %d, %s on %s: %s",
				x.Task.Seq, progress.Seconds(seconds(x.Seconds)), x.Node, short(journal.Command(x.Task))))
		}
	}
	if r.Bad() {
		out = append(out, s.failures()...)
	}
	if r.Exceeded > 0 {
		out = append(out, exceeded(r))
	}
	if r.Left > 0 {
		out = append(out, "left:")
		for _, x := range r.Reasons {
			out = append(out, fmt.Sprintf("  %s: %s", journal.Tasks(x.Seqs), x.Why))
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

// mostKinds limits how many kinds of failures a summary names.
const mostKinds = 10

// failures names the tasks of the journal that have failed, in this run or before.
func (s *scheduler) failures() []string {
	_ = s.Journal.Flush() // if it cannot be written, the summary says so
	p, err := journal.ReadPast(s.Journal.Dir)
	if err != nil {
		return []string{"failed: see the job log: " + fault.Text(err)}
	}
	return append([]string{"failed:"}, Failures(s.Journal.Dir, p, journal.TaskFailed, journal.TaskCancelled)...)
}

// Failures names the tasks of a run in some states, in a line for each reason, with the nodes and the command of the first
// one, and says how to see their output.
func Failures(dir string, p *journal.Past, states ...string) (out []string) {
	type kind struct {
		state, why string // why of the first task
		what       wire.Outcome
		nodes      []string
		tasks      []int64
		first      *journal.PastTask
	}
	var kinds []*kind
	logs := false
	for i := range p.Tasks {
		t := &p.Tasks[i]
		state, why := t.State(), Outcome(&t.Record)
		if !slices.Contains(states, state) {
			continue
		}
		k := slices.IndexFunc(kinds, func(k *kind) bool {
			// What was measured differs from task to task, and is no other reason.
			return k.state == state && (k.why == why || k.what == wire.OutOfMemory && t.What == wire.OutOfMemory)
		})
		if k < 0 {
			k = len(kinds)
			kinds = append(kinds, &kind{state: state, why: why, what: t.What, first: t})
		}
		kinds[k].tasks = append(kinds[k].tasks, t.Seq)
		if t.Node != "" && !slices.Contains(kinds[k].nodes, t.Node) {
			kinds[k].nodes = append(kinds[k].nodes, t.Node)
		}
		logs = logs || hasOutput(dir, &t.Record)
	}
	slices.SortStableFunc(kinds, func(a, b *kind) int { return cmp.Compare(len(b.tasks), len(a.tasks)) })
	for _, k := range kinds[:min(len(kinds), mostKinds)] {
		where := ""
		if n := len(k.nodes); n > 3 {
			where = fmt.Sprintf(" on %s and %d more nodes", strings.Join(k.nodes[:2], ", "), n-2)
		} else if n > 0 {
			where = " on " + strings.Join(k.nodes, ", ")
		}
		line := "  " + journal.Tasks(k.tasks) + where + " " + k.why
		if k.first.Command != "" {
			line += ": " + short(string(k.first.Command))
		}
		out = append(out, line)
	}
	if more := len(kinds) - mostKinds; more > 0 {
		out = append(out, fmt.Sprintf("  and %d more reasons: jobpool ctl list --run %s", more, shell.Quote(dir)))
	}
	if logs {
		out = append(out, "output of failed tasks: jobpool log --failed --run "+shell.Quote(dir))
	}
	return out
}

// hasOutput reports whether output of an attempt was kept.
func hasOutput(dir string, r *journal.Record) bool {
	if r.Stdout.Size+r.Stderr.Size > 0 {
		return true
	}
	for _, stderr := range []bool{true, false} {
		if st, err := os.Stat(filepath.Join(dir, worker.LogFile(r.Seq, r.Attempt, stderr))); err == nil && st.Size() > 0 {
			return true
		}
	}
	return false
}

// Outcome is how an attempt has ended, as the predicate of a sentence.
func Outcome(r *journal.Record) string {
	if r.Kind == journal.Send {
		return "has no known end"
	}
	what := r.What
	if r.Kind == journal.Output {
		what = wire.OutputLost
	}
	result := core.Result{What: what, Exit: r.Exit, Signal: r.Signal, Error: r.Error}
	return result.Describe()
}

// goOn returns how to continue with what is left, or has failed.
func (s *scheduler) goOn(r *Result) (out []string) {
	if s.Resume == "" {
		return nil
	}
	if r.Left > 0 || !r.InputRead {
		out = append(out, "to continue: "+fmt.Sprintf(s.Resume, "--resume"))
	}
	if r.Bad() {
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
