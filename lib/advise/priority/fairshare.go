package priority

import (
	"math"
	"sort"
	"time"
)

// Node is an association: an account with children, or a user.
type Node struct {
	Name     string
	User     bool
	Shares   float64
	Parent   bool    // takes its parent's shares (Fairshare=parent)
	Usage    float64 // decayed, raw
	Children []*Node

	// Set by FairTree and Classic.
	NormShares     float64
	EffectiveUsage float64
	LevelFS        float64 // FairTree only
	Factor         float64 // users only
}

// FairTree computes the factors as the document "Fair Tree Fairshare Algorithm"
// says. LevelFS is S/U: the share among the siblings, over the part of their
// parent's usage. Siblings are taken in falling order of it, accounts unfolded in
// place; a user's factor is its rank from below over the number of users. Equal
// users share a rank, and the best of an account that is equal to the user or the account
// before it shares that one's. The document also says that equal accounts are merged: the
// code of slurmctld does not do so, in any version up to 26.05.
func FairTree(root *Node) {
	users := countUsers(root)
	if users == 0 {
		return
	}
	root.EffectiveUsage = 1
	t := tree{users: float64(users), rank: users, rankNoTies: users}
	level(root)
	t.assign(root.Children, false)
}

type tree struct {
	users            float64
	rank, rankNoTies int
}

func countUsers(n *Node) int {
	if n.User {
		return 1
	}
	total := 0
	for _, c := range n.Children {
		total += countUsers(c)
	}
	return total
}

// level sets what depends on an account and its direct children only. The
// children of an account that takes its parent's shares stand beside it.
func level(n *Node) {
	siblings := shareholders(n)
	var sum float64
	for _, c := range siblings {
		if !c.Parent {
			sum += c.Shares
		}
	}
	for _, c := range siblings {
		c.NormShares, c.EffectiveUsage, c.LevelFS = 0, 0, 0
		if sum > 0 && !c.Parent {
			c.NormShares = c.Shares / sum
		}
		if n.Usage > 0 {
			c.EffectiveUsage = c.Usage / n.Usage
		}
		switch {
		case c.Parent:
			c.LevelFS = math.Inf(1)
		case c.NormShares == 0:
			c.LevelFS = 0
		default:
			c.LevelFS = c.NormShares / c.EffectiveUsage
		}
		if !c.User {
			level(c)
		}
	}
}

// shareholders are the children of an account, with those of children that take
// their parent's shares in their place.
func shareholders(n *Node) []*Node {
	var list []*Node
	for _, c := range n.Children {
		if !c.User && c.Parent {
			list = append(list, shareholders(c)...)
		} else {
			list = append(list, c)
		}
	}
	return list
}

func (t *tree) assign(nodes []*Node, tiedAbove bool) {
	var siblings []*Node
	for _, c := range nodes {
		if !c.User && c.Parent {
			siblings = append(siblings, shareholders(c)...)
		} else {
			siblings = append(siblings, c)
		}
	}
	sort.SliceStable(siblings, func(i, j int) bool {
		a, b := siblings[i], siblings[j]
		if a.LevelFS != b.LevelFS {
			return a.LevelFS > b.LevelFS
		}
		return a.User && !b.User
	})
	for i, n := range siblings {
		tied := i > 0 && siblings[i-1].LevelFS == n.LevelFS || i == 0 && tiedAbove
		if n.User {
			if !tied {
				t.rank = t.rankNoTies
			}
			n.Factor = float64(t.rank) / t.users
			t.rankNoTies--
			continue
		}
		t.assign(n.Children, tied)
	}
}

// Classic computes the factors as the document "Classic Fairshare Algorithm"
// says: F = 2^(-U/S/d), with S the product of the shares down the tree and U the
// usage, of which an account passes a part of its own on to its children.
func Classic(root *Node, dampening float64) {
	if dampening <= 0 {
		dampening = 1
	}
	root.NormShares, root.EffectiveUsage = 1, 1
	if root.Usage <= 0 {
		root.EffectiveUsage = 0
	}
	classic(root, root, dampening)
}

func classic(n, root *Node, dampening float64) {
	var sum float64
	for _, c := range n.Children {
		if !c.Parent {
			sum += c.Shares
		}
	}
	for _, c := range n.Children {
		actual := 0.0
		if root.Usage > 0 {
			actual = c.Usage / root.Usage
		}
		switch {
		case c.Parent:
			c.NormShares, c.EffectiveUsage = n.NormShares, n.EffectiveUsage
		case sum == 0:
			c.NormShares, c.EffectiveUsage = 0, n.EffectiveUsage
		default:
			c.NormShares = n.NormShares * c.Shares / sum
			c.EffectiveUsage = actual + (n.EffectiveUsage-actual)*c.Shares/sum
			if n == root {
				c.EffectiveUsage = actual
			}
		}
		if c.User {
			c.Factor = ClassicFactor(c.EffectiveUsage, c.NormShares, dampening)
			continue
		}
		classic(c, root, dampening)
	}
}

// ClassicFactor is 2^(-usage/shares/dampening).
func ClassicFactor(effectiveUsage, normShares, dampening float64) float64 {
	if normShares <= 0 {
		return 0
	}
	if dampening <= 0 {
		dampening = 1
	}
	return math.Pow(2, -effectiveUsage/normShares/dampening)
}

// Decayed is what is left of a usage after a time in which nothing was added.
func Decayed(usage float64, after, halfLife time.Duration) float64 {
	if halfLife <= 0 {
		return usage
	}
	return usage * math.Pow(2, -after.Seconds()/halfLife.Seconds())
}

// UntilDecayed is the time after which a usage has fallen to a part of itself.
func UntilDecayed(part float64, halfLife time.Duration) time.Duration {
	if part >= 1 || halfLife <= 0 {
		return 0
	}
	d := -math.Log2(part) * float64(halfLife)
	if d > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return time.Duration(d)
}
