package fairshare

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/locale"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// page is where a view is written: a terminal of some width, with or without
// colours, or anything else.
// An error in writing shows when it is flushed.
type page struct {
	out   *bufio.Writer
	width int // 0: as wide as it gets
	color bool
}

func newPage(w io.Writer, width int, color bool) *page {
	return &page{bufio.NewWriterSize(w, 64<<10), width, color}
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
		w := displayWidth(word)
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

// column is a column of a table whose cells are made when they are needed, so
// that a hundred thousand rows take no memory.
type column struct {
	title string
	right bool
	cell  func(row int, b []byte) []byte
	// drop above 0 allows the column to be left out where the terminal is too
	// narrow, the largest first.
	drop int
	// brief, of the last column, is what stands in a cell that would be cut.
	brief func(row int) string
}

// roomForLast is what the last column of a table has at least, on a terminal.
const roomForLast = 24

// leastWords is what a column of words is cut to at most.
const leastWords = 16

// table writes rows in columns two blanks apart. On a terminal columns are left
// out that do not fit, and the last one is cut where the line ends. It returns how
// many were left out.
func (p *page) table(rows int, columns []column) (dropped int) {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = displayWidth(c.title)
	}
	var b []byte
	for row := range rows {
		for i, c := range columns {
			last := i == len(columns)-1 && !c.right
			if last && (p.width == 0 || widths[i] >= roomForLast) {
				break
			}
			if b = c.cell(row, b[:0]); last && c.brief != nil && displayWidthBytes(b) > leastWords {
				b = append(b[:0], c.brief(row)...)
			}
			if widths[i] = max(widths[i], displayWidthBytes(b)); last {
				widths[i] = min(widths[i], roomForLast)
			}
		}
	}
	if p.width > 0 {
		all := len(columns)
		var excess int
		columns, widths, excess = fitting(columns, widths, p.width)
		dropped = all - len(columns)
		if excess > 0 && p.width <= 100 {
			p.blocks(rows, columns)
			return dropped
		}
		narrow(columns, widths, excess)
	}
	var line []byte
	write := func(cell func(i int, b []byte) []byte, brief func() string) {
		line = line[:0]
		used := 0
		for i, c := range columns {
			b = cell(i, b[:0])
			w := displayWidthBytes(b)
			last := i == len(columns)-1
			if last && !c.right && p.width > 0 && used+w > p.width && w > 0 {
				room := max(1, p.width-used)
				if brief != nil {
					b = appendText(b[:0], brief())
				}
				b = append(b[:0], runewidth.Truncate(string(b), room, locale.Symbols("…"))...)
				w = displayWidthBytes(b)
			} else if !last && !c.right && w > widths[i] {
				b = append(b[:0], runewidth.Truncate(string(b), widths[i], locale.Symbols("…"))...)
				w = displayWidthBytes(b)
			}
			pad := widths[i] - w
			if c.right {
				line = appendBlanks(line, pad)
			}
			line = append(line, b...)
			if !c.right && !last {
				line = appendBlanks(line, pad)
			}
			if !last {
				line = append(line, "  "...)
			}
			used += widths[i] + 2
		}
		for len(line) > 0 && line[len(line)-1] == ' ' {
			line = line[:len(line)-1]
		}
		p.bytes(line)
		p.print("\n")
	}
	write(func(i int, b []byte) []byte { return append(b, columns[i].title...) }, nil)
	for row := range rows {
		var brief func() string
		if f := columns[len(columns)-1].brief; f != nil {
			brief = func() string { return f(row) }
		}
		write(func(i int, b []byte) []byte { return columns[i].cell(row, b) }, brief)
	}
	return dropped
}

