package file

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/base/hostlist"
)

// launchers reads a whole launchers.yaml.
func (d *decoder) launchers(text []byte) []Entry {
	root := d.document(text)
	if root == nil {
		return nil
	}
	var entries []Entry
	group := func(kind Kind, read func(*yaml.Node) Entry) func(*yaml.Node) {
		return func(n *yaml.Node) {
			d.list(n, fmt.Sprintf("%q", kind), func(item *yaml.Node) {
				e := read(item)
				e.Kind, e.Pos = kind, posOf(item)
				entries = append(entries, e)
			})
		}
	}
	d.mapping(root, "the file", fields{
		string(Local): group(Local, d.local),
		string(Slurm): group(Slurm, d.slurm),
	})
	return entries
}

func (d *decoder) local(n *yaml.Node) Entry {
	e := Entry{Connector: "local", CPU: CPU{Cores: 1}}
	gpus := d.gpus(&e.GPUs)
	d.mapping(n, "a local launcher", fields{
		"id":        d.string(&e.ID, "id"),
		"connector": d.string(&e.Connector, "connector"),
		"cpu": func(n *yaml.Node) {
			d.mapping(n, "cpu", fields{
				"cores":  d.count(&e.CPU.Cores, "cores"),
				"memory": d.size(&e.CPU.Memory, "memory"),
			})
		},
		"gpu":      gpus,
		"gpus":     gpus,
		"tokens":   d.tokens(&e.Tokens),
		"tags":     d.strings(&e.Tags, "tags"),
		"weight":   d.float(&e.Weight, "weight"),
		"disable":  d.bool(&e.Disabled, "disable"),
		"disabled": d.bool(&e.Disabled, "disabled"),
	})
	for _, g := range e.GPUs {
		if g.Count == 0 {
			d.warn(n, "a GPU without a count is ignored")
		}
	}
	return e
}

func (d *decoder) slurm(n *yaml.Node) Entry {
	e := Entry{Connector: "local", UseFeatures: true, UseHosts: true, UseMemory: true}
	d.mapping(n, "a slurm launcher", fields{
		"id":             d.string(&e.ID, "id"),
		"connector":      d.string(&e.Connector, "connector"),
		"path":           d.string(&e.Path, "path"),
		"tags":           d.strings(&e.Tags, "tags"),
		"weight":         d.float(&e.Weight, "weight"),
		"disable":        d.bool(&e.Disabled, "disable"),
		"disabled":       d.bool(&e.Disabled, "disabled"),
		"features_regex": d.regexes(&e.FeaturesRegex),
		"features": func(n *yaml.Node) {
			d.pairs(n, "features", func(key, value *yaml.Node) {
				f := Feature{Pos: posOf(key), Name: key.Value}
				d.mapping(value, "a feature", d.configurationField(&f.Configuration))
				e.Features = append(e.Features, f)
			})
		},
		"use_features":          d.bool(&e.UseFeatures, "use_features"),
		"use_hosts":             d.bool(&e.UseHosts, "use_hosts"),
		"use_memory_contraint":  d.bool(&e.UseMemory, "use_memory_contraint"),
		"use_memory_constraint": d.bool(&e.UseMemory, "use_memory_constraint"),
		"query_slurm":           d.bool(&e.QuerySlurm, "query_slurm"),
		"qos":                   d.qos(&e.QOS),
		"configuration":         d.configuration(&e.Configuration),
		"options": func(n *yaml.Node) {
			d.warn(n, `"options" is now called "configuration"`)
			d.configuration(&e.Configuration)(n)
		},
		"partitions": func(n *yaml.Node) {
			d.pairs(n, "partitions", func(key, value *yaml.Node) {
				p := d.partition(value)
				p.Pos, p.Name = posOf(key), key.Value
				if !Names(p.Name) {
					d.fail(key, "invalid partition name %q", p.Name)
				}
				e.Partitions = append(e.Partitions, p)
			})
		},
	})
	d.checkSlurm(n, &e)
	return e
}

func (d *decoder) partition(n *yaml.Node) Partition {
	var p Partition
	known := d.configurationField(&p.Configuration)
	known["accounts"] = d.strings(&p.Accounts, "accounts")
	known["qos"] = d.strings(&p.QOS, "qos")
	known["priority"] = d.int(&p.Priority, "priority")
	known["disabled"] = d.bool(&p.Disabled, "disabled")
	known["min_nodes"] = d.count(&p.MinNodes, "min_nodes")
	known["max_nodes"] = d.count(&p.MaxNodes, "max_nodes")
	known["preemptible"] = d.bool(&p.Preemptible, "preemptible")
	known["exclusive"] = d.bool(&p.Exclusive, "exclusive")
	known["nodes"] = func(n *yaml.Node) {
		d.list(n, "nodes", func(item *yaml.Node) {
			var g Nodes
			known := d.configurationField(&g.Configuration)
			known["features"] = d.features(&g.Features)
			known["count"] = d.count(&g.Count, "count")
			known["hosts"] = d.hosts(&g.Hosts)
			d.mapping(item, "a group of nodes", known)
			g.Pos = posOf(item)
			p.Nodes = append(p.Nodes, g)
		})
	}
	d.mapping(n, "a partition", known)
	return p
}

// IsFeature reports whether --constraint can request a feature with this name.
func IsFeature(name string) bool { return name != "" && !strings.ContainsAny(name, "&|()[]*, \t") }

// features reads names of features.
func (d *decoder) features(to *[]string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		d.strings(to, "features")(n)
		for _, name := range *to {
			if !IsFeature(name) {
				d.fail(n, "invalid feature name %q", name)
			}
		}
	}
}

