package lfind

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// find prints the best launcher.
func (s *session) find(c *cli.Context) error {
	format := c.String("format")
	if c.Bool("json") {
		format = "json"
	}
	if !slices.Contains(launcher.Formats, format) {
		err := usage("--format: invalid value %q: expected one of %s", format, strings.Join(launcher.Formats, ", "))
		if near := spelling.Nearest(format, launcher.Formats); near != "" {
			err = fault.Hint(err, fmt.Sprintf("did you mean %q?", near))
		}
		return err
	}
	if err := override(c, new(sbatch.Options)); err != nil {
		return err
	}
	r, err := s.request(c)
	if err != nil {
		return misspeltCommand(c, err)
	}
	f, search, err := s.load(c)
	if err != nil {
		return err
	}
	var answer *launcher.Answer
	var start *estimate
	if c.Bool("soonest") {
		answer, start, err = s.soonest(c, f, search, r)
	} else {
		answer, err = search.Find(c.Context, r)
	}
	if err != nil {
		return unreachable(f, err)
	}
	if answer == nil {
		return search.Nothing(c.Context, r)
	}
	if start != nil {
		err = override(c, &answer.Options)
	} else {
		answer, err = s.verified(c, f, search, r, answer)
	}
	if err != nil {
		return err
	}
	host := launcher.Hostname(f, answer.Launcher.Entry.Connector)
	if format == "json" {
		s.noteUnknown(c, answer)
		return app.PrintJSON(s.stdout, describe(f, answer, start))
	}
	if answer.Local() {
		return fault.Hint(
			fault.Errorf(fault.Failed, "launcher %q matches first, and is not Slurm: there are no options of sbatch for it",
				answer.Launcher.Name),
			`"lfind run" runs a command there, --kind slurm searches Slurm only, --json describes the launcher`)
	}
	out, err := launcher.Write(answer.Options, format)
	if err != nil {
		return fault.Hint(
			fault.Wrap(fault.Usage, err),
			"with --format args0 it is safe: lfind --format args0 ... | xargs -0 sh -c 'exec sbatch \"$@\" job.sh' sh")
	}
	if host != "" {
		s.note(c, "note: launcher %q is on %s: run sbatch there (see \"lfind run\")", answer.Launcher.Name, host)
	}
	s.noteUnknown(c, answer)
	if start != nil {
		s.note(c, "%s", start)
	}
	_, err = io.WriteString(s.stdout, out)
	return err
}

// misspeltCommand suggests the name of a command where a request is only a word.
func misspeltCommand(c *cli.Context, err error) error {
	word := c.Args().First()
	if strings.ContainsAny(word, "=( &|@") || c.NArg() == 0 {
		return err
	}
	var names []string
	for _, sub := range c.App.Commands {
		names = append(names, sub.Name)
	}
	if near := spelling.Nearest(word, names); near != "" {
		return fault.Hint(err, fmt.Sprintf("did you mean the command %q?", near))
	}
	return err
}

// unreachable says what can be done without Slurm.
func unreachable(f *file.File, err error) error {
	if !fault.Is(err, fault.Unavailable) {
		return err
	}
	if len(f.Entries) == 0 && !errors.As(err, new(*command.TimeoutError)) {
		return fault.Hint(err, "without a launchers.yaml, lfind asks Slurm; searched: "+strings.Join(launcher.World{}.Files(), ", "))
	}
	if fault.HintOf(err) == "" {
		return fault.Hint(err, `check Slurm's controller with "scontrol ping"; --tags and --kind select other launchers`)
	}
	return err
}

// found is what --format json prints.
type found struct {
	Launcher    string            `json:"launcher"`
	Kind        file.Kind         `json:"kind"`
	Connector   string            `json:"connector"`
	Hostname    string            `json:"hostname,omitempty"`
	Path        string            `json:"path,omitempty"`
	Weight      float64           `json:"weight"`
	Tags        []string          `json:"tags"`
	Alternative int               `json:"alternative"`
	Request     string            `json:"request"`
	Partitions  []string          `json:"partitions"`
	QOS         string            `json:"qos,omitempty"`
	Account     string            `json:"account,omitempty"`
	Tokens      map[string]int    `json:"tokens,omitempty"`
	Options     map[string]string `json:"options"`
	Args        []string          `json:"args"`
	Start       *time.Time        `json:"start,omitempty"`
	Wait        *int64            `json:"wait_seconds,omitempty"`
	Nodes       string            `json:"start_nodes,omitempty"`
	StartBy     string            `json:"start_by,omitempty"`
	Unknown     []string          `json:"unknown,omitempty"`
	Notes       []string          `json:"notes,omitempty"`
}

func describe(f *file.File, a *launcher.Answer, start *estimate) found {
	e := a.Launcher.Entry
	d := found{
		Launcher: a.Launcher.Name, Kind: e.Kind, Connector: e.Connector, Hostname: launcher.Hostname(f, e.Connector), Path: e.Path,
		Weight: e.Weight, Tags: orEmpty(e.Tags), Alternative: a.Alternative + 1, Request: a.Asked.String(),
		Partitions: orEmpty(a.Partitions), QOS: a.QOS, Account: a.Account,
		Options: map[string]string{}, Args: orEmpty(a.Options.Args()), Unknown: a.Unknown, Notes: a.Notes,
	}
	for _, o := range a.Options {
		d.Options[o.Name] = o.Value
	}
	for _, t := range e.Tokens {
		if d.Tokens == nil {
			d.Tokens = map[string]int{}
		}
		d.Tokens[t.ID] = t.Count
	}
	if start != nil {
		wait := int64(max(0, start.wait()) / time.Second)
		at := start.at.Truncate(time.Second)
		d.Start, d.Wait, d.Nodes, d.StartBy = &at, &wait, start.nodes, start.by
	}
	return d
}

// orEmpty makes nil an empty list, which JSON writes as one.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