// blocks writes a table that is too wide for the terminal: a line for each row, and below it
// its cells.
func (p *page) blocks(rows int, columns []column) {
	for row := range rows {
		var words []string
		for i, c := range columns {
			cell := strings.TrimRight(string(c.cell(row, nil)), " ")
			if c.brief != nil {
				cell = app.Sanitize(c.brief(row))
			}
			switch {
			case i == 0 && cell != "" && cell[0] >= '0' && cell[0] <= '9': // a number alone says nothing
				p.printf("%s %s\n", c.title, cell)
			case i == 0:
				p.printf("%s\n", cell)
			case cell != "":
				words = append(words, strings.TrimSpace(c.title+" "+strings.TrimSpace(cell)))
			}
		}
		if len(words) > 0 {
			p.print("  ")
			used := 2
			for i, word := range words {
				if w := displayWidth(word); i > 0 && used+2+w > p.width {
					p.print("\n  ")
					used = 2
				} else if i > 0 {
					p.print("  ")
					used += 2
				}
				p.print(word)
				used += displayWidth(word)
			}
			p.print("\n")
		}
	}
}

// fitting leaves columns out until the others fit; excess is by how much they do not.
func fitting(columns []column, widths []int, width int) (fit []column, of []int, excess int) {
	columns, widths = slices.Clone(columns), slices.Clone(widths)
	for {
		used, worst := widths[len(widths)-1], -1
		for i, c := range columns[:len(columns)-1] {
			used += widths[i] + 2
			if c.drop > 0 && (worst < 0 || c.drop > columns[worst].drop) {
				worst = i
			}
		}
		if used <= width || worst < 0 {
			return columns, widths, max(0, used-width)
		}
		columns, widths = slices.Delete(columns, worst, worst+1), slices.Delete(widths, worst, worst+1)
	}
}

// narrow takes what is too much from the widest columns of words.
func narrow(columns []column, widths []int, excess int) {
	for ; excess > 0; excess-- {
		widest := -1
		for i, c := range columns[:len(columns)-1] {
			if !c.right && widths[i] > leastWords && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func appendBlanks(b []byte, n int) []byte {
	for ; n > 0; n-- {
		b = append(b, ' ')
	}
	return b
}

func displayWidth(s string) int {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return runewidth.StringWidth(s)
		}
	}
	return len(s)
}

func displayWidthBytes(b []byte) int {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return runewidth.StringWidth(string(b))
		}
	}
	return len(b)
}

// appendText appends text from outside, safe for a terminal.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f {
			return append(b, app.Sanitize(s)...)
		}
	}
	return append(b, s...)
}

// textCell is the cell of a column of texts.
func textCell(value func(row int) string) func(int, []byte) []byte {
	return func(row int, b []byte) []byte { return appendText(b, value(row)) }
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

// shortTime writes a time near now without what goes without saying.
func shortTime(unix int64, now time.Time) string {
	if unix == 0 {
		return ""
	}
	t := time.Unix(unix, 0).In(now.Location())
	y, m, d := t.Date()
	ny, nm, nd := now.Date()
	switch {
	case y == ny && m == nm && d == nd:
		return t.Format("15:04:05")
	case y == ny:
		return t.Format("Jan _2 15:04")
	}
	return t.Format("2006-01-02 15:04")
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
	return shortTime(unix, now) + " (in " + span(d) + ")"
}

// memory writes MiB for people.
func memory(mb float64) string {
	switch {
	case mb >= 1024*1024:
		return number(mb/1024/1024, 1) + "T"
	case mb >= 10*1024: // a decimal, or a node of 16000M would seem to have the 16384M of --mem=16G
		return strings.TrimSuffix(number(mb/1024, 1), ".0") + "G"
	case mb >= 1024:
		return number(mb/1024, 1) + "G"
	}
	return number(mb, 0) + "M"
}

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
	used := displayWidth(indent)
	for i, arg := range args {
		arg = app.Sanitize(arg)
		w := displayWidth(arg)
		switch {
		case i > 0 && p.width > 0 && used+1+w+2 > p.width:
			p.print(" \\\n" + indent)
			used = displayWidth(indent)
		case i > 0:
			p.print(" ")
			used++
		}
		p.print(arg)
		used += w
	}
	p.print("\n")
}
