package main

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/priority"
	"github.com/ponos-tools/ponos/lib/slurm"
)

type partJSON struct {
	Factor float64 `json:"factor"`
	Weight float64 `json:"weight"`
	Share  float64 `json:"share"`
}

type weightsJSON struct {
	Age       float64            `json:"age"`
	Assoc     float64            `json:"assoc"`
	FairShare float64            `json:"fairshare"`
	JobSize   float64            `json:"jobsize"`
	Partition float64            `json:"partition"`
	QOS       float64            `json:"qos"`
	TRES      map[string]float64 `json:"tres"`
}

type queueHeadJSON struct {
	Time         string         `json:"time"`
	Cluster      string         `json:"cluster"`
	PriorityType string         `json:"priority_type"`
	NoFactors    *string        `json:"factors_missing"`
	Weights      weightsJSON    `json:"weights"`
	Waiting      map[string]int `json:"waiting"`
}

// queueJobJSON is a pending job in one partition for programs.
type queueJobJSON struct {
	JobID          string              `json:"job_id"`
	RawID          uint64              `json:"raw_job_id"`
	ArrayJobID     *uint64             `json:"array_job_id"`
	ArrayTasks     *string             `json:"array_tasks"`
	Tasks          int                 `json:"tasks"`
	HetJobID       *uint64             `json:"het_job_id"`
	HetOffset      *uint64             `json:"het_job_offset"`
	Name           string              `json:"name"`
	User           string              `json:"user"`
	Account        *string             `json:"account"`
	QOS            *string             `json:"qos"`
	Partition      string              `json:"partition"`
	State          string              `json:"state"`
	Rank           *int                `json:"rank"`
	Priority       float64             `json:"priority"`
	DirectPriority bool                `json:"priority_set_by_admin"`
	Sum            *float64            `json:"factors_sum"`
	Factors        map[string]partJSON `json:"factors"`
	Reason         string              `json:"reason"`
	ReasonPlain    string              `json:"reason_plain"`
	Advice         string              `json:"advice"`
	NeverStarts    bool                `json:"never_starts_as_it_is"`
	Submit         *string             `json:"submit_time"`
	Eligible       *string             `json:"eligible_time"`
	Start          *string             `json:"start_time"`
	End            *string             `json:"end_time"`
	PlannedNodes   *string             `json:"planned_nodes"`
	NodeList       *string             `json:"nodelist"`
	Limit          *int64              `json:"time_limit_seconds"` // -1: unlimited
	Nodes          uint64              `json:"nodes"`
	CPUs           uint64              `json:"cpus"`
	GPUs           float64             `json:"gpus"`
	Memory         int64               `json:"memory_bytes"`
	Reservation    *string             `json:"reservation"`
	Dependency     *string             `json:"dependency"`
	Before         *string             `json:"before"` // the job before it in the partition
	Ahead          *float64            `json:"before_ahead_by"`
	LostMost       *string             `json:"lost_most_in"`
}

// json writes one document, job by job: a hundred thousand of them need not be in
// memory.
func (v *queueView) json(w io.Writer) error {
	head := queueHeadJSON{
		Time: v.at.Format(time.RFC3339), Cluster: v.config["ClusterName"], PriorityType: v.config["PriorityType"], NoFactors: optional(v.noFactors),
		Weights: weightsJSON{v.weights.Age, v.weights.Assoc, v.weights.FairShare, v.weights.JobSize, v.weights.Partition, v.weights.QOS, v.weights.TRES},
		Waiting: v.waiting,
	}
	text, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		return err
	}
	p := newPage(w, 0, false)
	p.print(strings.TrimSuffix(string(text), "\n}"))
	p.print(",\n  \"jobs\": [")
	for n, i := range v.rows {
		text, err := json.Marshal(v.jobJSON(i, len(v.ids) > 0))
		if err != nil {
			return err
		}
		if n > 0 {
			p.print(",")
		}
		p.print("\n    ")
		p.bytes(text)
	}
	p.print("\n  ]\n}\n")
	return p.Flush()
}

