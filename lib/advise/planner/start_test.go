package planner

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// An answer is better with more time, and says what it rests on: without any, on the work of the jobs before it.
func TestStartOf(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	n := Planner{}
	n.Now, n.Config = now, slurm.Config{"SelectType": "select/cons_tres"}
	n.Partitions = []slurm.Partition{{Name: "cpu", State: "UP"}}
	n.Nodes = []slurm.Node{{Name: "n1", State: "MIXED", Partitions: "cpu", CPUs: 4}}
	for i := range uint64(4) {
		n.Jobs = append(n.Jobs, slurm.Job{
			ID: 1 + i, ArrayID: 1 + i, Label: fmt.Sprint(1 + i), User: "alice", Name: "train", Partition: "cpu", State: "PENDING", Priority: 100 - i, Limit: 10 * time.Hour,
			Nodes: 1, CPUs: 4, TRES: slurm.TRES{"cpu": 4}, Submit: now.Unix() - 60, Reason: "Priority",
		})
	}
	n.World = forecast.NewWorld(n.Records)
	n.Plan = forecast.NewPlan(func() bool { return false }, n.World, true)
	past := forecast.Past{Name: "train", User: "alice", Partition: "cpu", Submit: now.Unix() - 90_000, Start: now.Unix() - 90_000, End: now.Unix() - 86_400, Limit: 36_000, Nodes: 1, Need: forecast.Resources{CPUs: 4}}
	over, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		name    string
		left    time.Duration
		runs    []forecast.Past
		basis   Basis
		hours   float64
		outside bool
	}{
		{"no time", 0, []forecast.Past{past}, ByWork, 3, true},
		{"no time and no past", 0, nil, ByWork, 30, true},
		{"no past", time.Hour, nil, ByLimits, 30, false},
		{"time", time.Hour, []forecast.Past{past}, Replays, 3, false},
	} {
		s, err := n.StartOf(t.Context(), c.left, n.Plan, []int{3}, forecast.NewHistory(c.runs), nil)
		hours := float64(s.Estimate.Median-now.Unix()) / 3600
		if err != nil || s.Basis != c.basis || hours < c.hours*0.9 || hours > c.hours*1.1 || s.OutOfTime != c.outside || c.basis == ByWork && s.Before != 3 {
			t.Errorf("%s: %+v, %v: in %v h, want %v by %s", c.name, s, err, hours, c.hours, c.basis)
		}
	}
	n.Records.Over = func() bool { return true }
	if w := forecast.NewWorld(n.Records); len(w.Jobs) != 0 {
		t.Errorf("the world has %d jobs for which nobody waits", len(w.Jobs))
	}
	if _, err := n.StartOf(over, time.Hour, n.Plan, []int{3}, forecast.NewHistory(nil), nil); err == nil {
		t.Error("it goes on when the command has ended")
	}
}

// Queues of a trace are in its field 15, partitions in field 16, and either may be absent; a trace in which no wait is known says so.
func TestTrace(t *testing.T) {
	row := func(wait, queue, partition string) string {
		return "1 49 " + wait + " 52 4 -1 -1 4 600 -1 1 1 1 1 " + queue + " " + partition + " -1 -1\n"
	}
	for _, c := range []struct{ text, partitions, err string }{
		{row("0", "3", "-1") + row("5", "4", "-1") + row("-1", "4", "-1"), "3 4", ""},
		{row("0", "-1", "2"), "2", ""},
		{row("0", "3", "2"), "3.2", ""},
		{row("-1", "3", "1") + row("-1", "3", "1"), "", "no job of the trace has a known wait and run time, so that there is nothing to compare a forecast with"},
		{"; a header\n", "", "it is neither a listing of sacct nor a trace in the Standard Workload Format"},
	} {
		runs, err := ReadTrace(strings.NewReader(c.text))
		var partitions []string
		for _, r := range runs {
			partitions = append(partitions, r.Partition)
		}
		if got := strings.Join(partitions, " "); got != c.partitions || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%q: %q, %v", c.text, got, err)
		}
	}
}
