package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task/need"
)

// pyslurm maps attributes of PySlurm's JobSubmitDescription, which the official
// agent uses, to options of sbatch, where the two differ by more than '_' and '-'.
var pyslurm = map[string]string{
	"name": "job-name", "time-limit": "time", "time-limit-min": "time-min", "partitions": "partition",
	"memory-per-node": "mem", "memory-per-cpu": "mem-per-cpu", "memory-per-gpu": "mem-per-gpu",
	"gres-per-node": "gres", "features": "constraint", "standard-output": "output", "standard-error": "error",
	"standard-in": "input", "working-directory": "chdir", "is-requeueable": "requeue", "mail-types": "mail-type",
	"reservations": "reservation", "accounting-gather-frequency": "acctg-freq", "dependencies": "dependency",
	"begin-time": "begin", "deadline-time": "deadline", "excluded-nodes": "exclude", "required-nodes": "nodelist",
	"tres-per-task": "tres-per-task", "environment": "export", "log-files-open-mode": "open-mode",
	"core-reservation-count": "core-spec", "thread-reservation-count": "thread-spec", "container": "container",
	"shared": "oversubscribe", "cpu-frequency": "cpu-freq", "burst-buffer": "bb", "site-factor": "priority",
}

// flags are options of sbatch that take no value.
var flags = []string{
	"contiguous", "requeue", "no-requeue", "overcommit", "oversubscribe", "spread-job", "use-min-nodes", "reboot",
	"ignore-pbs", "hold", "kill-on-invalid-dep",
}

func (d *decoder) options(node *yaml.Node, target *sbatch.Options, key string) {
	if node.Kind != yaml.MappingNode {
		d.at(node.Line, key, "expected a mapping of sbatch's options to values")
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		k, v := node.Content[i], node.Content[i+1]
		full := key + "." + k.Value
		d.lines[full] = k.Line
		name := sbatch.Name(k.Value)
		if longer, ok := pyslurm[name]; ok {
			name = longer
		}
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || name[0] == '-' {
			d.at(k.Line, full, "not a long option of sbatch: %q", k.Value)
			continue
		}
		if _, twice := target.Get(name); twice {
			d.at(k.Line, full, "option --%s is given twice", name)
		}
		o := sbatch.Option{Name: name}
		yes, isBool := boolean(v)
		isBool = isBool && (v.Tag == "!!bool" || slices.Contains(flags, name))
		switch {
		case v.Kind == yaml.ScalarNode && v.Tag == "!!null":
			o.Bare = true
		case isBool:
			if !yes {
				if name != "requeue" {
					continue
				}
				o.Name = "no-requeue"
			}
			o.Bare = true
		case v.Kind == yaml.ScalarNode:
			o.Value = v.Value
		case v.Kind == yaml.SequenceNode:
			o.Value = d.join(v, full, func(item *yaml.Node) string { return item.Value })
		case v.Kind == yaml.MappingNode: // gres_per_node: {tesla: 1}
			o.Value = d.pairs(v, full)
		default:
			d.at(v.Line, full, "expected a value")
			continue
		}
		if o.Bare && name != "exclusive" && name != "nvmps" && !slices.Contains(flags, o.Name) && v.Tag == "!!null" {
			d.at(k.Line, full, "it lacks a value")
			continue
		}
		if reason := refused(o, key == "slurm.daemon"); reason != "" {
			d.at(k.Line, full, "%s", reason)
		}
		*target = target.With(o)
	}
}

// refused returns why an option cannot be set for a job, or "".
func refused(o sbatch.Option, daemon bool) string {
	switch o.Name {
	case "comment":
		return "the agent marks its jobs by the comment"
	case "parsable", "wait", "wrap", "test-only", "array", "help", "usage", "version", "quiet", "verbose",
		"get-user-env", "clusters", "cluster", "uid", "gid":
		return "the agent cannot work with this option"
	case "job-name":
		if !daemon {
			return "the agent names the jobs after their tasks"
		}
	case "output", "error", "open-mode", "chdir", "input":
		if !daemon {
			return "the agent keeps the tasks' output and directories itself, below data_dir"
		}
	case "signal":
		if need.SignalsScript(o) && !daemon {
			return need.OnlyScript
		}
	case "find":
		if len(o.Value) == 0 {
			return "it lacks a resource request"
		}
	}
	if strings.ContainsAny(o.Value, "\n\x00") {
		return fmt.Sprintf("%q has a line break", o.Value)
	}
	return ""
}

func (d *decoder) names(node *yaml.Node, target *Names, key string) {
	items := node.Content
	if node.Kind == yaml.ScalarNode {
		items = []*yaml.Node{node}
	} else if node.Kind != yaml.SequenceNode {
		d.at(node.Line, key, "expected a list of names")
		return
	}
	*target = nil
	for _, item := range items {
		if item.Kind != yaml.ScalarNode || item.Value == "" || strings.ContainsAny(item.Value, ", \t\n\x00") {
			d.at(item.Line, key, "invalid name %q", item.Value)
			continue
		}
		*target = append(*target, item.Value)
	}
}

// boolean reads a scalar as YAML 1.1 does, as many users still write "requeue: yes".
func boolean(v *yaml.Node) (yes, ok bool) {
	switch strings.ToLower(v.Value) {
	case "true", "yes", "on":
		return true, v.Kind == yaml.ScalarNode
	case "false", "no", "off":
		return false, v.Kind == yaml.ScalarNode
	}
	return false, false
}

func (d *decoder) join(list *yaml.Node, key string, text func(*yaml.Node) string) string {
	var items []string
	for _, item := range list.Content {
		if item.Kind != yaml.ScalarNode {
			d.at(item.Line, key, "expected a list of plain values")
			return ""
		}
		items = append(items, text(item))
	}
	return strings.Join(items, ",")
}

func (d *decoder) pairs(m *yaml.Node, key string) string {
	var items []string
	for i := 0; i+1 < len(m.Content); i += 2 {
		k, v := m.Content[i], m.Content[i+1]
		if v.Kind != yaml.ScalarNode {
			d.at(v.Line, key, "expected plain values")
			return ""
		}
		name := k.Value
		if strings.HasSuffix(key, "gres_per_node") && !strings.HasPrefix(name, "gpu") {
			name = "gpu:" + name
		}
		items = append(items, name+":"+v.Value)
	}
	return strings.Join(items, ",")
}
