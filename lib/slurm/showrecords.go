package slurm

import (
	"errors"
	"io"
	"strconv"
	"strings"
)

// showRecord is a line of scontrol -o show: Key=value Key=value. Free text
// (Reason, Comment) comes behind the keys that are looked up here, so the first
// occurrence of a key is the right one.
type showRecord string

func (s showRecord) lookup(key string) (string, bool) {
	var at int
	if strings.HasPrefix(string(s), key+"=") {
		at = len(key) + 1
	} else if i := strings.Index(string(s), " "+key+"="); i >= 0 {
		at = i + len(key) + 2
	} else {
		return "", false
	}
	value, _, _ := strings.Cut(string(s[at:]), " ")
	return value, true
}

// get is the value of a key; Slurm's words for none are empty.
func (s showRecord) get(key string) string {
	v, _ := s.lookup(key)
	switch v {
	case "(null)", "N/A", "n/a", "NONE":
		return ""
	}
	return v
}

// showScanner reads scontrol's records, each of which begins with first.
type showScanner struct {
	*recordScanner
	first string
	err   error
	// continued allows lines that belong to the record before: a job's name may
	// contain a newline.
	continued bool
	any       bool
}

func newShowScanner(what, first string, r io.Reader) *showScanner {
	return &showScanner{recordScanner: newRecordScanner("scontrol show "+what, r), first: first}
}

func (s *showScanner) record() (showRecord, bool) {
	for s.err == nil {
		line, err := s.next("")
		if errors.Is(err, io.EOF) {
			return "", false
		}
		if err != nil {
			s.err = err
			return "", false
		}
		text := strings.TrimRight(string(line), " ")
		switch {
		case text == "" || strings.HasPrefix(text, "No ") && strings.Contains(text, " in the system"):
		case strings.HasPrefix(text, s.first+"="), s.continued && s.any:
			s.any = true
			return showRecord(text), true
		default:
			s.err = s.fail("no %s: %q", s.first, clip(line))
		}
	}
	return "", false
}

func (s *showScanner) bad(key, value, want string) {
	if s.err == nil {
		s.err = s.fail("%s=%q is not %s", key, value, want)
	}
}

func (s *showScanner) number(rec showRecord, key string) float64 {
	v, ok := rec.lookup(key)
	if !ok {
		s.bad(key, v, "there")
		return 0
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil {
		s.bad(key, v, "a number")
	}
	return n
}

func (s *showScanner) stamp(rec showRecord, key string, known *interner) int64 {
	v, ok := rec.lookup(key)
	t, fits := known.stamp([]byte(v))
	if !ok || !fits {
		s.bad(key, v, "a time")
	}
	return t
}

// count is a number or UNLIMITED (0).
func (s *showScanner) count(rec showRecord, key string) float64 {
	v := rec.get(key)
	if v == "" || v == "UNLIMITED" {
		return 0
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil {
		s.bad(key, v, "a number or UNLIMITED")
	}
	return n
}

// NodeUse is a node, and how much of it is taken.
type NodeUse struct {
	Name  string
	State []string // MIXED, DRAIN, …, in capitals, without marks

	CPUs, CPUsTaken     float64
	MemMB, MemMBTaken   float64
	GPUs, GPUsTaken     float64
	ThreadsPerCore      float64
	Gres                string
	Features            []string
	Partitions          []string
	Weight              float64
	SpecCPUs, SpecMemMB float64 // set aside for the system
}

// NodeUseArgs are scontrol's arguments for ParseNodeUse.
func NodeUseArgs() []string { return []string{"--all", "--oneliner", "--details", "show", "node"} }

// ParseNodeUse reads scontrol -o -d show node.
func ParseNodeUse(r io.Reader) ([]NodeUse, error) {
	s := newShowScanner("node", "NodeName", r)
	var nodes []NodeUse
	for rec, ok := s.record(); ok; rec, ok = s.record() {
		n := NodeUse{
			Name: rec.get("NodeName"), State: nodeStates(rec.get("State")),
			CPUs: s.number(rec, "CPUTot"), CPUsTaken: s.number(rec, "CPUAlloc"),
			MemMB: s.number(rec, "RealMemory"), MemMBTaken: s.number(rec, "AllocMem"),
			ThreadsPerCore: s.count(rec, "ThreadsPerCore"), Weight: s.count(rec, "Weight"),
			Gres: rec.get("Gres"), GPUs: gpusIn(rec.get("Gres")), GPUsTaken: gpusIn(rec.get("GresUsed")),
			SpecMemMB: s.count(rec, "MemSpecLimit"),
		}
		if v := rec.get("CPUEfctv"); v != "" {
			n.SpecCPUs = max(0, n.CPUs-s.number(rec, "CPUEfctv"))
		}
		if f := rec.get("ActiveFeatures"); f != "" {
			n.Features = strings.Split(f, ",")
		}
		if p := rec.get("Partitions"); p != "" {
			n.Partitions = strings.Split(p, ",")
		}
		if len(n.State) == 0 {
			s.bad("State", "", "a state")
		}
		nodes = append(nodes, n)
	}
	if s.err != nil {
		return nil, s.err
	}
	return nodes, nil
}

// nodeStates splits IDLE+DRAIN* into its words.
func nodeStates(s string) []string {
	var states []string
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '+' }) {
		if word = strings.ToUpper(strings.TrimRight(word, "*~#!%$@^-")); word != "" {
			states = append(states, word)
		}
	}
	return states
}

