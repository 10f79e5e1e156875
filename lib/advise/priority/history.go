package priority

import (
	"cmp"
	"slices"
	"time"
)

// Use is a job's run as far as usage is concerned.
type Use struct {
	Start, End int64
	Who        string
	Amount     float64 // of the resource, such as CPUs
}

// Daily adds up resource-seconds by day and by whom. Days are those of the time
// zone; a run that crosses midnight counts on both sides.
type Daily struct {
	Days []time.Time // midnights, the first one at or before since
	Sums map[string][]float64

	since, until int64
}

// NewDaily makes the days from since to until.
func NewDaily(since, until time.Time) *Daily {
	d := &Daily{Sums: map[string][]float64{}, since: since.Unix(), until: until.Unix()}
	y, m, day := since.Date()
	for t := time.Date(y, m, day, 0, 0, 0, 0, since.Location()); t.Before(until); t = t.AddDate(0, 0, 1) {
		d.Days = append(d.Days, t)
	}
	return d
}

// Add spreads a run over its days.
func (d *Daily) Add(u Use) {
	start, end := max(u.Start, d.since), min(u.End, d.until)
	if start >= end || u.Amount <= 0 {
		return
	}
	sums := d.of(u.Who)
	for i, day := range d.Days {
		next := d.until
		if i+1 < len(d.Days) {
			next = d.Days[i+1].Unix()
		}
		if overlap := min(end, next) - max(start, day.Unix()); overlap > 0 {
			sums[i] += float64(overlap) * u.Amount
		}
	}
}

// AddDay adds a sum to one day.
func (d *Daily) AddDay(day int, who string, sum float64) {
	if day >= 0 && day < len(d.Days) {
		d.of(who)[day] += sum
	}
}

func (d *Daily) of(who string) []float64 {
	sums, ok := d.Sums[who]
	if !ok {
		sums = make([]float64, len(d.Days))
		d.Sums[who] = sums
	}
	return sums
}

// Total is the use of a user or account in all.
func (d *Daily) Total(who string) float64 {
	var total float64
	for _, s := range d.Sums[who] {
		total += s
	}
	return total
}

// Most are those who used anything, most first.
func (d *Daily) Most() []string {
	var order []string
	for who := range d.Sums {
		if d.Total(who) > 0 {
			order = append(order, who)
		}
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Or(cmp.Compare(d.Total(b), d.Total(a)), cmp.Compare(a, b)) })
	return order
}
