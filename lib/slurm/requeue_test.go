package slurm

import (
	"slices"
	"testing"
)

func TestParseRuns(t *testing.T) {
	got := parseRuns("PREEMPTED\nREQUEUED\n\nCANCELLED by 1000\nRUNNING\n")
	if want := []string{"PREEMPTED", "REQUEUED", "CANCELLED"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
