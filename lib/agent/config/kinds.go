package config

import (
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/base/web"
)

// Kinds are the queues and the modes that a file can name.
type Kinds struct{ Queues, Modes []Kind }

// A Kind is a queue or a mode as a file knows it.
type Kind struct {
	Name  string
	Place string // what follows the name of a queue after ":", for people; "": nothing
	// Key is a key of the file that only this kind has: it is chosen by that if the file names none.
	Key string
	// Check derives settings from others, and reports problems; nil: there are none. Those of a queue are checked if it is
	// chosen, those of all modes always.
	Check func(c *Config, r Report)
}

// Report is how a Kind reports about the file.
type Report struct {
	Problem func(key, format string, args ...any)
	// Path expands a path, and makes it absolute.
	Path func(key string, p *string)
}

// spelled is how a file names the kind.
func (k Kind) spelled() string {
	if k.Place == "" {
		return k.Name
	}
	return k.Name + ":" + k.Place
}

// Is reports whether a value names the kind.
func (k Kind) Is(value string) bool {
	name, _, placed := strings.Cut(value, ":")
	return name == k.Name && placed == (k.Place != "")
}

func (k Kind) check(c *Config, r Report) {
	if k.Check != nil {
		k.Check(c, r)
	}
}

// choose returns the kind that a value names, or else that which the keys of the file show; nil: none.
func choose(kinds []Kind, value string, seen map[string]bool) *Kind {
	for i, k := range kinds {
		if k.Is(value) || value == "" && k.Key != "" && seen[k.Key] {
			return &kinds[i]
		}
	}
	return nil
}

// spellings are the values of a key, for people.
func spellings(kinds []Kind) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = `"` + k.spelled() + `"`
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// SpoolKind is the queue in a directory.
var SpoolKind = Kind{Name: "spool", Place: "DIR", Check: func(c *Config, r Report) {
	dir := c.SpoolDir()
	if dir == "" {
		r.Problem("queue", `"spool:" lacks its directory`)
		return
	}
	r.Path("queue", &dir)
	c.Queue = "spool:" + dir
}}

// ArkindexKind is the queue of an instance of Arkindex.
var ArkindexKind = Kind{Name: "arkindex", Key: "url", Check: func(c *Config, r Report) {
	if u, err := url.Parse(c.URL); c.URL == "" {
		r.Problem("url", "it is missing")
	} else if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		r.Problem("url", "not an http or https URL: %q", c.URL)
	} else if !web.Private(u) {
		r.Problem("url", "not an https URL: the seed must not be sent unencrypted")
	}
	if c.FarmID == "" {
		r.Problem("farm_id", "it is missing")
	} else if _, err := uuid.Parse(c.FarmID); err != nil {
		r.Problem("farm_id", "expected a UUID, not %q", c.FarmID)
	}
	if c.Seed == "" {
		r.Problem("seed", "it is missing")
	}
}}

// SlurmKind is the mode in which tasks are jobs of a cluster.
var SlurmKind = Kind{Name: "slurm", Key: "slurm", Check: func(c *Config, r Report) {
	if c.Slurm.Limits.GPUs < 0 {
		r.Problem("slurm.limits.gpus", "%d is negative", c.Slurm.Limits.GPUs)
	}
	if t := time.Duration(c.Slurm.Limits.Time); t != 0 && t < time.Minute {
		r.Problem("slurm.limits.time", "expected at least a minute")
	}
	c.Slurm.Pack.check(r.Problem)
	if _, err := unit.Risk(c.Slurm.Learn); c.Slurm.Learn != "" && err != nil {
		r.Problem("slurm.learn", "%v", err)
	}
}}

// VastKind is the mode in which tasks run on rented machines.
var VastKind = Kind{Name: "vast", Key: "vast_api", Check: func(c *Config, r Report) { c.finishVast(r.Problem, r.Path) }}

// LocalKind is the mode in which tasks run on this machine. A file that shows no other mode has this one.
var LocalKind = Kind{Name: "local", Check: func(c *Config, r Report) {
	if size, err := unit.Size(c.Local.Memory); c.Local.Memory != "" && (err != nil || size <= 0) {
		r.Problem("local.memory", "invalid size %q", c.Local.Memory)
	}
	for key, n := range map[string]int{"cpus": c.Local.CPUs, "gpus": c.Local.GPUs, "max_jobs": c.Local.MaxJobs} {
		if n < 0 {
			r.Problem("local."+key, "%d is negative", n)
		}
	}
	if c.Local.MaxJobs == 0 {
		c.Local.MaxJobs = max(1, runtime.NumCPU()/2)
	}
}}
