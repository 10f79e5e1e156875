package main

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Measures of a picture, in its own units. Monospaced fonts are 0.6 wide for their
// height, and each run of characters is put where its column is.
const (
	size       = 14.0
	columnWide = 0.6 * size
	lineHigh   = 19.0
	margin     = 16.0
	titleHigh  = 34.0
)

// Colours of the terminal: those of the first sixteen, and the two without a number.
var palette = [16]string{
	"#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
	"#8b949e", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#ffffff",
}

const ground, ink, shade = "#0d1117", "#e6edf3", "#161b22"

// longest is the longest that a frame of a recording stands, but the last one.
const longest, last = 1200 * time.Millisecond, 5 * time.Second

// svg draws the last frame, or with all before it.
func svg(s scene, frames []frame) string {
	if !s.moves {
		frames = frames[len(frames)-1:]
	}
	rows := 0
	for _, f := range frames {
		rows = max(rows, len(f.lines))
	}
	wide, high := float64(s.columns)*columnWide+2*margin, titleHigh+float64(rows)*lineHigh+margin
	final := frames[len(frames)-1]
	plain := colours.ReplaceAllString(strings.Join(final.lines, "\n"), "")
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" role=\"img\">\n", wide, high, wide)
	fmt.Fprintf(&b, "<title>%s</title>\n<desc>%s</desc>\n", html.EscapeString(s.title), html.EscapeString(plain))
	fmt.Fprintf(&b, "<style>text{font:%gpx ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace;fill:%s;white-space:pre}.b{font-weight:bold}.d{opacity:.65}", size, ink)
	ids := map[string]int{}
	var definitions, body strings.Builder
	began, total := make([]time.Duration, len(frames)), time.Duration(0)
	for i := range frames {
		began[i] = total
		if i+1 < len(frames) {
			total += min(longest, frames[i+1].at-frames[i].at)
		}
	}
	total += last
	for i, f := range frames {
		class := ""
		if len(frames) > 1 {
			percent := func(d time.Duration) string {
				return strconv.FormatFloat(100*d.Seconds()/total.Seconds(), 'f', 2, 64) + "%"
			}
			show := percent(began[i]) + "{visibility:visible}"
			if i > 0 {
				show = "0%{visibility:hidden}" + show
			}
			if i+1 < len(frames) {
				show += percent(began[i+1]) + "{visibility:hidden}"
				fmt.Fprintf(&b, "#f%d{visibility:hidden}", i)
			}
			fmt.Fprintf(&b, "@keyframes k%d{%s}@media(prefers-reduced-motion:no-preference){#f%d{animation:k%d %.2fs step-end infinite}}", i, show, i, i, total.Seconds())
			class = fmt.Sprintf(" id=\"f%d\"", i)
		}
		fmt.Fprintf(&body, "<g%s>", class)
		for row, line := range f.lines {
			drawn := drawLine(line)
			if drawn == "" {
				continue
			}
			id, known := ids[drawn]
			if !known {
				id = len(ids)
				ids[drawn] = id
				fmt.Fprintf(&definitions, "<g id=\"l%d\">%s</g>\n", id, drawn)
			}
			fmt.Fprintf(&body, "<use href=\"#l%d\" y=\"%.0f\"/>", id, titleHigh+float64(row)*lineHigh)
		}
		body.WriteString("</g>\n")
	}
	fmt.Fprintf(&b, "</style>\n<defs>\n%s</defs>\n", definitions.String())
	fmt.Fprintf(&b, "<rect width=\"%.0f\" height=\"%.0f\" rx=\"8\" fill=\"%s\"/>\n<path d=\"M0 26V8a8 8 0 0 1 8-8H%.0fa8 8 0 0 1 8 8v18z\" fill=\"%s\"/>\n", wide, high, ground, wide-8, shade)
	for i, c := range []string{"#ff7b72", "#e3b341", "#3fb950"} {
		fmt.Fprintf(&b, "<circle cx=\"%d\" cy=\"13\" r=\"5\" fill=\"%s\"/>\n", 18+16*i, c)
	}
	return b.String() + body.String() + "</svg>\n"
}

// style is how characters look.
type style struct {
	fg, bg                 string
	bold, dim, under, swap bool
}

