package rented

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/market/vastai"
)

// Removal is how many offers a filter removes.
type Removal struct {
	Filter  string `json:"filter"`
	Removes int    `json:"removes"`
	Alone   int    `json:"alone"` // those that no other filter removes
}

// Explained is what each filter removes from the offers of the market.
type Explained struct {
	Offers  int       `json:"offers"`
	Left    int       `json:"left"`
	Filters []Removal `json:"filters"`
}

// explainLimit is how many offers are examined.
const explainLimit = 1000

// Explain searches once without filters, and applies and counts the filters here.
func (r *Runner) Explain(ctx context.Context, slug string) (Explained, error) {
	var free, counted vastai.Filters
	for _, f := range r.All(Wish{Slug: slug}) {
		if f.Field == "rentable" || f.Field == "external" || f.Field == "num_gpus" {
			free = append(free, f)
		} else if !f.Any() {
			counted = append(counted, f)
		}
	}
	all, err := r.API.Search(ctx, vastai.Search{Filters: free, Disk: r.Disk, Limit: explainLimit}, false)
	if err != nil {
		return Explained{}, err
	}
	avoided, err := r.Avoided()
	if err != nil {
		return Explained{}, err
	}
	for _, machine := range slices.Sorted(maps.Keys(avoided)) {
		a := avoided[machine]
		counted = append(counted, vastai.Condition{
			Field: "machine_id", Op: "neq", Value: float64(machine),
			Text: fmt.Sprintf("machine %d is avoided until %s: %s", machine, a.Until.Local().Format(time.DateTime), a.Why),
		})
	}
	found := all.Offers
	e := Explained{Offers: len(found), Filters: []Removal{}}
	for _, f := range counted {
		e.Filters = append(e.Filters, Removal{Filter: f.Text})
	}
	for _, offer := range found {
		var by []int
		for k, f := range counted {
			if !f.Holds(offer) {
				by = append(by, k)
				e.Filters[k].Removes++
			}
		}
		switch len(by) {
		case 0:
			e.Left++
		case 1:
			e.Filters[by[0]].Alone++
		}
	}
	return e, nil
}

// most returns the filter that removes most offers.
func (e Explained) most() string {
	best := Removal{}
	for _, f := range e.Filters {
		if f.Removes > best.Removes {
			best = f
		}
	}
	switch {
	case e.Offers == 0:
		return "the market has no offers"
	case best.Removes == 0:
		return "but no filter removes any"
	}
	return fmt.Sprintf("of %d offers, %q removes most: %d", e.Offers, best.Filter, best.Removes)
}

// warnings returns what the user should know about the filters before anything is ordered. Found is
// the result of a search with a limit of one.
func (r *Runner) warnings(ctx context.Context, found []vastai.Offer) ([]string, error) {
	var out []string
	for _, s := range r.Filters.Suspicions() {
		out = append(out, "vast_api.offer_filters: "+s)
	}
	if len(found) == 0 {
		e, err := r.Explain(ctx, "")
		if err != nil {
			return nil, err
		}
		return append(out, "vast_api.offer_filters match no offer at this time: "+e.most()+"; \"vast-offers --explain\" shows all"), nil
	}
	m, err := r.readMarket()
	if err != nil {
		return nil, err
	}
	if good, _ := r.Choose(Wish{}, found, m.Avoided); len(good) > 0 {
		return out, nil
	}
	good, why, _, err := r.Find(ctx, Wish{}, m.Avoided, false)
	if err != nil {
		return nil, err
	}
	if len(good) == 0 {
		out = append(out, "no suitable offer at this time: "+why)
	}
	return out, nil
}
