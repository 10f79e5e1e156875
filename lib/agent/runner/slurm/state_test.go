package slurm

import (
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

var now = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)

func TestJudge(t *testing.T) {
	// A job that a turn a minute has not seen for a while.
	ago := func(d time.Duration) runner.Ref {
		absence := task.Absence{Since: now.Add(-d), Last: now, Misses: 1 + int(d/time.Minute)}
		return runner.Ref{Task: "a", Job: "7", Missing: absence, Unaccounted: absence}
	}
	// The same by the clock, which jumped between two looks.
	jumped := runner.Ref{Task: "a", Job: "7", Missing: task.Absence{Since: now.Add(-time.Hour), Last: now, Misses: 2}}
	run := func(r record.Run) evidence { return evidence{journal: true, run: r, owner: "7"} }
	with := func(e evidence, ref runner.Ref, q *slurm.Job, a *slurm.Record) evidence {
		e.ref, e.queue, e.account = ref, q, a
		return e
	}
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
		{"waits", evidence{queue: &slurm.Job{State: "PENDING", Reason: "Resources"}}, task.Pending, 0, false, "next in line: waits for nodes to become free (Resources)"},
		{"preempted and requeued", evidence{queue: queue("REQUEUED")}, task.Pending, 0, false, "is put into the queue again (REQUEUED)"},
		{"held after a launch failure", evidence{queue: queue("SPECIAL_EXIT")}, task.Pending, 0, false, `is held until "scontrol release 7" is run (SPECIAL_EXIT)`},
		{"runs", evidence{queue: queue("RUNNING")}, task.Running, 0, false, ""},
		{"runs, and its command has ended", with(run(record.Run{Begun: true, Ended: true, Code: 3}), ago(5*time.Minute), queue("RUNNING"), nil), "", 0, true, "its command has ended, and Slurm shows the job as running"},
		{"runs, and its command has long ended", with(run(record.Run{Begun: true, Ended: true, Code: 3}), ago(11*time.Minute), queue("RUNNING"), nil), task.Failed, 3, false, "exit code 3"},
		{"runs again, and its command was asked to end before", with(run(record.Run{Begun: true, Cut: true, Code: 143}), ago(11*time.Minute), queue("RUNNING"), nil), task.Running, 0, false, ""},
		{"ends", evidence{queue: queue("COMPLETING")}, task.Running, 0, false, ""},
		{"suspended after its start", evidence{queue: queue("SUSPENDED")}, task.Running, 0, false, "suspended by Slurm"},
		{"suspended before its start", evidence{queue: &slurm.Job{State: "SUSPENDED"}}, task.Pending, 0, false, "suspended by Slurm"},
		{"accounting behind squeue", evidence{queue: queue("RUNNING"), account: account("COMPLETED", code(0))}, task.Running, 0, false, ""},
		{"completed", evidence{account: account("COMPLETED", code(0), code(0))}, task.Completed, 0, false, ""},
		{"completed, by squeue alone", evidence{queue: queue("COMPLETED")}, task.Completed, 0, false, ""},
		{"completed, after it was asked to end", with(run(record.Run{Begun: true, Cut: true, Closed: true}), runner.Ref{}, nil, account("COMPLETED", code(0))), task.Error, 0, false, record.Interrupted},
		{"completed, and its start before was asked to end", with(run(record.Run{Begun: true, Cut: true, Closed: true}), runner.Ref{}, &slurm.Job{State: "COMPLETED", Restarts: 1}, nil), task.Completed, 0, false, ""},
		{"a step failed, the script did not", evidence{account: account("COMPLETED", code(0), code(0), code(2), code(3))}, task.Failed, 2, false, "exit code 2"},
		{"a step failed, by squeue alone", evidence{queue: &slurm.Job{State: "COMPLETED", Derived: code(5)}}, task.Failed, 5, false, "exit code 5"},
		{"failed, the script's code first", evidence{account: account("FAILED", code(3), code(9))}, task.Failed, 3, false, "exit code 3"},
		{"killed by a signal", evidence{account: account("FAILED", slurm.Exit{Signal: 9})}, task.Failed, 137, false, "ended by signal 9"},
		{"failed without a code, but the journal", with(run(record.Run{Begun: true, Ended: true, Code: 39}), runner.Ref{}, nil, account("FAILED", code(0))), task.Failed, 39, false, "exit code 39"},
		{"killed with its script", with(run(record.Run{Begun: true}), ago(5*time.Minute), nil, account("FAILED", slurm.Exit{Signal: 9})), task.Error, 137, false, "the job was killed while its command ran"},
		{"its command killed by a signal", with(run(record.Run{Begun: true, Cut: true, Code: 137}), ago(5*time.Minute), nil, account("FAILED", code(137))), task.Failed, 137, false, "exit code 137"},
		{"not begun, with a code", evidence{ref: ago(5 * time.Minute), account: account("FAILED", slurm.Exit{Code: 1, Signal: 53})}, task.Error, 181, false, "Slurm could not begin the job (0:53), mostly because its node cannot write to the task's directory: is data_dir on a file system that all nodes have?"},
		{"not begun", evidence{ref: ago(5 * time.Minute), account: account("FAILED", slurm.Exit{Signal: 53})}, task.Error, 181, false, "Slurm could not begin the job (0:53), mostly because its node cannot write to the task's directory: is data_dir on a file system that all nodes have?"},
		{"failed without a code", evidence{queue: queue("FAILED")}, task.Failed, 1, false, "Slurm says that the job failed"},
		{"time limit", evidence{account: account("TIMEOUT", slurm.Exit{Signal: 15})}, task.Error, 143, false, "the job reached its time limit"},
		{"memory", evidence{queue: queue("OUT_OF_MEMORY")}, task.Error, 0, false, "the job used more memory than it requested"},
		{"node", evidence{account: account("NODE_FAIL", code(0))}, task.Error, 0, false, "a node of the job failed"},
		{"preempted for good", evidence{ref: ago(3 * time.Minute), account: account("PREEMPTED", code(0))}, task.Error, 0, false, "the job was preempted and not requeued"},
		{"just preempted", evidence{account: account("PREEMPTED", code(0)), queue: queue("PREEMPTED")}, "", 0, true, "the job was preempted"},
		{"preempted for good, by squeue alone", evidence{ref: ago(3 * time.Minute), queue: queue("PREEMPTED")}, task.Error, 0, false, "the job was preempted and not requeued"},
		{"cancelled", evidence{account: &slurm.Record{State: "CANCELLED", By: "1000"}}, task.Error, 0, false, "the job was cancelled, and not by this agent (by user 1000)"},
		{"a state of a later Slurm", evidence{queue: queue("TELEPORTING")}, "", 0, true, `squeue shows the unknown state "TELEPORTING"`},
		{"just vanished", evidence{ref: ago(0)}, "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"accounting lags", with(run(record.Run{Begun: true, Ended: true}), ago(time.Minute), nil, account("RUNNING", code(0))), "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"no accounting, but the journal", evidence{ref: ago(0), books: noBooks, journal: true, owner: "7", run: record.Run{Begun: true, Ended: true, Closed: true, Code: 4}}, task.Failed, 4, false, "exit code 4"},
		{"accounting is late, but the journal", with(run(record.Run{Begun: true, Ended: true}), ago(3*time.Minute), nil, nil), task.Completed, 0, false, ""},
		// One short listing while a preempted job waits to be begun again.
		{"no accounting, and the job was asked to end", evidence{ref: ago(0), books: noBooks, journal: true, owner: "7", run: record.Run{Begun: true, Cut: true, Code: 143}}, "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"killed, and gone for good", evidence{ref: ago(11 * time.Minute), journal: true, owner: "7", run: record.ParseRun([]byte("begun n1 7 9;\n\nexited 137;\n"))}, task.Error, 0, false, "the job was killed while its command ran, and is gone from Slurm"},
		{"asked to end, and gone for good", evidence{ref: ago(11 * time.Minute), books: noBooks, journal: true, owner: "7", run: record.Run{Begun: true, Cut: true, Closed: true, Code: 143}}, task.Error, 0, false, "the command ended with exit code 143 after the job was asked to end, and the job is gone from Slurm"},
		{"gone", with(run(record.Run{Begun: true}), ago(11*time.Minute), nil, nil), task.Error, 0, false, "the job is gone without a trace"},
		{"gone, and accounting shows it as running", with(run(record.Run{Begun: true}), ago(50*time.Minute), nil, account("RUNNING", code(0))), "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"gone for an hour, and accounting shows it as running", with(run(record.Run{Begun: true}), ago(61*time.Minute), nil, account("RUNNING", code(0))), task.Error, 0, false, "the job is gone without a trace"},
		{"gone by a jump of the clock", with(run(record.Run{Begun: true}), jumped, nil, nil), "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"gone, and so is its directory", evidence{ref: ago(11 * time.Minute)}, "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"forgotten before it began", evidence{ref: ago(11 * time.Minute), journal: true}, task.Error, 0, false, "Slurm has forgotten the job before it began"},
		{"perhaps forgotten before it began", evidence{ref: ago(0), journal: true}, "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"forgotten before it began, and accounting answers", evidence{ref: ago(time.Minute), journal: true}, task.Error, 0, false, "Slurm has forgotten the job before it began"},
		{"forgotten before it began, and accounting shows it as waiting", evidence{ref: ago(time.Minute), journal: true, account: account("PENDING", code(0))}, task.Error, 0, false, "Slurm has forgotten the job before it began"},
		{"perhaps forgotten before it began, without accounting", evidence{ref: ago(9 * time.Minute), journal: true, books: noBooks}, "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"perhaps an element that was cancelled while it waited", evidence{ref: ago(time.Minute), journal: true, siblings: true}, "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"dropped before it began", evidence{ref: ago(0), journal: true, account: account("CANCELLED", code(0))}, task.Error, 0, false, "Slurm has forgotten the job before it began"},
		{"dropped after its command had ended", with(run(record.Run{Begun: true, Ended: true, Code: 3}), ago(0), nil, account("CANCELLED", code(0))), task.Failed, 3, false, "exit code 3"},
		{"dropped, and its command may still run", with(run(record.Run{Begun: true}), ago(time.Minute), nil, account("CANCELLED", code(0))), "", 0, true, "accounting shows the job as CANCELLED, and squeue does not show it"},
		{"dropped while its command ran", with(run(record.Run{Begun: true}), ago(5*time.Minute), nil, account("CANCELLED", code(0))), task.Error, 0, false, "the controller of Slurm has forgotten the job while its command ran"},
		{"cancelled by nobody, and the controller knows it", evidence{journal: true, queue: queue("CANCELLED"), account: account("CANCELLED", code(0))}, task.Error, 0, false, "the job was cancelled, and not by this agent"},
		{"the node failed after the command had ended", with(run(record.Run{Begun: true, Ended: true}), runner.Ref{}, nil, account("NODE_FAIL", code(0))), task.Completed, 0, false, ""},
		{"preempted after the command had ended", with(run(record.Run{Begun: true, Ended: true, Code: 3}), ago(3*time.Minute), nil, account("PREEMPTED", code(0))), task.Failed, 3, false, "exit code 3"},
		{"begun again in vain after the command had ended", with(run(record.Run{Begun: true, Ended: true, Code: 3}), runner.Ref{}, nil, account("FAILED", slurm.Exit{Signal: 53})), task.Failed, 3, false, "exit code 3"},
		{"accounting is that of an earlier start, which failed", with(run(record.Run{Restart: 1, Begun: true, Ended: true, Closed: true}), runner.Ref{}, nil, account("FAILED", code(1))), task.Completed, 0, false, ""},
		{"accounting is cut: it lacks the exit codes", with(run(record.Run{Begun: true, Ended: true, Closed: true}), runner.Ref{}, nil, account("FAILED", code(0))), task.Completed, 0, false, ""},
		{"accounting is that of an earlier start, which found another owner", with(run(record.Run{Restart: 1, Begun: true, Ended: true, Closed: true, Code: 3}), runner.Ref{}, nil, account("COMPLETED", code(0))), task.Failed, 3, false, "exit code 3"},
		{"the node failed while the command ran", with(run(record.Run{Begun: true}), ago(5*time.Minute), nil, account("NODE_FAIL", code(0))), task.Error, 0, false, "a node of the job failed"},
		{"failed, and nothing is seen of its beginning yet", evidence{journal: true, queue: queue("FAILED")}, "", 0, true, "the job has ended, and there is no sign that it began"},
		{"failed before it began", evidence{ref: ago(5 * time.Minute), journal: true, account: account("FAILED", code(1))}, task.Error, 1, false, "the job has ended before it began the command: exit code 1"},
		// A listing that was empty once, while a job waits to be begun again, or shortly after.
		{"accounting shows the start before the last one", with(run(record.Run{Begun: true, Cut: true, Closed: true, Code: 143}), runner.Ref{}, nil, account("FAILED", code(143))), "", 0, true, "accounting shows the job as FAILED, and squeue does not show it"},
		{"its node failed, and it may be begun again", with(run(record.Run{Begun: true}), ago(2*time.Minute), nil, account("NODE_FAIL", code(0))), "", 0, true, "accounting shows the job as NODE_FAIL, and squeue does not show it"},
		{"squeue shows a later start than accounting", with(run(record.Run{Begun: true, Cut: true, Closed: true, Code: 143}), ago(0), &slurm.Job{ID: 7, State: "FAILED", Exit: slurm.Exit{Signal: 53}, Start: 200}, &slurm.Record{State: "FAILED", Batch: code(143), End: 150}), "", 0, true, "the job could not begin"},
		{"gone, and accounting has shown it once", with(run(record.Run{Begun: true, Cut: true, Closed: true, Code: 143}), func() runner.Ref { r := ago(11 * time.Minute); r.Unaccounted = ago(2 * time.Minute).Missing; return r }(), nil, nil), "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"gone, and accounting does not answer", with(evidence{journal: true, owner: "7", books: silent, run: record.Run{Begun: true}}, ago(11*time.Minute), nil, nil), "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
		{"odd squeue, accounting says it runs", evidence{ref: ago(11 * time.Minute), account: account("RUNNING", code(0))}, "", 0, true, "squeue does not show the job, and accounting has no record of its end"},
	} {
		tt.e.now = now
		got := tt.e.judge()
		if begins := strings.Contains(tt.reason, "before it beg"); (got.Sight == runner.Unbegun) != begins {
			t.Errorf("%s: seen as %d", tt.name, got.Sight)
		}
		if got.Shows() != tt.state || got.ExitCode != tt.exit || !got.Sight.Sure() != tt.unknown || got.Reason != tt.reason {
			t.Errorf("%s: got %+v; want %v, exit %d, unknown %v, %q", tt.name, got, tt.state, tt.exit, tt.unknown, tt.reason)
		}
	}
}

// A job that a node could not begin again, after a start that was cut short or killed, is
// one that Slurm would have run again. A slurmctld that was killed may have that job back in
// its queue, and run it, whatever accounting says: one look without it is not enough.
func TestBegunAgainInVain(t *testing.T) {
	for _, r := range []record.Run{{Begun: true}, {Begun: true, Cut: true, Code: 143}} {
		e := evidence{journal: true, owner: "7", ref: runner.Ref{Job: "7"}, run: r, account: &slurm.Record{ID: "7", State: "FAILED", Batch: slurm.Exit{Signal: 53}}, now: now}
		if job := e.judge(); job.Sight == runner.Unbegun || !job.Sight.Gone() {
			t.Errorf("%+v, for the first time: %+v", r, job)
		}
		e.ref.Missing = task.Absence{Since: now.Add(-10 * time.Minute), Last: now, Misses: 5}
		if job := e.judge(); job.Sight != runner.Unbegun {
			t.Errorf("%+v: %+v", r, job)
		}
		if e.owner = "8"; e.judge().Sight == runner.Unbegun {
			t.Errorf("%+v: though another job runs the task", r)
		}
	}
}

// A job of which the state directory was lost could not begin: that is certain at its first
// start only.
func TestLostAndNotBegun(t *testing.T) {
	for restarts, want := range map[uint64]bool{0: true, 1: false} {
		e := evidence{ref: runner.Ref{Lost: true}, journal: true, queue: &slurm.Job{State: "FAILED", Exit: slurm.Exit{Signal: 53}, Restarts: restarts}, now: now}
		if job := e.judge(); !job.Sight.Gone() || job.Sight == runner.Unbegun {
			t.Errorf("after %d restarts, for the first time: %+v", restarts, job)
		}
		e.ref.Missing = task.Absence{Since: now.Add(-time.Minute), Last: now, Misses: 2}
		if job := e.judge(); (job.Sight == runner.Unbegun) != want || job.Shows() != task.Error {
			t.Errorf("after %d restarts: %+v", restarts, job)
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
		if job := (evidence{ref: runner.Ref{Missing: task.Absence{Since: now.Add(-time.Hour), Last: now, Misses: 60}}, queue: &slurm.Job{State: s}, now: now}).judge(); !job.Sight.Sure() || job.Shows() == "" {
			t.Errorf("%s: %+v", s, job)
		}
	}
}
