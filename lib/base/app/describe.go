package app

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Description is the output of --describe: tests compare the man pages with it, and the completions
// are generated from it.
type Description struct {
	Name     string        `json:"name"`
	Usage    string        `json:"usage"`
	Args     string        `json:"args,omitempty"`
	Flags    []FlagInfo    `json:"flags,omitempty"`
	Commands []Description `json:"commands,omitempty"`
}

// FlagInfo is one flag.
type FlagInfo struct {
	Names []string `json:"names"` // without dashes, the long one first
	Usage string   `json:"usage"`
	Value string   `json:"value,omitempty"` // metavariable; empty: takes none
	Words []string `json:"words,omitempty"` // the possible values, if they are known
	List  bool     `json:"list,omitempty"`  // a comma-separated list of words
}

func (t Tool) describe() Description {
	return t.describePage(nil, t.page(), t.Commands)
}

func (t Tool) describePage(path []string, p page, commands []*cli.Command) Description {
	d := Description{Name: p.name[strings.LastIndexByte(p.name, ' ')+1:], Usage: p.usage, Args: p.args}
	flags := p.flags
	if p.shortened() {
		flags = append(slices.Clip(flags), &cli.BoolFlag{Name: "help-all", Usage: "show help with all options"})
	}
	for _, f := range flags {
		doc, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		info := FlagInfo{Names: slices.Clone(f.Names()), Usage: doc.GetUsage()}
		if doc.TakesValue() {
			info.Value = "VALUE"
			if before, after, found := strings.Cut(info.Usage, "`"); found {
				if value, rest, closed := strings.Cut(after, "`"); closed {
					info.Value, info.Usage = value, before+value+rest
				}
			}
		}
		if choice, ok := f.(interface{ choices() ([]string, bool) }); ok {
			info.Words, info.List = choice.choices()
		}
		d.Flags = append(d.Flags, info)
	}
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		path := append(slices.Clone(path), c.Name)
		d.Commands = append(d.Commands, t.describePage(path, t.commandPage(path, c), c.Subcommands))
	}
	return d
}
