package fairshare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/locale"
)

// lines are the futures of the nodes of the chosen partitions, with everything
// that is in anyone's way.
func (v *holesView) lines() []forecast.Timeline {
	var lines []forecast.Timeline
	for _, line := range v.plan.Plan.Timelines(nil) {
		for i := range v.plan.Nodes {
			n := &v.plan.Nodes[i]
			if n.Name == line.Name && slices.ContainsFunc(slices.Collect(n.Partitions.All()), v.isChosen) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

func (v *holesView) isChosen(partition string) bool {
	for _, p := range v.chosen {
		if p.Name == partition {
			return true
		}
	}
	return false
}

// chartRow is a row of the chart: nodes with the same future.
type chartRow struct {
	label string
	line  forecast.Timeline
}

// chartRows groups nodes that look the same.
func (v *holesView) chartRows() []chartRow {
	groups := map[string][]string{}
	first := map[string]forecast.Timeline{}
	var order []string
	for _, line := range v.lines() {
		var b strings.Builder
		for _, s := range line.Spans {
			fmt.Fprintf(&b, "%d %d %v %v %d;", s.Start, s.End, s.Free, line.Total, s.Kind)
		}
		k := b.String()
		if groups[k] == nil {
			order = append(order, k)
			first[k] = line
		}
		groups[k] = append(groups[k], line.Name)
	}
	rows := make([]chartRow, 0, len(order))
	for _, k := range order {
		rows = append(rows, chartRow{hostlist.Compress(groups[k]), first[k]})
	}
	return rows
}

// maxChartRows limits the chart; more rows do not fit on a screen.
const maxChartRows = 48

// chart draws the nodes over time, a letter for each stretch.
func (v *holesView) chart(p *page) {
	rows := v.chartRows()
	if len(rows) == 0 {
		return
	}
	left := 4
	for _, r := range rows[:min(len(rows), maxChartRows)] {
		left = min(max(left, app.TextWidth(r.label)), 24)
	}
	width := p.width
	if width == 0 {
		width = 80
	}
	slots := int64(max(20, min(width-left-2, 160)))
	now := v.at.Unix()
	slot := max(1, (v.until-now)/slots)
	for i, r := range rows {
		if i == maxChartRows {
			p.line("", "and %d more rows: choose a partition with -p", len(rows)-i)
			break
		}
		p.print(app.Fill(app.Cut(app.Sanitize(r.label), left), left) + "  ")
		color, run := "", strings.Builder{}
		flush := func() {
			p.print(p.paint(color, run.String()))
			run.Reset()
		}
		for k := range slots {
			sign, c := cell(r.line, now+k*slot, now+(k+1)*slot)
			if c != color {
				flush()
				color = c
			}
			run.WriteString(sign)
		}
		flush()
		p.print("\n")
	}
	v.axis(p, left, slots, slot)
	legend := []struct{ color, text string }{
		{green, locale.Symbols("· free")}, {blue, locale.Symbols("▒ part")}, {blue, locale.Symbols("█ full")},
		{yellow, "P planned"}, {purple, "R reserved"}, {red, "x down"},
	}
	indent := strings.Repeat(" ", left+2)
	used := 0
	for _, l := range legend {
		switch w := app.TextWidth(l.text); {
		case used == 0, p.width > 0 && used+2+w > p.width:
			if used > 0 {
				p.print("\n")
			}
			p.print(indent)
			used = len(indent) + w
		default:
			p.print("  ")
			used += 2 + w
		}
		p.print(p.paint(l.color, l.text))
	}
	p.print("\n\n")
}

// cell is the letter and colour of a stretch of time: of what takes most of it.
func cell(line forecast.Timeline, from, to int64) (string, string) {
	var best forecast.Span
	longest := int64(-1)
	for _, s := range line.Spans {
		if overlap := min(s.End, to) - max(s.Start, from); overlap > longest {
			best, longest = s, overlap
		}
	}
	switch {
	case !best.Taken:
		return locale.Symbols("·"), green
	case best.Kind == forecast.Unusable:
		return "x", red
	case best.Kind == forecast.Reserved:
		return "R", purple
	case best.Kind == forecast.Planned:
		return "P", yellow
	}
	switch part := fullness(line, best); {
	case part >= 0.999:
		return locale.Symbols("█"), blue
	case part >= 0.5:
		return locale.Symbols("▓"), blue
	}
	return locale.Symbols("▒"), blue
}

// fullness is how much of a node is taken: of its scarcest resource.
func fullness(line forecast.Timeline, s forecast.Span) float64 {
	part := 0.0
	for _, r := range [][2]float64{{s.Free.CPUs, line.Total.CPUs}, {s.Free.MemMB, line.Total.MemMB}, {s.Free.GPUs, line.Total.GPUs}} {
		if r[1] > 0 {
			part = max(part, 1-r[0]/r[1])
		}
	}
	return part
}

// axis writes the times below the chart.
func (v *holesView) axis(p *page, left int, slots, slot int64) {
	p.print(strings.Repeat(" ", left+2))
	form := "15:04"
	if time.Duration(slots*slot)*time.Second > 36*time.Hour {
		form = "_2 15h"
	}
	step := int64(16)
	used := int64(0)
	for k := int64(0); k+int64(len(form))+1 < slots; k += step {
		p.print(strings.Repeat(" ", int(k-used)))
		text := locale.Symbols("│") + v.at.Add(time.Duration(k*slot)*time.Second).Format(form)
		if k == 0 {
			text = locale.Symbols("│now")
		}
		p.print(text)
		used = k + int64(app.TextWidth(text))
	}
	p.print("\n")
}
