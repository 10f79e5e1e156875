package app

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// A help text fits a screen of this size; only --help-all may be longer.
const (
	width  = 80
	height = 24
)

// The library's own help is replaced by that of this package.
func init() { cli.HelpFlag = nil }

// helpFlags are the last flags of every tool and command.
func helpFlags(version cli.Flag) []cli.Flag {
	flags := []cli.Flag{
		&cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help"},
		&cli.BoolFlag{Name: "help-all", Hidden: true},
	}
	if version != nil {
		flags = append([]cli.Flag{version}, flags...)
	}
	return flags
}

// page is the help of a tool or of one of its commands.
type page struct {
	name, usage, args, description, examples string

	commands []*cli.Command
	all      []cli.Flag // hidden ones too
	flags    []cli.Flag
	brief    []string // names of the options for one screen
}

func (t Tool) page() page {
	all := append(slices.Clip(t.Flags), helpFlags(versionFlag)...)
	return page{t.Name, t.Usage, t.ArgsUsage, t.Description, t.Examples, visibleCommands(t.Commands), all, visible(all), t.Brief[""]}
}

func (t Tool) commandPage(path []string, c *cli.Command) page {
	all := c.Flags
	if !slices.ContainsFunc(all, func(f cli.Flag) bool { return f.Names()[0] == "help" }) {
		all = append(slices.Clip(all), helpFlags(nil)...)
	}
	name := strings.Join(path, " ")
	return page{
		t.Name + " " + name, c.Usage, c.ArgsUsage, c.Description, "",
		visibleCommands(c.Subcommands), all, visible(all), t.Brief[name],
	}
}

func visible(flags []cli.Flag) (out []cli.Flag) {
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); !ok || v.IsVisible() {
			out = append(out, f)
		}
	}
	return out
}

func visibleCommands(commands []*cli.Command) (out []*cli.Command) {
	for _, c := range commands {
		if !c.Hidden {
			out = append(out, c)
		}
	}
	return out
}

// show prints the help if the command line requests it, and then ends the tool.
func (p page) show(c *cli.Context) error {
	text := ""
	switch {
	case c.Bool("help-all"):
		text = p.full()
	case c.Bool("help"):
		text = p.text()
	default:
		return nil
	}
	return printed(c, text)
}

// printed prints what ends the tool: the error is that of the output, or has exit status 0.
func printed(c *cli.Context, text string) error {
	if _, err := io.WriteString(c.App.Writer, text); err != nil {
		return err
	}
	return fault.Exit(0, nil)
}

// text returns the help that fits a screen: all of it, if possible.
func (p page) text() string {
	if full := p.full(); !p.shortened() {
		return full
	}
	return p.screen()
}

// shortened reports whether the help for one screen omits something.
func (p page) shortened() bool { return strings.Count(p.full(), "\n") > height }

func (p page) full() string {
	text := p.header(p.description) + p.commandList()
	if len(p.flags) > 0 {
		text += "\noptions:\n" + list(p.flags)
	}
	if p.examples != "" {
		text += "\nexamples:\n  " + strings.ReplaceAll(strings.TrimSpace(p.examples), "\n", "\n  ") + "\n"
	}
	return text
}

// screen omits what only --help-all shows: all but the first paragraph of the description, the
// examples, and the least used options.
func (p page) screen() string {
	tool, _, _ := strings.Cut(p.name, " ")
	more := fmt.Sprintf("\nmore: %s --help-all, man %s\n", p.name, tool)
	description, _, _ := strings.Cut(p.description, "\n\n")
	top := p.header(description) + p.commandList() + "\ncommon options:\n"
	flags := p.flags
	if len(p.brief) > 0 {
		flags = nil
		for _, name := range p.brief {
			if i := slices.IndexFunc(p.flags, func(f cli.Flag) bool { return f.Names()[0] == name }); i >= 0 {
				flags = append(flags, p.flags[i])
			}
		}
	}
	for n := len(flags); n > 0; n-- {
		if text := top + list(flags[:n]) + more; strings.Count(text, "\n") <= height {
			return text
		}
	}
	return p.header("") + more
}

func (p page) header(description string) string {
	text := p.name + " - " + p.usage + "\n\nusage: " + p.name
	if len(p.flags) > 0 {
		text += " [OPTION...]"
	}
	switch {
	case len(p.commands) > 0 && p.args != "":
		text += " [COMMAND]"
	case len(p.commands) > 0:
		text += " COMMAND"
	}
	text = strings.TrimRight(text+" "+p.args, " ") + "\n"
	if description != "" {
		text += "\n" + description + "\n"
	}
	return text
}

func (p page) commandList() string {
	if len(p.commands) == 0 {
		return ""
	}
	rows := make([]string, len(p.commands))
	for i, c := range p.commands {
		rows[i] = strings.Join(c.Names(), ", ") + "\t" + c.Usage
	}
	return "\ncommands:\n" + columns(rows)
}

func list(flags []cli.Flag) string {
	rows := make([]string, len(flags))
	for i, f := range flags {
		rows[i] = flagLine(f)
	}
	return columns(rows)
}

// columns aligns rows of two cells, and wraps those that are too long.
func columns(rows []string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+row)
	}
	_ = w.Flush() // into memory
	return wrap(text.String())
}

// flagLine returns a flag in a help text: its names, the short one first, and its usage, separated by
// a tab.
func flagLine(f cli.Flag) string {
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	value, usage := "", doc.GetUsage()
	if doc.TakesValue() {
		value = " VALUE"
		if before, after, found := strings.Cut(usage, "`"); found {
			if name, rest, closed := strings.Cut(after, "`"); closed {
				value, usage = " "+name, before+name+rest
			}
		}
		if text := strings.Trim(doc.GetDefaultText(), `"`); text != "" && text != "0" {
			usage += fmt.Sprintf(" (%s)", text)
		}
	}
	short, long := "", ""
	for _, name := range f.Names() {
		if len(name) == 1 {
			short += "-" + name + ", "
		} else {
			long += ", --" + name
		}
	}
	if short == "" {
		short = "    "
	}
	return strings.TrimSuffix(short+strings.TrimPrefix(long, ", "), ", ") + value + "\t" + usage
}

// wrap wraps the long lines of a list of names and their meanings, aligned with the beginning of the
// meaning.
func wrap(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		indent := meaning(line)
		for utf8.RuneCountInString(line) > width && indent > 0 {
			end := strings.LastIndexByte(line[:byteAt(line, width+1)], ' ')
			if end <= indent {
				break
			}
			out.WriteString(strings.TrimRight(line[:end], " ") + "\n")
			line = strings.Repeat(" ", indent) + line[end+1:]
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// byteAt returns the offset of the nth character, or the length of the line.
func byteAt(line string, n int) int {
	for i := range line {
		if n == 0 {
			return i
		}
		n--
	}
	return len(line)
}

// meaning returns where the second column of a line begins; 0: there is none.
func meaning(line string) int {
	if !strings.HasPrefix(line, "  ") {
		return 0
	}
	start := len(line) - len(strings.TrimLeft(line, " "))
	gap := strings.Index(line[start:], "  ")
	if gap < 0 {
		return 0
	}
	rest := line[start+gap:]
	return len(line) - len(strings.TrimLeft(rest, " "))
}
