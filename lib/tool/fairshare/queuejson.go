package fairshare

import (
	"bytes"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/diagnosis"
	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/lib/slurm"
)

type weightsJSON struct {
	Age       float64            `json:"age"`
	Assoc     float64            `json:"assoc"`
	FairShare float64            `json:"fairshare"`
	JobSize   float64            `json:"jobsize"`
	Partition float64            `json:"partition"`
	QOS       float64            `json:"qos"`
	TRES      map[string]float64 `json:"tres"`
}

type queueHeaderJSON struct {
	Time         string         `json:"time"`
	Cluster      string         `json:"cluster"`
	PriorityType string         `json:"priority_type"`
	NoFactors    *string        `json:"factors_missing"`
	Weights      weightsJSON    `json:"weights"`
	Waiting      map[string]int `json:"waiting"`
}

// json writes one document, job by job: there may be a hundred thousand.
func (v *queueView) json(w io.Writer) error {
	header := queueHeaderJSON{
		Time: v.at.Format(time.RFC3339), Cluster: v.config["ClusterName"], PriorityType: v.config["PriorityType"],
		NoFactors: optional(v.noFactors), Waiting: v.waiting,
		Weights: weightsJSON{
			v.weights.Age, v.weights.Assoc, v.weights.FairShare, v.weights.JobSize,
			v.weights.Partition, v.weights.QOS, v.weights.TRES,
		},
	}
	text, err := json.MarshalIndent(header, "", "  ")
	if err != nil {
		return err
	}
	p := newPage(w, 0, false)
	p.print(strings.TrimSuffix(string(text), "\n}"))
	p.print(",\n  \"jobs\": [")
	why := v.why
	if len(v.ids) > 0 || why == nil { // one after the other, as they are tried out in one plan
		why = make([]diagnosis.Diagnosis, len(v.rows))
		for n, i := range v.rows {
			why[n] = v.rowDiagnosis(i)
		}
	}
	inOrder(len(v.rows), 1000, func(low, high int) []byte {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		for n := low; n < high; n++ {
			if n > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n    ")
			if e.Encode(v.jobJSON(v.rows[n], &why[n])) == nil {
				b.Truncate(b.Len() - 1) // the newline
			} else {
				b.WriteString("null") // a number that JSON cannot write
			}
		}
		return b.Bytes()
	}, p.bytes)
	p.print("\n  ]\n}\n")
	return p.Flush()
}

// inOrder makes pieces of step out of n side by side, and writes them in order.
func inOrder(n, step int, piece func(low, high int) []byte, write func([]byte)) {
	pieces := make(chan chan []byte, runtime.GOMAXPROCS(0))
	go func() {
		defer close(pieces)
		for low := 0; low < n; low += step {
			done := make(chan []byte, 1)
			pieces <- done
			go func() { done <- piece(low, min(low+step, n)) }()
		}
	}()
	for done := range pieces {
		write(<-done)
	}
}

// jobJSON is a pending job in one partition, for programs.
type jobJSON struct {
	JobID        string              `json:"job_id"`
	Raw          int64               `json:"raw_job_id"`
	Array        *int64              `json:"array_job_id"`
	Tasks        *string             `json:"array_tasks"`
	Count        int                 `json:"tasks"`
	Het          *int64              `json:"het_job_id"`
	HetOffset    *int64              `json:"het_job_offset"`
	Name         string              `json:"name"`
	User         string              `json:"user"`
	Account      *string             `json:"account"`
	QOS          *string             `json:"qos"`
	Partition    string              `json:"partition"`
	State        string              `json:"state"`
	Rank         *int                `json:"rank"`
	Priority     float64             `json:"priority"`
	Set          bool                `json:"priority_set_by_admin"`
	Sum          *float64            `json:"factors_sum"`
	Factors      map[string]partJSON `json:"factors"`
	Reason       string              `json:"reason"`
	Plain        string              `json:"reason_plain"`
	Advice       string              `json:"advice"`
	Never        bool                `json:"never_starts_as_it_is"`
	Submit       *string             `json:"submit_time"`
	Eligible     *string             `json:"eligible_time"`
	Start        *string             `json:"start_time"`
	End          *string             `json:"end_time"`
	PlannedNodes *string             `json:"planned_nodes"`
	NodeList     *string             `json:"nodelist"`
	Limit        *int64              `json:"time_limit_seconds"`
	Nodes        int64               `json:"nodes"`
	CPUs         int64               `json:"cpus"`
	GPUs         float64             `json:"gpus"`
	Memory       float64             `json:"memory_bytes"`
	Reservation  *string             `json:"reservation"`
	Dependency   *string             `json:"dependency"`
	*comparedJSON
}

type partJSON struct {
	Factor float64 `json:"factor"`
	Weight float64 `json:"weight"`
	Share  float64 `json:"share"`
}

