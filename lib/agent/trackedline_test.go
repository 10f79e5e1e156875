package agent

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// scanTracked reads each field there is.
func TestScanTracked(t *testing.T) {
	at := time.Date(2026, 11, 20, 18, 26, 0, 5, time.UTC)
	gone := func(misses int) task.Absence { return task.Absence{Since: at, Last: at.Add(time.Hour), Misses: misses} }
	k := Tracked{
		Ref: runner.Ref{
			Task: "0d192828", Label: "train-12", Job: "123456", Attempt: 1, Before: "7,8", Submitted: at, Lost: true,
			Missing: gone(1), Unaccounted: gone(30), Rules: "oom: mem*2",
		},
		Process: "p1", Since: at.Add(time.Minute), Absent: gone(2), Reported: task.Running, LogSize: 4096, Output: 10, Restarts: 2,
		Asked:      at.Add(time.Second),
		Reassigned: true,
	}
	for _, part := range []any{k, k.Ref} {
		for field, value := range reflect.ValueOf(part).Fields() {
			if field.IsExported() && value.IsZero() && field.Tag.Get("json") != "-" {
				t.Errorf("%s is not tested", field.Name)
			}
		}
	}
	line, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := scanTracked(string(line)); !ok || got != k {
		t.Errorf("%s is read as %+v, %v", line, got, ok)
	}
}

// BenchmarkTrackedLine compares scanTracked with encoding/json.
func BenchmarkTrackedLine(b *testing.B) {
	at := time.Date(2026, 11, 20, 18, 26, 0, 0, time.UTC)
	line, err := json.Marshal(Tracked{
		Ref: runner.Ref{
			Task: "0d192828-6e4f-4257-8361-95f67ef59391", Label: "train-12", Job: "123456", Attempt: 1, Submitted: at, Rules: "oom: mem*2",
		},
		Process: "p1", Since: at, Reported: task.Running, LogSize: 4096, Output: 4096,
	})
	if err != nil {
		b.Fatal(err)
	}
	const times = 10_000
	var own, tags time.Duration
	for b.Loop() {
		began := time.Now()
		for range times {
			if _, ok := scanTracked(string(line)); !ok {
				b.Fatalf("not read: %s", line)
			}
		}
		own += time.Since(began)
		began = time.Now()
		for range times {
			var k Tracked
			if err := json.Unmarshal(line, &k); err != nil {
				b.Fatal(err)
			}
		}
		tags += time.Since(began)
	}
	b.ReportMetric(tags.Seconds()/own.Seconds(), "x-encoding/json")
}
