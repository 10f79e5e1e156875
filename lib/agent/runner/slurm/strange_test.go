package slurm

import (
	"testing"

	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Jobs of the user's other agents are known by the directories that they run in. Of several jobs of a task, the own one counts, and
// what squeue does not tell is no proof.
func TestJobsOfOtherAgents(t *testing.T) {
	c := &cluster{rows: []string{
		placed("1", "RUNNING", "PONOS_TASK=own", "/a/state/tasks/own"),
		placed("2", "RUNNING", "PONOS_TASK=other", "/b/state/tasks/other"),
		placed("3", "PENDING", "PONOS_TASK=near", "/a/state/tasks2/near"),
		placed("4_[0-1]", "PENDING", "PONOS_TASK=e0,e1", "/a/state/tasks"),
		placed("5_[0-1]", "PENDING", "PONOS_TASK=f0,f1", "/b/state/tasks"),
		placed("6", "RUNNING", "PONOS_TASK=twice", "/b/state/tasks/twice"),
		placed("7", "PENDING", "PONOS_TASK=twice", "/a/state/tasks/twice"),
		placed("8", "PENDING", "PONOS_TASK=untold", "(null)"),
		placed("9", "RUNNING", "PONOS_TASK=known", "/b/state/tasks/known"),
	}}
	r := newRunner(c)
	r.Tasks = "/a/state/tasks"
	jobs, err := r.Jobs(t.Context(), known(runner.Ref{Task: "known", Job: "9"}))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]runner.Claim{}
	for _, j := range jobs {
		got[string(j.Task)+" "+j.ID] = j.Claim
	}
	for name, want := range map[string]runner.Claim{
		"own 1": runner.Recorded, "other 2": runner.Strange, "near 3": runner.Strange, "e0 4_0": runner.Recorded, "e1 4_1": runner.Recorded,
		"f0 5_0": runner.Strange, "f1 5_1": runner.Strange, "twice 7": runner.Recorded, "untold 8": runner.Recorded, "known 9": runner.Recorded,
	} {
		if claim, ok := got[name]; !ok || claim != want {
			t.Errorf("%s: %v, %t; want %v", name, claim, ok, want)
		}
	}
	if len(jobs) != 10 {
		t.Errorf("%d jobs: %v", len(jobs), got)
	}
}
