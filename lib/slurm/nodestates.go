package slurm

import (
	"slices"
	"strings"
)

// What a word in the state of a node says. A node has several words, and the strongest counts:
//
//	works       jobs start on it
//	pauses      nothing starts now, and it comes back by itself
//	stopped     out of service until somebody repairs or resumes it
//	reboots     the same words as stopped, set by the reboot itself: it pauses
//	broken      out of service, whatever else is said
type nodeMeaning int

const (
	works nodeMeaning = iota
	pauses
	stopped
	reboots
	broken
)

// nodeWords are the words of Slurm 20.11 to 26.05 that mean more than works. Others, also unknown ones, are no reason to leave a node
// out. MAINT and RESERVED come from reservations, which are read by themselves.
var nodeWords = map[string]nodeMeaning{
	"NOT_RESPONDING": pauses, "POWER_DOWN": pauses, "POWERING_DOWN": pauses,
	"BLOCKED": pauses, // beside a job that has its block of the topology for itself
	"DOWN":    stopped, "DRAIN": stopped, "DRAINED": stopped, "DRAINING": stopped,
	"REBOOT_REQUESTED": reboots, "REBOOT_ISSUED": reboots, "REBOOT": reboots, // beside DRAIN until it is idle, beside DOWN until it is back
	"FAIL": broken, "FAILING": broken, "ERROR": broken, "FUTURE": broken, "FUTR": broken,
	"UNKNOWN": broken, "INVAL": broken, "INVALID": broken, "INVALID_REG": broken,
}

// nodeMarks are the marks behind a word, for which newer versions print words.
var nodeMarks = map[rune]string{
	'*': "NOT_RESPONDING", '~': "POWERED_DOWN", '#': "POWERING_UP", '!': "POWER_DOWN", '%': "POWERING_DOWN",
	'$': "MAINTENANCE", '@': "REBOOT_REQUESTED", '^': "REBOOT_ISSUED", '-': "PLANNED",
}

// nodeState replaces the marks after a state by words.
func nodeState(s string) (string, bool) {
	var words []string
	add := func(word string) {
		if word != "" && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	for word := range strings.SplitSeq(strings.ToUpper(s), "+") {
		bare := strings.TrimRight(word, "*~#!%$@^-")
		add(bare)
		for _, mark := range word[len(bare):] {
			add(nodeMarks[mark])
		}
	}
	return strings.Join(words, "+"), true
}

// meaning is the strongest of the node's words.
func (n *Node) meaning() nodeMeaning {
	strongest := works
	for word := range strings.SplitSeq(n.State, "+") {
		strongest = max(strongest, nodeWords[word])
	}
	return strongest
}

// Usable reports whether a job can count on the node, now or later, without a repair. A node
// that is powered down, rebooting, briefly not responding or reserved becomes available by
// itself. Nodes in an unknown state are usable.
func (n *Node) Usable() bool {
	m := n.meaning()
	return m != stopped && m != broken
}

// Startable reports whether the scheduler places jobs on the node now: it is usable and not
// about to power down or reboot. A maintenance reservation is not considered here; see
// Reservation.
func (n *Node) Startable() bool { return n.meaning() == works }
