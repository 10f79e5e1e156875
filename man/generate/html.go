package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/russross/blackfriday/v2"
)

// dialect is the Markdown of go-md2man, without the title block, so that a browser shows what man shows.
const dialect = blackfriday.NoIntraEmphasis | blackfriday.Tables | blackfriday.FencedCode | blackfriday.SpaceHeadings |
	blackfriday.Footnotes | blackfriday.DefinitionLists

const style = `body{max-width:50em;margin:2em auto;padding:0 1em;font:16px/1.5 sans-serif;color:#222;background:#fff}
nav ul{columns:2;padding-left:1.2em}nav p,nav ul ul{columns:1}pre{background:#f4f4f4;padding:.7em;overflow-x:auto}
h1{font-size:1.2em;margin-top:2em}h2{font-size:1.05em}dt{margin-top:.7em}dd{margin-left:2em}dd p{margin:.2em 0}
table{border-collapse:collapse}td,th{text-align:left;vertical-align:top;padding:.2em .8em .2em 0}`

var (
	reference = regexp.MustCompile(`<strong>([a-z_.-]+)</strong>\(([1-8])\)`)
	purpose   = regexp.MustCompile(`(?m)^# NAME\n\n(?:.* - )?(.*)$`)
)

// writeHTML writes a page of each source, such as ponos-poll.1.html, and index.html into a directory. A name with a
// section, such as **ponos**(7), becomes a link if that page is one of the sources.
func writeHTML(dir string, sources []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pages := map[string]bool{}
	for _, source := range sources {
		pages[strings.TrimSuffix(filepath.Base(source), ".md")] = true
	}
	var sections [10][]string // rows of the index
	for _, source := range slices.Sorted(slices.Values(sources)) {
		text, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		page := strings.TrimSuffix(filepath.Base(source), ".md")
		name, section := strings.TrimSuffix(page, filepath.Ext(page)), strings.TrimPrefix(filepath.Ext(page), ".")
		title := fmt.Sprintf("%s(%s)", name, section)
		_, markdown, _ := strings.Cut(string(text), "\n") // the title block
		body := blackfriday.Run([]byte(markdown), blackfriday.WithExtensions(dialect), blackfriday.WithRenderer(
			blackfriday.NewHTMLRenderer(blackfriday.HTMLRendererParameters{Flags: blackfriday.TOC})))
		linked := reference.ReplaceAllStringFunc(string(body), func(s string) string {
			m := reference.FindStringSubmatch(s)
			if to := m[1] + "." + m[2]; pages[to] && to != page {
				return fmt.Sprintf(`<a href="%s.html">%s</a>`, to, s)
			}
			return s
		})
		if err := writePage(filepath.Join(dir, page+".html"), title, `<p><a href="index.html">All pages</a></p>`+linked); err != nil {
			return err
		}
		said := ""
		if m := purpose.FindStringSubmatch(markdown); m != nil {
			said = m[1]
		}
		i := int(section[0] - '0')
		sections[i] = append(sections[i], fmt.Sprintf(`<tr><td><a href="%s.html">%s</a></td><td>%s</td></tr>`,
			page, title, html.EscapeString(said)))
	}
	var index strings.Builder
	for _, section := range []struct {
		number int
		title  string
	}{{7, "Overviews"}, {1, "Tools"}, {5, "Files"}, {8, "Administration"}} {
		fmt.Fprintf(&index, "<h1>%s</h1>\n<table>\n%s\n</table>\n", section.title, strings.Join(sections[section.number], "\n"))
	}
	return writePage(filepath.Join(dir, "index.html"), "Ponos", index.String())
}

func writePage(path, title, body string) error {
	return os.WriteFile(path, fmt.Appendf(nil, "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">"+
		"<meta name=\"viewport\" content=\"width=device-width\"><title>%s</title><style>\n%s\n</style></head>\n"+
		"<body>\n%s</body>\n</html>\n",
		html.EscapeString(title), style, body), 0o644)
}
