package pool

import (
	"cmp"
	"slices"
)

// gathering collects nodes for a task of several, until they are enough.
type gathering struct {
	width    int
	together bool // all are to be of one group
	groups   []string
	of       map[string][]*Node // those of each group
}

// gather begins a collection for tasks with that need.
func (p *Pool) gather(need Need) gathering {
	width := need.Width()
	return gathering{width: width, together: width <= p.together}
}

// add reports whether the nodes of one group are enough.
func (g *gathering) add(n *Node) bool {
	if g.of == nil {
		g.of = map[string][]*Node{}
	}
	nodes := g.of[n.Group]
	if nodes == nil {
		g.groups = append(g.groups, n.Group)
		nodes = make([]*Node, 0, g.width)
	}
	nodes = append(nodes, n)
	g.of[n.Group] = nodes
	return len(nodes) >= g.width
}

// most is how many nodes a task can have of those that were collected.
func (g *gathering) most() int {
	if g.together {
		most := 0
		for _, nodes := range g.of {
			most = max(most, len(nodes))
		}
		return most
	}
	return len(g.distinct())
}

// nodes returns as many as a task needs, of as few groups as possible, or nil.
func (g *gathering) nodes() []*Node {
	for _, group := range g.groups {
		if nodes := g.of[group]; len(nodes) >= g.width {
			return nodes[:g.width]
		}
	}
	if g.together {
		return nil
	}
	if nodes := g.distinct(); len(nodes) >= g.width {
		return nodes[:g.width]
	}
	return nil
}

// distinct returns one node of each host, those of the largest groups first.
func (g *gathering) distinct() []*Node {
	if len(g.groups) == 0 {
		return nil
	}
	groups := slices.Clone(g.groups)
	slices.SortStableFunc(groups, func(a, b string) int { return cmp.Compare(len(g.of[b]), len(g.of[a])) })
	var nodes []*Node
	hosts := map[string]bool{}
	for _, group := range groups {
		for _, n := range g.of[group] {
			if host := cmp.Or(n.Host, n.Name); !hosts[host] {
				hosts[host] = true
				nodes = append(nodes, n)
			}
		}
	}
	return nodes
}
