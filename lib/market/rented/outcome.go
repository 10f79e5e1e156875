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

// drop ends an order that has no instance, of a task that was stopped meanwhile. The answer to a
// request may have been lost: an instance that appears later is destroyed.
func (r *Runner) drop(ctx context.Context, v *view, o *order, fresh, instances []vastai.Instance) error {
	for _, i := range fresh {
		o.doom(i.ID)
	}
	if len(fresh) > 0 {
		r.say("an instance is destroyed, as its task had ended before it was found", o)
	}
	if err := r.sweep(ctx, v, o, instances); err != nil {
		return err
	}
	late := !o.Intent.IsZero() && (r.hides(v.list, o) || v.began.Sub(o.asked()) < 2*r.Settle)
	if len(o.Doomed) > 0 || late {
		return r.save(o)
	}
	if o.Tries > 0 || o.Unanswered || !o.Intent.IsZero() {
		return errors.Join(r.finish(o, end{State: task.Stopped, Reason: "its task has ended"}), r.close(o))
	}
	return r.forget(o)
}

// patientLists is how many lists may show an instance that is to be destroyed, until that is reported.
const patientLists = 3

// sweep destroys instances that an order does not need, and forgets those that are gone: that two
// lists did not show, or, if the task is to run again, of which the market says that there is none.
// Failed requests are repeated in the next turn.
func (r *Runner) sweep(ctx context.Context, v *view, o *order, instances []vastai.Instance) error {
	label := r.label(o.Task, o.Attempt, o.Number)
	for _, i := range instances {
		// If the order has an instance, or has ended, any other one is not needed.
		if i.ID != o.Instance && (o.Instance != 0 || o.End != nil || !bears(i, label)) {
			o.doom(i.ID)
		}
	}
	if o.End != nil && o.Instance != 0 {
		o.doom(o.Instance)
	}
	if len(o.Doomed) == 0 {
		return nil
	}
	if err := r.save(o); err != nil {
		return err
	}
	var rest []doomed
	hidden := r.hides(v.list, o)
	for _, d := range o.Doomed {
		at := slices.IndexFunc(v.all, func(i vastai.Instance) bool { return i.ID == d.ID })
		fresh := d.Seen.Before(v.began)
		d.Seen = v.began
		gone := false
		switch {
		case at < 0 && hidden:
		case at < 0:
			if fresh {
				d.Absent++
			}
			gone = d.Absent >= 2
			if o.End == nil {
				gone = r.isGone(ctx, v, o, d.ID)
			}
		default:
			if d.Absent, o.Nameless = 0, v.list.Nameless(); fresh {
				d.Shown++
			}
			if d.Shown > patientLists {
				v.stubborn = append(v.stubborn, d.ID)
			}
			if err := r.began(o, &d, v.all[at]); err != nil {
				return err
			}
			if v.dooms < maxDooms {
				v.dooms++
				if err := r.journal(o, "destroy", d.ID); err != nil {
					return err
				}
				v.doomed = append(v.doomed, d.ID)
			}
		}
		if !gone {
			rest = append(rest, d)
		}
	}
	o.Doomed = rest
	return nil
}

