// Command generate makes the man pages of their sources, or pages for a browser.
//
//	go run ./man/generate -out man man/ponos-poll.1.md ...
//	go run ./man/generate -html -out bin/html man/*.md
package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
)

func main() { os.Exit(app.Main(run)) } //nolint:forbidigo // the one place that exits

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name: "generate", Usage: "make man pages", ArgsUsage: "SOURCE...",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Value: "man", Usage: "write into `DIR`"},
			&cli.BoolFlag{Name: "html", Usage: "write pages for a browser, and index.html"},
		},
		Action: func(c *cli.Context) error {
			if c.Bool("html") {
				return writeHTML(c.String("out"), c.Args().Slice())
			}
			for _, source := range c.Args().Slice() {
				text, err := os.ReadFile(source)
				if err != nil {
					return err
				}
				page := filepath.Join(c.String("out"), strings.TrimSuffix(filepath.Base(source), ".md"))
				if err := os.WriteFile(page, []byte(tidy(string(md2man.Render(text)))), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}.Run(ctx, args, stdin, stdout, stderr)
}

// bold is text that is typed as it stands.
var bold = regexp.MustCompile(`\\fB[^\\]*\\fP`)

// tidy mends what go-md2man leaves. Words are broken at their syllables, as .TH
// undoes the .nh before it, and lines are stretched to the margin; hyphens of options
// and examples are typographic ones, that a shell does not know; lines are as long as
// in the source; blank lines double the space before macros.
func tidy(page string) string {
	var out strings.Builder
	example, blank, tag := false, false, false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, " \n")
		switch {
		case line == ".nh":
			continue
		case line == "" && !example:
			blank = true // before a macro, that has space of its own, it is left out
			continue
		case strings.HasPrefix(line, ".TH "):
			line += "\n.nh\n.ad l"
		case line == ".EX":
			example = true
		case line == ".EE":
			example = false
		case example:
			line = strings.ReplaceAll(line, "-", `\-`)
		default:
			line = bold.ReplaceAllStringFunc(line, func(s string) string { return strings.ReplaceAll(s, "-", `\-`) })
			if !strings.HasPrefix(line, ".") && !tag { // a tag is one line
				line = fill(line)
			}
		}
		if blank && !strings.HasPrefix(line, ".") {
			out.WriteString(".PP\n")
		}
		blank, tag = false, line == ".TP"
		out.WriteString(line + "\n")
	}
	return out.String()
}

// fill breaks a line of text at blanks.
func fill(line string) string {
	const width = 79
	var out strings.Builder
	column := 0
	for i, word := range strings.Split(line, " ") {
		if i > 0 {
			if column+1+len(word) > width {
				out.WriteByte('\n')
				column = 0
				if strings.HasPrefix(word, ".") || strings.HasPrefix(word, "'") {
					word = `\&` + word
				}
			} else {
				out.WriteByte(' ')
				column++
			}
		}
		out.WriteString(word)
		column += len(word)
	}
	return out.String()
}
