package main

import (
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/app"
)

// kind is what a value or an argument names, as far as a shell can complete it.
type kind int

const (
	other kind = iota
	files
	directories
	commands
	users
	accounts
	partitions
	jobs
	tasks
	groups
	tags
	qos
	features
	gres
	gpus
	settings
	requests
)

// live is what "ponos-task words" calls the kinds that change from day to day.
var live = map[kind]string{
	users: "users", accounts: "accounts", partitions: "partitions", jobs: "jobs", tasks: "tasks", groups: "groups", tags: "tags",
	qos: "qos", features: "features", gres: "gres", gpus: "gpus", settings: "settings", requests: "requests",
}

// kindOf tells by a metavariable, such as FILE, or by the arguments of a tool,
// such as "[--] COMMAND [ARG...]". The usage helps where the metavariable does not.
func kindOf(meta, usage string) kind {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(meta, w) })
	}
	switch {
	case has("REQUEST") && !has("COMMAND"):
		return requests
	case has("NAME=VALUE") && strings.Contains(usage, "sbatch option"):
		return settings
	case has("FILE", "PATH"):
		return files
	case has("DIR"), has("URL") && strings.Contains(usage, "path"):
		return directories
	case has("COMMAND", "CMD", "SHELL", "TEMPLATE"):
		return commands
	case has("USER"):
		return users
	case has("ACCOUNT"):
		return accounts
	case has("PARTITION"):
		return partitions
	case has("QOS"):
		return qos
	case has("FEATURES"):
		return features
	case has("GRES"):
		return gres
	case has("GPUS"):
		return gpus
	case has("JOB"):
		return jobs
	case has("GROUP"):
		return groups
	case has("TAG"):
		return tags
	case has("TASK") &&
		(strings.Contains(usage, "spool") || strings.Contains(usage, "only tasks") || strings.Contains(usage, "start after")):
		return tasks
	case has("ID") &&
		(strings.Contains(usage, "task ID") || strings.Contains(usage, "ID of the task") || strings.Contains(usage, "stop tasks")):
		return tasks
	}
	return other
}

// level is a tool or one of its commands, with the names that lead to it.
type level struct {
	path []string
	app.Description
}

// levels lists a tool and all its commands.
func levels(d app.Description, path ...string) []level {
	all := []level{{path, d}}
	for _, c := range d.Commands {
		all = append(all, levels(c, append(slices.Clone(path), c.Name)...)...)
	}
	return all
}

// dashed is the name of a flag as it is typed.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// identifier makes a name fit for a shell function.
func identifier(words ...string) string {
	return "_" + strings.ReplaceAll(strings.Join(words, "_"), "-", "_")
}

// quote quotes a word for the shells; in single quotes all three agree but for the
// quote itself.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
