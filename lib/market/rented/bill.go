package rented

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// billTime is how long after its end an order's bill may still change: the market bills by the day,
// and lags.
const billTime = 72 * time.Hour

// reconcile asks the market from time to time what it has billed for the instances of orders, and
// records that in the orders and in the journal. The orders of this turn are updated first: limits on
// cost use the bill where it is known. A long bill is read over several turns.
func (r *Runner) reconcile(ctx context.Context, v *view, open []*order) {
	if r.BillInterval <= 0 {
		return
	}
	wanted := slices.ContainsFunc(open, func(o *order) bool { return len(o.Tries) > 0 })
	done, err := r.recent(r.now().Add(-billTime))
	if err != nil || !wanted && len(done) == 0 {
		return
	}
	from := reach(r.now().Add(-billTime), open, done)
	if !r.API.Unfinished(from) && !r.first(ctx, "asked for bills", r.now().Add(r.BillInterval)) {
		return
	}
	charges, err := r.charges(ctx, from, v.bills)
	if errors.Is(err, vastai.ErrMore) {
		return
	}
	if err != nil {
		r.once(ctx, "bills", r.now().Add(24*time.Hour), "what the market has billed cannot be read: costs are estimates", "error", err)
		return
	}
	for id, b := range charges { // an instance that the list shows is still to be adopted
		if slices.ContainsFunc(v.all, func(i vastai.Instance) bool { return i.ID == id }) {
			b.order = ""
			charges[id] = b
		}
	}
	for _, o := range open {
		if o.enter(charges) {
			r.bill(ordersDir, o.name(), charges)
		}
	}
	for _, o := range done {
		if o.enter(charges) {
			r.bill(doneDir, o.name(), charges)
		}
		if _, ok := o.billed(); ok && r.Billed != nil {
			if err := r.Billed(o.Task, o.Attempt, o.cost(r.now())); err != nil {
				r.fail("the queue is not told what was billed", o.name(), err)
			}
		}
	}
}

// reach returns from which day on bills are needed: the day of the oldest order of any instance, as
// its bill is incomplete otherwise. It is a whole day, so that tools that ask on the same day send
// the same request.
func reach(from time.Time, lists ...[]*order) time.Time {
	for _, o := range slices.Concat(lists...) {
		for _, t := range o.Tries {
			if !t.Born.IsZero() && t.Born.Before(from) {
				from = t.Born
			}
		}
	}
	return from.UTC().Truncate(24 * time.Hour)
}

// charged is what was billed for an instance, and the order whose label it bears, if that is one of
// this agent's.
type charged struct {
	life.Bill
	order  string
	number int
}

// charges returns what was billed since a time, by instance.
func (r *Runner) charges(ctx context.Context, from time.Time, pages int) (map[int64]charged, error) {
	now := r.now()
	list, err := r.API.Charges(ctx, from, now, now.Add(-r.BillInterval/2), pages)
	if err != nil {
		return nil, err
	}
	out, odd := map[int64]charged{}, 0
	for _, c := range list {
		if c.Instance == 0 {
			odd++
			continue
		}
		b := out[c.Instance]
		if l, ok := ParseLabel(c.Label); ok && l.Agent == r.Agent {
			b.order, b.number = nameOf(l.Task, l.Attempt), l.Number
		}
		b.Bill = life.Bill{Amount: b.Amount + c.Amount, Until: latest(b.Until, c.Until)}
		out[c.Instance] = b
	}
	if odd > 0 {
		r.once(ctx, "odd charges", now.Add(24*time.Hour),
			"some rows of the bill cannot be read, and are left out: the costs of their instances are estimates", "rows", odd)
	}
	return out, nil
}

// toldByBill looks up in the bill how the task of an instance that is gone has ended: rows of the
// bill have the label of their instance, to which the container appends the end. An instance that has
// destroyed itself is no longer in any list. It reports whether the bill is complete for the
// instance. An instance that destroys itself exists for the grace after a list has shown it, so the
// bill must reach beyond that; a time in the future is only the end of a day or of a contract. A bill
// from before the instance was missed does not count. All orders of a turn request the same bill as
// reconcile, which may have many pages; if it cannot be read, only one of them asks.
func (r *Runner) toldByBill(ctx context.Context, v *view, o *order) (word string, complete bool) {
	if r.BillInterval <= 0 || o.Own().Told != "" {
		return "", false
	}
	now := r.now()
	if v.billFrom.IsZero() {
		done, _ := r.recent(now.Add(-billTime)) // without those, it is only a different request
		v.billFrom = reach(now.Add(-billTime), v.open, done)
	}
	var list []vastai.Charge
	if v.billErr == nil {
		list, v.billErr = r.API.Charges(ctx, v.billFrom, now, latest(o.MissingSince(), now.Add(-r.BillInterval/2)), v.bills)
	}
	if v.billErr != nil {
		return "", errors.Is(v.billErr, vastai.ErrAuth) // such a key cannot read bills
	}
	for _, c := range list {
		if own := o.Own(); c.Instance == own.ID {
			word = cmp.Or(o.fill(vastai.Instance{ID: c.Instance, Label: c.Label, Machine: own.Machine}), word)
			complete = complete || c.Until.After(latest(own.Seen, own.Born).Add(r.grace(*own))) && !c.Until.After(now)
		}
	}
	return word, complete
}