// Has reports whether the node is in that state.
func (n *NodeUse) Has(state string) bool {
	for _, s := range n.State {
		if s == state {
			return true
		}
	}
	return false
}

// Usable reports whether Slurm may start jobs on the node.
func (n *NodeUse) Usable() bool {
	for _, s := range n.State {
		switch s {
		case "DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "UNKNOWN", "FUTURE", "MAINT", "NOT_RESPONDING",
			"POWERING_DOWN", "INVAL", "INVALID", "BLOCKED", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "FUTR":
			if s == "MAINT" { // a maintenance reservation, which is looked at by its times
				continue
			}
			return false
		}
	}
	return true
}

// Reservation is an advance reservation.
type Reservation struct {
	Name, State, Nodes, Partition string
	Start, End                    int64
	Flags, Users, Accounts        []string
	CoreCount, NodeCount          float64
}

// ReservationArgs are scontrol's arguments for ParseReservations.
func ReservationArgs() []string { return []string{"--all", "--oneliner", "show", "reservation"} }

// ParseReservations reads scontrol -o show reservation.
func ParseReservations(r io.Reader) ([]Reservation, error) {
	s := newShowScanner("reservation", "ReservationName", r)
	known := newInterner()
	list := func(v string) []string {
		if v == "" {
			return nil
		}
		return strings.Split(v, ",")
	}
	var all []Reservation
	for rec, ok := s.record(); ok; rec, ok = s.record() {
		all = append(all, Reservation{
			Name: rec.get("ReservationName"), State: rec.get("State"), Nodes: rec.get("Nodes"), Partition: rec.get("PartitionName"),
			Start: s.stamp(rec, "StartTime", known), End: s.stamp(rec, "EndTime", known),
			Flags: list(rec.get("Flags")), Users: list(rec.get("Users")), Accounts: list(rec.get("Accounts")),
			CoreCount: s.count(rec, "CoreCnt"), NodeCount: s.count(rec, "NodeCnt"),
		})
	}
	if s.err != nil {
		return nil, s.err
	}
	return all, nil
}

// Placement is what a running job has on some nodes: per node, the same on each.
type Placement struct {
	JobID uint64
	Nodes string
	CPUs  float64
	MemMB float64
	GPUs  float64
}

// PlacementArgs are scontrol's arguments for ParsePlacements; 0 asks for all jobs.
func PlacementArgs(job uint64) []string {
	args := []string{"--all", "--oneliner", "--details", "show", "job"}
	if job != 0 {
		args = append(args, strconv.FormatUint(job, 10))
	}
	return args
}

// ParsePlacements reads the per-node lines of scontrol -o -d show job: Nodes=
// with CPU_IDs, Mem and GRES, several in a record.
func ParsePlacements(r io.Reader) ([]Placement, error) {
	s := newShowScanner("job", "JobId", r)
	s.continued = true
	var all []Placement
	var id uint64
	for rec, ok := s.record(); ok; rec, ok = s.record() {
		if strings.HasPrefix(string(rec), "JobId=") {
			var err error
			if id, err = strconv.ParseUint(rec.get("JobId"), 10, 64); err != nil {
				s.bad("JobId", rec.get("JobId"), "a job id")
				break
			}
		}
		pieces := strings.Split(string(rec), " Nodes=")
		for _, piece := range pieces[1:] {
			part := showRecord("Nodes=" + piece)
			ids, found := part.lookup("CPU_IDs")
			if !found { // a job's name or command may contain the word
				continue
			}
			mem, okMem := parseMB(part.get("Mem"))
			cpus, okCPU := countIDs(ids)
			if !okMem || !okCPU {
				s.bad("Nodes", part.get("Nodes"), "followed by CPU_IDs and Mem")
				break
			}
			all = append(all, Placement{JobID: id, Nodes: part.get("Nodes"), CPUs: cpus, MemMB: mem, GPUs: gpusIn(part.get("GRES"))})
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	return all, nil
}

// ParseWholeNodes reads from scontrol -o show job whether the job wants its nodes
// for itself.
func ParseWholeNodes(r io.Reader) (bool, error) {
	s := newShowScanner("job", "JobId", r)
	s.continued = true
	whole := false
	for rec, ok := s.record(); ok; rec, ok = s.record() {
		switch v, _ := rec.lookup("OverSubscribe"); v {
		case "NO", "USER", "MCS", "TOPO":
			whole = true
		}
	}
	return whole, s.err
}

func countIDs(ids string) (float64, bool) {
	var n float64
	for part := range strings.SplitSeq(ids, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(low, 10, 32)
		if err != nil {
			return 0, false
		}
		last := first
		if isRange {
			if last, err = strconv.ParseUint(high, 10, 32); err != nil || last < first {
				return 0, false
			}
		}
		n += float64(last-first) + 1
	}
	return n, true
}

// parseMB reads an amount of memory, in MiB if it has no unit.
func parseMB(s string) (float64, bool) {
	if s == "" {
		return 0, true
	}
	t, ok := parseTRES("mem=" + s)
	return t["mem"], ok
}
