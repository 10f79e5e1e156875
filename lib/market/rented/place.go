package rented

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// waiting limits how long to wait for a lock.
func (r *Runner) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(r.LockTime, 2*time.Minute))
}

func later(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{runner.ErrLater}, args...)...)
}

// place orders an instance. All agents' processes of this host order one after another: limits hold
// for their sum.
func (r *Runner) place(ctx context.Context, o *order) error {
	if err := r.mayOrder(o); err != nil {
		return err
	}
	if err := r.stillServed(ctx); err != nil {
		return err
	}
	env, command, err := environment(r.dir(o))
	if err != nil {
		return err
	}
	waiting, cancel := r.waiting(ctx)
	defer cancel()
	held, err := lock.Wait(waiting, filepath.Join(r.Dir, "create.lock"))
	if err != nil {
		return later("other orders are being placed")
	}
	defer held.Close()
	m, err := r.readMarket()
	if err != nil {
		return err
	}
	if err := r.room(o.name(), m); err != nil {
		return err
	}
	spent, err := r.purse(o.name())
	if err != nil {
		return err
	}
	// An older answer does while there is credit, and nothing to order.
	var account vastai.Account
	for _, since := range []time.Time{r.now().Add(-accountAge), {}} {
		if account, err = r.API.Account(ctx, since); err != nil {
			return r.ordering(ctx, err)
		}
		why := spent.carries(r.Limits, account.Credit, 0, 0) // whatever the offer
		if why != "" && since.IsZero() {
			return later("%s", why)
		}
		if why == "" {
			break
		}
	}
	offers, err := r.offers(ctx, o.Wish, m)
	if err != nil {
		if err := r.writeMarket(m); err != nil { // why there is none
			return err
		}
		return r.ordering(ctx, err)
	}
	if account, err = r.API.Account(ctx, time.Time{}); err != nil {
		return r.ordering(ctx, err)
	}
	for _, offer := range offers[:min(len(offers), life.OffersInARow)] {
		if n := r.Limits.CreatesPerHour; n > 0 && len(m.Creates) >= n {
			return later("%d instances were ordered within an hour, as many as max_creates_per_hour", n)
		}
		if why := spent.carries(r.Limits, account.Credit, offer.Price, r.Estimate.Cost(offer.Offer)); why != "" {
			return later("%s", why) // the next offer is dearer
		}
		cost, before, limit := r.Estimate.Cost(offer.Offer), o.cost(r.now()), r.Limits.CostPerTask
		if limit > 0 && before > 0 && before+cost > limit {
			return fmt.Errorf("%w: max_cost_per_task: the task has cost %s, and another machine is expected to cost %s",
				runner.ErrRefused, dollars(before), dollars(cost))
		}
		variables, err := r.arm(env, command, o, r.machine(o, offer.Offer))
		if err != nil {
			return err
		}
		request := r.request(o.Image, r.label(o.Task, o.Attempt, o.Number()), variables)
		request.Bid = offer.bid
		if err := request.Check(); err != nil {
			return fmt.Errorf("%w: %w", runner.ErrRefused, err)
		}
		r.step(o, life.Event{Kind: life.Sent, At: r.now(), Terms: life.Terms{
			Machine: offer.Machine, GPU: offer.GPU, Price: offer.Price, Grace: graceOf(variables[entry.GraceEnv]),
			Traffic: offer.DownCost*r.Estimate.Down + offer.UpCost*r.Estimate.Up,
		}})
		m.Creates = append(m.Creates, o.Since)
		if err := errors.Join(r.save(o), r.writeMarket(m), r.journal(o, "intent", 0)); err != nil {
			return err
		}
		created, err := r.API.Create(ctx, offer.ID, request)
		answer := life.Event{Kind: life.Refused, At: r.now(), ID: created.ID}
		switch {
		case err == nil:
			answer.Kind = life.Made
		case errors.Is(err, vastai.ErrUnknown):
			answer.Kind = life.NoAnswer
		case created.ID > 0:
			answer.Kind = life.Flawed
		case errors.Is(err, vastai.ErrRejected):
			// Only a request for the account itself shows that the key is invalid.
			if o.Rejected%life.OffersInARow == 0 {
				if _, auth := r.API.Account(ctx, r.now()); errors.Is(auth, vastai.ErrAuth) {
					r.step(o, answer)
					return errors.Join(r.save(o), auth)
				}
			}
			answer.Kind, answer.Why, answer.Lacking = life.Rejected, err.Error(), vastai.LacksPermission(err)
		}
		do := r.step(o, answer)
		if answer.Kind == life.Made {
			return r.created(o, "instance ordered")
		}
		if saveErr := r.save(o); saveErr != nil {
			return saveErr
		}
		switch {
		case answer.Kind == life.NoAnswer: // the next process first looks for an instance
			return later("the answer to an order was lost: %w", err)
		case answer.Kind == life.Flawed: // it may run the task until it is gone
			return cmp.Or(r.destroy(ctx, o, created.ID), r.mayOrder(o))
		case answer.Kind == life.Rejected:
			hold, err := r.rejected(o, env, err, do.Action == life.Hold)
			if hold || err != nil {
				return errors.Join(r.save(o), err)
			}
		case errors.Is(err, vastai.ErrOfferGone):
		case errors.Is(err, vastai.ErrCredit):
			return later("no credit: %w", err)
		case errors.Is(err, vastai.ErrBusy):
			return later("%w", err)
		case errors.Is(err, vastai.ErrInvalid):
			return fmt.Errorf("%w: %w", runner.ErrRefused, err)
		default:
			return err
		}
	}
	return later("all offers that were tried had been taken")
}

