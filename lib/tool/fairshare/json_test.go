package fairshare

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/planner"
)

// jobRow is what jobJSON writes, for encoding/json.
type jobRow struct {
	JobID       string                        `json:"job_id"`
	Raw         int64                         `json:"raw_job_id"`
	Array       *int64                        `json:"array_job_id"`
	Tasks       *string                       `json:"array_tasks"`
	Count       int                           `json:"tasks"`
	Het         *int64                        `json:"het_job_id"`
	HetOffset   *int64                        `json:"het_job_offset"`
	Name        string                        `json:"name"`
	User        string                        `json:"user"`
	Account     *string                       `json:"account"`
	QOS         *string                       `json:"qos"`
	Partition   string                        `json:"partition"`
	State       string                        `json:"state"`
	Rank        *int                          `json:"rank"`
	Priority    float64                       `json:"priority"`
	Set         bool                          `json:"priority_set_by_admin"`
	Sum         *float64                      `json:"factors_sum"`
	Factors     map[string]map[string]float64 `json:"factors"`
	Reason      string                        `json:"reason"`
	Plain       string                        `json:"reason_plain"`
	Advice      string                        `json:"advice"`
	Never       bool                          `json:"never_starts_as_it_is"`
	Submit      *time.Time                    `json:"submit_time"`
	Eligible    *time.Time                    `json:"eligible_time"`
	Start       *time.Time                    `json:"start_time"`
	End         *time.Time                    `json:"end_time"`
	Planned     *string                       `json:"planned_nodes"`
	NodeList    *string                       `json:"nodelist"`
	Limit       *int64                        `json:"time_limit_seconds"`
	Nodes       int64                         `json:"nodes"`
	CPUs        int64                         `json:"cpus"`
	GPUs        float64                       `json:"gpus"`
	Memory      float64                       `json:"memory_bytes"`
	Reservation *string                       `json:"reservation"`
	Dependency  *string                       `json:"dependency"`
}

// BenchmarkJobJSON compares jobJSON with encoding/json, to which the values are given ready: without the
// time that computing them takes in jobJSON.
func BenchmarkJobJSON(b *testing.B) {
	a := planner.New()
	a.Client.Run, a.Client.Env = recorded{dir: fixtures}, []string{"PATH=/nowhere"}
	a.Now = func() time.Time { return time.Date(2026, 11, 20, 18, 26, 0, 0, time.UTC) }
	v := &queueView{ask: a}
	if err := v.load(b.Context()); err != nil {
		b.Fatal(err)
	}
	const times = 2000
	rows := make([]jobRow, len(v.rows))
	for n, i := range v.rows {
		o := jsonObject{}
		v.jobJSON(&o, i, false)
		if err := json.Unmarshal(o.b, &rows[n]); err != nil {
			b.Fatalf("%v: %s", err, o.b)
		}
	}
	var own, tags time.Duration
	for b.Loop() {
		began := time.Now()
		for range times {
			o := jsonObject{}
			for _, i := range v.rows {
				v.jobJSON(&o, i, false)
			}
		}
		own += time.Since(began)
		began = time.Now()
		for range times {
			for n := range rows {
				if _, err := json.Marshal(&rows[n]); err != nil {
					b.Fatal(err)
				}
			}
		}
		tags += time.Since(began)
	}
	b.ReportMetric(tags.Seconds()/own.Seconds(), "x-encoding/json")
}
