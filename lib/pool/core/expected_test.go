package core

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
)

// A few tasks that take long keep no others from being started before a job ends.
func TestExpected(t *testing.T) {
	c := &tasks{base: &base{}, hist: map[pool.Need]*histogram{}}
	task := &pool.Task{Spec: &pool.Spec{Need: pool.Need{CPUs: 1}}}
	for i := range 20 {
		if d := c.expected(task); d != 0 {
			t.Errorf("after %d tasks, one is expected to take %v", i, d)
		}
		seconds := 10.0
		if i >= 15 {
			seconds = 100
		}
		c.measure(task.Spec.Need, seconds)
	}
	if d := c.expected(task); d < 10*time.Second || d > 12*time.Second {
		t.Errorf("expected to take %v", d)
	}
}
