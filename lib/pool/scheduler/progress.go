package scheduler

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	reader "github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/worker"
)

// Status is what --status writes and jobpool ctl status shows.
type Status struct {
	Time      time.Time    `json:"time"`
	Phase     string       `json:"phase"`
	Why       string       `json:"why,omitempty"`
	Done      int64        `json:"done"`
	Failed    int64        `json:"failed"`
	Cancelled int64        `json:"cancelled"`
	Skipped   int64        `json:"skipped"`
	Running   int          `json:"running"`
	Waiting   int          `json:"waiting"`
	Held      int          `json:"held"`
	Lost      int64        `json:"lost"`
	InputRead bool         `json:"input_read"` // to its end
	Rate      float64      `json:"rate"`       // tasks a second
	ETA       float64      `json:"eta,omitempty"`
	Elapsed   float64      `json:"elapsed"`
	EndOfJob  *time.Time   `json:"end_of_job,omitempty"`
	CPUs      int          `json:"cpus"`
	CPUsUsed  int          `json:"cpus_used"`
	Nodes     []NodeStatus `json:"nodes"`
}

// NodeStatus is a node in a Status.
type NodeStatus struct {
	Name    string `json:"name"`
	State   string `json:"state"` // up, closed, quarantined, lost, released, unreachable, connecting
	CPUs    int    `json:"cpus"`
	Free    int    `json:"free"`
	GPUs    int    `json:"gpus"`
	Running int    `json:"running"`
	Queued  int    `json:"queued"`
	Done    int64  `json:"done"`
	Lost    int64  `json:"lost"`
	PID     int    `json:"pid,omitempty"` // of the worker
}

var phases = [...]string{"running", "draining", "stopping", "killing"}

func (h *head) status() *Status {
	s := &h.stats
	st := &Status{
		Time: time.Now(), Phase: phases[h.phase], Why: h.why, Done: s.done, Failed: s.failed, Cancelled: s.cancelled,
		Skipped: s.skipped, Waiting: h.pool.Waiting() + h.deps.waiting() + h.foreign.known + h.doubts(), Held: len(h.held), Lost: s.lost,
		InputRead: h.eof, Rate: s.rate(), Elapsed: time.Since(h.began).Seconds(),
	}
	if !h.end.IsZero() {
		st.EndOfJob = &h.end
	}
	for _, n := range h.nodes {
		ns := NodeStatus{Name: n.spec.Name, State: "connecting", Done: n.ok, Lost: n.lost}
		switch c := n.conn; {
		case c != nil:
			ns.State = "up"
			if c.n.Closed() {
				ns.State = "closed"
			}
			if n.quarantine {
				ns.State = "quarantined"
			}
			ns.CPUs, ns.Free, ns.GPUs = c.n.Total().CPUs, c.n.Free().CPUs, c.n.Total().GPUs
			ns.Queued, ns.Running, ns.PID = c.queued, len(c.attempts)-c.queued, c.hello.PID
			st.CPUs += ns.CPUs
			st.CPUsUsed += ns.CPUs - ns.Free
			st.Running += ns.Running
			st.Waiting += ns.Queued
		case n.released:
			ns.State = "released"
		case n.dropped && n.up.IsZero():
			ns.State = "unreachable"
		case n.dropped || n.lost > 0:
			ns.State = "lost"
		}
		st.Nodes = append(st.Nodes, ns)
	}
	if rate := s.average(); h.eof && rate > 0 {
		st.ETA = float64(st.Running+st.Waiting) / rate
	}
	return st
}

// show puts progress out, as often as it is wanted.
func (h *head) show(t time.Time) {
	if h.Progress == ProgressTerminal || h.Progress == ProgressLines && t.After(h.showAt) {
		if h.Progress == ProgressTerminal {
			h.terminal(h.status().line())
		} else {
			if !h.showAt.IsZero() {
				h.Message("%s", h.status().line())
			}
			h.showAt = t.Add(time.Minute)
		}
	}
	if h.Status != "" && t.After(h.statusAt) {
		h.statusAt = t.Add(time.Second)
		h.writeStatus(false)
	}
}

