package forecast

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// oddRecords are what Slurm may answer when it is asked at different moments, and of clusters
// as nobody would set them up: partitions without nodes and that are gone, nodes without
// CPUs or memory, jobs without limits, of partitions and nodes that there are not, circles of
// dependencies, arrays of thousands, reservations of nothing, associations without parents.
func oddRecords(random *rand.Rand) Records {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	number := func(of ...int64) int64 { return of[random.IntN(len(of))] }
	r := Records{Now: time.Unix(now, 0), Config: slurm.Config{
		"ClusterName": "odd", "SchedulerParameters": one("", "bf_max_job_test=3", "bf_window=1", "bf_resolution=0,bf_interval=0", "default_queue_depth=0,bf_max_job_user=1", "bf_job_part_count_reserve=1,bf_min_prio_reserve=500", "bf_continue,bf_max_job_array_resv=0"),
		"SchedulerType": one("sched/backfill", "sched/builtin"), "SelectType": one("select/cons_tres", "select/linear"), "SelectTypeParameters": one("CR_Core_Memory", "CR_Core"),
		"PreemptType": one("preempt/none", "preempt/partition_prio", "preempt/qos"), "PreemptMode": one("OFF", "REQUEUE", "SUSPEND,GANG"),
		"AccountingStorageEnforce": one("", "limits", "safe"), "PriorityType": "priority/multifactor", "PriorityWeightFairShare": one("0", "1000"), "PriorityWeightAge": one("0", "1000"),
		"PriorityMaxAge": one("0", "7-00:00:00"), "PriorityDecayHalfLife": one("0", "00:01:00"), "PriorityFlags": one("", "INCR_ONLY", "NO_FAIR_TREE"), "PriorityCalcPeriod": one("0", "00:01:00"),
	}}
	partitions := []string{"a", "b", "empty", "gone"}
	for _, name := range partitions[:3] {
		r.Partitions = append(r.Partitions, slurm.Partition{
			Name: name, State: one("UP", "UP", "DOWN", "INACTIVE"), PriorityTier: number(0, 1, 10), MaxTime: time.Duration(number(0, int64(slurm.Unlimited), int64(time.Hour))),
			MinNodes: number(0, 1), MaxNodes: slurm.AtMost(number(0, 1, 5)), PreemptMode: one("", "OFF", "CANCEL"), QOS: one("", "q", "nope"), Exclusive: random.IntN(4) == 0,
		})
	}
	for i := range random.IntN(5) {
		r.Nodes = append(r.Nodes, slurm.Node{
			Name: fmt.Sprintf("n%d", i), State: one("IDLE", "MIXED", "DOWN", "IDLE+DRAIN", "IDLE+POWERED_DOWN", ""), Partitions: slurm.List(one("a", "a,b", "", "b,gone")),
			CPUs: number(0, 4, 4, 64), SpecCPUs: number(0, 0, 1), CPUsTaken: number(0, 2, 400), MemMB: number(0, 1, 8000), MemMBTaken: number(0, 9000), GPUs: number(0, 4), GRES: one("", "gpu:4", "gpu:a100:4", "shard:x,gpu:"),
			ActiveFeatures: slurm.List(one("", "f,g", ",")), Owner: one("", "", "alice"),
		})
	}
	for range random.IntN(3) {
		start := now + number(-1000, 0, 600, 1<<40)
		r.Reservations = append(r.Reservations, slurm.Reservation{Name: one("r1", "r2"), Start: start, End: start + number(0, 60, 7200), Nodes: one("", "n0", "n[0-9]", "n["), Flags: slurm.List(one("", "DAILY", "FLEX,HOURLY", "MAINT"))})
	}
	for i := range uint64(random.IntN(20)) {
		j := slurm.Job{
			ID: 1 + i, ArrayID: number2(random, i), Label: fmt.Sprint(1 + i), Partition: one(partitions...), User: one("alice", "bob", ""), Account: one("lab", "x", ""), QOS: one("q", "", "z"),
			State: one("PENDING", "PENDING", "RUNNING", "COMPLETING", "SUSPENDED"), Priority: uint64(number(0, 1, 500, 1000)), Submit: now - number(0, 100, 1<<40), Accrue: number(0, now-50, now+50),
			Limit: time.Duration(number(0, int64(slurm.Unlimited), int64(time.Minute), int64(time.Hour))), Nodes: uint64(number(0, 1, 2, 9)), CPUs: uint64(number(0, 1, 4, 1000)),
			TRES: slurm.TRES{"cpu": float64(number(0, 1, 4)), "mem": float64(number(0, 100, 1<<40)), "gres/gpu": float64(number(0, 1))}, Tasks: one("", "", "1-5000", "1-9%2", "x%y"),
			Start: now + number(-500, 0, 700), End: number(0, now-100, now+100), NodeList: one("", "n0", "n[0-1]", "gone7", "n[1"), SchedNodes: one("", "n1", "zz"), ReqNodes: one("", "", "n2", "n[0-3]"),
			Reservation: one("", "", "r1", "none"), Dependency: one("", "afterok:1", fmt.Sprintf("afterany:%d", 1+i), fmt.Sprintf("afterany:%d", 2+i), "singleton", ":::", "afterok:99999999999999999999"),
			Reason: one("Priority", "Resources", "Dependency", "BeginTime", "QOSMaxJobsPerUserLimit", "PartitionTimeLimit", "odd"), Eligible: number(0, now+100), Features: one("", "", "f", "f&g|[", "*3"), GPURequest: one("", "gres:gpu:1", "gres:gpu:a100:1", ":"),
			HetID: uint64(number(0, 0, 0, 7)),
		}
		r.Jobs = append(r.Jobs, j)
		if random.IntN(2) == 0 {
			r.Details = append(r.Details, slurm.JobDetail{ID: j.ID, WholeNodes: random.IntN(3) == 0, ExcNodes: one("", "n1", "]"), Licenses: one("", "m:1", "m:x,:", "m:99"), TimeMin: time.Duration(number(0, int64(time.Minute))), Placements: []slurm.Placement{{Nodes: one("n0", "", "q["), CPUs: number(0, 4), MemMB: 100}}})
		}
	}
	if random.IntN(2) == 0 {
		r.Licenses = []slurm.License{{Name: "m", Free: number(0, 3)}}
	}
	if random.IntN(2) == 0 {
		r.Usages = &slurm.Usages{Associations: []slurm.CountedAssociation{{Cluster: "odd", Account: "lab", Parent: one("lab", "x", ""), Grp: slurm.GroupLimits{Jobs: slurm.AtMost(number(0, 1))}}, {Cluster: "odd", Account: "x", Parent: "lab"}, {Cluster: "odd", Account: "lab", User: "alice", MaxJobs: slurm.AtMost(int64(1))}}}
		r.QOS = []slurm.QOS{{Name: "q", UsageFactor: float64(number(0, 1)), Grp: slurm.GroupLimits{TRES: slurm.TRES{"cpu": float64(number(0, 4))}}}}
	}
	if random.IntN(2) == 0 {
		r.Shares = []slurm.Share{{Account: "root", RawUsage: float64(number(0, 100))}, {Depth: int(number(0, 1, 5)), Account: "lab", RawShares: float64(number(0, 1))}, {Depth: int(number(1, 2, 9)), Account: "lab", User: "alice", RawShares: 1, NormUsage: 0.5}}
	}
	return r
}

