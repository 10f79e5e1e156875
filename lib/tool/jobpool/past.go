package jobpool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
)

// look answers a question about a run: its scheduler does, or its journal where the run has ended, or the task has.
func look(c *cli.Context, r *scheduler.Request) (*scheduler.Answer, error) {
	a, err := ask(c, r)
	dir := existing(c)
	if err == nil || !ended(dir, err) && r.Op != "explain" {
		return a, err
	}
	p, e := journal.ReadPast(dir)
	if e != nil || p.Begin.Unix() <= 0 {
		return nil, err // of which the cause may be that there is no journal
	}
	switch r.Op {
	case "status":
		return &scheduler.Answer{Status: pastStatus(p)}, nil
	case "list":
		return &scheduler.Answer{Tasks: pastTasks(p)}, nil
	case "explain":
		if len(r.Seqs) == 1 {
			reasons, e := pastOf(dir, r.Seqs[0])
			switch {
			case e != nil, reasons == nil && !ended(dir, err):
				return nil, err
			case reasons == nil:
				reasons = []string{"it has not run"}
			}
			return &scheduler.Answer{Reasons: reasons}, nil
		}
	}
	return nil, err
}

// ended reports whether the error of a request says that the run has no scheduler, and will have none.
func ended(dir string, err error) bool {
	return fault.Is(err, fault.Unavailable) && !journal.Held(dir) && !between(dir)
}

// endedPhase is that of a run without a scheduler.
const endedPhase = "ended"

func pastStatus(p *journal.Past) *scheduler.Status {
	s := &scheduler.Status{
		Time: p.End, Phase: endedPhase, Why: p.Why, Done: p.Done, Elapsed: p.End.Sub(p.Begin).Seconds(), InputRead: true,
		Nodes: []core.NodeStatus{}, Failed: p.Count(journal.TaskFailed), Cancelled: p.Count(journal.TaskCancelled),
		Waiting: int(max(p.Count(journal.TaskLeft), p.Left)),
	}
	if p.Killed {
		s.Why = "its scheduler was killed"
	}
	return s
}

func pastTasks(p *journal.Past) []scheduler.TaskInfo {
	out := []scheduler.TaskInfo{}
	for _, t := range p.Tasks {
		out = append(out, scheduler.TaskInfo{
			Seq: t.Seq, ID: t.ID, State: t.State(), Node: t.Node, Attempt: t.Attempt, Seconds: t.Seconds,
			Reason: scheduler.Outcome(&t.Record), Command: string(t.Command),
		})
	}
	return out
}

// pastOf says how the attempts at a task have ended, and what the last one has printed at its end.
func pastOf(dir string, seq int64) (lines []string, err error) {
	records, err := journal.ReadTask(dir, seq)
	for _, r := range records {
		if r.Kind == journal.Cuts {
			lines = append(lines, "it has succeeded; the journal has no more of it")
			continue
		}
		where := ""
		if r.Node != "" {
			where = " on " + r.Node
		}
		lines = append(lines, fmt.Sprintf("attempt %d%s %s, after %s", max(1, r.Attempt), where, scheduler.Outcome(&r), seconds(r.Seconds)))
	}
	return lines, err
}

// pastText is the text of the status of a run that has ended.
func pastText(c *cli.Context, s *scheduler.Status) error {
	w, dir := c.App.Writer, existing(c)
	p, err := journal.ReadPast(dir)
	if err != nil {
		return err
	}
	at := s.Time.Local().Format(time.DateTime)
	fmt.Fprintf(w, "ended at %s after %s: %d done, %d failed, %d cancelled, %d left",
		at, seconds(s.Elapsed), s.Done, s.Failed, s.Cancelled, s.Waiting)
	if s.Why != "" {
		fmt.Fprintf(w, ": %s", s.Why)
	}
	fmt.Fprintln(w)
	printLines(w, scheduler.Failures(dir, p, journal.TaskFailed, journal.TaskCancelled, journal.TaskLeft))
	if s.Waiting > 0 {
		fmt.Fprintf(w, "to continue: %s\n", again(dir, "--resume"))
	}
	if s.Failed+s.Cancelled > 0 {
		fmt.Fprintf(w, "to run those that failed again: %s\n", again(dir, "--retry-failed"))
	}
	return nil
}

func printLines(w io.Writer, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(w, app.Sanitize(line))
	}
}

// retryEnded records that tasks of a run that has ended are to run again, and says how that is done.
func retryEnded(c *cli.Context, r *scheduler.Request) error {
	dir := existing(c)
	p, err := journal.ReadPast(dir)
	if err != nil {
		return err
	}
	var seqs []int64
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.State() != journal.TaskLeft && (r.All || slices.Contains(r.Seqs, t.Seq)) {
			seqs = append(seqs, t.Seq)
		}
	}
	for _, seq := range r.Seqs {
		if !slices.Contains(seqs, seq) {
			return fmt.Errorf("retry: task %d has not failed, and was not cancelled", seq)
		}
	}
	if len(seqs) == 0 {
		return errors.New("retry: no task has failed, or was cancelled")
	}
	j, err := journal.Create(dir, "")
	if err != nil {
		return err
	}
	j.Add(&journal.Record{Kind: journal.Retry, Time: float64(clock.Now().UnixMicro()) / 1e6, Tasks: journal.FormatSeqs(seqs)})
	if err := j.Close(); err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "to run %s again: %s\n", journal.Tasks(seqs), again(dir, "--resume"))
	return nil
}

// again is the command line by which a run continues.
func again(dir, how string) string {
	var info runInfo
	b, err := os.ReadFile(filepath.Join(dir, journal.RunFile))
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	if _, e := pilot.Load(dir); err != nil || e == nil || slices.Contains(info.Args, "--elastic") {
		return "repeat its command with " + how
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return fmt.Sprintf(resumeCommand(info.Args, dir), how)
}
