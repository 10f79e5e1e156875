package fairshare

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/locale"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// page is where a view is written: a terminal of some width, with or without
// colours, or anything else.
// An error in writing shows when it is flushed.
type page struct {
	out    *bufio.Writer
	width  int // 0: as wide as it gets
	height int // of a screen on which all is to be seen; 0: none
	color  bool
}

func newPage(w io.Writer, width int, color bool) *page {
	return &page{out: bufio.NewWriterSize(w, 64<<10), width: width, color: color}
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }
func (p *page) print(text string)                 { _, _ = p.out.WriteString(text) }
func (p *page) bytes(text []byte)                 { _, _ = p.out.Write(text) }
func (p *page) Flush() error                      { return p.out.Flush() }

// commandInProse is a command with its arguments, which is not broken where prose is.
var commandInProse = regexp.MustCompile(`\b(scontrol|scancel|sacct|fairshare)( [a-z]+)?( (job=)?[0-9][0-9_+]*)?( [a-z]+=\S*)?`)

// noBreak stands for a blank at which no line ends.
const noBreak = "\u00a0"

// line writes a line of prose, wrapped to the width of the page.
func (p *page) line(indent, format string, args ...any) {
	p.prose(indent, app.Sanitize(fmt.Sprintf(format, args...)))
}

// prose is line for text that is safe for a terminal.
func (p *page) prose(indent, text string) {
	text = commandInProse.ReplaceAllStringFunc(text, func(s string) string { return strings.ReplaceAll(s, " ", noBreak) })
	width := p.width
	if width == 0 {
		width = 100
	}
	used := 0
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || r == '\n' || r == '\t' }) {
		word = strings.ReplaceAll(word, noBreak, " ")
		w := app.TextWidth(word)
		switch {
		case used == 0:
			p.print(indent)
			used = len(indent)
		case used+1+w > width:
			p.print("\n" + indent + "  ")
			used = len(indent) + 2
		default:
			p.print(" ")
			used++
		}
		p.print(word)
		used += w
	}
	p.print("\n")
}

// The colours, named by what they say.
const (
	plain  = "\x1b[0m"
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	blue   = "\x1b[34m"
	purple = "\x1b[35m"
)

func (p *page) paint(color, text string) string {
	if !p.color || text == "" {
		return text
	}
	return color + text + plain
}

// table writes a table as wide as the page.
func (p *page) table(t *app.Table) { _ = t.PrintWithin(p.out, p.width) } // the page tells errors

// appendText appends text from outside, safe for a terminal.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f {
			return append(b, app.Sanitize(s)...)
		}
	}
	return append(b, s...)
}

// bar draws a part of a whole.
func bar(part float64, width int) string {
	if math.IsNaN(part) {
		part = 0
	}
	full := int(math.Round(math.Min(math.Max(part, 0), 1) * float64(width)))
	return strings.Repeat(locale.Symbols("█"), full) + strings.Repeat(locale.Symbols("░"), width-full)
}

// shareBar draws usage against a share: the middle is the fair share.
func shareBar(usage, share float64, width int) string {
	half := width / 2
	full := 0
	switch {
	case share > 0:
		full = int(math.Round(math.Min(usage/share, 2) * float64(half)))
	case usage > 0:
		full = 2 * half
	}
	if full == 0 && usage > 0 {
		full = 1
	}
	return bar(float64(full)/float64(half), half) + locale.Symbols("│") + bar(float64(full-half)/float64(half), half)
}

func number(f float64, decimals int) string {
	if math.IsInf(f, 1) {
		return "inf"
	}
	return strconv.FormatFloat(f, 'f', decimals, 64)
}

// span writes a stretch of time for people: 45s, 12m, 3h20m, 2d4h.
func span(d time.Duration) string {
	if d == slurm.Unlimited {
		return "unlimited"
	}
	d = max(0, d)
	days, d := d/(24*time.Hour), d%(24*time.Hour)
	hours, minutes, seconds := d/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second
	switch {
	case days > 0 && hours > 0:
		return fmt.Sprintf("%dd%dh", days, hours)
	case days > 0:
		return fmt.Sprintf("%dd", days)
	case hours > 0 && minutes > 0:
		return fmt.Sprintf("%dh%02dm", hours, minutes)
	case hours > 0:
		return fmt.Sprintf("%dh", hours)
	case minutes > 0:
		return fmt.Sprintf("%dm", minutes)
	}
	return fmt.Sprintf("%ds", seconds)
}

// when is a time and how far away it is.
func when(unix int64, now time.Time) string {
	if unix == 0 {
		return "unknown"
	}
	d := time.Unix(unix, 0).Sub(now)
	if d <= 0 {
		return "now"
	}
	return unit.ShortTime(unix, now) + " (in " + span(d) + ")"
}

// memory writes MiB for people.
func memory(mib float64) string { return unit.ShortSize(int64(mib) << 20) }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// rfc3339 is a time for programs; 0 is null.
func rfc3339(unix int64) *string {
	if unix == 0 {
		return nil
	}
	s := time.Unix(unix, 0).Format(time.RFC3339)
	return &s
}

// seconds is a duration for programs; unset is null, unlimited is -1.
func seconds(d time.Duration) *int64 {
	var s int64
	switch d {
	case 0:
		return nil
	case slurm.Unlimited:
		s = -1
	default:
		s = int64(d / time.Second)
	}
	return &s
}

func sortedKeys[K comparable, V any](m map[K]V, less func(a, b K) bool) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return less(keys[i], keys[j]) })
	return keys
}

// filled is a list for JSON: never null.
func filled[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// few are the first names of a list that may be long.
func few(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// command writes arguments that can be copied, on lines of their own that a shell joins,
// never broken within an argument.
func (p *page) command(indent string, args []string) {
	p.print(indent)
	used := app.TextWidth(indent)
	for i, arg := range args {
		arg = app.Sanitize(arg)
		w := app.TextWidth(arg)
		switch {
		case i > 0 && p.width > 0 && used+1+w+2 > p.width:
			p.print(" \\\n" + indent)
			used = app.TextWidth(indent)
		case i > 0:
			p.print(" ")
			used++
		}
		p.print(arg)
		used += w
	}
	p.print("\n")
}