// enter records bills of the order's instances, and reports whether there was anything new. An
// instance that bears the order's label, but that the order does not know, was created by a request
// whose answer was lost: no list has shown it, or it was a duplicate. It is gone.
func (o *order) enter(charges map[int64]charged) bool {
	changed := false
	for _, id := range slices.Sorted(maps.Keys(charges)) {
		c := charges[id]
		if c.order == o.name() && o.Try(id) == nil {
			o.State, _ = o.Next(life.Event{Kind: life.Unseen, At: c.Until, ID: id, Number: c.number}, life.Rules{})
		}
		t := o.Try(id)
		if t == nil || t.Bill != nil && (*t.Bill == c.Bill || t.Fate != life.Current && c.Amount < t.Bill.Amount) {
			continue // for an earlier instance, the first days may be missing
		}
		t.Bill, changed = &c.Bill, true
	}
	return changed
}

// instances returns those that the order has had.
func (o *order) instances() []int64 {
	var ids []int64
	for _, t := range o.Tries {
		if t.ID != 0 {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// billed returns what was billed for all of an order's instances, if each has a bill.
func (o *order) billed() (total float64, ok bool) {
	ids := o.instances()
	for _, id := range ids {
		b := o.Try(id).Bill
		if b == nil {
			return 0, false
		}
		total += b.Amount
	}
	return total, len(ids) > 0
}

// bill writes bills into an order's file, under its lock.
func (r *Runner) bill(dir, name string, charges map[int64]charged) {
	held, err := r.hold(name, time.Second)
	if err != nil {
		return // it is tried again in a later turn
	}
	defer held.Close()
	o, err := r.read(dir, name)
	if err != nil || !o.enter(charges) {
		return
	}
	if dir == ordersDir {
		err = r.save(o)
	} else {
		_ = os.Remove(filepath.Join(r.Dir, ordersDir, name+".lock"))
		var b []byte
		if b, err = json.Marshal(o); err == nil {
			err = renameio.WriteFile(r.orderPath(dir, name), append(b, '\n'), 0o600, renameio.WithTempDir(filepath.Join(r.Dir, dir)))
		}
	}
	if err != nil {
		r.fail("a bill could not be noted", name, err)
		return
	}
	r.noteBill(o)
}

// noteBill records in the journal what was billed for an order that has ended, once all of its
// instances have a bill.
func (r *Runner) noteBill(o *order) {
	total, ok := o.billed()
	if !ok || o.End == nil {
		return
	}
	err := r.note(Entry{
		Time: r.now().UTC(), Event: "billed", Task: o.Task, Slug: o.Slug, Attempt: o.Attempt, Instance: o.Instance(),
		State: string(o.End.State), Cost: o.cost(r.now()), Billed: &total,
	})
	if err != nil {
		r.fail("a bill could not be noted", o.name(), err)
	}
}

// recent returns the closed orders that ended after a time.
func (r *Runner) recent(after time.Time) ([]*order, error) {
	entries, err := os.ReadDir(filepath.Join(r.Dir, doneDir))
	if err != nil {
		return nil, err
	}
	var out []*order
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		info, err := e.Info()
		if !ok || err != nil || clock.Modified(info).Before(after) {
			continue
		}
		o, err := r.read(doneDir, name)
		if err == nil && o.End != nil && o.End.At.After(after) && len(o.Tries) > 0 {
			out = append(out, o)
		}
	}
	return out, nil
}

// Bill is what an attempt of a task was estimated to cost, and what was billed.
type Bill struct {
	Task      task.ID
	Slug      string
	Attempt   int
	Machine   int64 // the last one, and its GPU
	GPU       string
	State     task.State // "": it has not ended
	Instances []int64
	Estimated float64 // dollars
	Billed    *float64
	Ended     time.Time
}

// Bills compares the estimates of attempts that run, or have ended after a time, with what the market
// has billed. It asks the market.
func (r *Runner) Bills(ctx context.Context, after time.Time) ([]Bill, error) {
	if err := r.prepare(); err != nil {
		return nil, err
	}
	orders, err := r.recent(after)
	if err != nil {
		return nil, err
	}
	names, err := r.orders()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if o, err := r.read(ordersDir, name); err == nil && len(o.Tries) > 0 {
			orders = append(orders, o)
		}
	}
	charges, err := r.charges(ctx, reach(after, orders), vastai.ChargePages)
	if err != nil {
		return nil, scoped(err, "billing_read")
	}
	var out []Bill
	for _, o := range orders {
		o.enter(charges)
		if len(o.instances()) == 0 {
			continue
		}
		last := o.Last()
		b := Bill{
			Task: o.Task, Slug: o.Slug, Attempt: o.Attempt, Machine: last.Machine, GPU: last.GPU, Instances: o.instances(),
			Estimated: o.estimate(r.now()),
		}
		if o.End != nil {
			b.State, b.Ended = o.End.State, o.End.At
		}
		if total, ok := o.billed(); ok {
			b.Billed = &total
		}
		out = append(out, b)
	}
	slices.SortStableFunc(out, func(a, b Bill) int { return a.Ended.Compare(b.Ended) })
	return out, nil
}
