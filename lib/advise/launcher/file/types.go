package file

import (
	"fmt"
	"regexp"
	"time"
)

// Pos is a position in a file; both numbers start at 1.
type Pos struct{ Line, Column int }

// Kind is a kind of launcher.
type Kind string

// The kinds of launchers.
const (
	Local Kind = "local"
	Slurm Kind = "slurm"
)

// File is a launchers.yaml with its connectors and tokens.
type File struct {
	Path       string
	Entries    []Entry // in the order of the file
	Connectors []Connector
	Tokens     []Token
	Warnings   []Problem
}

// Connector is a host that is reached over ssh.
type Connector struct {
	Pos
	ID, Hostname string
}

// Token is a counted resource that jobs of local launchers take while they run.
type Token struct {
	Pos
	ID    string
	Count int // the total in tokens.yaml, or how many a job of a launcher takes
}

// Entry is one launcher.
type Entry struct {
	Pos
	Kind      Kind
	ID        string // may be "" for a local launcher
	Connector string
	Tags      []string
	Weight    float64
	Disabled  bool

	// Of a local launcher.
	CPU    CPU
	GPUs   []GPU
	Tokens []Token

	// Of a Slurm launcher.
	Path          string // directory of Slurm's commands; "": search PATH
	Partitions    []Partition
	FeaturesRegex []Regex
	Features      []Feature
	QOS           []QOS
	Configuration Configuration
	UseFeatures   bool
	UseHosts      bool
	UseMemory     bool
	QuerySlurm    bool
	Cluster       string // a cluster that Slurm reaches by name, with --clusters of lfind; "": that of the host
}

// Partition is a partition of a Slurm launcher.
type Partition struct {
	Pos
	Name          string
	Accounts      []string
	QOS           []string
	Nodes         []Nodes
	Configuration Configuration
	Priority      int
	Disabled      bool
	Preemptible   bool // its jobs may be preempted
	Exclusive     bool // its jobs get whole nodes
	MinNodes      int
	MaxNodes      int // 0: no limit
}

// Nodes is a group of identical nodes of a partition.
type Nodes struct {
	Pos
	Features      []string
	Hosts         []string // expanded names
	Count         int      // number of nodes, without Hosts
	Configuration Configuration
}

// QOS is a quality of service.
type QOS struct {
	Pos
	Name        string
	MaxDuration time.Duration
	MinGPU      int
	Priority    int
}

// Feature is the configuration that nodes with a feature get.
type Feature struct {
	Pos
	Name          string
	Configuration Configuration
}

// Regex reads figures from the names of features.
type Regex struct {
	Pos
	Text   string
	Match  *regexp.Regexp // anchored at the beginning only
	Count  int            // index of the group cuda_count; -1: none
	Memory int            // index of the group cuda_memory; -1: none
}

// Configuration is the figures of one node; zero is not set.
type Configuration struct {
	MaxDuration time.Duration
	GPU         GPU
	GPUs        []GPU // nodes with several kinds of GPUs; instead of GPU
	CPU         CPU
}

// GPU is a number of identical GPUs of a node. Memory and MinMemory are in bytes; MinMemRatio
// is the part of Memory below which requests are refused.
type GPU struct {
	Kind        string // cuda, mps, rocm or xpu; "": by the model, else cuda
	Model       string
	GRES        string // Slurm's type, as in gpu:TYPE:COUNT
	Count       int
	Memory      int64
	MinMemory   int64
	MinMemRatio float64
}

// CPU is the CPUs and the main memory of a node, in bytes.
type CPU struct {
	Cores     int
	Memory    int64
	MemPerCPU int64
	CPUPerGPU int
}

// Problem is an error or a warning about a file.
type Problem struct {
	File string `json:"file"`
	Pos
	Warning bool
	Message string
	Hint    string
}

func (p Problem) String() string {
	level := "error"
	if p.Warning {
		level = "warning"
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Column, level, p.Message)
}

// Error lists the problems that make a file unusable.
type Error struct{ Problems []Problem }

// Error returns the problems, one per line.
func (e *Error) Error() string {
	text := ""
	for i, p := range e.Problems {
		if i > 0 {
			text += "\n"
		}
		text += fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
		if p.Hint != "" {
			text += " (" + p.Hint + ")"
		}
	}
	return text
}
