package fairshare

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// drawing is an SVG document in the making.
type drawing struct {
	bytes.Buffer
	width, height int
}

func newDrawing(width, height int) *drawing {
	d := &drawing{width: width, height: height}
	fmt.Fprintf(d,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		width, height, width, height)
	fmt.Fprintf(d, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	return d
}

// escape makes text from outside safe in SVG; control characters have no place
// in XML at all.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

func (d *drawing) rect(x, y, w, h float64, fill string, opacity float64, title string) {
	fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="%.2f"><title>%s</title></rect>`+"\n",
		x, y, w, h, fill, opacity, escape(title))
}

func (d *drawing) frame(x, y, w, h float64, stroke, title string) {
	fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="none" stroke="%s" stroke-width="1.5" `+
		`stroke-dasharray="4 2"><title>%s</title></rect>`+"\n",
		x, y, w, h, stroke, escape(title))
}

func (d *drawing) text(x, y float64, anchor, fill, s string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, fill, escape(s))
}

func (d *drawing) line(x1, y1, x2, y2 float64, stroke string) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, stroke)
}

// writeSVG ends the drawing and replaces the file in one step.
func writeSVG(file string, d *drawing) error {
	fmt.Fprintln(d, "</svg>")
	if err := renameio.WriteFile(file, d.Bytes(), 0o644); err != nil {
		return fault.Errorf(fault.Failed, "writing the picture: %w", err)
	}
	return nil
}

var kindColors = map[string]string{
	"free": "#9fd8a4", "running": "#3f72b5", "planned": "#e8b53a", "reserved": "#a066b8", "unusable": "#888888",
}

// drawing draws the nodes over time, and the holes of now framed.
func (v *holesView) drawing() *drawing {
	const left, top, plot, row = 150.0, 40.0, 800.0, 26.0
	rows := v.chartRows()
	d := newDrawing(int(left+plot)+20, int(top+row*float64(len(rows)))+60)
	now := v.at.Unix()
	scale := plot / float64(max(1, v.until-now))
	x := func(t int64) float64 { return left + float64(min(max(t, now), v.until)-now)*scale }
	d.text(left, 20, "start", "#222222", "Nodes over time, "+v.at.Format("2006-01-02 15:04"))
	place := map[string]int{}
	for i, r := range rows {
		y := top + row*float64(i)
		place[r.line.Name] = i
		d.text(left-8, y+row/2+4, "end", "#222222", clipText(r.label, 20))
		for _, s := range r.line.Spans {
			if s.Start >= v.until {
				break
			}
			kind := kindName(s)
			w := x(s.End) - x(s.Start)
			title := fmt.Sprintf("%s: %s %s to %s", r.label, kind, shortTime(s.Start, v.at), endText(s.End, v.at))
			if len(s.Who) > 0 {
				title += ": " + strings.Join(s.Who, ", ")
			}
			d.rect(x(s.Start), y+2, w, row-4, kindColors["free"], 0.5, title)
			if kind == "free" {
				continue
			}
			part := 1.0
			if s.Kind == forecast.Running {
				part = fullness(r.line, s)
			}
			d.rect(x(s.Start), y+2+(row-4)*(1-part), w, (row-4)*part, kindColors[kind], 0.9, title)
		}
	}
	for _, p := range v.chosen {
		for _, o := range v.holes[p.Name] {
			if o.Start != now {
				continue
			}
			for _, node := range o.Nodes {
				if i, ok := place[node]; ok {
					d.frame(x(o.Start), top+row*float64(i)+2, x(o.End)-x(o.Start), row-4, "#1c7a2b", strings.Join(o.request, " "))
				}
			}
		}
	}
	bottom := top + row*float64(len(rows))
	for i := range 9 {
		t := now + (v.until-now)*int64(i)/8
		d.line(x(t), top, x(t), bottom+4, "#cccccc")
		d.text(x(t), bottom+18, "middle", "#222222", axisTime(t, v.until-now, v.at))
	}
	at := left
	for _, kind := range []string{"free", "running", "planned", "reserved", "unusable"} {
		d.rect(at, bottom+30, 14, 12, kindColors[kind], 0.9, kind)
		d.text(at+20, bottom+41, "start", "#222222", kind)
		at += 110
	}
	return d
}

func clipText(s string, n int) string {
	r := []rune(s)
	if len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func endText(t int64, now time.Time) string {
	if t == forecast.Forever {
		return "no known end"
	}
	return shortTime(t, now)
}

func axisTime(t, length int64, now time.Time) string {
	at := time.Unix(t, 0).In(now.Location())
	if length > 36*3600 {
		return at.Format("Jan _2 15:04")
	}
	return at.Format("15:04")
}
