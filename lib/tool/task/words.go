package task

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// The completions of the shells ask "ponos-task words KIND [BEGINNING]" for what there is at the moment: a word on each line, with
// a description behind a tab where there is one. A beginning may be a list, an option of sbatch with its value, or a request, of which
// the last word is completed; what is printed is whole. A person waits with a finger on the key, so programs that do not answer within
// this time are left alone, without a word about why. The spool is always waited for.
const (
	atOnce      = 300 * time.Millisecond
	patienceEnv = "PONOS_COMPLETION_TIMEOUT"
)

// source is a command that knows words, or a function that finds those of the spool.
type source struct {
	name  string
	args  []string
	parse func(string) []string
	own   func(beginning string) []string
}

// program is how the command is run: one of Slurm is in PATH, the others are tools of the suite.
func (s source) program() ([]string, error) {
	switch s.name {
	case "sinfo", "sshare", "squeue", "sacctmgr":
		return []string{s.name}, nil
	}
	return command.Sibling(s.name)
}

// sinfo asks for a field of all nodes or partitions.
func sinfo(field string, parse func(string) []string) []source {
	return []source{{name: "sinfo", args: []string{"--noheader", "--format=" + field}, parse: parse}}
}

var sources = map[string][]source{
	"partitions": sinfo("%R", slurm.Lines),
	"features": sinfo("%f", func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '\n' })
	}),
	"hosts":    sinfo("%n", slurm.Lines),
	"gres":     sinfo("%G", func(s string) []string { return resources(s, true) }),
	"gpus":     sinfo("%G", func(s string) []string { return resources(s, false) }),
	"models":   sinfo("%G %f", models),
	"qos":      {{name: "sacctmgr", args: []string{"--noheader", "--parsable2", "show", "qos", "format=name"}, parse: slurm.Lines}},
	"accounts": {{name: "sshare", args: []string{"--noheader", "--parsable2", "--format=Account"}, parse: slurm.Lines}},
	"users":    {{name: "sshare", args: []string{"--noheader", "--parsable2", "--all", "--format=User"}, parse: slurm.Lines}},
	"jobs":     {{name: "squeue", args: []string{"--noheader", "--me", "--format=%A"}, parse: slurm.Lines}},
	"tasks": {
		{own: func(beginning string) []string { return taskWords(summaries(), beginning) }},
		{name: "squeue", args: []string{"--noheader", "--me", "--format=%k"}, parse: marked},
	},
	"groups": {{own: func(beginning string) []string { return groupWords(summaries(), beginning) }}},
	"tags":   {{name: "lfind", args: []string{"list", "--json"}, parse: func(s string) []string { return named(s, "tags") }}},
}

// Kinds that are made of others.
const (
	settings = "settings" // NAME or NAME=VALUE of sbatch
	requests = "requests" // what lfind reads
)

// valuesOf are the kinds of the values of options of sbatch, and of the fields of a request.
var valuesOf = map[string]string{
	"partition": "partitions", "account": "accounts", "qos": "qos", "constraint": "features", "prefer": "features", "gres": "gres",
	"nodelist": "hosts", "exclude": "hosts", "model": "models", "feature": "features", "host": "hosts",
}

// resources are the generic resources of nodes, or the types of their GPUs alone.
func resources(text string, all bool) (words []string) {
	for _, line := range slurm.Lines(text) {
		list, _ := slurm.ParseGRES(line)
		for _, g := range list {
			switch {
			case all && g.Type != "":
				words = append(words, g.Name, g.Name+":"+g.Type)
			case all:
				words = append(words, g.Name)
			case g.Name == "gpu" && g.Type != "":
				words = append(words, g.Type)
			}
		}
	}
	return words
}

// models are the names of GPUs in the types and features of nodes.
func models(text string) (words []string) {
	known, err := gpu.Load(os.Getenv)
	if err != nil {
		return nil
	}
	for _, line := range slurm.Lines(text) {
		list, features, _ := strings.Cut(line, " ")
		words = append(words, resources(list+"\n", false)...)
		for f := range strings.SplitSeq(strings.TrimSpace(features), ",") {
			if m := known.Feature(f); m.Whole && len(m.Models) > 0 {
				words = append(words, f)
			}
		}
	}
	return words
}

// settingWords are the options of sbatch that a task may set, each with "=" if it takes a value; behind that, its values.
func settingWords(beginning string, ask func(kind, beginning string) []string) (words []string) {
	name, value, valued := strings.Cut(beginning, "=")
	if d := sbatch.Lookup(name); valued && d != nil && d.Use&sbatch.ByTask != 0 {
		kind := valuesOf[name]
		if d.Form == sbatch.GPUs {
			kind = "gpus"
		}
		known := d.Words
		if kind != "" {
			known = ask(kind, value)
		}
		for _, w := range known {
			words = append(words, name+"="+w)
		}
		return words
	}
	for _, o := range sbatch.All() {
		if o.Use&sbatch.ByTask == 0 {
			continue
		}
		word := o.Name
		if o.Form != sbatch.Flag && !o.Optional {
			word += "="
		}
		words = append(words, word)
	}
	return words
}

// summaries are the tasks of the spool of the configuration; none if that cannot be read.
func summaries() []queue.Summary {
	s, err := tasklist.Open("", "")
	if err != nil {
		return nil
	}
	all, _ := s.Glance()
	return all
}

