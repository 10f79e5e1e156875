package config

import (
	"net/url"
	pathpkg "path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/task/need"
)

// writable returns why nothing can be created in a directory, or nil.
func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// levels are the levels of Python's logging, as the official agent has them.
var levels = []string{"NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}

// finish derives settings from other keys, expands paths, and reports problems by key.
func (c *Config) finish(kinds Kinds, problem func(key, format string, args ...any)) {
	path := func(key string, p *string) {
		if *p == "" {
			return
		}
		expanded, err := Expand(*p)
		if err != nil {
			problem(key, "%v", err)
			return
		}
		if !filepath.IsAbs(expanded) {
			if expanded, err = filepath.Abs(filepath.Join(filepath.Dir(c.Path), expanded)); err != nil {
				problem(key, "%v", err)
				return
			}
		}
		*p = filepath.Clean(expanded)
	}
	path("data_dir", &c.DataDir)
	path("pid_file", &c.PIDFile)
	path("logging.path", &c.Logging.Path)
	if strings.ContainsAny(c.DataDir, "%\n\\") {
		// Slurm would replace it in the name of a log file, or end the line there.
		problem("data_dir", "%q has a character that names of Slurm's log files cannot have", c.DataDir)
	}

	r := Report{problem, path}
	switch k := choose(kinds.Queues, c.Queue, c.seen); {
	case k != nil:
		if k.Place == "" {
			c.Queue = k.Name
		}
		k.check(c, r)
	case c.Queue == "":
		problem("queue", `missing: set "url", "farm_id" and "seed" for Arkindex, or "queue: spool:DIR"`)
	default:
		problem("queue", "invalid value %q: expected %s", c.Queue, spellings(kinds.Queues))
	}
	switch k := choose(kinds.Modes, c.Mode, c.seen); {
	case k != nil:
		c.Mode = k.Name
	case c.Mode == "":
		c.Mode = LocalKind.Name
	default:
		problem("mode", "invalid value %q: expected %s", c.Mode, spellings(kinds.Modes))
	}
	for _, k := range kinds.Modes {
		k.check(c, r)
	}
	if level := strings.ToUpper(c.Logging.Level); !slices.Contains(levels, level) {
		problem("logging.level", "invalid value %q: expected one of %s", c.Logging.Level, strings.Join(levels, ", "))
	} else {
		c.Logging.Level = level
	}
	if !strings.Contains(c.Logging.TaskFormat, "%(message)s") {
		problem("logging.task_format", "it has no %%(message)s")
	}
	if c.Sentry.DSN != "" {
		if u, err := url.Parse(c.Sentry.DSN); err != nil || u.Host == "" || u.User == nil {
			problem("sentry.dsn", "not a DSN of Sentry: expected one such as https://KEY@HOST/PROJECT")
		}
	}
	if _, err := need.ParseRules(c.Retry); err != nil {
		problem("retry", "%v", err)
	}
	for pattern := range c.Requests {
		if _, err := pathpkg.Match(pattern, ""); err != nil {
			problem("requests", "invalid pattern %q", pattern)
		}
	}
	if d := c.Environment.Default; d != "" && d != "active" && d != "own" {
		problem("environments.default", "invalid value %q: expected active or own", d)
	}
	if size, err := unit.Size(c.Keep.MaxSize); err != nil || size < 0 {
		problem("keep.max_size", "invalid size %q", c.Keep.MaxSize)
	}
	if size, err := unit.Size(c.MaxTaskLog); c.MaxTaskLog != "" && (err != nil || size <= 0) {
		problem("max_task_log", "invalid size %q", c.MaxTaskLog)
	}
	if strings.ContainsAny(c.Environment.PIPFlags, "\x00\n") {
		problem("environments.pip_flags", "it has a line break")
	}
}

// check checks the settings of pilot jobs together.
func (p Pack) check(problem func(key, format string, args ...any)) {
	for key, n := range map[string]int{"jobs": p.Jobs, "cpus": p.CPUs} {
		if n < 1 || n > 1000 {
			problem("slurm.pack."+key, "invalid number %d: expected 1 to 1000", n)
		}
	}
	if p.GPUs < 0 || p.GPUs > 1000 {
		problem("slurm.pack.gpus", "invalid number %d: expected 0 to 1000", p.GPUs)
	}
	if time.Duration(p.Limit) < time.Minute {
		problem("slurm.pack.limit", "expected at least a minute")
	}
	if time.Duration(p.Time) < time.Duration(p.Limit)+time.Minute {
		problem("slurm.pack.time", "expected at least a minute more than slurm.pack.limit")
	}
}
