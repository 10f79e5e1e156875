package rented

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Tasks are told where in the store their checkpoints are kept: the same place wherever
// they go on.
func TestCheckpointStore(t *testing.T) {
	s := newStand(t, 1)
	s.Checkpoints.Store = "s3://bucket/checkpoints/"
	// A task cannot bring commands of its own for the container.
	wanted := task.Task{ID: s.job(1), Image: "img", Command: []string{"true"}, Env: map[string]string{"PONOS_CHECKPOINT_SAVE": "x"}}
	env, _, err := s.Place(t.Context(), wanted)
	if err != nil || env["PONOS_CHECKPOINT_STORE"] != "s3://bucket/checkpoints/"+string(s.job(1)) || env["PONOS_CHECKPOINT_DIR"] != "/data/checkpoints" || env["PONOS_CHECKPOINT_SAVE"] != "" {
		t.Errorf("%v, %v", env, err)
	}
	s.Checkpoints.Load, s.Checkpoints.Save, s.Checkpoints.Interval = "load", "save", time.Minute
	if env, _, err = s.Place(t.Context(), wanted); err != nil || env["PONOS_CHECKPOINT_LOAD"] != "load" || env["PONOS_CHECKPOINT_SAVE"] != "save" || env["PONOS_CHECKPOINT_INTERVAL"] != "60" {
		t.Errorf("%v, %v", env, err)
	}
}

// Stop destroys the instance, and waits until a list does not show it.
func TestStopOne(t *testing.T) {
	s := newStand(t, 2)
	s.begin(1).prints("so far\n")
	s.turn()
	if err := s.Stop(t.Context(), s.refs[0]); err != nil {
		t.Fatal(err)
	}
	if len(s.market.instances) != 0 || s.output(1) != "so far\n" {
		t.Errorf("%+v %q", s.market.instances, s.output(1))
	}
	if err := s.Stop(t.Context(), s.refs[0]); err != nil {
		t.Errorf("again: %v", err)
	}
	if j := s.turn()[s.job(1)]; j.Shows() != task.Stopped || j.Sight != runner.Cancelled {
		t.Errorf("%+v", j)
	}
}

// A list from before an instance was there does not say that it is gone.
func TestStopAtOnce(t *testing.T) {
	s := newStand(t, 1)
	s.begin(1)
	if err := s.Stop(t.Context(), s.refs[0]); err != nil || len(s.market.instances) != 0 {
		t.Errorf("%v, %+v", err, s.market.instances)
	}
}

// An end that only the label tells counts where a limit ends the task, even if the log can be
// read: its last lines may not be the container's last word.
func TestLimitAfterTheEnd(t *testing.T) {
	s := newStand(t, 1)
	s.Limits.Runtime = time.Hour
	i := s.begin(1)
	s.turn()
	i.prints("more of a child's words\n")
	i.label += ":end=0"
	s.clock.pass(2 * time.Hour)
	if j := s.turn()[s.job(1)]; j.Shows() != task.Completed {
		t.Errorf("%+v", j)
	}
}