// rejected records that the market did not accept an order with an offer, without saying that the
// offer is gone. Held says that the order is held for that.
func (r *Runner) rejected(o *order, env map[string]string, why error, held bool) (hold bool, err error) {
	if err := r.journal(o, "rejected", 0); err != nil {
		return false, err
	}
	r.warn("an offer was rejected", o, why)
	if !held {
		return false, nil
	}
	pause := o.HeldUntil().Sub(o.Since)
	hint := "check image, image_login and disk; the journal has each answer"
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if n := len(env[name]); n > vastai.MaxEnvEach {
			hint = fmt.Sprintf("the variable %s has %d bytes, and the market documents a limit of %d for each; else %s",
				name, n, vastai.MaxEnvEach, hint)
			break
		}
	}
	o.Status = fmt.Sprintf("the market has rejected it with %d offers in a row: %v", life.OffersInARow, why)
	if vastai.LacksPermission(why) { // then other offers do not help
		hint = permissionHint("instance_write")
		o.Status = fmt.Sprintf("the key may not order instances: %v", why)
	}
	r.warn("the order is held", o, why)
	return true, fault.Hint(later("the order is held for %v: %s", pause, o.Status), hint)
}

// ordering returns the error of an order that the market cannot accept now. If the market requests
// fewer requests, that is reported once for as long as it lasts.
func (r *Runner) ordering(ctx context.Context, err error) error {
	if !errors.Is(err, vastai.ErrQuota) && !errors.Is(err, vastai.ErrBusy) {
		return err
	}
	until := vastai.Until(err)
	if errors.Is(err, vastai.ErrQuota) && !until.IsZero() {
		words := "nothing is ordered until " + until.UTC().Format("2006-01-02 15:04 UTC")
		r.once(ctx, "quota", until, "the daily quota of searches is used up: "+words)
		return later("%w: %s", err, words)
	}
	return later("%w", err)
}

// once logs a warning, and not again until a time.
func (r *Runner) once(ctx context.Context, what string, until time.Time, words string, more ...any) {
	if r.first(ctx, what, until) && r.Log != nil {
		r.Log.Warn(words, more...)
	}
}