// isGone reports whether the market says that there is no such instance, which its list lacks. If there
// is one, it is to be destroyed.
func (r *Runner) isGone(ctx context.Context, v *view, o *order, id int64) bool {
	there, err := r.show(ctx, v, id)
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
func (r *Runner) show(ctx context.Context, v *view, id int64) (there bool, err error) {
	if v.shows <= 0 {
		return false, errNoTime
	}
	v.shows--
	i, err := r.API.Show(ctx, id)
	return i != nil, err
}

// began counts a start of the task on an instance that was given up before it was seen running: the
// task may not run again unless it may after a loss.
func (r *Runner) began(o *order, d *doomed, i vastai.Instance) error {
	if d.Counted || o.End != nil || o.Instance != 0 || over(o.Dir) || i.Actual != "running" && i.Actual != "exited" {
		return nil
	}
	d.Counted = true
	why := fmt.Sprintf("%s; instance %d has begun the task before it was gone", o.Status, d.ID)
	if o.Rebuilt || o.Losses >= r.Retries {
		return r.finish(o, end{State: task.Error, Reason: why})
	}
	o.Losses++
	o.Status = fmt.Sprintf("%s; the task is started again (%d of %d)", why, o.Losses, r.Retries)
	r.say("machine lost", o, "reason", why, "losses", o.Losses)
	return r.journal(o, "lost", d.ID)
}

func (r *Runner) warn(what string, o *order, err error) {
	if r.Log != nil {
		r.Log.Warn(what, "task", o.Task, "instance", o.Instance, "error", err)
	}
}

// doubt returns an error while an instance may run the task that is not the order's own: the task keeps
// it until it is known to be gone, and nothing else is ordered.
func (o *order) doubt() error {
	if len(o.Doomed) == 0 {
		return nil
	}
	return later("instance %d may still run the task, and is being destroyed", o.Doomed[0].ID)
}

// again orders another instance for a task that has lost one before it ran.
func (r *Runner) again(ctx context.Context, v *view, o *order) error {
	if v.ordering { // one per turn
		return nil
	}
	if o.doubt() != nil {
		return nil
	}
	if o.Held.After(r.now()) {
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
		return r.finish(o, end{State: task.Error, Reason: fault.Text(err)})
	case err != nil:
		before := o.Status
		if o.Status = "waiting for another machine: " + fault.Text(err); o.Status != before { // once, not in each turn
			r.warn("no other machine was found yet", o, err)
		}
	}
	return nil
}

// finish records how a task has ended.
func (r *Runner) finish(o *order, e end) error {
	e.At, e.Cost, e.Estimated = r.now(), o.cost(r.now()), o.Spent
	if o.Instance != 0 {
		e.Estimated += o.estimate(e.At)
	}
	o.End = &e
	if err := errors.Join(r.noteCreated(o), r.journal(o, "ended", 0)); err != nil {
		o.End = nil // it is found again
		return err
	}
	r.say("task over", o, "state", e.State, "cost", dollars(e.Cost))
	if err := r.save(o); err != nil {
		return err
	}
	r.noteBill(o) // the bill may have come before the end, and not change again
	return nil
}

// fault gives up an instance whose machine is faulty.
func (r *Runner) fault(ctx context.Context, v *view, o *order, why string, instances []vastai.Instance) error {
	if said := o.told(); said != nil {
		return r.finish(o, verdict(*said)) // its task had already ended
	}
	o.Status = why
	if err := errors.Join(r.journal(o, "fault", 0), r.avoid(ctx, o.Machine, why)); err != nil {
		return err
	}
	r.say("machine at fault", o, "reason", why)
	o.part(r.now(), false)
	if o.Tries-o.Losses >= maxTries || o.Rebuilt {
		return r.finish(o, end{State: task.Error, Reason: "no machine could run the image: " + why})
	}
	o.Status += "; another one is ordered when it is gone"
	return r.sweep(ctx, v, o, instances)
}

// unpaid reports whether the market has stopped an instance as the account has no credit: then it stops
// all of them. The account is asked once for all orders of a turn.
func (r *Runner) unpaid(ctx context.Context, v *view) (why string, unpaid bool, err error) {
	account, err := r.API.Account(ctx, v.began)
	if err != nil {
		return "", false, fmt.Errorf("an instance was stopped, and whether for lack of credit is not known: %w", err)
	}
	if account.Credit > 0 {
		return "", false, nil
	}
	why = fmt.Sprintf("no credit: the market has stopped all instances, as the account has $%.2f", account.Credit)
	r.once(ctx, "no credit", r.now().Add(time.Hour), why+"; nothing is ordered until there is more")
	return why, true, nil
}

// suspend gives up an instance that has not run, of which its machine is not to blame.
func (r *Runner) suspend(ctx context.Context, v *view, o *order, why string, instances []vastai.Instance) error {
	o.Status = why
	if err := r.journal(o, "fault", 0); err != nil {
		return err
	}
	o.part(r.now(), false)
	return r.sweep(ctx, v, o, instances)
}

// lose gives up an instance that was lost while the task ran. The task is started again on another
// machine, as often as the configuration allows, once the market no longer shows the lost one.
func (r *Runner) lose(ctx context.Context, v *view, o *order, why string, instances []vastai.Instance) error {
	if said := o.told(); said != nil {
		return r.finish(o, verdict(*said)) // its task had already ended
	}
	if o.Rebuilt || o.Losses >= r.Retries {
		if r.Retries > 0 && !o.Rebuilt {
			why += fmt.Sprintf("; the task was started again %d of %d times that retries_on_loss allows", o.Losses, r.Retries)
		}
		return r.finish(o, end{State: task.Error, Reason: why})
	}
	o.Losses++
	o.Status = fmt.Sprintf("%s; the task is started again (%d of %d)", why, o.Losses, r.Retries)
	if err := r.journal(o, "lost", 0); err != nil {
		return err
	}
	r.say("machine lost", o, "reason", why, "losses", o.Losses)
	r.remark(o, o.Status)
	if info, err := os.Stat(filepath.Join(o.Dir, runner.Output)); err == nil {
		o.LogFrom = info.Size()
	}
	o.part(r.now(), true)
	return r.sweep(ctx, v, o, instances)
}
