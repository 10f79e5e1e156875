package fairshare

import (
	"cmp"
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// waitsQuery asks how long jobs waited.
type waitsQuery struct {
	ask                         *planner.Asker
	since                       time.Time
	sinceAgo                    time.Duration
	users, accounts, partitions []string
}

// waitsView is how long jobs typically waited in each partition, by what they requested.
type waitsView struct {
	since, at time.Time
	cluster   string
	groups    []waitGroup
}

// A waitGroup are jobs of one size in one partition.
type waitGroup struct {
	partition string
	size      waitSize
	waits     []time.Duration // of those that started, shortest first
	pending   int             // that still wait
}

// waitSize is a class of requests: by GPUs, or else by nodes, or else by CPUs.
type waitSize struct {
	rank int // in their order
	name string
}

// sizes are the classes, each up to a number.
var sizes = []struct {
	upTo float64
	kind int // 0: CPUs of one node, 1: nodes, 2: GPUs
	name string
}{
	{1, 0, "1 CPU"}, {8, 0, "2-8 CPUs"}, {32, 0, "9-32 CPUs"}, {-1, 0, "33+ CPUs"},
	{4, 1, "2-4 nodes"}, {16, 1, "5-16 nodes"}, {-1, 1, "17+ nodes"},
	{1, 2, "1 GPU"}, {4, 2, "2-4 GPUs"}, {8, 2, "5-8 GPUs"}, {-1, 2, "9+ GPUs"},
}

func sizeOf(w *slurm.Waited) waitSize {
	kind, n := 0, w.TRES["cpu"]
	if nodes := max(float64(w.Nodes), w.TRES["node"]); nodes > 1 {
		kind, n = 1, nodes
	}
	if gpus := w.TRES.GPUs(); gpus > 0 {
		kind, n = 2, gpus
	}
	for rank, s := range sizes {
		if s.kind == kind && (n <= s.upTo || s.upTo < 0) {
			return waitSize{rank, s.name}
		}
	}
	return waitSize{}
}

func newWaitsQuery(a *planner.Asker, c *cli.Context) (*waitsQuery, error) {
	v := &waitsQuery{ask: a, users: list(c.String("user")), accounts: list(c.String("account")), partitions: list(c.String("partition"))}
	var err error
	v.since, v.sinceAgo, err = moment(a.Now(), "since", c.String("since"))
	return v, err
}

func (q *waitsQuery) load(ctx context.Context) (answer, error) {
	v := &waitsView{at: q.ask.Now(), since: q.since}
	if q.sinceAgo > 0 {
		v.since = v.at.Add(-q.sinceAgo)
	}
	var config slurm.Config
	var partitions []slurm.Partition
	if err := planner.Together(ctx, q.ask.Config(&config), q.ask.Partitions(&partitions)); err != nil {
		return nil, err
	}
	if !config.Accounting() {
		return nil, noAccounting("waits")
	}
	if err := checkNames("partition", q.partitions, partitionNames(partitions)); err != nil {
		return nil, err
	}
	v.cluster = config.Get("ClusterName")
	type key struct {
		partition string
		size      waitSize
	}
	at := map[key]int{}
	period := slurm.Period{Since: v.since, Until: v.at, Users: q.users, Accounts: q.accounts}
	if err := q.ask.Client.EachWait(ctx, nil, period, func(w *slurm.Waited) error {
		pending := w.State == "PENDING"
		if !pending && (w.Start < v.since.Unix() || w.Eligible == 0) {
			return nil // it started before the period, or was cancelled before it did
		}
		for partition := range strings.SplitSeq(w.Partition, ",") { // a pending job may have several
			if len(q.partitions) > 0 && !slices.Contains(q.partitions, partition) {
				continue
			}
			k := key{partition, sizeOf(w)}
			i, known := at[k]
			if !known {
				i = len(v.groups)
				at[k], v.groups = i, append(v.groups, waitGroup{partition: k.partition, size: k.size})
			}
			if pending {
				v.groups[i].pending += w.TaskCount()
			} else {
				v.groups[i].waits = append(v.groups[i].waits, inQueue(w, v.at))
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, g := range v.groups {
		slices.Sort(g.waits)
	}
	slices.SortFunc(v.groups, func(a, b waitGroup) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.size.rank, b.size.rank))
	})
	return v, nil
}

// within returns how long the given part of the jobs waited at most.
func (g *waitGroup) within(part float64) time.Duration {
	return g.waits[int(math.Ceil(part*float64(len(g.waits))))-1]
}

func (v *waitsView) text(p *page) error {
	if len(v.groups) == 0 {
		p.line("", "no job that you may see has started since %s", unit.ShortTime(v.since.Unix(), v.at))
		return nil
	}
	title := "how long jobs waited that started since " + unit.ShortTime(v.since.Unix(), v.at) + ", from when they were eligible"
	p.prose("", p.paint(bold, title))
	p.print("\n")
	t := app.Table{
		Header: []string{"PARTITION", "SIZE", "JOBS", "HALF WITHIN", "9 OF 10 WITHIN", "LONGEST", "STILL WAIT"},
		Right:  []string{"JOBS", "HALF WITHIN", "9 OF 10 WITHIN", "LONGEST", "STILL WAIT"}, Whole: []string{"PARTITION"},
	}
	for i := range v.groups {
		g := &v.groups[i]
		half, most, longest := "", "", ""
		if n := len(g.waits); n > 0 {
			half, most, longest = span(g.within(0.5)), span(g.within(0.9)), span(g.waits[n-1])
		}
		t.Add(g.partition, g.size.name, number(float64(len(g.waits)), 0), half, most, longest, number(float64(g.pending), 0))
	}
	p.table(&t)
	return nil
}

type waitGroupJSON struct {
	Partition string `json:"partition"`
	Size      string `json:"size"`
	Started   int    `json:"started"`
	Median    *int64 `json:"median_seconds"`
	Most      *int64 `json:"p90_seconds"`
	Longest   *int64 `json:"longest_seconds"`
	Pending   int    `json:"pending"`
}

func (v *waitsView) json(w io.Writer) error {
	doc := struct {
		Since string          `json:"since"`
		Until string          `json:"until"`
		Waits []waitGroupJSON `json:"waits"`
	}{v.since.Format(time.RFC3339), v.at.Format(time.RFC3339), []waitGroupJSON{}}
	for i := range v.groups {
		g := &v.groups[i]
		row := waitGroupJSON{Partition: g.partition, Size: g.size.name, Started: len(g.waits), Pending: g.pending}
		if n := len(g.waits); n > 0 {
			half, most, longest := int64(g.within(0.5).Seconds()), int64(g.within(0.9).Seconds()), int64(g.waits[n-1].Seconds())
			row.Median, row.Most, row.Longest = &half, &most, &longest
		}
		doc.Waits = append(doc.Waits, row)
	}
	return app.PrintJSON(w, doc)
}

func (v *waitsView) metrics() []metric {
	var all []metric
	for i := range v.groups {
		if g := &v.groups[i]; len(g.waits) > 0 {
			all = append(all, metric{"fairshare_wait_seconds_median", "The median wait of jobs that started, from when they were eligible.",
				[]string{"partition", g.partition, "size", g.size.name}, g.within(0.5).Seconds()})
		}
	}
	return all
}

func (v *waitsView) clusterName() string { return v.cluster }