// first reports whether something is done for the first time before a time, in all processes of this
// agent.
func (r *Runner) first(ctx context.Context, what string, until time.Time) bool {
	path := filepath.Join(r.Dir, "once.json")
	waiting, cancel := r.waiting(ctx)
	defer cancel()
	held, err := lock.Wait(waiting, path+".lock")
	if err != nil {
		return false
	}
	defer held.Close()
	all := map[string]time.Time{}
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &all) != nil {
		all = map[string]time.Time{}
	}
	now := r.now()
	maps.DeleteFunc(all, func(_ string, t time.Time) bool { return !now.Before(t) || t.After(now.Add(49*time.Hour)) })
	if _, done := all[what]; done {
		return false
	}
	all[what] = until
	b, err := json.Marshal(all)
	return err == nil && os.WriteFile(path, append(b, '\n'), 0o600) == nil
}

// room checks an order against the limits that are known without a request.
func (r *Runner) room(own string, m market) error {
	names, err := r.orders()
	if err != nil {
		return err
	}
	n := 0
	for _, name := range names {
		if name == own {
			continue
		}
		other, err := r.read(ordersDir, name)
		if err != nil {
			continue // just closed
		}
		n += other.Most()
	}
	if limit := r.Limits.Instances; limit > 0 && n >= limit {
		return later("there are %d instances, as many as max_instances", n)
	}
	if limit := r.Limits.CreatesPerHour; limit > 0 && len(m.Creates) >= limit {
		return later("%d instances were ordered within an hour, as many as max_creates_per_hour", limit)
	}
	return nil
}

// Candidate is an offer, with the bid that would be made.
type Candidate struct {
	vastai.Offer
	bid float64 // dollars an hour; 0: the machine is not interruptible
}

// BidPrice returns what would be bid for the offer, in dollars an hour without the disk; 0: the
// machine is not interruptible.
func (c Candidate) BidPrice() float64 { return c.bid }

// Searches returns the searches for a task: for machines that are not interruptible, and, if bids are
// configured, also for those that are.
func (r *Runner) Searches(w Wish) []vastai.Search {
	s := vastai.Search{Filters: r.All(w), Disk: r.Disk}
	if slices.ContainsFunc(s.Filters, func(c vastai.Condition) bool { return c.Test != nil }) {
		s.Limit = searchRows // the market cannot check all conditions
	}
	return r.searches(s)
}

func (r *Runner) searches(s vastai.Search) []vastai.Search {
	out := []vastai.Search{s}
	if r.Bid > 0 || r.Spot {
		s.Bid = true
		out = append(out, s)
	}
	return out
}

// searchRows is how many offers are requested where many will not be suitable; the market's own
// default is 64. Its quota counts rows.
const searchRows = 200

// search searches once.
func (r *Runner) search(ctx context.Context, s vastai.Search, patient bool) (vastai.Found, error) {
	f, err := r.API.Search(ctx, s, patient)
	for k := range f.Offers {
		f.Offers[k].Bid = s.Bid
	}
	return f, err
}

// Find searches the market for offers that may be taken, the best first. Odd is how many rows could not be read. A
// patient search accepts recent results.
func (r *Runner) Find(ctx context.Context, w Wish, avoided map[int64]Avoided, patient bool) (good []Candidate, odd int, err error) {
	var found []vastai.Offer
	for _, s := range r.Searches(w) {
		f, err := r.search(ctx, s, patient)
		if err != nil {
			return nil, odd, err
		}
		found, odd = append(found, f.Offers...), odd+f.Odd
	}
	return r.Choose(w, found, avoided), odd, nil
}

// offers returns the offers that may be taken, the best first.
func (r *Runner) offers(ctx context.Context, w Wish, m market) ([]Candidate, error) {
	good, odd, err := r.Find(ctx, w, m.Avoided, true)
	if err != nil {
		return nil, err
	}
	if odd > 0 {
		r.once(ctx, "odd offers", r.now().Add(time.Hour), "some offers cannot be read, and are left out", "offers", odd)
	}
	if len(good) == 0 {
		for _, s := range r.Searches(w) {
			r.API.Idle(ctx, s)
		}
		return nil, later("%s", r.scarce(ctx, w, &m))
	}
	return good, nil
}

// spotMargin is the factor by which the minimum bid is exceeded: others bid as well.
const spotMargin = 1.1

