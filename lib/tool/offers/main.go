// Package offers is the tool vast-offers, which shows what the filters of the configuration would find now.
package offers

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/find"
	"github.com/ponos-tools/ponos/lib/market/rented"
	"github.com/ponos-tools/ponos/lib/market/vastai"
)

const name = "vast-offers"

// Usage is what the tool does, in a line.
const Usage = "show the offers on which a task could start now, best first"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:      name,
		Usage:     Usage,
		ArgsUsage: "[FILTER...]",
		Description: "Searches the market as ponos-start would, with vast_api.offer_filters of the\n" +
			"configuration, or with the filters given as arguments.",
		Examples: "vast-offers\nvast-offers --explain\n" +
			"vast-offers 'gpu_ram>=40 reliability>0.99'\nvast-offers --find 'cuda(model=a100) * 2'",
		Flags: []cli.Flag{
			app.ConfigFlag(),
			&cli.BoolFlag{Name: "explain", Aliases: []string{"e"}, Usage: "show for each filter how many offers it removes"},
			&cli.StringFlag{Name: "find", Usage: "show offers for the resource request `REQUEST` instead of vast_api.find"},
			&cli.IntFlag{Name: "limit", Aliases: []string{"n"}, Value: 20, Usage: "show at most `N` offers; 0: all"},
			app.JSONFlag(),
		},
		Action: func(c *cli.Context) error { return offers(c, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

// row is an offer as it is printed.
type row struct {
	Offer       int64   `json:"offer"`
	Machine     int64   `json:"machine"`
	GPU         string  `json:"gpu"`
	GPUs        int     `json:"gpus"`
	Bid         float64 `json:"bid_dollars_per_hour,omitempty"`
	Price       float64 `json:"dollars_per_hour"`
	Cost        float64 `json:"expected_cost_dollars"`
	Reliability float64 `json:"reliability"`
	Location    string  `json:"location"`
}

func offers(c *cli.Context, stdout, stderr io.Writer) error {
	if c.Int("limit") < 0 {
		return fault.Errorf(fault.Usage, "--limit must not be negative, not %d", c.Int("limit"))
	}
	cfg, err := assembly.Options{ConfigPath: c.String("config"), Stderr: stderr, Tool: name}.Read()
	if err != nil {
		return err
	}
	r, err := assembly.NewVast(cfg, nil)
	if err != nil {
		return err
	}
	if c.Args().Present() {
		if r.Filters, err = vastai.ParseQuery(strings.Join(c.Args().Slice(), " ")); err != nil {
			return fault.Wrap(fault.Usage, err)
		}
	}
	if c.IsSet("find") {
		filters, err := find.Filters(c.String("find"))
		if err != nil {
			return fault.Errorf(fault.Usage, "--find: %w", err)
		}
		r.Finds = map[string]vastai.Filters{"*": filters}
	}
	avoided, err := r.Avoided()
	if err != nil {
		return err
	}
	if c.Bool("explain") {
		return explain(c, r, stdout)
	}
	good, odd, err := r.Find(c.Context, rented.Wish{}, avoided, false)
	if err != nil {
		return err
	}
	if odd > 0 {
		fmt.Fprintf(stderr, "%s: warning: offers without an id or a price are omitted: %d\n", name, odd)
	}
	rows := []row{}
	for i, o := range good {
		if n := c.Int("limit"); n > 0 && i == n {
			break
		}
		rows = append(rows, row{o.ID, o.Machine, o.GPU, o.GPUs, o.BidPrice(), o.Price, r.Estimate.Cost(o.Offer), o.Reliability, o.Location})
	}
	if c.Bool("json") {
		if err := app.PrintJSON(stdout, rows); err != nil {
			return err
		}
	} else {
		t := app.Table{
			Header: []string{"OFFER", "MACHINE", "GPU", "$/HOUR", "EXPECTED $", "RELIABILITY", "LOCATION"},
			Right:  []string{"OFFER", "MACHINE", "$/HOUR", "EXPECTED $", "RELIABILITY"}, Drop: []string{"MACHINE"},
		}
		for _, o := range rows {
			gpu := o.GPU
			if o.GPUs > 1 {
				gpu = fmt.Sprintf("%d x %s", o.GPUs, gpu)
			}
			if o.Bid > 0 {
				gpu += " (bid)"
			}
			t.Add(fmt.Sprint(o.Offer), fmt.Sprint(o.Machine), gpu,
				fmt.Sprintf("%.4f", o.Price), fmt.Sprintf("%.4f", o.Cost), fmt.Sprintf("%.4f", o.Reliability), o.Location)
		}
		if err := t.Print(stdout); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		e, err := r.Explain(c.Context, rented.Wish{})
		if err != nil {
			return err
		}
		return fault.Hint(fault.Errorf(fault.Failed, "%s", e.Why()), "--explain shows what each filter removes")
	}
	return nil
}

// explain shows what each filter does, and why nothing is ordered.
func explain(c *cli.Context, r *rented.Runner, stdout io.Writer) error {
	e, err := r.Explain(c.Context, rented.Wish{})
	if err != nil {
		return err
	}
	waits, err := r.Waits(c.Context)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return app.PrintJSON(stdout, struct {
			rented.Explained
			Waits []string `json:"waits"`
		}{e, waits})
	}
	t := app.Table{Header: []string{"FILTER", "REMOVES", "ALONE"}, Right: []string{"REMOVES", "ALONE"}}
	for _, n := range e.Filters {
		t.Add(n.Filter, fmt.Sprint(n.Removes), fmt.Sprint(n.Alone))
	}
	if err := t.Print(stdout); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\n%d of %d offers are left.\n", e.Left, e.Offers)
	if e.Left == 0 {
		waits = slices.Insert(waits, 0, e.Why())
	}
	for _, why := range waits {
		if _, err := fmt.Fprintln(stdout, why); err != nil {
			return err
		}
	}
	return nil
}