// taskWords are what selects the tasks that have not been retried: names and short ids, and long ids of which more than a short
// one has been typed. Those that have not ended come first, and the newest before older ones; of more than maxWords, these are taken.
func taskWords(all []queue.Summary, beginning string) []string {
	var words []string
	seen := map[string]bool{}
	add := func(word string, about func() string) {
		if strings.HasPrefix(word, beginning) && !seen[word] && plain.MatchString(word) {
			seen[word] = true
			words = append(words, word+"\t"+about())
		}
	}
	for _, final := range []bool{false, true} {
		for i := len(all) - 1; i >= 0 && len(words) < maxWords; i-- {
			s := &all[i]
			if s.Retried || s.State.Final() != final {
				continue
			}
			about := func() string { return task.Clean(s.Slug) + ", " + string(s.State) }
			add(s.Slug, func() string { return string(s.State) })
			short := s.ID.Short()
			add(short, about)
			if len(beginning) > len(short) {
				add(string(s.ID), about)
			}
		}
	}
	return words[:min(len(words), maxWords)]
}

// groupWords are the groups of tasks, the newest first.
func groupWords(all []queue.Summary, beginning string) []string {
	var groups []string
	by := map[string]*tasklist.Count{}
	for i := len(all) - 1; i >= 0; i-- {
		s := &all[i]
		if s.Retried || s.Group == "" || !strings.HasPrefix(s.Group, beginning) {
			continue
		}
		n := by[s.Group]
		if n == nil {
			n = &tasklist.Count{By: map[task.State]int{}}
			groups, by[s.Group] = append(groups, s.Group), n
		}
		n.Total++
		n.By[s.State]++
	}
	for i, g := range groups {
		groups[i] = g + "\t" + by[g].String()
	}
	return groups
}

// plain is a word that no shell reads as something else.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@%+:/,=-]*$`)

// maxWords limits what a completion has to look through.
const maxWords = 2000

func (t *tool) words(c *cli.Context) error {
	kind, beginning := c.Args().First(), c.Args().Get(1)
	if _, ok := sources[kind]; !ok && kind != settings && kind != requests || c.NArg() > 2 {
		kinds := append(slices.Collect(maps.Keys(sources)), settings, requests)
		slices.Sort(kinds)
		return fault.Errorf(fault.Usage, "expected one of %s", strings.Join(kinds, ", "))
	}
	limit, err := unit.Duration(os.Getenv(patienceEnv))
	if err != nil || limit <= 0 {
		limit = atOnce
	}
	ctx, cancel := context.WithTimeout(c.Context, limit)
	defer cancel()
	debug.SetGCPercent(-1) // this process ends before its garbage matters
	ask := func(kind, beginning string) []string { return ask(ctx, kind, beginning) }
	var words []string
	switch kind {
	case settings:
		words = settingWords(beginning, ask)
	case requests:
		words = request.Complete(beginning, func(field string) []string {
			if of := valuesOf[field]; of != "" {
				return ask(of, "")
			}
			return nil
		})
	default:
		words = ask(kind, beginning)
	}
	var out strings.Builder
	for _, w := range words {
		if strings.HasPrefix(w, beginning) {
			out.WriteString(w + "\n")
		}
	}
	_, err = fmt.Fprint(t.stdout, out.String())
	return err
}

// ask returns the words of a kind, sorted, that the last of a list with commas begins, each with the others before it; of the programs
// that know them, those that answer before the context ends.
func ask(ctx context.Context, kind, list string) []string {
	beginning := list[strings.LastIndexByte(list, ',')+1:]
	others := list[:len(list)-len(beginning)]
	found := map[string]string{} // with their descriptions
	take := func(words []string) {
		for _, w := range words {
			word, about, _ := strings.Cut(w, "\t")
			if _, ok := found[word]; !ok && strings.HasPrefix(word, beginning) && plain.MatchString(word) && len(found) < maxWords {
				found[word] = about
			}
		}
	}
	of := sources[kind]
	answers := make(chan []string, len(of))
	asked := 0
	for _, s := range of {
		if s.own != nil {
			continue
		}
		asked++
		go func() {
			program, err := s.program()
			if err != nil {
				answers <- nil
				return
			}
			result, err := command.System.Run(ctx, command.Cmd{Name: program[0], Args: append(program[1:], s.args...)})
			if err != nil {
				answers <- nil
				return
			}
			answers <- s.parse(string(result.Stdout))
		}()
	}
	for _, s := range of {
		if s.own != nil {
			take(s.own(beginning))
		}
	}
wait:
	for range asked {
		select {
		case words := <-answers:
			take(words)
		case <-ctx.Done():
			break wait
		}
	}
	var words []string
	for _, w := range slices.Sorted(maps.Keys(found)) {
		line := others + w
		if found[w] != "" {
			line += "\t" + found[w]
		}
		words = append(words, line)
	}
	return words
}

// named returns the strings of a field in lines or lists of JSON objects.
func named(text, field string) []string {
	var words []string
	var collect func(v any, take bool)
	collect = func(v any, take bool) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				collect(e, take)
			}
		case map[string]any:
			collect(v[field], true)
		case string:
			if take {
				words = append(words, v)
			}
		}
	}
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var v any
		if d.Decode(&v) != nil {
			return words
		}
		collect(v, false)
	}
}

// marked returns the tasks that the comments of jobs name.
func marked(text string) []string {
	var ids []string
	for line := range strings.Lines(text) {
		for _, id := range task.Marked(strings.TrimSpace(line)) {
			ids = append(ids, string(id))
		}
	}
	return ids
}