func number2(random *rand.Rand, i uint64) uint64 { return []uint64{0, 1 + i, 1, 77}[random.IntN(4)] }

// Whatever Slurm answers, a plan and a forecast end, overbook no node that is whole, and lie
// in the future.
func TestOddSnapshots(t *testing.T) {
	h := NewHistory([]Past{past("alice", "x", 60, 3600, now-100), past("bob", "y", 0, Forever, now-90_000), past("bob", "y", 5, 0, now-200_000)})
	for seed := range uint64(250) {
		random := rand.New(rand.NewPCG(seed, 15))
		records := oddRecords(random)
		w := NewWorld(records)
		for _, told := range []bool{true, false} {
			p := NewPlan(never, w, told)
			taken := make([]Resources, len(w.Nodes))
			for n := range p.space.nodes {
				before := Resources{}
				for _, run := range p.space.nodes[n].runs {
					taken[n].CPUs += run.use.CPUs
					taken[n].GPUs += run.use.GPUs
					if w.Jobs[run.row].Running {
						before.CPUs += run.use.CPUs
						before.GPUs += run.use.GPUs
					}
				}
				preempts := w.Scheduler.PreemptByQOS || w.Scheduler.PreemptByTier
				if total := w.Nodes[n].Total; !preempts && (taken[n].CPUs > max(total.CPUs, before.CPUs) || taken[n].GPUs > max(total.GPUs, before.GPUs)) {
					t.Errorf("seed %d: of node %s with %+v, %+v are taken", seed, w.Nodes[n].Name, total, taken[n])
				}
			}
			for row := range w.Jobs {
				r := &p.Results[row]
				if r.Verdict == PlannedLate && r.Start <= now || r.Verdict == StartsNow && r.Start > now {
					t.Errorf("seed %d: row %d: verdict %v at %d", seed, row, r.Verdict, r.Start-now)
				}
				_ = p.Explain(row)
				if !w.Jobs[row].Running && p.space.partitions[row] != nil {
					p.ShorterLimit(row, 60)
				}
			}
			for i := range w.Partitions {
				for _, hole := range Holes(p.Timelines(&w.Partitions[i]), 60, now+86400) {
					if hole.End <= hole.Start || hole.Start < now || len(hole.Nodes) == 0 {
						t.Errorf("seed %d: %+v", seed, hole)
					}
					p.Certainty("alice", &w.Partitions[i], hole.Nodes)
				}
			}
		}
		var rows []int
		for row := range w.Jobs {
			if !w.Jobs[row].Running {
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		e := When(never, w, rows[:1], h, func(*Past) float64 { return 1 }, seed)
		if e.Low < now || e.Median < e.Low || e.High < e.Median || e.Replays < minReplays {
			t.Errorf("seed %d: %+v", seed, e)
		}
		starts := Replay(never, w, rows, Course{Run: func(j *Job) int64 { return h.Draw(j, 0, random) }, Until: now + 30*86400, Turns: 50})
		if slices.ContainsFunc(starts, func(s int64) bool { return s != 0 && (s < now || s > now+30*86400) }) {
			t.Errorf("seed %d: %v", seed, starts)
		}
	}
}
