package fairshare

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/locale"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// historyQuery asks what was used.
type historyQuery struct {
	ask             *planner.Asker
	since, until    time.Time
	sinceAgo        time.Duration // since is that long ago, at each refresh
	users, accounts []string
	all, mine       bool
	byAccount       bool
	tres, source    string
	top             int
	toNow           bool // it goes on until each refresh
}

// historyView is what was used, by day.
type historyView struct {
	historyQuery
	cluster string
	daily   *priority.Daily
	order   []string // whom, most first
}

// plotHeight is how many steps the axis of a plot has.
const plotHeight = 10

// maxDays limits the days of a plot.
const maxDays = 3700

func newHistoryQuery(a *planner.Asker, c *cli.Context) (*historyQuery, error) {
	now := a.Now()
	v := &historyQuery{
		ask: a, users: list(c.String("user")), accounts: list(c.String("account")), all: c.Bool("all"),
		tres: strings.ToLower(c.String("tres")), source: c.String("source"), until: now, toNow: !c.IsSet("until"),
	}
	if v.tres == "gpu" {
		v.tres = "gres/gpu"
	}
	var err error
	if v.since, v.sinceAgo, err = moment(now, "since", c.String("since")); err != nil {
		return nil, err
	}
	if !v.toNow {
		if v.until, _, err = moment(now, "until", c.String("until")); err != nil {
			return nil, err
		}
	}
	if !v.since.Before(v.until) {
		return nil, fault.Errorf(fault.Usage, "--since %s is not before %s",
			v.since.Format("2006-01-02 15:04"), v.until.Format("2006-01-02 15:04"))
	}
	if v.until.Sub(v.since) > maxDays*24*time.Hour {
		return nil, fault.Errorf(fault.Usage, "--since: more than %d days", maxDays)
	}
	v.byAccount = c.String("by") == "account"
	n, err := strconv.ParseUint(c.String("top"), 10, 8)
	if err != nil || n == 0 {
		return nil, fault.Errorf(fault.Usage, "--top: invalid number %q: expected 1 to 255", c.String("top"))
	}
	v.top = int(n)
	if len(v.users) == 0 && len(v.accounts) == 0 && !v.all {
		name, err := nss.Me()
		if err != nil {
			return nil, err
		}
		v.users, v.mine = []string{name}, true
	}
	return v, nil
}

// moment reads a time: a duration back from now, or a date.
func moment(now time.Time, flag, value string) (time.Time, time.Duration, error) {
	if d, err := duration(flag, value); err == nil {
		return now.Add(-d), d, nil
	}
	for _, form := range []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(form, value, now.Location()); err == nil {
			return t, 0, nil
		}
	}
	return time.Time{}, 0, fault.Errorf(fault.Usage,
		"--%s: %q is neither a duration such as 30d nor a date such as 2026-11-20", flag, value)
}

func (q *historyQuery) load(ctx context.Context) (answer, error) {
	v := &historyView{historyQuery: *q}
	if v.toNow {
		v.until = v.ask.Now()
		if v.sinceAgo > 0 {
			v.since = v.until.Add(-v.sinceAgo)
		}
	}
	var config slurm.Config
	if err := v.ask.Config(&config)(ctx); err != nil {
		return nil, err
	}
	if !config.Accounting() {
		return nil, noAccounting("history")
	}
	v.cluster = config.Get("ClusterName")
	if err := v.check(ctx); err != nil {
		return nil, err
	}
	period := slurm.Period{Since: v.since, Until: v.until, Users: v.users, Accounts: v.accounts}
	var err error
	if v.source == "sreport" {
		v.daily, err = v.ask.DailyReport(ctx, period, v.tres, v.who)
	} else {
		v.daily, err = v.ask.Daily(ctx, period, v.tres, v.who)
	}
	if err != nil {
		return nil, err
	}
	v.order = v.daily.Most()
	return v, nil
}

// check fails for users and accounts that do not exist.
func (v *historyQuery) check(ctx context.Context) error {
	if v.mine || len(v.users)+len(v.accounts) == 0 {
		return nil
	}
	shares, err := v.ask.Client.Shares(ctx)
	if err != nil {
		return err
	}
	var users, accounts []string
	for _, s := range shares {
		if s.User != "" {
			users = append(users, s.User)
		}
		accounts = append(accounts, s.Account)
	}
	if err := checkUsers(v.users, users); err != nil {
		return err
	}
	return checkNames("account", v.accounts, accounts)
}

func (v *historyView) who(user, account string) string {
	if v.byAccount {
		return account
	}
	return user
}

// series are the lines of the plot: the first few, and the others as one.
func (v *historyView) series() (names []string, values [][]float64) {
	for i, who := range v.order {
		hours := make([]float64, len(v.daily.Days))
		for k, s := range v.daily.Sums[who] {
			hours[k] = s / 3600
		}
		if i < v.top {
			names, values = append(names, who), append(values, hours)
			continue
		}
		if i == v.top {
			names, values = append(names, "others"), append(values, make([]float64, len(hours)))
		}
		for k := range hours {
			values[v.top][k] += hours[k]
		}
	}
	return names, values
}

// unit is what the numbers are in.
func (v *historyView) unit() string {
	switch v.tres {
	case "cpu":
		return "CPU hours"
	case "gres/gpu":
		return "GPU hours"
	case "mem":
		return "MiB hours"
	case "node":
		return "node hours"
	}
	return v.tres + " hours"
}

