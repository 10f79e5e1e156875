package jobpool

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/locale"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
)

// Parts of the time in a picture.
const (
	svgIntervals = 240
	mostText     = 100
)

// ctlUsage draws the use of the nodes, from the journal: no scheduler is asked.
func ctlUsage(c *cli.Context) error {
	// Beside the bars, a row has the name of the node, its peak and its tasks.
	parts := max(10, min(mostText, app.Width(c.App.Writer)-45))
	if c.Bool("svg") {
		parts = svgIntervals
	}
	u, err := journal.ReadUsage(existing(c), parts)
	if err != nil {
		return err
	}
	if c.Bool("svg") {
		return usageSVG(c.App.Writer, u)
	}
	return usageText(c.App.Writer, u)
}

// total is the use of all nodes together.
func total(u *journal.Usage) journal.NodeUsage {
	all := journal.NodeUsage{Node: "all"}
	for _, n := range u.Nodes {
		if all.Mean == nil {
			all.Mean = make([]float64, len(n.Mean))
		}
		all.Tasks += n.Tasks
		for i, x := range n.Mean {
			all.Mean[i] += x
		}
	}
	return all
}

func peak(n journal.NodeUsage) float64 { return slices.Max(append([]float64{0}, n.Mean...)) }

// usageText draws a row of bars for each node, each to the scale of its own peak.
func usageText(w io.Writer, u *journal.Usage) error {
	rows := u.Nodes
	if len(rows) > 1 {
		rows = append(slices.Clone(rows), total(u))
	}
	t := app.Table{Header: []string{"node", "tasks at a time", "most", "ended"}, Right: []int{2, 3}}
	for _, n := range rows {
		t.Add(n.Node, bars(n.Mean, peak(n)), number(peak(n)), strconv.FormatInt(n.Tasks, 10))
	}
	if err := t.Print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "from %s to %s, a column is %s\n", u.Begin.Format("2006-01-02 15:04:05"), u.End.Format("15:04:05"),
		input.Seconds(u.End.Sub(u.Begin)/time.Duration(len(rows[0].Mean))))
	return err
}

// number is a mean with at most one decimal.
func number(x float64) string { return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0") }

// bars draws values from 0 to most. What is not zero is seen.
func bars(values []float64, most float64) string {
	levels := []rune(locale.Symbols("·▁▂▃▄▅▆▇█"))
	var b strings.Builder
	for _, x := range values {
		level := 0
		if x > 0 {
			level = max(1, min(8, int(x/most*8+0.5)))
		}
		b.WriteRune(levels[level])
	}
	return b.String()
}

// Sizes of the picture, in pixels.
const (
	svgLeft, svgWidth, svgHeight, svgGap, svgTop = 130, 720, 40, 8, 30
)

// usageSVG draws a band for each node, all to the scale of the highest.
func usageSVG(w io.Writer, u *journal.Usage) error {
	highest := 1.0
	for _, n := range u.Nodes {
		highest = max(highest, peak(n))
	}
	height := svgTop + len(u.Nodes)*(svgHeight+svgGap) + 30
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		svgLeft+svgWidth+20, height)
	fmt.Fprintf(&b, `<text x="%d" y="18">Tasks at a time, at most %s</text>`+"\n", svgLeft, number(highest))
	for i, n := range u.Nodes {
		bottom := float64(svgTop + (i+1)*svgHeight + i*svgGap)
		fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%s</text>`+"\n", svgLeft-8, bottom-svgHeight/2+4, escaped(n.Node))
		fmt.Fprintf(&b, `<path fill="#4878a8" d="M%d %.1f`, svgLeft, bottom)
		step := float64(svgWidth) / float64(len(n.Mean))
		for k, x := range n.Mean {
			y := bottom - x/highest*svgHeight
			fmt.Fprintf(&b, "L%.1f %.1fL%.1f %.1f", svgLeft+float64(k)*step, y, svgLeft+float64(k+1)*step, y)
		}
		fmt.Fprintf(&b, `L%d %.1fZ"><title>%s: %d tasks ended, at most %s at a time</title></path>`+"\n",
			svgLeft+svgWidth, bottom, escaped(n.Node), n.Tasks, number(peak(n)))
		fmt.Fprintf(&b, `<path stroke="#999" d="M%d %.1fh%d"/>`+"\n", svgLeft, bottom, svgWidth)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", svgLeft, height-10, u.Begin.Format("2006-01-02 15:04:05"))
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n</svg>\n",
		svgLeft+svgWidth, height-10, u.End.Format("2006-01-02 15:04:05"))
	_, err := io.WriteString(w, b.String())
	return err
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(app.Sanitize(s)))
	return b.String()
}
