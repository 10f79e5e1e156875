package forecast

import (
	"slices"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// shares is a cluster of two users with equal shares, of whom alice has used less.
func shares(flags string) *Fair {
	reset := "NONE"
	if flags == "reset" {
		reset = "DAILY"
	}
	return NewFair(slurm.Config{
		"PriorityUsageResetPeriod": reset, "PriorityType": "priority/multifactor", "PriorityWeightFairShare": "1000", "PriorityFlags": flags, "PriorityCalcPeriod": "00:05:00", "PriorityDecayHalfLife": "7-00:00:00",
	}, []slurm.Share{
		{Depth: 0, Account: "root", RawUsage: 10000},
		{Depth: 1, Account: "a", User: "alice", RawShares: 1, NormUsage: 0.4, RawUsage: 4000},
		{Depth: 1, Account: "a", User: "bob", RawShares: 1, NormUsage: 0.6, RawUsage: 6000},
	})
}

// Who runs jobs falls behind: alice comes first until she has used more than bob, who then
// comes before the rest of her jobs, and she before the rest of his. With INCR_ONLY bob rises
// above her, and does not fall again.
func TestFairShareGoesOn(t *testing.T) {
	of := func(user string, priority float64, id uint64) Job {
		j := waiting(1, 4, 10)
		j.ID, j.ArrayID, j.User, j.Account, j.Priority, j.Accrue = 100+id, 100+id, user, "a", priority, 0
		return j
	}
	// Alice's factor is 1, bob's one half; her jobs come by their submission.
	jobs := []Job{
		running("n1", 4, 10), of("alice", 1000, 1), of("alice", 999, 2), of("alice", 998, 3), of("bob", 501, 4), of("bob", 500, 5), of("bob", 499, 6),
	}
	for flags, want := range map[string][]int64{"": {10, 30, 50, 20, 40, 60}, "INCR_ONLY": {10, 40, 60, 20, 30, 50}, "DEPTH_OBLIVIOUS": {10, 20, 30, 40, 50, 60}} {
		w := world(1, slices.Clone(jobs)...)
		w.Fair = shares(flags)
		if got := minutes(Replay(never, w, []int{1, 2, 3, 4, 5, 6}, Course{Run: asLimited, Until: now + 86400})); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", flags, got, want)
		}
	}
}

// At midnight, with a daily reset, all usage is nothing: bob's jobs, which began to come
// first, are equal to alice's again, and come by what else makes their priority.
func TestUsageIsReset(t *testing.T) {
	midnight := int64(1795305600) // in UTC; the zone of a test may be another
	_, offset := time.Unix(midnight, 0).Zone()
	f := shares("reset")
	c := f.course(midnight - int64(offset) - 600)
	c.nodes[2].Usage = 100
	c.compute(midnight - int64(offset) - 300)
	if c.shift[2] != 500 || c.shift[1] != -500 {
		t.Errorf("before: %v", c.shift)
	}
	c.compute(midnight - int64(offset) + 1)
	if c.shift[1] != 0 || c.nodes[0].Usage != 0 {
		t.Errorf("after: %v, %v", c.shift, c.nodes[0].Usage)
	}
}
