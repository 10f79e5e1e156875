package vast

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/vastai"
)

// maxOffers is how many offers of one search are tried.
const maxOffers = 5

func later(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{runner.ErrLater}, args...)...)
}

// place orders an instance. All agents' processes of this host order one after the
// other: limits and spacing hold for all of them together.
func (r *Runner) place(ctx context.Context, o *order) error {
	env, command, err := environment(o.Dir)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	held, err := lock.Wait(waiting, filepath.Join(r.Dir, "create.lock"))
	if err != nil {
		return later("other orders are under way")
	}
	defer held.Close()
	m, err := r.readMarket()
	if err != nil {
		return err
	}
	if err := r.allowed(ctx, o, m); err != nil {
		return err
	}
	offers, err := r.offers(ctx, m)
	if err != nil {
		return err
	}
	r.arm(env, o)
	request := vastai.Order{
		Image: o.Image, Env: env, Entrypoint: "/bin/sh", Args: arguments(command), Disk: r.Disk, Login: r.Login,
		Label: r.label(o.Task, o.Attempt, o.Number),
	}
	if err := request.Check(); err != nil {
		return fmt.Errorf("%w: %w", runner.ErrRefused, err)
	}
	for _, offer := range offers[:min(len(offers), maxOffers)] {
		if n := r.Limits.CreatesPerHour; n > 0 && len(m.Creates) >= n {
			return later("%d instances were ordered within an hour, as many as max_creates_per_hour", n)
		}
		if err := r.space(ctx, m); err != nil {
			return err
		}
		o.Intent, o.Offer, o.Machine, o.GPU, o.Price = r.now(), offer.ID, offer.Machine, offer.GPU, offer.Price
		o.Traffic = offer.DownCost*r.Estimate.Down + offer.UpCost*r.Estimate.Up
		m.Creates = append(m.Creates, o.Intent)
		if err := errors.Join(r.save(o), r.writeMarket(m), r.journal(o, "intent", 0)); err != nil {
			return err
		}
		created, err := r.API.Create(ctx, offer.ID, request)
		if err == nil {
			o.Instance, o.Created, o.Found, o.Intent, o.Looked, o.Absent = created.ID, r.now(), time.Time{}, time.Time{}, 0, 0
			o.Tries++
			o.Ran, o.Odd, o.Dead, o.LogAt, o.Status = time.Time{}, time.Time{}, 0, time.Time{}, "the machine loads the image"
			r.say("instance ordered", o)
			return errors.Join(r.journal(o, "created", 0), r.save(o))
		}
		if errors.Is(err, vastai.ErrUnknown) {
			// The intent stays: whoever comes next looks first.
			return later("the answer to an order was lost: %w", err)
		}
		o.Intent = time.Time{}
		if created.ID > 0 {
			o.doom(created.ID)
		}
		if saveErr := r.save(o); saveErr != nil {
			return saveErr
		}
		if created.ID > 0 {
			if err := r.destroy(ctx, o, created.ID); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, vastai.ErrOfferGone), created.ID > 0:
			continue
		case errors.Is(err, vastai.ErrBusy), errors.Is(err, vastai.ErrCredit):
			return later("%w", err)
		case errors.Is(err, vastai.ErrInvalid):
			return fmt.Errorf("%w: %w", runner.ErrRefused, err)
		}
		return err
	}
	return later("all offers that were tried had been taken")
}

// allowed holds an order against the limits.
func (r *Runner) allowed(ctx context.Context, o *order, m market) error {
	names, err := r.orders()
	if err != nil {
		return err
	}
	n := 0
	for _, name := range names {
		if name == o.name() {
			continue
		}
		other, err := r.read(ordersDir, name)
		if err != nil {
			continue // just closed
		}
		if other.Instance != 0 || !other.Intent.IsZero() {
			n++
		}
	}
	if limit := r.Limits.Instances; limit > 0 && n >= limit {
		return later("there are %d instances, as many as max_instances", n)
	}
	if limit := r.Limits.CreatesPerHour; limit > 0 && len(m.Creates) >= limit {
		return later("%d instances were ordered within an hour, as many as max_creates_per_hour", limit)
	}
	account, err := r.API.Account(ctx)
	if err != nil {
		return err
	}
	if account.Credit < r.Limits.CreditFloor || account.Credit <= 0 {
		return later("the account's credit is $%.2f, less than credit_floor", account.Credit)
	}
	return nil
}