func (v *queueView) jobJSON(i int, compare bool) queueJobJSON {
	j := &v.jobs[i]
	e := explain(j)
	o := queueJobJSON{
		JobID: j.Label, RawID: j.ID, Tasks: j.TaskCount(), ArrayTasks: optional(j.Tasks), Name: j.Name, User: j.User, Account: optional(j.Account),
		QOS: optional(j.QOS), Partition: j.Partition, State: j.State, Priority: v.priorityOf(i), Reason: j.Reason, ReasonPlain: e.Plain, Advice: e.Advice,
		NeverStarts: slurm.WillNeverStart(j.Reason), Submit: rfc3339(j.Submit), Eligible: rfc3339(j.Eligible), Start: rfc3339(j.Start), End: rfc3339(j.End),
		PlannedNodes: optional(j.SchedNodes), NodeList: optional(j.NodeList), Limit: seconds(j.Limit), Nodes: j.Nodes, CPUs: j.CPUs, GPUs: j.GPUs(),
		Memory: int64(j.TRES["mem"]) << 20, Reservation: optional(j.Reservation), Dependency: optional(j.Dependency),
	}
	if j.Tasks != "" {
		o.ArrayJobID = &j.ArrayID
	}
	if j.HetID != 0 {
		o.HetJobID, o.HetOffset = &j.HetID, &j.HetOffset
	}
	if v.ranks[i] > 0 {
		o.Rank = &v.ranks[i]
	}
	parts := v.parts(i)
	if parts != nil && j.Pending() {
		sum := priority.Sum(parts)
		o.Factors = make(map[string]partJSON, len(parts))
		for _, part := range parts {
			o.Factors[part.Name] = partJSON{part.Factor, part.Weight, part.Share}
		}
		if o.DirectPriority = direct(parts, o.Priority); !o.DirectPriority {
			o.Sum = &sum
		}
	}
	if compare && v.ranks[i] > 0 {
		if other := v.predecessor(i); other >= 0 {
			ahead := v.priorityOf(other) - o.Priority
			o.Before, o.Ahead = &v.jobs[other].Label, &ahead
			theirs := v.parts(other)
			if lost := priority.Lost(parts, theirs); parts != nil && theirs != nil && len(lost) > 0 && lost[0].Lag > 0 {
				o.LostMost = &lost[0].Name
			}
		}
	}
	return o
}

// metrics counts what waits.
func (v *queueView) metrics() []metric {
	type key struct{ partition, user, reason string }
	jobs := map[key]float64{}
	first := map[string]float64{}
	for i := range v.jobs {
		j := &v.jobs[i]
		if !j.Pending() {
			continue
		}
		code, _, _ := strings.Cut(j.Reason, ",")
		jobs[key{j.Partition, j.User, code}] += float64(j.TaskCount())
		if v.candidates[i].Eligible {
			first[j.Partition] = max(first[j.Partition], v.priorityOf(i))
		}
	}
	var all []metric
	for _, k := range sortedKeys(jobs, func(a, b key) bool {
		if a.partition != b.partition {
			return a.partition < b.partition
		}
		if a.user != b.user {
			return a.user < b.user
		}
		return a.reason < b.reason
	}) {
		all = append(all, metric{"fairshare_jobs_pending", "Pending jobs, each array task by itself, by partition, user and reason.",
			[]string{"partition", k.partition, "user", k.user, "reason", k.reason}, jobs[k]})
	}
	for _, partition := range sortedKeys(first, func(a, b string) bool { return a < b }) {
		all = append(all, metric{"fairshare_priority_highest", "The highest priority of a job in line.", []string{"partition", partition}, first[partition]},
			metric{"fairshare_jobs_in_line", "Jobs that the scheduler looks at.", []string{"partition", partition}, float64(v.waiting[partition])})
	}
	return all
}
