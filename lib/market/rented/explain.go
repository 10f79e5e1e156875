package rented

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// Removal is how many offers a filter removes.
type Removal struct {
	Filter  string `json:"filter"`
	Removes int    `json:"removes"`
	Alone   int    `json:"alone"` // those that no other filter removes
}

// Explained is what each filter and limit removes from the offers of the market.
type Explained struct {
	Offers  int       `json:"offers"`
	Left    int       `json:"left"`
	Filters []Removal `json:"filters"`
}

// explainLimit is how many offers are examined.
const explainLimit = 1000

// sieve is something that removes offers.
type sieve struct {
	text    string
	removes func(c Candidate) bool
}

// sieves returns what removes offers: filters, limits, and machines that are avoided.
func (r *Runner) sieves(filters vastai.Filters, avoided map[int64]Avoided) []sieve {
	var out []sieve
	for _, f := range filters {
		out = append(out, sieve{f.Text, func(c Candidate) bool { return !f.Holds(c.Offer) }})
	}
	if r.Bid > 0 || r.Spot {
		text := "vast_api.bid"
		if r.Bid > 0 {
			text = fmt.Sprintf("vast_api.bid %v", r.Bid)
		}
		out = append(out, sieve{text, func(c Candidate) bool {
			_, enough := r.bidFor(c.Offer)
			return c.Bid && !enough
		}})
	}
	if limit := r.Limits.CostPerTask; limit > 0 {
		out = append(out, sieve{fmt.Sprintf("max_cost_per_task %v", limit), func(c Candidate) bool {
			return r.Estimate.Cost(c.Offer) > limit
		}})
	}
	if limit := r.Limits.Runtime; limit > 0 {
		out = append(out, sieve{fmt.Sprintf("max_runtime %v", limit), func(c Candidate) bool {
			return c.Duration > 0 && c.Duration < limit.Seconds()
		}})
	}
	for _, machine := range slices.Sorted(maps.Keys(avoided)) {
		a := avoided[machine]
		text := fmt.Sprintf("machine %d is avoided until %s: %s", machine, a.Until.Local().Format(time.DateTime), a.Why)
		out = append(out, sieve{text, func(c Candidate) bool { return c.Machine == machine }})
	}
	return out
}

// candidate is an offer with what would be bid for it.
func (r *Runner) candidate(offer vastai.Offer) Candidate {
	c := Candidate{Offer: offer}
	if offer.Bid {
		c.bid, _ = r.bidFor(offer)
		c.Price += c.bid - offer.MinBid
	}
	return c
}

// sift returns the offers that nothing removes, and counts what removes the others.
func (r *Runner) sift(sieves []sieve, found []vastai.Offer) (good []Candidate, e Explained) {
	e = Explained{Offers: len(found), Filters: []Removal{}}
	for _, s := range sieves {
		e.Filters = append(e.Filters, Removal{Filter: s.text})
	}
	for _, offer := range found {
		c := r.candidate(offer)
		var by []int
		for k, s := range sieves {
			if s.removes(c) {
				by = append(by, k)
				e.Filters[k].Removes++
			}
		}
		switch len(by) {
		case 0:
			e.Left++
			good = append(good, c)
		case 1:
			e.Filters[by[0]].Alone++
		}
	}
	return good, e
}

// Choose filters offers again and ranks them.
func (r *Runner) Choose(w Wish, found []vastai.Offer, avoided map[int64]Avoided) []Candidate {
	good, _ := r.sift(r.sieves(r.All(w), avoided), found)
	slices.SortStableFunc(good, func(a, b Candidate) int { return r.Estimate.Compare(a.Offer, b.Offer) })
	return good
}

// Explain searches once without filters, and applies and counts the filters here.
func (r *Runner) Explain(ctx context.Context, w Wish) (Explained, error) {
	about, choose := r.All(w).Split()
	var found []vastai.Offer
	for _, s := range r.searches(vastai.Search{Filters: about, Disk: r.Disk, Limit: explainLimit}) {
		f, err := r.search(ctx, s, false)
		if err != nil {
			return Explained{}, err
		}
		found = append(found, f.Offers...)
	}
	avoided, err := r.Avoided()
	if err != nil {
		return Explained{}, err
	}
	_, e := r.sift(r.sieves(choose, avoided), found)
	return e, nil
}

// Why says why there is no suitable offer: which filter removes most.
func (e Explained) Why() string {
	best := Removal{}
	for _, f := range e.Filters {
		if f.Removes > best.Removes {
			best = f
		}
	}
	switch {
	case e.Offers == 0:
		return "no suitable offer: the market has none that was not tried a short time ago"
	case e.Left > 0:
		return fmt.Sprintf("no suitable offer at that time: now %d of %d would do", e.Left, e.Offers)
	}
	return fmt.Sprintf("no suitable offer: of %d offers, %q removes most: %d", e.Offers, best.Filter, best.Removes)
}

// Scarce is why there was no suitable offer for some tasks, and when.
type Scarce struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// scarceTime is how long that is said without asking again: the search that tells it is a large one.
const scarceTime = time.Hour

// scarce says why there is no suitable offer, and enters that in m.
func (r *Runner) scarce(ctx context.Context, w Wish, m *market) string {
	sum := sha256.New()
	for _, f := range r.All(w) {
		fmt.Fprintln(sum, f.Text)
	}
	key := hex.EncodeToString(sum.Sum(nil)[:8])
	if s, known := m.Scarce[key]; known {
		return s.Why
	}
	e, err := r.Explain(ctx, w)
	if err != nil {
		return "no suitable offer: which filter removes most is not known: " + fault.Text(err)
	}
	m.Scarce[key] = Scarce{r.now(), e.Why()}
	return e.Why()
}

// Waits says why nothing is ordered now, whatever the offers, and which orders are held.
func (r *Runner) Waits(ctx context.Context) ([]string, error) {
	if err := r.prepare(); err != nil {
		return nil, err
	}
	m, err := r.readMarket()
	if err != nil {
		return nil, err
	}
	var out []string
	if err := r.room("", m); err != nil {
		out = append(out, fault.Text(err))
	}
	account, err := r.API.Account(ctx, r.now().Add(-accountAge))
	if err != nil {
		return out, err
	}
	spent, err := r.purse("")
	if err != nil {
		return out, err
	}
	if why := spent.carries(r.Limits, account.Credit, 0, 0); why != "" {
		out = append(out, later("%s", why).Error())
	}
	names, err := r.orders()
	if err != nil {
		return out, err
	}
	for _, name := range names {
		o, err := r.read(ordersDir, name)
		if err != nil || o.Instance() != 0 || o.End != nil {
			continue
		}
		if why := r.mayOrder(o); why != nil {
			out = append(out, fmt.Sprintf("task %s (%s): %v", o.Task, task.Clean(o.Slug), why))
		}
	}
	return out, nil
}

// warnings returns what the user should know about the filters before anything is ordered. Found is
// the result of a search with a limit of one.
func (r *Runner) warnings(ctx context.Context, found []vastai.Offer) ([]string, error) {
	var out []string
	for _, s := range r.Filters.Suspicions() {
		out = append(out, "vast_api.offer_filters: "+s)
	}
	m, err := r.readMarket()
	if err != nil {
		return nil, err
	}
	if len(r.Choose(Wish{}, found, m.Avoided)) > 0 {
		return out, nil
	}
	good, _, err := r.Find(ctx, Wish{}, m.Avoided, false)
	if err != nil || len(good) > 0 {
		return out, err
	}
	e, err := r.Explain(ctx, Wish{})
	return append(out, e.Why()+"; \"vast-offers --explain\" shows all"), err
}
