package priority

import (
	"math"
	"testing"
	"time"
)

func user(name string, shares, usage float64) *Node {
	return &Node{Name: name, User: true, Shares: shares, Usage: usage}
}

func account(name string, shares float64, children ...*Node) *Node {
	n := &Node{Name: name, Shares: shares, Children: children}
	for _, c := range children {
		n.Usage += c.Usage
	}
	return n
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within || math.IsNaN(got) {
		t.Errorf("%s: %v; want %v", what, got, want)
	}
}

// The trees and what sshare of Slurm 22.05.8 said of them: shares as given, usage
// as its NormUsage.
func TestAgainstSshare(t *testing.T) {
	rootUser, carol, alice2 := user("root", 1, 0), user("carol", 1, 0.070268), user("alice@iea", 1, 0)
	alice, bob := user("alice", 1, 0.830651), user("bob", 1, 0.099081)
	tree := account("root", 1, rootUser, account("csi", 1, carol), account("iea", 1, alice2), account("research", 2, alice, bob))
	FairTree(tree)
	for n, want := range map[*Node]float64{rootUser: 1, carol: 0.6, alice2: 1, alice: 0.2, bob: 0.4} {
		near(t, "fair tree: "+n.Name, n.Factor, want, 1e-9)
	}
	near(t, "level of carol", carol.LevelFS, 1, 1e-9)
	near(t, "level of alice", alice.LevelFS, 0.559641, 2e-6)
	near(t, "level of research", tree.Children[3].LevelFS, 0.430231, 2e-6)

	alice.Usage, bob.Usage, carol.Usage = 0.794699, 0.150438, 0.052644
	tree.Usage, tree.Children[3].Usage, tree.Children[1].Usage = 1, 0.945138, 0.054862
	Classic(tree, 1)
	for n, want := range map[*Node]float64{rootUser: 1, carol: 0.826844, alice2: 1, alice: 0.049050, bob: 0.149795} {
		near(t, "classic: "+n.Name, n.Factor, want, 3e-6)
	}
	near(t, "effective usage of bob", bob.EffectiveUsage, 0.547788, 2e-6)
	near(t, "shares of bob", bob.NormShares, 0.2, 1e-9)
}

func TestFairTreeTies(t *testing.T) {
	a, b, c := user("a", 1, 10), user("b", 1, 10), user("c", 1, 0)
	FairTree(account("root", 1, account("x", 1, a, b), c))
	near(t, "c", c.Factor, 1, 0)
	near(t, "a", a.Factor, 2.0/3, 1e-12)
	near(t, "b", b.Factor, 2.0/3, 1e-12)

	// Equal accounts are not merged: the first of the second shares the rank of the last
	// of the first.
	a, b, c = user("a", 1, 10), user("b", 1, 30), user("c", 1, 20)
	d := user("d", 1, 20)
	FairTree(account("root", 1, account("x", 1, a, b), account("y", 1, c, d)))
	for n, want := range map[*Node]float64{a: 1, b: 0.75, c: 0.75, d: 0.75} {
		near(t, n.Name, n.Factor, want, 1e-12)
	}

	// A user who takes the parent's shares comes first; one without shares last.
	p, z := &Node{Name: "p", User: true, Parent: true, Usage: 99}, user("z", 0, 0)
	FairTree(account("root", 1, user("a", 1, 10), p, z))
	near(t, "parent", p.Factor, 1, 0)
	near(t, "no shares", z.Factor, 1.0/3, 1e-12)

	FairTree(account("root", 1)) // nobody
	Classic(account("root", 1), 1)
}

func TestClassicNoShares(t *testing.T) {
	a := user("a", 0, 5)
	Classic(account("root", 1, account("x", 1, a)), 1)
	near(t, "without shares", a.Factor, 0, 0)
	near(t, "dampening", ClassicFactor(1, 1, 2), math.Sqrt(0.5), 1e-12)
	near(t, "half", ClassicFactor(0.25, 0.25, 1), 0.5, 1e-12)
}

func TestDecay(t *testing.T) {
	week := 7 * 24 * time.Hour
	near(t, "a half-life", Decayed(100, week, week), 50, 1e-9)
	near(t, "no decay", Decayed(100, week, 0), 100, 0)
	if got := UntilDecayed(0.25, week); got != 2*week {
		t.Errorf("a quarter is left after %v; want two weeks", got)
	}
	if got := UntilDecayed(2, week); got != 0 {
		t.Errorf("%v; want at once", got)
	}
}

func TestRecovery(t *testing.T) {
	week := 7 * 24 * time.Hour
	classic := func(n *Node) { Classic(n, 1) }
	// Alone with half the shares of the cluster: U/S has to fall to 1.
	a, b := user("a", 1, 75), user("b", 1, 25)
	root := account("root", 1, a, b)
	after, ok := Recovery(root, a, []*Node{a}, 0.5, week, classic)
	// a's part falls from 3/4 to 1/2 when its usage is that of b: a third.
	if want := time.Duration(math.Log2(3) * float64(week)); !ok || (after-want).Abs() > 2*time.Minute {
		t.Errorf("%v, %v; want %v", after, ok, want)
	}
	if a.Usage != 75 || root.Usage != 100 {
		t.Errorf("the tree was left changed: %v, %v", a.Usage, root.Usage)
	}
	near(t, "factor afterwards", a.Factor, ClassicFactor(0.75, 0.5, 1), 1e-12)
	if after, ok := Recovery(root, b, []*Node{b}, 0.5, week, classic); !ok || after != 0 {
		t.Errorf("b: %v, %v; want at once", after, ok)
	}
	// In Fair Tree one overtakes the other when the levels are equal.
	if after, ok = Recovery(root, a, []*Node{a}, 1, week, FairTree); !ok || (after-time.Duration(math.Log2(3)*float64(week))).Abs() > 2*time.Minute {
		t.Errorf("fair tree: %v, %v", after, ok)
	}
	if _, ok := Recovery(root, a, []*Node{a}, 0.5, 0, classic); ok {
		t.Error("without decay: recovers")
	}
	c := user("c", 1, 1)
	stuck := account("root", 1, account("x", 1, c, user("d", 1, 100)), user("e", 100, 1))
	if _, ok := Recovery(stuck, c, []*Node{c}, 0.9, week, classic); ok {
		t.Error("an account that others use up: recovers")
	}
}
