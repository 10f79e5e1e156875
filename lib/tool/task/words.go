package task

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/task"
)

// The completions of the shells ask "ponos-task words KIND" for what there is at
// the moment. A person waits with a finger on the key, so there is an answer within
// this time or none, and no word about why.
const (
	atOnce      = 80 * time.Millisecond
	patienceEnv = "PONOS_COMPLETION_TIMEOUT"
)

// source is a command that knows words.
type source struct {
	name  string
	args  []string
	parse func(string) []string
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
	"partitions": {{"sinfo", []string{"--noheader", "--format=%R"}, strings.Fields}},
	"accounts":   {{"sshare", []string{"--noheader", "--parsable2", "--format=Account"}, strings.Fields}},
	"users":      {{"sshare", []string{"--noheader", "--parsable2", "--all", "--format=User"}, strings.Fields}},
	"jobs":       {{"squeue", []string{"--noheader", "--me", "--format=%A"}, strings.Fields}},
	"tasks": {
		{"ponos-list", []string{"--long", "--last=1000"}, func(s string) []string { return columns(s, 2) }},
		{"squeue", []string{"--noheader", "--me", "--format=%k"}, marked},
	},
	"groups": {{"ponos-list", []string{"--groups"}, func(s string) []string { return columns(s, 1) }}},
	"tags":   {{"lfind", []string{"list", "--json"}, func(s string) []string { return named(s, "tags") }}},
}

// plain is a word that no shell reads as something else.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@%+:/,=-]*$`)

// maxWords limits what a completion has to look through.
const maxWords = 2000

func (t *tool) words(c *cli.Context) error {
	of, ok := sources[c.Args().First()]
	if !ok || c.NArg() != 1 {
		return fault.Errorf(fault.Usage, "expected one of %s", strings.Join(slices.Sorted(maps.Keys(sources)), ", "))
	}
	limit, err := unit.Duration(os.Getenv(patienceEnv))
	if err != nil || limit <= 0 {
		limit = atOnce
	}
	ctx, cancel := context.WithTimeout(c.Context, limit)
	defer cancel()
	answers := make(chan []string, len(of))
	for _, s := range of {
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
	found := map[string]bool{}
wait:
	for range of {
		select {
		case words := <-answers:
			for _, w := range words {
				if plain.MatchString(w) && len(found) < maxWords {
					found[w] = true
				}
			}
		case <-ctx.Done():
			break wait
		}
	}
	var out strings.Builder
	for _, w := range slices.Sorted(maps.Keys(found)) {
		out.WriteString(w + "\n")
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

// columns returns the words of the first n columns of a table.
func columns(text string, n int) []string {
	var words []string
	for i, line := range strings.Split(text, "\n") {
		if fields := strings.Fields(line); i > 0 {
			words = append(words, fields[:min(n, len(fields))]...)
		}
	}
	return words
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
