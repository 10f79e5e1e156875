package app

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Description is what --describe prints: the man pages are checked against it
// and the completions are made of it.
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
}

func (t Tool) describe() Description {
	return describe(t.Name, t.Usage, t.ArgsUsage, append(slices.Clone(t.Flags), versionFlag, cli.HelpFlag), t.Commands)
}

func describe(name, usage, args string, flags []cli.Flag, commands []*cli.Command) Description {
	d := Description{Name: name, Usage: usage, Args: args}
	for _, f := range flags {
		doc, ok := f.(cli.DocGenerationFlag)
		if v, isVisible := f.(cli.VisibleFlag); !ok || isVisible && !v.IsVisible() {
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
		d.Flags = append(d.Flags, info)
	}
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		d.Commands = append(d.Commands, describe(c.Name, c.Usage, c.ArgsUsage, append(slices.Clone(c.Flags), cli.HelpFlag), c.Subcommands))
	}
	return d
}
