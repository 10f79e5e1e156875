package forecast

import (
	"cmp"
	"slices"
)

// Candidate is what decides when Slurm looks at a pending job in one partition.
type Candidate struct {
	Partition      string
	Tier           float64 // PriorityTier of the partition
	HasReservation bool
	Priority       float64
	Submit         int64
	JobID          uint64 // of an array: the array's
	// Eligible is false for a job that is not considered yet: held, waiting for a
	// dependency or for its begin time.
	Eligible bool
	// Count is how many jobs it stands for: the pending tasks of an array.
	Count int
}

// Order sorts indices of candidates the way the scheduler does: jobs in a
// reservation, then by the partition's tier, priority, submission and id. Jobs that
// are not looked at come last.
func Order(candidates []Candidate) []int {
	order := make([]int, len(candidates))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		if c := candidates[i].compare(&candidates[j]); c != 0 {
			return c
		}
		return i - j
	})
	return order
}

// compare is negative if the scheduler takes a before b, and 0 where nothing decides.
func (a *Candidate) compare(b *Candidate) int {
	first := func(yes bool) int {
		if yes {
			return -1
		}
		return 1
	}
	switch {
	case a.Eligible != b.Eligible:
		return first(a.Eligible)
	case a.HasReservation != b.HasReservation:
		return first(a.HasReservation)
	case a.Tier != b.Tier:
		return cmp.Compare(b.Tier, a.Tier)
	case a.Priority != b.Priority:
		return cmp.Compare(b.Priority, a.Priority)
	case a.Submit != b.Submit:
		return cmp.Compare(a.Submit, b.Submit)
	}
	return cmp.Compare(a.JobID, b.JobID)
}

// Ranks tells for each candidate which place in its partition it has in that
// order, from 1; every task of an array before it counts. What is not considered
// has rank 0.
func Ranks(candidates []Candidate, order []int) []int {
	ranks := make([]int, len(candidates))
	before := map[string]int{}
	for _, i := range order {
		if c := &candidates[i]; c.Eligible {
			ranks[i] = before[c.Partition] + 1
			before[c.Partition] += max(1, c.Count)
		}
	}
	return ranks
}