// drawLine draws a line: runs of one style, each at its column, as fonts are not all
// equally wide.
func drawLine(line string) string {
	var backs, texts strings.Builder
	var st style
	column := 0
	for line != "" {
		if loc := colours.FindStringIndex(line); loc != nil && loc[0] == 0 {
			st.set(line[2 : loc[1]-1])
			line = line[loc[1]:]
			continue
		}
		end := len(line)
		if loc := colours.FindStringIndex(line); loc != nil {
			end = loc[0]
		}
		run := line[:end]
		line = line[end:]
		fg, bg := st.fg, st.bg
		if st.swap {
			fg, bg = orElse(bg, ground), orElse(fg, ink)
		}
		if bg != "" {
			fmt.Fprintf(&backs, "<rect x=\"%.1f\" width=\"%.1f\" height=\"%.0f\" fill=\"%s\"/>", margin+float64(column)*columnWide, float64(utf8.RuneCountInString(run))*columnWide, lineHigh, bg)
		}
		for run != "" {
			blanks := len(run) - len(strings.TrimLeft(run, " "))
			column += blanks
			run = run[blanks:]
			word := run
			if i := strings.Index(run, "  "); i >= 0 {
				word = run[:i]
			}
			run = run[len(word):]
			if text := strings.TrimRight(word, " "); text != "" {
				fmt.Fprintf(&texts, "<text x=\"%.1f\" y=\"%.0f\"%s>%s</text>", margin+float64(column)*columnWide, lineHigh-5, st.attributes(fg), html.EscapeString(text))
			}
			column += utf8.RuneCountInString(word)
		}
	}
	return backs.String() + texts.String()
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (st style) attributes(fg string) string {
	out, class := "", ""
	if fg != "" {
		out += fmt.Sprintf(" style=\"fill:%s\"", fg)
	}
	if st.bold {
		class += "b "
	}
	if st.dim {
		class += "d "
	}
	if class != "" {
		out += fmt.Sprintf(" class=\"%s\"", strings.TrimSpace(class))
	}
	if st.under {
		out += " text-decoration=\"underline\""
	}
	return out
}

// set follows the codes of one escape sequence.
func (st *style) set(codes string) {
	var n []int
	for part := range strings.SplitSeq(codes, ";") {
		v, _ := strconv.Atoi(part)
		n = append(n, v)
	}
	for i := 0; i < len(n); i++ {
		switch c := n[i]; {
		case c == 0:
			*st = style{}
		case c == 1:
			st.bold = true
		case c == 2:
			st.dim = true
		case c == 4:
			st.under = true
		case c == 7:
			st.swap = true
		case c == 22:
			st.bold, st.dim = false, false
		case c == 24:
			st.under = false
		case c == 27:
			st.swap = false
		case c >= 30 && c < 38:
			st.fg = palette[c-30]
		case c >= 90 && c < 98:
			st.fg = palette[c-90+8]
		case c >= 40 && c < 48:
			st.bg = palette[c-40]
		case c >= 100 && c < 108:
			st.bg = palette[c-100+8]
		case c == 39:
			st.fg = ""
		case c == 49:
			st.bg = ""
		case (c == 38 || c == 48) && i+2 < len(n) && n[i+1] == 5:
			st.put(c, indexed(n[i+2]))
			i += 2
		case (c == 38 || c == 48) && i+4 < len(n) && n[i+1] == 2:
			st.put(c, fmt.Sprintf("#%02x%02x%02x", n[i+2], n[i+3], n[i+4]))
			i += 4
		}
	}
}

func (st *style) put(code int, colour string) {
	if code == 38 {
		st.fg = colour
	} else {
		st.bg = colour
	}
}

// indexed is one of the 256 colours.
func indexed(i int) string {
	switch {
	case i < 16:
		return palette[i]
	case i < 232:
		level := func(v int) int {
			if v == 0 {
				return 0
			}
			return 55 + 40*v
		}
		i -= 16
		return fmt.Sprintf("#%02x%02x%02x", level(i/36), level(i/6%6), level(i%6))
	}
	grey := 8 + 10*(i-232)
	return fmt.Sprintf("#%02x%02x%02x", grey, grey, grey)
}
