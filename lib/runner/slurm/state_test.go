package slurm

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
)

var now = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)

func TestJudge(t *testing.T) {
	ago := func(d time.Duration) runner.Ref { return runner.Ref{Task: "a", Job: "7", Missing: now.Add(-d)} }
	queue := func(state string) *slurm.Job {
		return &slurm.Job{ID: 7, State: state, Reason: "None", Start: now.Add(-time.Hour).Unix()}
	}
	account := func(state string, batch slurm.Exit, steps ...slurm.Exit) *slurm.Record {
		r := &slurm.Record{ID: "7", State: state, Batch: batch}
		for _, exit := range steps {
			r.Steps = append(r.Steps, slurm.Step{Exit: exit})
		}
		return r
	}
	code := func(n int) slurm.Exit { return slurm.Exit{Code: n} }
	for _, tt := range []struct {
		name    string
		e       evidence
		state   task.State
		exit    int
		unknown bool
		reason  string
	}{
		{"waits", evidence{queue: &slurm.Job{State: "PENDING", Reason: "Resources"}}, task.Pending, 0, false, "Resources"},
		{"preempted and requeued", evidence{queue: queue("REQUEUED")}, task.Pending, 0, false, ""},
		{"held after a launch failure", evidence{queue: queue("SPECIAL_EXIT")}, task.Pending, 0, false, ""},
		{"runs", evidence{queue: queue("RUNNING")}, task.Running, 0, false, ""},
		{"ends", evidence{queue: queue("COMPLETING")}, task.Running, 0, false, ""},
		{"suspended after its start", evidence{queue: queue("SUSPENDED")}, task.Running, 0, false, ""},
		{"suspended before its start", evidence{queue: &slurm.Job{State: "SUSPENDED"}}, task.Pending, 0, false, ""},
		{"accounting behind squeue", evidence{queue: queue("RUNNING"), account: account("COMPLETED", code(0))}, task.Running, 0, false, ""},
		{"completed", evidence{account: account("COMPLETED", code(0), code(0))}, task.Completed, 0, false, ""},
		{"completed, by squeue alone", evidence{queue: queue("COMPLETED")}, task.Completed, 0, false, ""},
		{"a step failed, the script did not", evidence{account: account("COMPLETED", code(0), code(0), code(2), code(3))}, task.Failed, 2, false, "exit code 2"},
		{"a step failed, by squeue alone", evidence{queue: &slurm.Job{State: "COMPLETED", Derived: code(5)}}, task.Failed, 5, false, "exit code 5"},
		{"failed, the script's code first", evidence{account: account("FAILED", code(3), code(9))}, task.Failed, 3, false, "exit code 3"},
		{"killed by a signal", evidence{account: account("FAILED", slurm.Exit{Signal: 9})}, task.Failed, 137, false, "ended by signal 9"},
		{"not begun", evidence{account: account("FAILED", slurm.Exit{Signal: 53})}, task.Error, 181, false, "Slurm could not begin the job (0:53), mostly because its node cannot write to the task's directory: is data_dir on a file system that all nodes have?"},
		{"failed without a code", evidence{queue: queue("FAILED")}, task.Failed, 1, false, "Slurm says that the job failed"},
		{"time limit", evidence{account: account("TIMEOUT", slurm.Exit{Signal: 15})}, task.Error, 143, false, "the job reached its time limit"},
		{"memory", evidence{queue: queue("OUT_OF_MEMORY")}, task.Error, 0, false, "the job used more memory than it had asked for"},
		{"node", evidence{account: account("NODE_FAIL", code(0))}, task.Error, 0, false, "a node of the job failed"},
		{"preempted for good", evidence{ref: ago(3 * time.Minute), account: account("PREEMPTED", code(0))}, task.Error, 0, false, "the job was preempted and not requeued"},
		{"just preempted", evidence{account: account("PREEMPTED", code(0)), queue: queue("PREEMPTED")}, "", 0, true, "the job was preempted"},
		{"preempted for good, by squeue alone", evidence{ref: ago(3 * time.Minute), queue: queue("PREEMPTED")}, task.Error, 0, false, "the job was preempted and not requeued"},
		{"cancelled", evidence{account: &slurm.Record{State: "CANCELLED", By: "1000"}}, task.Error, 0, false, "the job was cancelled, and not by this agent (by user 1000)"},
		{"a state of a later Slurm", evidence{queue: queue("TELEPORTING")}, "", 0, true, `squeue shows the unknown state "TELEPORTING"`},
		{"just vanished", evidence{ref: ago(0)}, "", 0, true, "squeue does not show the job, and accounting does not know its end"},
		{"accounting lags", evidence{ref: ago(time.Minute), account: account("RUNNING", code(0)), hasExit: true}, "", 0, true, "squeue does not show the job, and accounting does not know its end"},
		{"no accounting, but the script's file", evidence{ref: ago(0), noAccounting: true, hasExit: true, exit: 4}, task.Failed, 4, false, "exit code 4"},
		{"accounting is late, but the script's file", evidence{ref: ago(3 * time.Minute), hasExit: true}, task.Completed, 0, false, ""},
		{"gone", evidence{ref: ago(11 * time.Minute)}, task.Error, 0, false, "the job is gone without a trace"},
		{"odd squeue, accounting says it runs", evidence{ref: ago(11 * time.Minute), account: account("RUNNING", code(0))}, "", 0, true, "squeue does not show the job, and accounting does not know its end"},
	} {
		tt.e.now = now
		got := tt.e.judge()
		if got.State != tt.state || got.ExitCode != tt.exit || got.Unknown != tt.unknown || got.Reason != tt.reason {
			t.Errorf("%s: got %+v; want %v, exit %d, unknown %v, %q", tt.name, got, tt.state, tt.exit, tt.unknown, tt.reason)
		}
	}
}

// Every state that the manuals of Slurm 20.11 to 26.05 list has a meaning.
func TestEveryStateHasAMeaning(t *testing.T) {
	for _, s := range []string{
		"BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
		"PENDING", "POWER_UP_NODE", "PREEMPTED", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "REVOKED",
		"RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED", "TIMEOUT",
	} {
		if job := (evidence{ref: runner.Ref{Missing: now.Add(-time.Hour)}, queue: &slurm.Job{State: s}, now: now}).judge(); job.Unknown || job.State == "" {
			t.Errorf("%s: %+v", s, job)
		}
	}
}
