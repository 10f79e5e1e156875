package priority

import "time"

// Algorithm computes the factors of a whole tree.
type Algorithm func(root *Node)

// maxHalfLives limits how far ahead Recovery looks: by then a usage is a
// thousandth of what it was.
const maxHalfLives = 10

// Recovery is the time after which a user's factor is at least target if that
// user runs nothing and everyone else continues as now, so that their usage keeps
// its level. mine are the user's associations, all of which decay, and leaf is the
// one whose factor counts. ok is false if the target is out of reach within ten
// half-lives. The factors of root are those of today afterwards.
func Recovery(root, leaf *Node, mine []*Node, target float64, halfLife time.Duration, compute Algorithm) (after time.Duration, ok bool) {
	compute(root)
	if leaf.Factor >= target {
		return 0, true
	}
	if halfLife <= 0 {
		return 0, false
	}
	saved := map[*Node]float64{}
	save(root, saved)
	defer func() {
		for n, usage := range saved {
			n.Usage = usage
		}
		compute(root)
	}()
	at := func(t time.Duration) float64 {
		for n, usage := range saved {
			n.Usage = usage
		}
		for _, n := range mine {
			lower(root, n, saved[n]-Decayed(saved[n], t, halfLife))
		}
		compute(root)
		return leaf.Factor
	}
	low, high := time.Duration(0), maxHalfLives*halfLife
	if at(high) < target {
		return 0, false
	}
	for high-low > time.Minute {
		if middle := low + (high-low)/2; at(middle) >= target {
			high = middle
		} else {
			low = middle
		}
	}
	return high, true
}

func save(n *Node, usage map[*Node]float64) {
	usage[n] = n.Usage
	for _, c := range n.Children {
		save(c, usage)
	}
}

// lower takes usage away from leaf and everything above it.
func lower(n, leaf *Node, usage float64) bool {
	found := n == leaf
	for _, c := range n.Children {
		found = found || lower(c, leaf, usage)
	}
	if found {
		n.Usage = max(0, n.Usage-usage)
	}
	return found
}
