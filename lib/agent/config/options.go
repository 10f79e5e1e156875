package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task/need"
)

func (d *decoder) options(node *yaml.Node, target *sbatch.Options, key string) {
	if node.Kind != yaml.MappingNode {
		d.at(node.Line, key, "expected a mapping of sbatch's options to values")
		return
	}
	use := sbatch.ByConfig
	if key == "slurm.daemon" {
		use = sbatch.ByDaemon
	}
	var all sbatch.Options
	for i := 0; i+1 < len(node.Content); i += 2 {
		k, v := node.Content[i], node.Content[i+1]
		full := key + "." + k.Value
		d.lines[full] = k.Line
		name := sbatch.Attribute(k.Value)
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || name[0] == '-' {
			d.at(k.Line, full, "not a long option of sbatch: %q", k.Value)
			continue
		}
		value, ok := d.text(v, full)
		if !ok {
			continue
		}
		o, err := sbatch.Setting(k.Value, value)
		if yes, ok := sbatch.Truth(v.Value); ok && v.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
			o, err = sbatch.Switch(k.Value, yes)
		}
		if err == nil {
			err = o.Check()
		}
		if err != nil {
			d.at(k.Line, full, "%v", err)
			continue
		}
		if all.Has(o.Name) {
			d.at(k.Line, full, "option --%s is given twice", o.Name)
		}
		if reason := refused(o, use); reason != "" {
			d.at(k.Line, full, "%s", reason)
		}
		all = append(all, o)
	}
	if err := all.Conflict(sbatch.Newest); err != nil {
		d.at(node.Line, key, "%v", err)
	}
	*target = target.With(all...)
}

// text returns the value of an option as text, nil for null.
func (d *decoder) text(v *yaml.Node, key string) (*string, bool) {
	text := v.Value
	switch {
	case v.Kind == yaml.ScalarNode && v.Tag == "!!null":
		return nil, true
	case v.Kind == yaml.ScalarNode:
	case v.Kind == yaml.SequenceNode:
		text = d.join(v, key, func(item *yaml.Node) string { return item.Value })
	case v.Kind == yaml.MappingNode: // gres_per_node: {tesla: 1}
		text = d.pairs(v, key)
	default:
		d.at(v.Line, key, "expected a value")
		return nil, false
	}
	return &text, true
}

// refused returns why an option cannot be set for a job, or "".
func refused(o sbatch.Option, use sbatch.Use) string {
	known := sbatch.Lookup(o.Name)
	switch {
	case o.Name == "comment":
		return "the agent marks its jobs by the comment"
	case o.Name == "find" && o.Value == "":
		return "it lacks a resource request"
	case known != nil && known.Use&use == 0 && known.Use&sbatch.ByDaemon != 0:
		return "the agent names the jobs of tasks, and keeps their output and directories itself, below data_dir"
	case known != nil && known.Use&use == 0:
		return "the agent cannot work with this option"
	case need.SignalsScript(o) && use == sbatch.ByConfig:
		return need.OnlyScript
	case strings.ContainsAny(o.Value, "\n\x00"):
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
