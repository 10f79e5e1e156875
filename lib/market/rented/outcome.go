package rented

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// over reports whether the agent has moved a task's directory to done/: its task has ended, for
// whatever reason.
func over(dir string) bool {
	_, err := os.Stat(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = os.Stat(filepath.Join(filepath.Dir(filepath.Dir(dir)), "done", filepath.Base(dir)))
	return err == nil
}

// rules are what counts for an order.
func (r *Runner) rules(o *order) life.Rules {
	rules := life.Rules{Settle: r.Settle, Boot: r.Limits.Boot, Runtime: r.Limits.Runtime}
	if r.BillInterval > 0 {
		rules.BillWait = billWait
	}
	if !o.rebuilt() { // else what is needed to order another machine may be lost
		rules.Retries, rules.Machines = r.Retries, maxTries
	}
	return rules
}

// step says what was heard of an order, and returns what follows.
func (r *Runner) step(o *order, e life.Event) life.Do {
	var do life.Do
	o.State, do = o.Next(e, r.rules(o))
	return do
}

// hear says what was heard of an order with an instance, carries out what follows, says what came of that, and so on,
// until nothing follows.
func (r *Runner) hear(ctx context.Context, v *view, o *order, e life.Event) error {
	for more := true; more; {
		before := o.State
		do := r.step(o, e)
		var err error
		if e, more, err = r.carry(ctx, v, o, before, do, e); err != nil {
			o.State = before
			return err
		}
		if o.Phase == life.Over && o.End == nil {
			if err := r.finish(o, do.End); err != nil {
				o.State = before
				return err
			}
		}
	}
	return nil
}

// carry carries out what follows, and returns what came of it.
func (r *Runner) carry(
	ctx context.Context, v *view, o *order, before life.State, do life.Do, cause life.Event,
) (e life.Event, more bool, err error) {
	if do.Avoid {
		if err := r.avoid(ctx, before.Last().Machine, do.Why); err != nil {
			return e, false, err
		}
	}
	switch do.Action {
	case life.AskID:
		return r.askID(ctx, v, o)
	case life.AskBill:
		return r.askBill(ctx, v, o), true, nil
	case life.AskAccount:
		return r.askAccount(ctx, v, do.Why)
	case life.Listen, life.ListenOver:
		return r.listen(ctx, v, o, do.Action == life.ListenOver, cause)
	case life.Read:
		return r.readLast(ctx, o, do.End), true, nil
	case life.Await:
		r.say("instance disappeared", o, "status", o.Status)
		r.remark(o, o.Status)
	case life.Fault, life.Lost:
		err = r.giveUp(o, before, do)
	case life.Finish:
		r.deaf(o)
	}
	return e, false, err
}

// giveUp enters that an instance is given up.
func (r *Runner) giveUp(o *order, before life.State, do life.Do) error {
	was := *o
	was.State, was.End = before, nil
	if do.Action == life.Fault {
		was.Status = do.Why
		if err := r.journal(&was, "fault", 0); err != nil {
			return err
		}
		r.say("machine at fault", &was, "reason", do.Why)
	} else {
		was.Status = o.Status
		if err := r.journal(&was, "lost", 0); err != nil {
			return err
		}
		r.say("machine lost", &was, "reason", do.Why, "losses", o.Losses())
		r.deaf(o)
		r.remark(o, o.Status)
	}
	o.Log.At = time.Time{}
	if info, err := os.Stat(filepath.Join(r.dir(o), runner.Output)); err == nil {
		o.Log.From, o.Log.Read = info.Size(), 0
	}
	return nil
}

// deaf says in the output that its end is missing.
func (r *Runner) deaf(o *order) {
	if o.unread != nil {
		r.remark(o, "the end of the log could not be read: "+why(o.unread))
	}
	o.unread = nil
}

// drop ends an order that has no instance, of a task that was stopped meanwhile. The answer to a
// request may have been lost: an instance that appears later is destroyed.
func (r *Runner) drop(ctx context.Context, v *view, o *order, fresh, instances []vastai.Instance) error {
	for _, i := range fresh {
		r.double(o, i)
	}
	if len(fresh) > 0 {
		r.say("an instance is destroyed, as its task had ended before it was found", o)
	}
	if err := r.sweep(ctx, v, o, instances); err != nil {
		return err
	}
	switch do := r.step(o, life.Event{Kind: life.Unwanted, At: v.began, Hidden: r.hides(v.list, o)}); do.Action {
	case life.Forget:
		return r.forget(o)
	case life.Finish:
		return errors.Join(r.finish(o, do.End), r.close(o))
	}
	return r.save(o)
}

// patientLists is how many lists may show an instance that is to be destroyed, until that is reported.
const patientLists = 3

// sweep destroys instances that an order does not need, until the market says that there is no such one: it is asked for by its id
// when a list lacks it, or, after the end of the task, two. Failed requests are repeated in the next turn.
func (r *Runner) sweep(ctx context.Context, v *view, o *order, instances []vastai.Instance) error {
	label := r.label(o.Task, o.Attempt, o.Number())
	for _, i := range instances {
		// If the order has an instance, or has ended, any other one is not needed.
		if o.Instance() != 0 || o.Phase == life.Over || !bears(i, label) {
			r.double(o, i)
		}
	}
	if len(o.Doomed()) == 0 {
		return nil
	}
	if err := r.save(o); err != nil {
		return err
	}
	hidden := r.hides(v.list, o)
	for _, id := range o.Doomed() {
		at := slices.IndexFunc(v.all, func(i vastai.Instance) bool { return i.ID == id })
		if at < 0 && !hidden {
			do := r.step(o, life.Event{Kind: life.DoomedLost, At: v.began, ID: id})
			if do.Action == life.AskID && r.isGone(ctx, v, o, id) {
				r.step(o, life.Event{Kind: life.DoomedGone, At: v.began, ID: id})
			}
		}
		if at < 0 {
			continue
		}
		o.Nameless = v.list.Nameless()
		if err := r.remains(o, v.all[at], v.began); err != nil {
			return err
		}
		if o.Try(id).Looks[life.Stubborn].Times > patientLists {
			v.stubborn = append(v.stubborn, id)
		}
		if v.dooms < maxDooms {
			v.dooms++
			if err := r.journal(o, "destroy", id); err != nil {
				return err
			}
			v.doomed = append(v.doomed, id)
		}
	}
	return nil
}

// remains enters that a list still shows an instance that is to be destroyed. If it has begun the task although it was
// given up before it was seen running, that counts.
func (r *Runner) remains(o *order, i vastai.Instance, at time.Time) error {
	stage, _ := i.Stage()
	begun := stage.Begun() && !over(r.dir(o))
	switch do := r.step(o, life.Event{Kind: life.DoomedShown, At: at, ID: i.ID, Begun: begun}); do.Action {
	case life.Finish:
		return r.finish(o, do.End)
	case life.Lost:
		r.say("machine lost", o, "reason", do.Why, "losses", o.Losses())
		return r.journal(o, "lost", i.ID)
	}
	return nil
}

// isGone reports whether the market says that there is no such instance, which its list lacks. If there
// is one, it is to be destroyed.
func (r *Runner) isGone(ctx context.Context, v *view, o *order, id int64) bool {
	there, err := r.show(ctx, v, o, id)
	switch {
	case errors.Is(err, errNoTime):
		return false
	case err != nil:
		r.warn("it is not known whether an instance is gone", o, err)
		return false
	case there:
		v.doomed = append(v.doomed, id)
	}
	return !there
}

// show asks for an instance that the list lacks.
func (r *Runner) show(ctx context.Context, v *view, o *order, id int64) (there bool, err error) {
	left := &v.shows
	if o.Phase == life.Over {
		left = &v.lasts
	}
	if *left <= 0 {
		return false, errNoTime
	}
	*left--
	i, err := r.API.Show(ctx, id)
	return i != nil, err
}

func (r *Runner) warn(what string, o *order, err error) {
	if r.Log != nil {
		r.Log.Warn(what, "task", o.Task, "instance", o.Instance(), "error", err)
	}
}

// mayOrder returns an error while nothing may be ordered: an instance may run the task that is not the order's own, or
// the order is held.
func (r *Runner) mayOrder(o *order) error {
	if _, do := o.Next(life.Event{Kind: life.Turn, At: r.now()}, r.rules(o)); do.Action == life.Wait {
		return later("%s", do.Why)
	}
	return nil
}

// again orders another instance for a task that has lost one before it ran.
func (r *Runner) again(ctx context.Context, v *view, o *order) error {
	if v.ordering || r.mayOrder(o) != nil { // one per turn
		return nil
	}
	v.ordering = true
	r.flush(ctx, v) // placing an order takes some time
	found, err := r.findInstance(ctx, o)
	if err == nil && !found {
		err = r.place(ctx, o)
	}
	switch {
	case errors.Is(err, runner.ErrRefused):
		do := r.step(o, life.Event{Kind: life.Cancel, At: r.now(), End: life.End{State: task.Error, Reason: fault.Text(err)}})
		return r.finish(o, do.End)
	case err != nil:
		before := o.Status
		if o.Status = "waiting for another machine: " + fault.Text(err); o.Status != before { // once, not in each turn
			r.warn("no other machine was found yet", o, err)
		}
	}
	return nil
}

// finish records how a task has ended.
func (r *Runner) finish(o *order, said life.End) error {
	o.End = &end{At: r.now(), End: said}
	if err := r.journal(o, "ended", 0); err != nil {
		o.End = nil // it is found again
		return err
	}
	r.say("task over", o, "state", said.State, "cost", dollars(o.cost(r.now())))
	if err := r.save(o); err != nil {
		return err
	}
	r.noteBill(o) // the bill may have come before the end, and not change again
	return nil
}

// askAccount asks whether the market has stopped an instance as the account has no credit: then it stops
// all of them. The account is asked once for all orders of a turn.
func (r *Runner) askAccount(ctx context.Context, v *view, why string) (life.Event, bool, error) {
	account, err := r.API.Account(ctx, v.began)
	if err != nil {
		return life.Event{}, false, fmt.Errorf("an instance was stopped, and whether for lack of credit is not known: %w", err)
	}
	if account.Credit > 0 {
		return life.Event{Kind: life.Paid, At: r.now(), Why: why}, true, nil
	}
	why = fmt.Sprintf("no credit: the market has stopped all instances, as the account has $%.2f", account.Credit)
	r.once(ctx, "no credit", r.now().Add(time.Hour), why+"; nothing is ordered until there is more")
	return life.Event{Kind: life.Unpaid, At: r.now(), Why: why}, true, nil
}
