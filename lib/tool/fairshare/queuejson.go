package fairshare

import (
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/priority"
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

// json writes one document, job by job and without reflection: there may be a
// hundred thousand.
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
	inOrder(len(v.rows), 1000, func(low, high int) []byte {
		o := jsonObject{}
		for n := low; n < high; n++ {
			if n > 0 {
				o.b = append(o.b, ',')
			}
			o.b = append(o.b, "\n    "...)
			v.jobJSON(&o, v.rows[n], len(v.ids) > 0)
		}
		return o.b
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

// jobJSON writes a pending job in one partition.
func (v *queueView) jobJSON(o *jsonObject, i int, compare bool) {
	j := &v.jobs[i]
	e := explain(j)
	o.open()
	o.text("job_id", j.Label)
	o.number("raw_job_id", float64(j.ID))
	if j.Tasks != "" {
		o.number("array_job_id", float64(j.ArrayID))
	} else {
		o.null("array_job_id")
	}
	o.optional("array_tasks", j.Tasks)
	o.number("tasks", float64(j.TaskCount()))
	if j.HetID != 0 {
		o.number("het_job_id", float64(j.HetID))
		o.number("het_job_offset", float64(j.HetOffset))
	} else {
		o.null("het_job_id")
		o.null("het_job_offset")
	}
	o.text("name", j.Name)
	o.text("user", j.User)
	o.optional("account", j.Account)
	o.optional("qos", j.QOS)
	o.text("partition", j.Partition)
	o.text("state", j.State)
	if v.ranks[i] > 0 {
		o.number("rank", float64(v.ranks[i]))
	} else {
		o.null("rank")
	}
	v.priorityJSON(o, i)
	o.text("reason", j.Reason)
	o.text("reason_plain", e.Plain)
	o.text("advice", e.Advice)
	_, never := v.obstacle(i)
	o.bool("never_starts_as_it_is", never)
	o.stamp("submit_time", j.Submit)
	o.stamp("eligible_time", j.Eligible)
	o.stamp("start_time", j.Start)
	o.stamp("end_time", j.End)
	o.optional("planned_nodes", j.SchedNodes)
	o.optional("nodelist", j.NodeList)
	if s := seconds(j.Limit); s != nil {
		o.number("time_limit_seconds", float64(*s))
	} else {
		o.null("time_limit_seconds")
	}
	o.number("nodes", float64(j.Nodes))
	o.number("cpus", float64(j.CPUs))
	o.number("gpus", j.GPUs())
	o.number("memory_bytes", j.TRES["mem"]*(1<<20))
	o.optional("reservation", j.Reservation)
	o.optional("dependency", j.Dependency)
	if compare {
		v.beforeJSON(o, i)
		if f, ok := v.fits[j.Partition]; ok {
			o.number("starts_now_with_seconds", float64(f.minutes*60))
		} else {
			o.null("starts_now_with_seconds")
		}
		if text, _ := v.obstacle(i); text != "" {
			o.text("obstacle", text)
		} else {
			o.null("obstacle")
		}
	}
	o.close()
}

// priorityJSON writes where a priority comes from.
func (v *queueView) priorityJSON(o *jsonObject, i int) {
	prio, components := v.priorityOf(i), v.components(i)
	set := direct(components, prio)
	o.number("priority", prio)
	o.bool("priority_set_by_admin", set)
	if components == nil || set {
		o.null("factors_sum")
	} else {
		o.number("factors_sum", priority.Sum(components))
	}
	if components == nil {
		o.null("factors")
		return
	}
	o.key("factors")
	o.open()
	for _, part := range components {
		o.key(part.Name)
		o.open()
		o.number("factor", part.Factor)
		o.number("weight", part.Weight)
		o.number("share", part.Share)
		o.close()
	}
	o.close()
}

// beforeJSON writes how a job compares with the one before it.
func (v *queueView) beforeJSON(o *jsonObject, i int) {
	other := -1
	if v.ranks[i] > 0 {
		other = v.predecessor(i)
	}
	if other < 0 {
		o.null("before")
		o.null("before_ahead_by")
		o.null("lost_most_in")
		return
	}
	o.text("before", v.jobs[other].Label)
	o.number("before_ahead_by", v.priorityOf(other)-v.priorityOf(i))
	mine, theirs := v.components(i), v.components(other)
	if lost := priority.Lost(mine, theirs); mine != nil && theirs != nil && lost[0].Lag > 0 {
		o.text("lost_most_in", lost[0].Name)
	} else {
		o.null("lost_most_in")
	}
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