// bidFor returns what is bid for an offer, in dollars an hour, and whether that is enough.
func (r *Runner) bidFor(o vastai.Offer) (float64, bool) {
	if r.Bid > 0 {
		return r.Bid, r.Bid >= o.MinBid
	}
	return math.Ceil(o.MinBid*spotMargin*1e4) / 1e4, o.MinBid > 0
}

// avoid avoids a machine for a while.
func (r *Runner) avoid(ctx context.Context, machine int64, why string) error {
	return r.learn(ctx, machine, func(m *market) { m.Avoided[machine] = Avoided{r.now().Add(r.Avoid), why} })
}

// quickly is how soon a task that fails may have failed by its machine.
const quickly = time.Minute

// judge learns from the end of a task about its machine.
func (r *Runner) judge(ctx context.Context, o *order) error {
	own := o.Own()
	if own.Ran.IsZero() || o.End.Cancelled || o.End.State != task.Failed && o.End.State != task.Completed {
		return nil
	}
	failed := o.End.State == task.Failed && o.End.At.Sub(own.Ran) <= quickly
	return r.learn(ctx, own.Machine, func(m *market) {
		if !m.ran(own.Machine, o.Task, failed, o.End.At) {
			return
		}
		why := fmt.Sprintf("%d different tasks have failed on it within seconds", len(m.Quick[own.Machine].Tasks))
		if _, known := m.Avoided[own.Machine]; !known && r.Log != nil {
			r.Log.Warn("a machine is avoided: "+why, "machine", own.Machine, "gpu", own.GPU, "for", r.Avoid)
		}
		m.Avoided[own.Machine] = Avoided{r.now().Add(r.Avoid), why}
	})
}

// learn changes what is known of machines. It is a courtesy: if others place orders for long, it is
// left out, as an instance may still have to be destroyed.
func (r *Runner) learn(ctx context.Context, machine int64, change func(m *market)) error {
	if machine == 0 || r.Avoid == 0 {
		return nil
	}
	waiting, cancel := r.waiting(ctx)
	defer cancel()
	held, err := lock.Wait(waiting, filepath.Join(r.Dir, "create.lock"))
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		r.fail("what was learnt of a machine is not noted: other orders are being placed", strconv.FormatInt(machine, 10), err)
		return nil
	}
	if err != nil {
		return err
	}
	defer held.Close()
	m, err := r.readMarket()
	if err != nil {
		return err
	}
	change(&m)
	return r.writeMarket(m)
}

// Avoided returns the avoided machines.
func (r *Runner) Avoided() (map[int64]Avoided, error) {
	m, err := r.readMarket()
	return m.Avoided, err
}

// destroy records and requests the destruction of an instance.
func (r *Runner) destroy(ctx context.Context, o *order, id int64) error {
	if err := r.journal(o, "destroy", id); err != nil {
		return err
	}
	return r.API.Destroy(ctx, id)
}

// Preview returns what would be ordered for a task, with the names but not the values of its
// variables.
func (r *Runner) Preview(ctx context.Context, s runner.Submission) (p runner.Preview, err error) {
	env, command, err := environment(s.Dir)
	if err != nil {
		return p, err
	}
	m, err := r.readMarket()
	if err != nil {
		return p, err
	}
	offers, err := r.offers(ctx, Wish{s.Label, s.Request.Find, s.Image}, m)
	if err != nil {
		return p, err
	}
	best := offers[0]
	price := dollars(best.Price) + " an hour"
	if best.bid > 0 {
		price += fmt.Sprintf(" with a bid of $%.4f", best.bid)
	}
	p.Text = fmt.Sprintf("offer: %d on machine %d, %s, %s\nexpected cost: %s\nimage: %s\nlabel: %s\ncommand: %s\nvariables: %s",
		best.ID, best.Machine, task.Clean(best.GPU), price, dollars(r.Estimate.Cost(best.Offer)), task.Clean(s.Image),
		r.label(s.Task, s.Attempt, 1), task.Clean(strings.Join(command, " ")), strings.Join(slices.Sorted(maps.Keys(env)), " "))
	return p, nil
}
