package forecast

import "sort"

// Candidate is what decides when Slurm looks at a pending job in one partition.
type Candidate struct {
	Partition      string
	Tier           float64 // PriorityTier of the partition
	HasReservation bool
	Priority       float64
	Submit         int64
	JobID          uint64 // of an array: the array's
	// Eligible is false for a job that is not looked at yet: held, waiting for a
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
	sort.SliceStable(order, func(i, j int) bool {
		a, b := &candidates[order[i]], &candidates[order[j]]
		switch {
		case a.Eligible != b.Eligible:
			return a.Eligible
		case a.HasReservation != b.HasReservation:
			return a.HasReservation
		case a.Tier != b.Tier:
			return a.Tier > b.Tier
		case a.Priority != b.Priority:
			return a.Priority > b.Priority
		case a.Submit != b.Submit:
			return a.Submit < b.Submit
		}
		return a.JobID < b.JobID
	})
	return order
}

// Ranks tells for each candidate which place in its partition it has in that
// order, from 1; every task of an array before it counts. What is not looked at
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
