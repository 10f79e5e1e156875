package slurm

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// What can be done without has less time, a limit that is set holds for all commands, and one that cannot be read is an error
// of the environment.
func TestPatience(t *testing.T) {
	for set, want := range map[string][3]time.Duration{
		"": {time.Minute, 15 * time.Second, 15 * time.Second}, "2s": {2 * time.Second, 2 * time.Second, 2 * time.Second},
		"5min": {5 * time.Minute, 15 * time.Second, 15 * time.Second},
	} {
		t.Setenv(limitEnv, set)
		run := &answers{}
		for i, ask := range []struct {
			name string
			soon bool
		}{{"squeue", false}, {"squeue", true}, {"sacctmgr", false}} {
			c := Client{Run: run, Soon: ask.soon}
			if _, err := c.Output(t.Context(), ask.name); err != nil || run.asked[i].Timeout != want[i] {
				t.Errorf("%q, %s: %v, %v; want %v", set, ask.name, run.asked[i].Timeout, err, want[i])
			}
		}
	}
	for _, set := range []string{"soon", "10", "0s", "-1s"} {
		t.Setenv(limitEnv, set)
		if err := CheckEnvironment(); !fault.Is(err, fault.Usage) || Patience() != usual {
			t.Errorf("%q: %v, %v", set, err, Patience())
		}
	}
}
