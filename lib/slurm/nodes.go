package slurm

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
)

// Node is a node with its resources and how much of them is allocated. Memory is in MiB.
type Node struct {
	Name           string
	Arch           string // as "uname -m" prints it; "": it has not registered yet
	State          string // words joined by "+", such as IDLE+DRAIN; marks such as * become words
	Features       List   // active or not
	ActiveFeatures List
	Partitions     List
	GRES, GRESUsed string // such as gpu:a100:4(S:0-1)

	CPUs, CPUsTaken   int64
	SpecCPUs          int64 // part of CPUs, reserved for the system
	MemMB, MemMBTaken int64
	SpecMemMB         int64 // part of MemMB, reserved for the system
	GPUs, GPUsTaken   int64
	TmpDiskMB         int64

	Boards, Sockets, CoresPerSocket, ThreadsPerCore int64
	Weight                                          int64
	Owner                                           string // the only user whose jobs may run on it; "": all users
	TRES, TRESTaken                                 TRES   // CfgTRES and AllocTRES
	Reason                                          string // why an administrator, or Slurm, took it out of service
}

// nodesArgs includes the nodes of hidden partitions.
var nodesArgs = []string{"--all", "--oneliner", "--details", "show", "node"}

// Nodes returns all nodes of the cluster.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	return show(ctx, c, parseNodes, nodesArgs...)
}

// ParseNodes parses scontrol show node, with or without --oneliner and --details.
func ParseNodes(r io.Reader) ([]Node, error) { return parseNodes(r, nil) }

func parseNodes(r io.Reader, odd func(error)) ([]Node, error) {
	s := newRecords("node", "NodeName", r, odd)
	states := memo[string]{parse: nodeState}
	gpus := memo[int64]{parse: func(list string) (int64, bool) { return gpusIn(list), true }}
	return readAll(s, func(n *Node) string { return n.Name }, func(n *Node) {
		effective, spec := int64(-1), int64(0)
		s.fields(func(key, value []byte) bool {
			switch string(key) {
			case "NodeName":
				n.Name = string(value)
			case "Arch":
				n.Arch = s.word(value)
			case "State":
				n.State, _ = states.get(value)
			case "AvailableFeatures", "Features":
				n.Features = List(s.word(value))
			case "ActiveFeatures":
				n.ActiveFeatures = List(s.word(value))
			case "Partitions":
				n.Partitions = List(s.word(value))
			case "Gres":
				n.GRES = s.word(value)
				n.GPUs, _ = gpus.get(value)
			case "GresUsed":
				n.GRESUsed = s.word(value)
				n.GPUsTaken, _ = gpus.get(value)
			case "CPUTot":
				n.CPUs = s.number(key, value)
			case "CPUAlloc":
				n.CPUsTaken = s.number(key, value)
			case "CPUEfctv":
				effective = s.number(key, value)
			case "CPUSpecList": // instead of CPUEfctv before 21.08
				spec, _ = countIDs(string(value))
			case "RealMemory":
				n.MemMB = s.number(key, value)
			case "AllocMem":
				n.MemMBTaken = s.number(key, value)
			case "MemSpecLimit":
				n.SpecMemMB = s.number(key, value)
			case "TmpDisk":
				n.TmpDiskMB = s.number(key, value)
			case "Boards":
				n.Boards = s.number(key, value)
			case "Sockets":
				n.Sockets = s.number(key, value)
			case "CoresPerSocket":
				n.CoresPerSocket = s.number(key, value)
			case "ThreadsPerCore":
				n.ThreadsPerCore = s.number(key, value)
			case "Weight":
				n.Weight = s.number(key, value)
			case "Owner":
				n.Owner, _, _ = strings.Cut(s.word(value), "(")
			case "CfgTRES":
				n.TRES = s.counts(key, value)
			case "AllocTRES":
				n.TRESTaken = s.counts(key, value)
			case "Reason":
				n.Reason = nodeReason(s.record[cap(s.record)-cap(value):])
				return false
			case "Comment", "Extra":
				return false
			default:
				return true
			}
			return s.once(key)
		})
		if n.SpecCPUs = min(spec, n.CPUs); effective >= 0 {
			n.SpecCPUs = max(0, n.CPUs-effective)
		}
		s.check(n.Name != "" && !strings.ContainsAny(n.Name, ",[]"), []byte("NodeName"), []byte(n.Name), "the name of a node")
	})
}

// nodeReason is the text of a reason, which ends before who gave it, and when: "fan broken [root@2026-11-26T02:30:40]".
func nodeReason(rest []byte) string {
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	if m := reasonBy.FindIndex(line); m != nil {
		line = line[:m[0]]
	}
	return string(bytes.TrimSpace(line))
}

var reasonBy = regexp.MustCompile(` \[[^\]@ ]+@[^\] ]+\]`)

// JobCPUs and JobMemMB return the CPUs and MiB of memory that jobs can use; 0: unknown.
func (n *Node) JobCPUs() int64  { return n.CPUs - n.SpecCPUs }
func (n *Node) JobMemMB() int64 { return max(0, n.MemMB-n.SpecMemMB) }

// CoreCPUs returns the CPUs of a core, at least 1: its threads, if those are CPUs.
func (n *Node) CoreCPUs() int64 {
	if cores := n.Sockets * n.CoresPerSocket; n.ThreadsPerCore > 1 && n.CPUs >= cores*n.ThreadsPerCore {
		return n.ThreadsPerCore
	}
	return 1
}
