package agent

import (
	"errors"
	"testing"
)

// Failures that differ only in the task become one, which counts each task once.
func TestJoinFailures(t *testing.T) {
	full, damaged := errors.New("disk full"), errors.New("tasks/a/task.json: damaged")
	for _, tt := range []struct {
		failed []failure
		want   string
	}{
		{[]failure{{"a", full}}, "task a: disk full"},
		{[]failure{{"b", full}, {"a", full}}, "task a and 1 other: disk full"},
		{[]failure{{"a", full}, {"b", full}, {"c", full}}, "task a and 2 others: disk full"},
		{[]failure{{"a", damaged}, {"a", errors.New("tasks/a/task.json: damaged")}}, "task a: tasks/a/task.json: damaged"},
		{[]failure{{"b", full}, {"a", full}, {"b", full}}, "task a and 1 other: disk full"},
		{[]failure{{"a", full}, {"a", damaged}}, "task a: disk full\ntask a: tasks/a/task.json: damaged"},
	} {
		if got := errors.Join(joinFailures(tt.failed)...).Error(); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.failed, got, tt.want)
		}
	}
}