// offers are the offers that may be taken, the best first.
func (r *Runner) offers(ctx context.Context, m market) ([]vastai.Offer, error) {
	found, err := r.API.Search(ctx, vastai.Search{Filters: r.All(), Disk: r.Disk})
	if err != nil {
		return nil, err
	}
	good, why := r.Choose(found, m.Shunned)
	if len(good) == 0 {
		return nil, later("no offer will do: %s", why)
	}
	return good, nil
}

// Choose filters offers again and ranks them. Why says what is wrong with the others.
func (r *Runner) Choose(found []vastai.Offer, shunned map[int64]time.Time) (good []vastai.Offer, why string) {
	why = "the market has none that meets the filters"
	all := r.All()
	for _, offer := range found {
		_, bad := shunned[offer.Machine]
		failing := all.Failing(offer)
		cost := r.Estimate.Cost(offer)
		switch {
		case bad:
			why = fmt.Sprintf("machine %d had a fault", offer.Machine)
		case failing != nil:
			why = fmt.Sprintf("offers do not meet %q", failing.Text)
		case r.Limits.CostPerTask > 0 && cost > r.Limits.CostPerTask:
			why = fmt.Sprintf("a task would cost %s, more than max_cost_per_task", dollars(cost))
		case offer.Duration > 0 && offer.Duration < r.Limits.Runtime.Seconds():
			why = "offers end before max_runtime"
		default:
			good = append(good, offer)
		}
	}
	r.Estimate.Rank(good)
	return good, why
}

// space waits until another order may be made.
func (r *Runner) space(ctx context.Context, m market) error {
	if len(m.Creates) == 0 {
		return nil
	}
	wait := r.Spacing - r.now().Sub(m.Creates[len(m.Creates)-1])
	if wait <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(min(wait, r.Spacing)):
		return nil
	}
}

// shun avoids a machine for a while.
func (r *Runner) shun(ctx context.Context, machine int64) error {
	if machine == 0 || r.Shun == 0 {
		return nil
	}
	held, err := lock.Wait(ctx, filepath.Join(r.Dir, "create.lock"))
	if err != nil {
		return err
	}
	defer held.Close()
	m, err := r.readMarket()
	if err != nil {
		return err
	}
	m.Shunned[machine] = r.now().Add(r.Shun)
	return r.writeMarket(m)
}

// Shunned are the machines that are avoided, and until when.
func (r *Runner) Shunned() (map[int64]time.Time, error) {
	m, err := r.readMarket()
	return m.Shunned, err
}

// destroy asks for the end of an instance, which is written down before.
func (r *Runner) destroy(ctx context.Context, o *order, id int64) error {
	if err := r.journal(o, "destroy", id); err != nil {
		return err
	}
	return r.API.Destroy(ctx, id)
}

// Plan says what would be ordered for a task. Of its variables only the names are
// told.
func (r *Runner) Plan(ctx context.Context, s runner.Submission) (string, error) {
	env, command, err := environment(s.Dir)
	if err != nil {
		return "", err
	}
	m, err := r.readMarket()
	if err != nil {
		return "", err
	}
	offers, err := r.offers(ctx, m)
	if err != nil {
		return "", err
	}
	best := offers[0]
	return fmt.Sprintf("offer: %d on machine %d, %s, %s an hour\nexpected cost: %s\nimage: %s\nlabel: %s\ncommand: %s\nvariables: %s",
		best.ID, best.Machine, task.Clean(best.GPU), dollars(best.Price), dollars(r.Estimate.Cost(best)), task.Clean(s.Image),
		r.label(s.Task, s.Attempt, 1), task.Clean(strings.Join(command, " ")), strings.Join(slices.Sorted(maps.Keys(env)), " ")), nil
}
