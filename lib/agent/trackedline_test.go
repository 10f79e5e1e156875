package agent

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// scanTracked reads each field there is.
func TestScanTracked(t *testing.T) {
	at := time.Date(2026, 11, 20, 18, 26, 0, 5, time.UTC)
	gone := func(misses int) task.Absence { return task.Absence{Since: at, Last: at.Add(time.Hour), Misses: misses} }
	k := Tracked{
		ID: "0d192828", Slug: "train-12", Process: "p1", Job: "123456", Attempt: 1, Submitted: at, Since: at.Add(time.Minute), Lost: true,
		Missing: gone(1), Absent: gone(2), Unaccounted: gone(30), Reported: task.Running, LogSize: 4096, Output: 10, Restarts: 2,
		Reassigned: true, Rules: "oom: mem*2",
	}
	for field, value := range reflect.ValueOf(k).Fields() {
		if field.IsExported() && value.IsZero() {
			t.Errorf("%s is not tested", field.Name)
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
		ID: "0d192828-6e4f-4257-8361-95f67ef59391", Slug: "train-12", Process: "p1", Job: "123456", Attempt: 1,
		Submitted: at, Since: at, Reported: task.Running, LogSize: 4096, Output: 4096, Rules: "oom: mem*2",
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
