package config

import (
	"net/url"
	pathpkg "path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/base/web"
	"github.com/ponos-tools/ponos/lib/task/need"
)

// writable returns why nothing can be created in a directory, or nil.
func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// levels are the levels of Python's logging, as the official agent has them.
var levels = []string{"NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}

// finish derives settings from other keys, expands paths, and reports problems by key.
func (c *Config) finish(problem func(key, format string, args ...any)) {
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

	c.finishQueue(problem, path)
	switch c.Mode {
	case "":
		c.Mode = "local"
		if c.seen["vast_api"] {
			c.Mode = "vast"
		} else if c.seen["slurm"] {
			c.Mode = "slurm"
		}
	case "slurm", "local", "vast":
	default:
		problem("mode", `invalid value %q: expected "slurm", "vast" or "local"`, c.Mode)
	}
	c.finishVast(problem, path)
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
	if c.Slurm.Limits.GPUs < 0 {
		problem("slurm.limits.gpus", "%d is negative", c.Slurm.Limits.GPUs)
	}
	if t := time.Duration(c.Slurm.Limits.Time); t != 0 && t < time.Minute {
		problem("slurm.limits.time", "expected at least a minute")
	}
	c.Slurm.Pack.check(problem)
	if _, err := unit.Risk(c.Slurm.Learn); c.Slurm.Learn != "" && err != nil {
		problem("slurm.learn", "%v", err)
	}
	if _, err := need.ParseRules(c.Retry); err != nil {
		problem("retry", "%v", err)
	}
	for pattern := range c.Requests {
		if _, err := pathpkg.Match(pattern, ""); err != nil {
			problem("requests", "invalid pattern %q", pattern)
		}
	}
	if size, err := unit.Size(c.Local.Memory); c.Local.Memory != "" && (err != nil || size <= 0) {
		problem("local.memory", "invalid size %q", c.Local.Memory)
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
	for key, n := range map[string]int{"cpus": c.Local.CPUs, "gpus": c.Local.GPUs} {
		if n < 0 {
			problem("local."+key, "%d is negative", n)
		}
	}
	if c.Local.MaxJobs < 0 {
		problem("local.max_jobs", "%d is negative", c.Local.MaxJobs)
	}
	if c.Local.MaxJobs == 0 {
		c.Local.MaxJobs = max(1, runtime.NumCPU()/2)
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

func (c *Config) finishQueue(problem func(key, format string, args ...any), path func(key string, p *string)) {
	if c.Queue == "" && c.URL != "" {
		c.Queue = "arkindex"
	}
	spool, isSpool := strings.CutPrefix(c.Queue, "spool:")
	switch {
	case isSpool && spool == "":
		problem("queue", `"spool:" lacks its directory`)
	case isSpool:
		path("queue", &spool)
		c.Queue = "spool:" + spool
	case c.Queue == "":
		problem("queue", `missing: set "url", "farm_id" and "seed" for Arkindex, or "queue: spool:DIR"`)
	case c.Queue != "arkindex":
		problem("queue", `%q is neither "arkindex" nor "spool:DIR"`, c.Queue)
	default:
		if u, err := url.Parse(c.URL); c.URL == "" {
			problem("url", "it is missing")
		} else if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			problem("url", "not an http or https URL: %q", c.URL)
		} else if !web.Private(u) {
			problem("url", "not an https URL: the seed must not be sent unencrypted")
		}
		if c.FarmID == "" {
			problem("farm_id", "it is missing")
		} else if _, err := uuid.Parse(c.FarmID); err != nil {
			problem("farm_id", "expected a UUID, not %q", c.FarmID)
		}
		if c.Seed == "" {
			problem("seed", "it is missing")
		}
	}
}
