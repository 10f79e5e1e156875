package planner

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Runs are learned for each node; a job that never ran, or whose end is unknown, teaches nothing.
func TestPastOf(t *testing.T) {
	r := slurm.Record{Name: "train", User: "alice", Submit: 10, Start: 20, End: 80, Nodes: 2, Limit: time.Hour, TRES: slurm.TRES{"cpu": 8, "mem": 1000, "gres/gpu": 4}}
	p, ok := PastOf(&r)
	if !ok || p.Limit != 3600 || p.Nodes != 2 || p.Need != (forecast.Resources{CPUs: 4, MemMB: 500, GPUs: 2}) || p.Start != 20 || p.End != 80 {
		t.Errorf("%+v, %v", p, ok)
	}
	r.Limit, r.Nodes = slurm.Unlimited, 0
	if p, ok := PastOf(&r); !ok || p.Limit != forecast.Forever || p.Nodes != 1 {
		t.Errorf("unlimited: %+v, %v", p, ok)
	}
	for _, r := range []slurm.Record{{Start: 0, End: 80}, {Start: 20, End: 10}, {Start: 20}} {
		if p, ok := PastOf(&r); ok {
			t.Errorf("%+v", p)
		}
	}
}

// A job that arrives has the priority of its user's waiting jobs, or the middle one.
func TestArrivalPriority(t *testing.T) {
	job := func(user string, priority, age float64) forecast.Job {
		return forecast.Job{User: user, Priority: priority, AgePriority: age}
	}
	running, held := job("carol", 900, 0), job("carol", 800, 0)
	running.Running, held.Held = true, true
	of := ArrivalPriority(&forecast.World{Jobs: []forecast.Job{job("alice", 500, 100), job("bob", 100, 0), job("dan", 70, 20), running, held, job("erin", 0, 0)}})
	for user, want := range map[string]float64{"alice": 400, "bob": 100, "dan": 50, "carol": 100, "erin": 100} {
		if got := of(&forecast.Past{User: user}); got != want {
			t.Errorf("%s: %v, want %v", user, got, want)
		}
	}
	if got := ArrivalPriority(&forecast.World{})(&forecast.Past{User: "alice"}); got != 1 {
		t.Errorf("nobody waits: %v", got)
	}
}

func TestSoonest(t *testing.T) {
	for _, tt := range []struct {
		place Place
		want  int64
	}{{Place{Start: 50, Expected: 30}, 30}, {Place{Start: 50}, 50}, {Place{}, forecast.Forever}} {
		if got := tt.place.Soonest(); got != tt.want {
			t.Errorf("%+v: %d", tt.place, got)
		}
	}
}

// What the configuration says of memory, preemption and priorities, and what a partition overrides.
func TestConfiguration(t *testing.T) {
	n := Planner{}
	n.Config = slurm.Config{"SelectTypeParameters": "CR_Core_Memory", "MaxMemPerCPU": "4000", "PreemptMode": "REQUEUE", "PriorityFlags": "INCR_ONLY"}
	p := slurm.Partition{}
	if !n.MemoryCounts() || n.MemoryPerCPU(&p) != 4000 || n.PreemptMode(&p) != "REQUEUE" {
		t.Errorf("memory %v, %v per CPU, preempted by %s", n.MemoryCounts(), n.MemoryPerCPU(&p), n.PreemptMode(&p))
	}
	p.MaxMemPerCPU, p.PreemptMode = slurm.AtMost[int64](2000), "CANCEL"
	if n.MemoryPerCPU(&p) != 2000 || n.PreemptMode(&p) != "CANCEL" {
		t.Errorf("partition: %v, %s", n.MemoryPerCPU(&p), n.PreemptMode(&p))
	}
	j := slurm.Job{Priority: 500}
	if got := Effective(n.Config, &j, 400); got != 500 {
		t.Errorf("INCR_ONLY: %v", got)
	}
	n.Config = slurm.Config{"SelectTypeParameters": "CR_CPU", "MaxMemPerCPU": "UNLIMITED"}
	if p = (slurm.Partition{}); n.MemoryCounts() || n.MemoryPerCPU(&p) != 0 || n.PreemptMode(&p) != "OFF" || Effective(n.Config, &j, 400) != 400 {
		t.Errorf("memory %v, %v per CPU, preempted by %s", n.MemoryCounts(), n.MemoryPerCPU(&p), n.PreemptMode(&p))
	}
}
