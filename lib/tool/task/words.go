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

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
)

// The completions of the shells ask "ponos-task words KIND [BEGINNING]" for what there is at the moment: a word on each line, with
// a description behind a tab where there is one. A person waits with a finger on the key, so programs that do not answer within
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
	case "sinfo", "sshare", "squeue":
		return []string{s.name}, nil
	}
	return command.Sibling(s.name)
}

var sources = map[string][]source{
	"partitions": {{name: "sinfo", args: []string{"--noheader", "--format=%R"}, parse: slurm.Lines}},
	"accounts":   {{name: "sshare", args: []string{"--noheader", "--parsable2", "--format=Account"}, parse: slurm.Lines}},
	"users":      {{name: "sshare", args: []string{"--noheader", "--parsable2", "--all", "--format=User"}, parse: slurm.Lines}},
	"jobs":       {{name: "squeue", args: []string{"--noheader", "--me", "--format=%A"}, parse: slurm.Lines}},
	"tasks": {
		{own: func(beginning string) []string { return taskWords(summaries(), beginning) }},
		{name: "squeue", args: []string{"--noheader", "--me", "--format=%k"}, parse: marked},
	},
	"groups": {{own: func(beginning string) []string { return groupWords(summaries(), beginning) }}},
	"tags":   {{name: "lfind", args: []string{"list", "--json"}, parse: func(s string) []string { return named(s, "tags") }}},
}

// summaries are the tasks of the spool of the configuration; none if that cannot be read.
func summaries() []spool.Summary {
	s, err := tasklist.Open("", "")
	if err != nil {
		return nil
	}
	all, _ := s.States()
	return all
}

// taskWords are what selects the tasks that have not been retried: names and short ids, and long ids of which more than a short
// one has been typed. Those that have not ended come first, and the newest before older ones; of more than maxWords, these are taken.
func taskWords(all []spool.Summary, beginning string) []string {
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
func groupWords(all []spool.Summary, beginning string) []string {
	var groups []string
	by := map[string][]spool.Summary{}
	for _, s := range slices.Backward(all) {
		if s.Retried || s.Group == "" || !strings.HasPrefix(s.Group, beginning) {
			continue
		}
		if by[s.Group] == nil {
			groups = append(groups, s.Group)
		}
		by[s.Group] = append(by[s.Group], s)
	}
	for i, g := range groups {
		groups[i] = g + "\t" + tasklist.CountOf(by[g]).String()
	}
	return groups
}

// plain is a word that no shell reads as something else.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@%+:/,=-]*$`)

// maxWords limits what a completion has to look through.
const maxWords = 2000

func (t *tool) words(c *cli.Context) error {
	of, ok := sources[c.Args().First()]
	if !ok || c.NArg() > 2 {
		return fault.Errorf(fault.Usage, "expected one of %s", strings.Join(slices.Sorted(maps.Keys(sources)), ", "))
	}
	limit, err := unit.Duration(os.Getenv(patienceEnv))
	if err != nil || limit <= 0 {
		limit = atOnce
	}
	ctx, cancel := context.WithTimeout(c.Context, limit)
	defer cancel()
	debug.SetGCPercent(-1) // this process ends before its garbage matters
	beginning := c.Args().Get(1)
	answers := make(chan []string, len(of))
	found := map[string]string{} // with their descriptions
	for _, s := range of {
		if s.own != nil {
			continue
		}
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
	take := func(words []string) {
		for _, w := range words {
			word, about, _ := strings.Cut(w, "\t")
			if _, ok := found[word]; !ok && strings.HasPrefix(word, beginning) && plain.MatchString(word) && len(found) < maxWords {
				found[word] = about
			}
		}
	}
	asked := len(of)
	for _, s := range of {
		if s.own != nil {
			asked--
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
	var out strings.Builder
	for _, w := range slices.Sorted(maps.Keys(found)) {
		out.WriteString(w)
		if found[w] != "" {
			out.WriteString("\t" + found[w])
		}
		out.WriteString("\n")
	}
	_, err = fmt.Fprint(t.stdout, out.String())
	return err
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