// line is the status as one line.
func (st *Status) line() string {
	up := 0
	for _, n := range st.Nodes {
		if n.State == "up" || n.State == "closed" {
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
		fmt.Fprintf(&b, ", %s left", reader.Seconds(time.Duration(st.ETA*float64(time.Second))))
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
func (h *head) writeStatus(last bool) {
	if h.Status == "" {
		return
	}
	st := h.status()
	if last {
		st.Phase = "ended"
	}
	b, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return
	}
	temp := h.Status + ".new"
	if err := os.WriteFile(temp, append(b, '\n'), 0o666); err == nil {
		err = os.Rename(temp, h.Status)
		if err == nil {
			return
		}
	}
	h.Message("status file %q cannot be written", h.Status)
	h.Status = ""
}

// dump tells the user how things stand (SIGUSR2).
func (h *head) dump() {
	h.Message("%s", h.status().line())
	for _, n := range h.status().Nodes {
		h.Message("node %s: %s, %d of %d CPUs free, %d running, %d queued, %d done", n.Name, n.State, n.Free, n.CPUs, n.Running, n.Queued, n.Done)
	}
}

// terminal shows the line of progress.
func (h *head) terminal(line string) {
	if h.Line != nil {
		h.Line(line)
	}
}

func (h *head) clearProgress() {
	if h.Progress == ProgressTerminal && h.Line != nil {
		h.Line("")
	}
}

// summary is what the user is told at the end.
func (h *head) summary(r *Result) []string {
	s := &h.stats
	wall := time.Since(h.began)
	parts := []string{plural(r.Done, "task") + " succeeded"}
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(r.Failed, "failed")
	add(r.Cancelled, "cancelled")
	add(r.Skipped, "done before")
	add(r.Left, "left")
	if !h.eof {
		parts = append(parts, "the input was not read to its end")
	}
	first := strings.Join(parts, ", ")
	if r.Why != "" {
		first += ": " + r.Why
	}
	out := []string{first}
	if s.attempts > 0 {
		out = append(out, fmt.Sprintf("%s, %.4g tasks/s; CPUs: %.0f%% given to tasks, %.0f%% used by them",
			reader.Seconds(wall), float64(r.Done+r.Failed)/wall.Seconds(), 100*s.busy/h.allocated(), 100*s.cpu/h.allocated()))
	}
	if s.lost > 0 {
		out = append(out, plural(s.lost, "attempt")+" lost with the node: run again, so part of that work may have been done twice")
	}
	if len(s.slowest) > 0 && s.slowest[0].seconds >= 1 {
		out = append(out, "slowest:")
		for _, x := range s.slowest {
			out = append(out, fmt.Sprintf("  task %d, %s on %s: %s", x.seq, reader.Seconds(time.Duration(x.seconds*float64(time.Second))), x.node, x.text))
		}
	}
	if len(s.failures) > 0 {
		out = append(out, "failed:")
		for _, x := range s.failures {
			where := ""
			if x.at != "" {
				where = " on " + x.at
			}
			out = append(out, fmt.Sprintf("  task %d%s %s: %s", x.seq, where, x.how, x.text))
			for _, stderr := range []bool{true, false} {
				name := filepath.Join(h.Journal.Dir, worker.LogFile(x.seq, x.try, stderr))
				if st, err := os.Stat(name); h.Setup.Output.Files && err == nil && st.Size() > 0 {
					out = append(out, "    see "+name)
					break
				}
			}
		}
		if more := r.Failed + r.Cancelled - int64(len(s.failures)); more > 0 {
			out = append(out, fmt.Sprintf("  and %d more, see %s", more, filepath.Join(h.Journal.Dir, journal.Joblog)))
		}
	}
	if h.Resume != "" && (r.Left > 0 || !h.eof || r.Failed+r.Cancelled > 0) {
		how := "--resume"
		if r.Left == 0 && h.eof {
			how = "--retry-failed"
		}
		out = append(out, fmt.Sprintf("to go on: %s", fmt.Sprintf(h.Resume, how)))
	}
	return out
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// allocated is the CPU seconds the nodes were there for.
func (h *head) allocated() float64 {
	sum := h.gone
	for _, c := range h.conns {
		sum += time.Since(c.node.up).Seconds() * float64(c.n.Total().CPUs)
	}
	return max(sum, 1e-9)
}
