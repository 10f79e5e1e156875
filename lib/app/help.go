package app

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// width is the widest line of a help text: that of a terminal.
const width = 80

// The library has these as variables only.
func init() {
	cli.FlagStringer = flagLine
	print := cli.HelpPrinterCustom
	cli.HelpPrinterCustom = func(w io.Writer, template string, data any, functions map[string]any) {
		var text bytes.Buffer
		print(&text, template, data, functions)
		_, _ = io.WriteString(w, wrap(text.String()))
	}
}

// flagLine is a flag in a help text: its names, the short one first, and its usage,
// separated by a tab.
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

// wrap breaks the long lines of a list of names and their meanings: what does not
// fit goes below the beginning of the meaning.
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

// byteAt is the offset of the nth character, or the length of the line.
func byteAt(line string, n int) int {
	for i := range line {
		if n == 0 {
			return i
		}
		n--
	}
	return len(line)
}

// meaning is where the second column of a line begins; 0: it has none.
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