func (d *decoder) hosts(to *[]string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		var names []string
		d.strings(&names, "hosts")(n)
		if !slices.ContainsFunc(names, func(s string) bool { return strings.ContainsAny(s, "[, ") }) {
			*to = names
			return
		}
		for _, name := range names {
			expanded, err := hostlist.Expand(name)
			if err != nil {
				d.fail(n, "hosts: %v", err)
				return
			}
			*to = append(*to, expanded...)
		}
	}
}

func (d *decoder) qos(to *[]QOS) func(*yaml.Node) {
	return func(n *yaml.Node) {
		d.pairs(n, "qos", func(key, value *yaml.Node) {
			q := QOS{Pos: posOf(key), Name: key.Value}
			d.mapping(value, "a qos", fields{
				"max_duration": d.duration(&q.MaxDuration, "max_duration"),
				"min_gpu":      d.count(&q.MinGPU, "min_gpu"),
				"priority":     d.int(&q.Priority, "priority"),
			})
			*to = append(*to, q)
		})
	}
}

func (d *decoder) tokens(to *[]Token) func(*yaml.Node) {
	return func(n *yaml.Node) {
		d.pairs(n, "tokens", func(key, value *yaml.Node) {
			t := Token{Pos: posOf(key), ID: key.Value}
			d.count(&t.Count, "the number of tokens")(value)
			*to = append(*to, t)
		})
	}
}

func (d *decoder) configurationField(to *Configuration) fields {
	return fields{"configuration": d.configuration(to)}
}

func (d *decoder) configuration(to *Configuration) func(*yaml.Node) {
	return func(n *yaml.Node) {
		d.mapping(n, "a configuration", fields{
			"max_duration": d.duration(&to.MaxDuration, "max_duration"),
			"gpu": func(n *yaml.Node) {
				if r := d.resolve(n); r != nil && r.Kind == yaml.SequenceNode {
					d.gpus(&to.GPUs)(n)
					return
				}
				d.gpu(&to.GPU, n)
			},
			"gpus": d.gpus(&to.GPUs),
			"cpu": func(n *yaml.Node) {
				d.mapping(n, "cpu", fields{
					"cores":       d.count(&to.CPU.Cores, "cores"),
					"memory":      d.size(&to.CPU.Memory, "memory"),
					"mem_per_cpu": d.size(&to.CPU.MemPerCPU, "mem_per_cpu"),
					"cpu_per_gpu": d.count(&to.CPU.CPUPerGPU, "cpu_per_gpu"),
				})
			},
		})
	}
}

// kinds are the kinds of GPUs that a file can name.
var kinds = []string{"cuda", "mps", "rocm", "xpu"}

func (d *decoder) gpu(to *GPU, n *yaml.Node) {
	d.mapping(n, "gpu", fields{
		"kind": func(n *yaml.Node) {
			d.string(&to.Kind, "kind")(n)
			if to.Kind != "" && !slices.Contains(kinds, to.Kind) {
				d.fail(n, "kind must be %s, not %q", strings.Join(kinds, ", "), to.Kind)
			}
		},
		"model":      d.string(&to.Model, "model"),
		"gres_type":  d.string(&to.GRES, "gres_type"),
		"count":      d.count(&to.Count, "count"),
		"memory":     d.size(&to.Memory, "memory"),
		"min_memory": d.size(&to.MinMemory, "min_memory"),
		"min_mem_ratio": func(n *yaml.Node) {
			d.float(&to.MinMemRatio, "min_mem_ratio")(n)
			if to.MinMemRatio < 0 || to.MinMemRatio > 1 {
				d.fail(n, "min_mem_ratio must be from 0 to 1, not %v", to.MinMemRatio)
			}
		},
	})
}

// gpus reads a list of GPUs; a single mapping is a list of one.
func (d *decoder) gpus(to *[]GPU) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if r := d.resolve(n); r != nil && r.Kind == yaml.MappingNode {
			var g GPU
			d.gpu(&g, n)
			*to = append(*to, g)
			return
		}
		d.list(n, "gpus", func(item *yaml.Node) {
			var g GPU
			d.gpu(&g, item)
			*to = append(*to, g)
		})
	}
}

func (d *decoder) regexes(to *[]Regex) func(*yaml.Node) {
	return func(n *yaml.Node) {
		d.list(n, "features_regex", func(item *yaml.Node) {
			var text string
			d.string(&text, "a regular expression")(item)
			if text == "" {
				return
			}
			r, unknown, err := CompileRegex(text)
			if err != nil {
				d.fail(item, "features_regex: %v", err)
				return
			}
			for _, name := range unknown {
				d.warn(item, "features_regex: the group %q has no meaning; cuda_count and cuda_memory do", name)
			}
			if r.Count < 0 && r.Memory < 0 {
				d.warn(item, "features_regex: %q has neither the group cuda_count nor cuda_memory", text)
			}
			r.Pos = posOf(item)
			*to = append(*to, r)
		})
	}
}

// CompileRegex compiles a regular expression of features_regex, and returns its named groups
// that have no meaning there.
func CompileRegex(text string) (r Regex, unknown []string, err error) {
	match, err := regexp.Compile("^(?:" + text + ")")
	if err != nil {
		return Regex{}, nil, fmt.Errorf("invalid regular expression %q: %w", text, err)
	}
	r = Regex{Text: text, Match: match, Count: match.SubexpIndex("cuda_count"), Memory: match.SubexpIndex("cuda_memory")}
	for _, name := range match.SubexpNames() {
		if name != "" && name != "cuda_count" && name != "cuda_memory" {
			unknown = append(unknown, name)
		}
	}
	return r, unknown, nil
}

// Names reports whether a partition with this name can be in the file, and in an answer.
func Names(partition string) bool { return partition != "" && !strings.ContainsAny(partition, ", \t") }
