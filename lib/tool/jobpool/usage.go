package jobpool

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/locale"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/pool/journal"
)

// mostText is into how many parts of the time a row is divided at most.
const mostText = 100

// ctlUsage draws the use of the nodes, from the journal: no scheduler is asked.
func ctlUsage(c *cli.Context) error {
	// Beside the bars, a row has the name of the node, its peak and its tasks.
	parts := max(10, min(mostText, app.Width(c.App.Writer)-45))
	u, err := journal.ReadUsage(existing(c), parts)
	if err != nil {
		return err
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
	t := app.Table{Header: []string{"NODE", "TASKS AT A TIME", "MOST", "ENDED"}, Right: []string{"MOST", "ENDED"}}
	for _, n := range rows {
		t.Add(n.Node, bars(n.Mean, peak(n)), number(peak(n)), strconv.FormatInt(n.Tasks, 10))
	}
	if err := t.Print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "from %s to %s, a column is %s\n", u.Begin.Format("2006-01-02 15:04:05"), u.End.Format("15:04:05"),
		progress.Seconds(u.End.Sub(u.Begin)/time.Duration(len(rows[0].Mean))))
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
