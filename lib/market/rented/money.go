package rented

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
)

// purse is what the orders of this agent have cost and will, in dollars.
//
//	ordered or runs  Ahead: what is left of the expected cost · Rate: by the hour
//	given up         Rate, until it is gone
//	any, today       Today: what was billed, or else estimated
//
// What the market says of the account is held against it before each order and in each turn.
type purse struct {
	Today, Ahead, Rate float64
}

// add adds an order. A day is one of UTC, as on the bill; an order that has ended today counts whole.
func (p *purse) add(o *order, e vastai.Estimate, now time.Time) {
	day := now.UTC().Truncate(24 * time.Hour)
	switch {
	case o.End != nil:
		if !o.End.At.Before(day) {
			p.Today += o.cost(now)
		}
		return
	case o.Phase == life.Unbilled:
		return
	}
	for _, t := range o.Tries {
		p.Today += max(0, t.Cost(now, now)-t.Between(t.Born, day))
		expected := e.Hours*t.Price + t.Traffic
		switch {
		case t.Fate == life.Current: // or there may be one
			p.Ahead += max(0, expected-t.Estimate(now))
			p.Rate += t.Price
		case o.IsDoomed(t.ID): // it costs until it is gone
			p.Rate += t.Price
		}
	}
}

// purse returns that of all orders but one.
func (r *Runner) purse(but string) (p purse, err error) {
	names, err := r.orders()
	if err != nil {
		return p, err
	}
	now := r.now()
	for _, name := range names {
		if o, err := r.read(ordersDir, name); err == nil && name != but {
			p.add(o, r.Estimate, now)
		}
	}
	if r.Limits.CostPerDay > 0 { // only for that is it needed
		done, err := r.recent(now.UTC().Truncate(24 * time.Hour))
		if err != nil {
			return p, err
		}
		for _, o := range done {
			p.add(o, r.Estimate, now)
		}
	}
	return p, nil
}

// carries returns why the limits, or a credit, do not carry another order at a price by the hour and
// with an expected cost; "": they do.
func (p purse) carries(l Limits, credit, price, cost float64) string {
	switch {
	case l.CostPerDay > 0 && p.Today+p.Ahead+cost > l.CostPerDay:
		return fmt.Sprintf("max_cost_per_day: $%.2f were spent today, what runs is expected to cost $%.2f more, and this task $%.2f",
			p.Today, p.Ahead, cost)
	case credit <= 0 || credit < l.MinCredit:
		return fmt.Sprintf("no credit: the account has $%.2f, and min_credit is $%.2f", credit, l.MinCredit)
	case credit-l.MinCredit < p.Ahead+cost:
		return fmt.Sprintf("no credit: %s, but what runs is expected to cost $%.2f more, this task $%.2f, and min_credit is $%.2f",
			lasts(credit, p.Rate+price), p.Ahead, cost, l.MinCredit)
	}
	return ""
}

// lasts says how long a credit lasts.
func lasts(credit, rate float64) string {
	minutes := int(math.Min(credit/rate*60, 1e6))
	if rate <= 0 || minutes >= 100*24*60 {
		return fmt.Sprintf("the credit is $%.2f", credit)
	}
	return fmt.Sprintf("the credit of $%.2f lasts %d h %d min at $%.2f an hour", credit, minutes/60, minutes%60, rate)
}

// accountAge is how old the credit may be that is held against what runs.
const accountAge = 10 * time.Minute

// watch holds what runs against the limits, once in a turn. It returns why all tasks that run have to
// end; "": they go on. Of a credit that is too small for them it only warns, as the market ends them, not the agent.
func (r *Runner) watch(ctx context.Context) (over string, err error) {
	p, err := r.purse("")
	if err != nil || p.Rate == 0 {
		return "", err
	}
	if limit := r.Limits.CostPerDay; limit > 0 && p.Today+p.Rate*r.LogInterval.Hours() > limit {
		return fmt.Sprintf("the agent has spent $%.2f today, and reaches max_cost_per_day", p.Today), nil
	}
	account, err := r.API.Account(ctx, r.now().Add(-accountAge))
	if err == nil && account.Credit < p.Ahead {
		r.once(ctx, "short credit", r.now().Add(time.Hour),
			fmt.Sprintf("%s, less than the $%.2f that what runs is expected to cost", lasts(account.Credit, p.Rate), p.Ahead))
	}
	return "", nil // without an answer, orders are not placed
}
