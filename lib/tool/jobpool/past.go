package jobpool

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// look answers a question about a run: its scheduler does, or its journal when it has ended.
func look(c *cli.Context, r *scheduler.Request) (*scheduler.Answer, error) {
	a, err := ask(c, r)
	dir := existing(c)
	if err == nil || !fault.Is(err, fault.Unavailable) || journal.Held(dir) || between(dir) {
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
			reasons, err := pastOf(dir, r.Seqs[0])
			return &scheduler.Answer{Reasons: reasons}, err
		}
	}
	return nil, err
}

// endedPhase is that of a run without a scheduler.
const endedPhase = "ended"

func pastStatus(p *journal.Past) *scheduler.Status {
	s := &scheduler.Status{
		Time: p.End, Phase: endedPhase, Why: p.Why, Done: p.Done, Elapsed: p.End.Sub(p.Begin).Seconds(), InputRead: true,
		Nodes: []core.NodeStatus{},
	}
	left := 0
	for _, t := range p.Tasks {
		switch t.Ended() {
		case "failed":
			s.Failed++
		case "cancelled":
			s.Cancelled++
		default:
			left++
		}
	}
	s.Waiting = max(left, int(p.Left))
	if p.Killed {
		s.Why = "its scheduler was killed"
	}
	return s
}

func pastTasks(p *journal.Past) []scheduler.TaskInfo {
	out := []scheduler.TaskInfo{}
	for _, t := range p.Tasks {
		out = append(out, scheduler.TaskInfo{
			Seq: t.Seq, ID: t.ID, State: t.Ended(), Node: t.Node, Attempt: t.Attempt, Variant: t.Variant, Seconds: t.Seconds,
			Reason: outcome(&t.Record), Command: t.Command,
		})
	}
	return out
}

// outcome is how an attempt has ended, as the predicate of a sentence.
func outcome(r *journal.Record) string {
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

// pastOf says how the attempts at a task have ended.
func pastOf(dir string, seq int64) (lines []string, err error) {
	records, err := journal.ReadTask(dir, seq)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		where := ""
		if r.Node != "" {
			where = " on " + r.Node
		}
		lines = append(lines, fmt.Sprintf("attempt %d%s %s, after %s", max(1, r.Attempt), where, outcome(&r), seconds(r.Seconds)))
	}
	if lines == nil {
		lines = []string{"it has not run"}
	}
	return lines, nil
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
	var reasons []string
	tasks := map[string][]int64{}
	for _, t := range p.Tasks {
		why := outcome(&t.Record)
		if tasks[why] == nil {
			reasons = append(reasons, why)
		}
		tasks[why] = append(tasks[why], t.Seq)
	}
	for _, why := range reasons {
		fmt.Fprintf(w, "  %s %s\n", named(tasks[why]), why)
	}
	if s.Failed+s.Cancelled > 0 {
		fmt.Fprintf(w, "to run those that failed again: %s\n", again(dir, "--retry-failed"))
	} else if s.Waiting > 0 {
		fmt.Fprintf(w, "to continue: %s\n", again(dir, "--resume"))
	}
	return nil
}

// named names tasks by their numbers: "task 3", "tasks 1-4, 7".
func named(seqs []int64) string {
	const most = 10
	var parts []string
	for i := 0; i < len(seqs); {
		k := i
		for k+1 < len(seqs) && seqs[k+1] == seqs[k]+1 {
			k++
		}
		part := fmt.Sprint(seqs[i])
		if k > i {
			part += fmt.Sprint("-", seqs[k])
		}
		parts = append(parts, part)
		i = k + 1
	}
	if len(parts) > most {
		parts = append(parts[:most], "...")
	}
	return plural(len(seqs), "task") + " " + strings.Join(parts, ", ")
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
