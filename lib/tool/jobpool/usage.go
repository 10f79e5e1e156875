package jobpool

import (
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/pool/journal"
)

// ctlUsage shows the use of the nodes, from the journal: no scheduler is asked.
func ctlUsage(c *cli.Context) error {
	u, err := journal.ReadUsage(existing(c))
	if err != nil {
		return err
	}
	right := []string{"ENDED", "TIME", "AT A TIME"}
	t := app.Table{Header: append([]string{"NODE"}, right...), Right: right}
	all := journal.NodeUsage{Node: "all"}
	add := func(n journal.NodeUsage) {
		mean := float64(n.Time) / float64(u.End.Sub(u.Begin))
		t.Add(n.Node, strconv.FormatInt(n.Tasks, 10), progress.Seconds(n.Time), strconv.FormatFloat(mean, 'f', 1, 64))
	}
	for _, n := range u.Nodes {
		add(n)
		all.Tasks, all.Time = all.Tasks+n.Tasks, all.Time+n.Time
	}
	if len(u.Nodes) > 1 {
		add(all)
	}
	if err := t.Print(c.App.Writer); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "from %s to %s\n", u.Begin.Format(time.DateTime), u.End.Format(time.TimeOnly))
	return err
}