// comparedJSON is what is said only of a job that was named.
type comparedJSON struct {
	Before     *string  `json:"before"`
	AheadBy    *float64 `json:"before_ahead_by"`
	LostMostIn *string  `json:"lost_most_in"`
	StartsNow  *int64   `json:"starts_now_with_seconds"`
	Obstacle   *string  `json:"obstacle"`

	Cause   diagnosis.Cause     `json:"cause"`
	Starts  diagnosis.StartKind `json:"starts"`
	Proof   []string            `json:"proof"`
	Command []string            `json:"advice_command"`
}

// jobJSON returns a job of the view.
func (v *queueView) jobJSON(i int, e *diagnosis.Diagnosis) jobJSON {
	j := &v.jobs[i]
	prio, components := v.standings[i].priority, v.components(i)
	row := jobJSON{
		JobID: j.Label, Raw: int64(j.ID), Tasks: optional(j.Tasks), Count: j.TaskCount(),
		Name: j.Name, User: j.User, Account: optional(j.Account),
		QOS: optional(j.QOS), Partition: j.Partition, State: j.State, Priority: prio, Set: direct(components, prio),
		Reason: j.Reason, Plain: e.Text, Advice: e.Action.Text, Never: e.Kind == diagnosis.Never,
		Submit: rfc3339(j.Submit), Eligible: rfc3339(j.Eligible), Start: rfc3339(j.Start), End: rfc3339(j.End),
		PlannedNodes: optional(j.SchedNodes), NodeList: optional(j.NodeList), Limit: seconds(j.Limit),
		Nodes: int64(j.Nodes), CPUs: int64(j.CPUs),
		GPUs: j.GPUs(), Memory: j.TRES["mem"] * (1 << 20), Reservation: optional(j.Reservation), Dependency: optional(j.Dependency),
	}
	if rank := v.standings[i].rank; rank > 0 {
		row.Rank = &rank
	}
	if j.Tasks != "" {
		array := int64(j.ArrayID)
		row.Array = &array
	}
	if j.HetID != 0 {
		id, offset := int64(j.HetID), int64(j.HetOffset)
		row.Het, row.HetOffset = &id, &offset
	}
	if components != nil {
		row.Factors = make(map[string]partJSON, len(components))
		for _, part := range components {
			row.Factors[part.Name] = partJSON{part.Factor, part.Weight, part.Share}
		}
		if !row.Set {
			sum := priority.Sum(components)
			row.Sum = &sum
		}
	}
	if len(v.ids) > 0 {
		row.comparedJSON = v.comparedJSON(i, e)
	}
	return row
}

// comparedJSON compares a job with the one before it.
func (v *queueView) comparedJSON(i int, e *diagnosis.Diagnosis) *comparedJSON {
	c := comparedJSON{Obstacle: optional(e.Text), Cause: e.Cause, Starts: e.Kind, Proof: filled(e.Proof), Command: filled(e.Action.Command)}
	if e.Action.Minutes > 0 {
		seconds := e.Action.Minutes * 60
		c.StartsNow = &seconds
	}
	if v.standings[i].rank == 0 {
		return &c
	}
	other := v.predecessor(i)
	if other < 0 {
		return &c
	}
	ahead := v.standings[other].priority - v.standings[i].priority
	c.Before, c.AheadBy = &v.jobs[other].Label, &ahead
	mine, theirs := v.components(i), v.components(other)
	if lost := priority.Lost(mine, theirs); mine != nil && theirs != nil && lost[0].Lag > 0 {
		c.LostMostIn = &lost[0].Name
	}
	return &c
}

const pendingHelp = "Pending jobs, each array task by itself, by partition, user and reason."

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
		code := slurm.ReasonCode(j.Reason)
		jobs[key{j.Partition, j.User, code}] += float64(j.TaskCount())
		if v.standings[i].eligible {
			first[j.Partition] = max(first[j.Partition], v.standings[i].priority)
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
		all = append(all, metric{"fairshare_jobs_pending", pendingHelp,
			[]string{"partition", k.partition, "user", k.user, "reason", k.reason}, jobs[k]})
	}
	// A partition without waiting jobs has zeros: an empty queue is a fact, too.
	pending := map[string]bool{}
	for k := range jobs {
		pending[k.partition] = true
	}
	for i := range v.limits {
		partition := v.limits[i].Name
		if !pending[partition] {
			all = append(all, metric{"fairshare_jobs_pending", pendingHelp, []string{"partition", partition}, 0})
		}
		all = append(all,
			metric{"fairshare_priority_highest", "The highest priority of a job in line; 0: there is none.",
				[]string{"partition", partition}, first[partition]},
			metric{"fairshare_jobs_in_line", "Jobs that the scheduler looks at and that take nodes from others.",
				[]string{"partition", partition}, float64(v.waiting[partition])})
	}
	return all
}