var seriesColors = []asciigraph.AnsiColor{
	asciigraph.Blue, asciigraph.Green, asciigraph.Red, asciigraph.Yellow, asciigraph.Magenta, asciigraph.Cyan, asciigraph.White,
}

func (v *historyView) text(p *page) error {
	names, values := v.series()
	period := v.since.Format("2006-01-02") + " to " + v.until.Format("2006-01-02")
	if len(names) == 0 {
		p.line("", "nothing was used %s: no %s", period, v.unit())
		return nil
	}
	p.prose("", p.paint(bold, v.unit()+" a day, "+period))
	p.print("\n")
	width := p.width
	if width == 0 {
		width = 80
	}
	if len(v.daily.Days) > 1 {
		plotted := values
		if !p.color && len(values) > 1 { // without colours lines look alike
			plotted = [][]float64{sum(values)}
		}
		options := []asciigraph.Option{
			asciigraph.Height(plotHeight), asciigraph.Width(max(20, width-14)), asciigraph.LowerBound(0),
			asciigraph.Precision(digits(plotted)),
		}
		if p.color {
			colors := make([]asciigraph.AnsiColor, len(plotted))
			for i := range colors {
				colors[i] = seriesColors[i%len(seriesColors)]
			}
			options = append(options, asciigraph.SeriesColors(colors...))
		}
		p.print(locale.Symbols(strings.ReplaceAll(asciigraph.PlotMany(plotted, options...), "-0.0 ", " 0.0 ")))
		p.print("\n\n")
	}
	total := 0.0
	for _, s := range values {
		total += add(s)
	}
	who := strings.ToUpper(map[bool]string{true: "account", false: "user"}[v.byAccount])
	unit := strings.ToUpper(v.unit())
	t := app.Table{
		Header: []string{who, unit, "PART", "BY DAY"}, Right: []string{who, unit, "PART"},
		Paint: func(i int, days string) string { return p.paint(ansi(i), days) },
	}
	for i, name := range names {
		t.Add(name, number(add(values[i]), 1), number(100*add(values[i])/total, 1)+"%", sparkline(values[i], max(10, width-36)))
	}
	p.table(&t)
	return nil
}

// digits is how many decimals the labels of an axis need to differ.
func digits(plotted [][]float64) uint {
	most := 0.0
	for _, values := range plotted {
		most = max(most, slices.Max(values))
	}
	decimals := uint(1)
	for step := most / plotHeight; step > 0 && step < 0.1 && decimals < 6; step *= 10 {
		decimals++
	}
	return decimals
}

func ansi(i int) string {
	return []string{blue, green, red, yellow, purple, "\x1b[36m", "\x1b[37m"}[i%7]
}

func sum(values [][]float64) []float64 {
	total := make([]float64, len(values[0]))
	for _, s := range values {
		for i := range s {
			total[i] += s[i]
		}
	}
	return total
}

func add(values []float64) float64 {
	total := 0.0
	for _, x := range values {
		total += x
	}
	return total
}

// sparkline draws values as blocks; neighbours are joined if they are too many.
func sparkline(values []float64, width int) string {
	if len(values) > width {
		joined := make([]float64, width)
		for i, x := range values {
			k := i * width / len(values)
			joined[k] = max(joined[k], x)
		}
		values = joined
	}
	largest := slices.Max(values)
	levels := []rune(locale.Symbols("·▁▂▃▄▅▆▇█"))
	var b strings.Builder
	for _, x := range values {
		if x <= 0 || largest <= 0 {
			b.WriteRune(levels[0])
			continue
		}
		b.WriteRune(levels[min(8, 1+int(x/largest*8))])
	}
	return b.String()
}

type historyJSON struct {
	Since  string           `json:"since"`
	Until  string           `json:"until"`
	TRES   string           `json:"tres"`
	By     string           `json:"by"`
	Source string           `json:"source"`
	Days   []string         `json:"days"`
	Used   []historyRowJSON `json:"used"`
}

type historyRowJSON struct {
	Who     string    `json:"name"`
	Seconds []float64 `json:"seconds"` // resource-seconds of each day; MiB-seconds for mem
	Total   float64   `json:"seconds_total"`
}

func (v *historyView) json(w io.Writer) error {
	doc := historyJSON{
		Since: v.since.Format(time.RFC3339), Until: v.until.Format(time.RFC3339), TRES: v.tres, By: "user",
		Source: v.source, Days: []string{}, Used: []historyRowJSON{},
	}
	if v.byAccount {
		doc.By = "account"
	}
	for _, d := range v.daily.Days {
		doc.Days = append(doc.Days, d.Format("2006-01-02"))
	}
	for _, who := range v.order {
		doc.Used = append(doc.Used, historyRowJSON{who, v.daily.Sums[who], v.daily.Total(who)})
	}
	return app.PrintJSON(w, doc)
}

func (v *historyView) metrics() []metric {
	label := "user"
	if v.byAccount {
		label = "account"
	}
	var all []metric
	for _, who := range v.order {
		all = append(all, metric{"fairshare_used_seconds", "Resource-seconds used in the period.",
			[]string{label, who, "tres", v.tres}, v.daily.Total(who)})
	}
	return all
}

func (v *historyView) clusterName() string { return v.cluster }
