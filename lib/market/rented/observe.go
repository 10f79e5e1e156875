package rented

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Limits of one turn, so that it ends: the rest is left to the next one.
const (
	turnCalls  = 25 // requests of a turn in which no task ends
	maxEndings = 20 // logs of instances whose tasks have ended
	maxShows   = 5  // instances that are asked for by their ids
	maxDooms   = 60 // instances to destroy: the vastai program accepts 64 at once
	turnUnits  = 3  // how long logs are read, and how long to wait for destroy requests at the end
)

// lostGrace is how long a job may be without any trace.
const lostGrace = 2 * time.Minute

// view is the state of the market in one turn.
type view struct {
	began    time.Time // when the list was requested
	all      []vastai.Instance
	byTask   map[string][]vastai.Instance // by order's name
	list     vastai.Listing
	logs     int // how many logs may still be read
	endings  int // how many logs of ended ones may still be read
	dooms    int
	shows    int     // how many instances may still be asked for by their ids, of orders that go on,
	lasts    int     // and of those that are over
	stubborn []int64 // instances that still exist after several requests to destroy them
	absent   int     // how many instances of orders the list lacks,
	present  int     // and how many it has
	ordering bool    // an order was placed in this turn
	over     string  // why all tasks that run have to end; "": they go on
	read     map[int64]logText
	open     []*order       // orders, as they were when the turn began
	billFrom time.Time      // from which day on the bill is requested
	billErr  error          // why it could not be read in this turn
	bills    int            // how many pages of the bill may be read
	doomed   []int64        // instances that have to be destroyed
	destroys sync.WaitGroup // they run concurrently with the turn
}

// Jobs lists all instances once, and then processes each order. A failure of one order is limited to
// that order: the state of its job is unknown then, and the others are still processed.
func (r *Runner) Jobs(ctx context.Context, remembered func() ([]runner.Ref, error)) ([]runner.Job, error) {
	if err := r.prepare(); err != nil {
		return nil, err
	}
	// A list that another tool of this pipeline has just requested is recent enough.
	list, err := r.API.List(ctx, r.now().Add(-2*r.API.Unit/5))
	if err != nil {
		return nil, scoped(err, "instance_read")
	}
	v := r.view(list)
	if list.Odd > 0 {
		r.once(ctx, "odd instances", r.now().Add(time.Hour),
			"some rows of the list of instances cannot be read, and are left out; a task whose instance may be one of them waits",
			"rows", list.Odd)
	}
	pages := (len(v.all) + 24) / 25
	v.logs = max(1, (turnCalls-3-pages)/2)
	v.bills = max(1, turnCalls-4-pages-2*v.logs) // the rest is for account, search, order and destroy requests
	known, err := remembered()
	if err != nil {
		return nil, err
	}
	names, err := r.orders()
	if err != nil {
		return nil, err
	}
	var orders []*order
	open := map[string]bool{}
	for _, name := range names {
		o, err := r.read(ordersDir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		open[name] = true
		if err != nil {
			r.fail("an order cannot be read", name, err)
			continue
		}
		orders = append(orders, o)
	}
	// The log that was read least recently comes first.
	slices.SortStableFunc(orders, func(a, b *order) int { return a.Log.At.Compare(b.Log.At) })
	// Before all of that come orders whose instance was not known: if this process were killed while it
	// reads logs, and the instance vanished, its task would be ordered again, although it may have ended.
	found := slices.DeleteFunc(slices.Clone(orders), func(o *order) bool {
		return o.Phase == life.Over || o.Instance() != 0 || len(r.fresh(o, v.byTask[o.name()])) == 0
	})
	rest := slices.DeleteFunc(slices.Clone(orders), func(o *order) bool { return slices.Contains(found, o) })
	v.open = orders
	r.missing(ctx, v)
	if v.over, err = r.watch(ctx); err != nil {
		return nil, err
	}
	var jobs []runner.Job
	seen := map[string]bool{}
	for n, o := range slices.Concat(found, rest) {
		if n == len(found) {
			r.prefetch(ctx, v, rest)
		}
		job, ok, err := r.settle(ctx, v, o.name())
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			r.fail("the order of a task cannot be processed", o.name(), err)
			job, ok = r.state(o, runner.Recorded), true
			job.Sight, job.Reason = runner.Unclear, fault.Text(err)
		}
		if ok {
			jobs = append(jobs, job)
			seen[job.ID] = true
		}
	}
	for name, instances := range v.byTask {
		if open[name] {
			continue
		}
		job, ok, err := r.stray(ctx, name, instances, known)
		if err != nil {
			r.fail("an instance cannot be adopted", name, err)
			continue
		}
		if ok {
			jobs = append(jobs, job)
			seen[job.ID] = true
		}
	}
	for _, ref := range known {
		if !seen[ref.Job] {
			job := r.traceless(ref)
			l, ok := ParseLabel(ref.Job)
			gone := job.Sight == runner.Traceless || job.Sight.Over() && job.State == task.Error && job.ExitCode == 0
			if ok && gone && open[nameOf(l.Task, l.Attempt)] {
				// Another process works on its order, or the order cannot be read.
				job = runner.Job{
					Task: ref.Task, ID: ref.Job, Submitted: ref.Submitted, Sight: runner.Unclear,
					Reason: "another process works on its order, or the order cannot be read",
				}
			}
			if job.Sight == runner.Traceless && ok && r.hides(list, newOrder(l.Task, 0)) {
				job.Sight = runner.Unclear
			}
			jobs = append(jobs, job)
		}
	}
	if len(v.stubborn) > 0 && r.Log != nil {
		r.Log.Warn("instances still exist, and cost money, after several requests to destroy them; look at the console of the market",
			"instances", v.stubborn)
	}
	r.flush(ctx, v)
	r.reconcile(ctx, v, orders)
	r.await(ctx, v)
	return jobs, nil
}

// view groups a list by the orders to which its instances belong.
func (r *Runner) view(list vastai.Listing) *view {
	v := &view{
		began: list.At, all: list.Instances, byTask: map[string][]vastai.Instance{}, endings: maxEndings, shows: maxShows, list: list,
		read: map[int64]logText{}, lasts: maxEndings,
	}
	for _, i := range list.Instances {
		if l, ok := ParseLabel(i.Label); ok && l.Agent == r.Agent {
			name := nameOf(l.Task, l.Attempt)
			v.byTask[name] = append(v.byTask[name], i)
		}
	}
	return v
}

// hides reports whether a row that cannot be read may be an instance of an order: it has the label of
// the task, or no readable label, and there are more such rows than when the order's instances were
// last seen.
func (r *Runner) hides(list vastai.Listing, o *order) bool {
	return list.Nameless() > o.Nameless || slices.ContainsFunc(list.OddLabels, func(text string) bool {
		l, ok := ParseLabel(text)
		return ok && l.Agent == r.Agent && l.Task == o.Task
	})
}

// flush requests the destruction of unneeded instances, concurrently with the turn. Failed requests
// are repeated in the next one.
func (r *Runner) flush(ctx context.Context, v *view) {
	if len(v.doomed) == 0 {
		return
	}
	ids := v.doomed
	v.doomed = nil
	v.destroys.Go(func() {
		if err := r.API.Destroy(ctx, ids...); err != nil && r.Log != nil {
			r.Log.Warn("instances could not be destroyed; trying again", "instances", ids, "error", err)
		}
	})
}

// await waits for the destroy requests of a turn, with a timeout. The orders record what was
// requested, and the next turn repeats it for what still exists.
func (r *Runner) await(ctx context.Context, v *view) {
	done := make(chan struct{})
	go func() {
		v.destroys.Wait()
		close(done)
	}()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	late, sleep := make(chan struct{}), r.API.Sleep
	go func() {
		_ = sleep(waiting, turnUnits*r.API.Unit)
		close(late)
	}()
	select {
	case <-done:
	case <-late:
	}
}

func (r *Runner) fail(what, name string, err error) {
	if r.Log != nil {
		r.Log.Error(what, "order", name, "error", err)
	}
}

// traceless returns a job that has neither an order nor an instance.
func (r *Runner) traceless(ref runner.Ref) runner.Job {
	job := runner.Job{Task: ref.Task, ID: ref.Job, Submitted: ref.Submitted}
	if l, ok := ParseLabel(ref.Job); ok {
		if o, err := r.read(doneDir, nameOf(l.Task, l.Attempt)); err == nil {
			return r.state(o, runner.Recorded) // its end was never reported
		}
	}
	job.Sight, job.State, job.Reason = runner.Ended, task.Error, "the instance is gone without a trace"
	return runner.Believe(job, runner.Proof{Looks: 1, For: lostGrace, Why: "no trace of the instance"}, ref, false, r.now())
}

// stray returns the job of an instance with this agent's label, but without an open order: one that
// was destroyed and still exists or is back, or one whose order was lost with the state directory.
func (r *Runner) stray(ctx context.Context, name string, instances []vastai.Instance, known []runner.Ref) (runner.Job, bool, error) {
	held, err := r.hold(name, 0)
	if errors.Is(err, lock.ErrHeld) {
		return runner.Job{}, false, nil
	}
	if err != nil {
		return runner.Job{}, false, err
	}
	defer held.Close()
	if _, err := r.read(ordersDir, name); err == nil {
		return runner.Job{}, false, nil // ponos-start was faster
	}
	strange, err := r.untracked(instances[0])
	if err != nil {
		return runner.Job{}, false, err
	}
	o, err := r.read(doneDir, name)
	if err == nil && !strange {
		for _, i := range instances {
			r.double(o, i)
		}
		r.say("an instance is destroyed again, as it is listed again", o)
		return runner.Job{}, false, r.save(o)
	}
	l, _ := ParseLabel(instances[0].Label)
	o = newOrder(l.Task, l.Attempt)
	adopted := false
	for _, ref := range known {
		adopted = adopted || ref.Task == l.Task && ref.Job == r.job(o)
	}
	r.choose(o, instances)
	if o.Nonce == "" { // not created by Start
		return runner.Job{}, false, nil
	}
	if strange && !adopted {
		// Only the queue knows whose it is. Until it has answered, the instance is left alone.
		job := r.state(o, runner.Recorded)
		job.Sight, job.Claim, job.Reason = runner.Unclear, runner.Strange, "it was not ordered from this data_dir"
		return job, true, nil
	}
	return r.state(o, runner.Recorded), true, r.created(o, "order rebuilt")
}

// created records the instance of an order. If this process is killed before, the instance is found again.
func (r *Runner) created(o *order, how string) error {
	if err := r.journal(o, "created", 0); err != nil {
		return err
	}
	r.say(how, o)
	return r.save(o)
}

// settle processes one order.
func (r *Runner) settle(ctx context.Context, v *view, name string) (runner.Job, bool, error) {
	held, err := r.hold(name, 0)
	if errors.Is(err, lock.ErrHeld) { // being started or stopped
		o, err := r.read(ordersDir, name)
		if err != nil || o.Instance() == 0 {
			return runner.Job{}, false, nil
		}
		job := r.state(o, runner.Recorded)
		job.Sight = runner.Unclear
		return job, true, nil
	}
	if err != nil {
		return runner.Job{}, false, err
	}
	defer held.Close()
	o, err := r.read(ordersDir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return runner.Job{}, false, nil
	}
	if err != nil {
		return runner.Job{}, false, err
	}
	o.rewind(v.began)
	if !o.Own().Born.Before(v.began) && o.Instance() != 0 || o.Phase == life.Asked && !o.Since.Before(v.began) {
		return r.state(o, runner.Recorded), o.Instance() != 0, nil // younger than the list
	}
	instances := v.byTask[name]
	if err := r.sweep(ctx, v, o, instances); err != nil {
		return runner.Job{}, false, err
	}
	before := o.End
	switch o.Phase {
	case life.Over:
	case life.Waits, life.Held, life.Asked:
		fresh := r.fresh(o, instances)
		if over(r.dir(o)) && !o.rebuilt() {
			return runner.Job{}, false, r.drop(ctx, v, o, fresh, instances)
		}
		if len(fresh) > 0 {
			r.choose(o, fresh)
			err = r.created(o, "order found")
		} else if o.Instances() > 0 && !o.rebuilt() {
			err = r.again(ctx, v, o)
		}
	default:
		if err = r.observe(ctx, v, o); err == nil && o.Instance() == 0 { // it was given up
			err = r.sweep(ctx, v, o, instances)
		}
	}
	if err != nil {
		return runner.Job{}, false, err
	}
	if o.End != nil && before == nil {
		if err := r.judge(ctx, o); err != nil {
			return runner.Job{}, false, err
		}
		// An instance whose task has ended must not cost any longer.
		if err := r.sweep(ctx, v, o, instances); err != nil {
			return runner.Job{}, false, err
		}
	}
	if err := r.save(o); err != nil {
		return runner.Job{}, false, err
	}
	job := r.state(o, runner.Recorded)
	if do := r.step(o, life.Event{Kind: life.Turn, At: v.began}); do.Action == life.Close {
		if err := r.close(o); err != nil {
			return runner.Job{}, false, err
		}
	}
	return job, o.Instances() > 0, nil
}

// When many instances vanish from the list at once, the list is at fault rather than their hosts: what
// follows waits life.ManySettles times as long.
const manyAbsent = 3

func (v *view) many() bool { return v.absent >= manyAbsent && v.absent > v.present }

// lacking counts the instances of orders that a list lacks, and those that it has.
func (r *Runner) lacking(list vastai.Listing, orders []*order) (absent, present int) {
	for _, o := range orders {
		switch {
		case o.Phase == life.Over || o.Instance() == 0 || list.At.Sub(o.Own().Born) < r.Settle:
		case slices.ContainsFunc(list.Instances, func(i vastai.Instance) bool { return i.ID == o.Instance() }):
			present++
		case o.Phase != life.Unbilled: // it is known to be gone
			absent++
		}
	}
	return absent, present
}

// missing counts the instances of orders that the list lacks, and says so if they are many.
func (r *Runner) missing(ctx context.Context, v *view) {
	v.absent, v.present = r.lacking(v.list, v.open)
	if v.many() {
		r.once(ctx, "many absent", r.now().Add(life.ManySettles*r.Settle), fmt.Sprintf(
			"the list of instances lacks %d of %d at once: nothing follows before %v, and then each is asked for by its id",
			v.absent, v.absent+v.present, life.ManySettles*r.Settle))
	}
}

// fresh returns the instances of an order with its present label.
func (r *Runner) fresh(o *order, instances []vastai.Instance) []vastai.Instance {
	label := r.label(o.Task, o.Attempt, o.Number())
	return slices.DeleteFunc(slices.Clone(instances), func(i vastai.Instance) bool { return !bears(i, label) || o.Try(i.ID) != nil })
}

// priceSlack is the factor by which the price of an instance may exceed that of its offer, or
// max_price_per_hour, in silence: the cost of its disk is rounded. An instance that is dearer than its
// offer by more than priceBound is given back, unless its task runs.
const (
	priceSlack = 1.05
	priceBound = 1.25
)

// observe processes the instance of an order.
func (r *Runner) observe(ctx context.Context, v *view, o *order) error {
	at := slices.IndexFunc(v.all, func(i vastai.Instance) bool { return i.ID == o.Instance() })
	if at < 0 {
		if r.hides(v.list, o) || !v.began.After(o.Own().Looks[life.Unlisted].Last) {
			return nil // it may be a row that cannot be read, or this list was seen before
		}
		return r.hear(ctx, v, o, life.Event{Kind: life.Missing, At: v.began, Many: v.many()})
	}
	i, now := v.all[at], r.now()
	r.step(o, life.Event{Kind: life.Shown, At: v.began})
	o.Nameless = v.list.Nameless()
	before := o.Own().Price
	word := o.fill(i)
	if why, never := life.Never(word); never {
		return r.hear(ctx, v, o, life.Event{Kind: life.Unbegun, At: now, Why: why})
	}
	if word != "" {
		r.step(o, life.Event{Kind: life.Tells, Word: word})
	}
	if dearer(before, i, priceSlack) && !o.rebuilt() {
		r.say(fmt.Sprintf("the price has changed from %s to %s an hour", dollars(before), dollars(i.Price)), o)
	}
	own := o.Own()
	if grace := r.grace(*own); grace >= 0 && v.began.Sub(own.Seen) >= grace/3 || v.began.Before(own.Seen) {
		own.Seen = v.began
	}
	if o.Phase == life.Boots && !o.rebuilt() {
		if wrong := r.wrong(o, i, before); wrong != "" {
			return r.hear(ctx, v, o, life.Event{Kind: life.Wrong, At: now, Why: wrong})
		}
	}
	if limit := r.Limits.CostPerTask; limit > 0 && o.cost(now)+own.Price*r.LogInterval.Hours() > limit {
		return r.hear(ctx, v, o, life.Event{
			Kind: life.Limit, At: now,
			End: life.End{State: task.Error, Reason: "the task has cost " + dollars(o.cost(now)) + ", and reaches max_cost_per_task"},
		})
	}
	if v.over != "" {
		return r.hear(ctx, v, o, life.Event{Kind: life.Limit, At: now, End: life.End{State: task.Error, Reason: v.over}})
	}
	return r.hear(ctx, v, o, heard(i, v.began, now))
}

func dearer(before float64, i vastai.Instance, slack float64) bool {
	return before > 0 && i.Price > before*slack
}

// wrong returns why an instance is not what was ordered, as far as its row tells, of which the offer had a price; "": it is.
func (r *Runner) wrong(o *order, i vastai.Instance, offered float64) string {
	spent := dollars(o.Own().Estimate(r.now()))
	bad := r.All(o.Wish).Differing(i)
	limit := r.Limits.PricePerHour
	switch {
	case bad != nil:
		return fmt.Sprintf("the machine is not what was requested: it does not meet %q, and has cost %s", bad.Text, spent)
	case limit > 0 && i.Price > limit*priceSlack:
		return fmt.Sprintf("the instance costs %s an hour, more than max_price_per_hour, and has cost %s", dollars(i.Price), spent)
	case dearer(offered, i, priceBound):
		return fmt.Sprintf("the instance costs %s an hour, and its offer %s; it has cost %s",
			dollars(i.Price), dollars(offered), spent)
	}
	return ""
}

// heard returns what the row of an instance says of it.
func heard(i vastai.Instance, began, now time.Time) life.Event {
	stage, why := i.Stage()
	e := life.Event{Kind: stages[stage], At: now, Why: why, Bid: i.Bid, Stopped: i.Halted()}
	if e.Kind == life.Loads {
		e.At = began // it may run since the list
	}
	return e
}

// stages are what is heard of an instance by its row.
var stages = map[vastai.Stage]life.Kind{
	vastai.Loads: life.Loads, vastai.Runs: life.Running, vastai.Exited: life.Exits, vastai.Stopped: life.Halts, vastai.Stops: life.Wanes,
	vastai.Restarts: "", // nothing follows
	vastai.Falters:  life.Falters, vastai.BadMachine: life.Wrong, vastai.BadImage: life.NoImage,
}

// askID asks for the instance of an order that lists lack.
func (r *Runner) askID(ctx context.Context, v *view, o *order) (e life.Event, more bool, err error) {
	there, err := r.show(ctx, v, o, o.Instance())
	switch {
	case errors.Is(err, errNoTime):
		return e, false, nil
	case err != nil:
		r.warn("it is not known whether an instance is gone", o, err)
		return e, false, nil
	case there:
		r.once(ctx, "incomplete list", r.now().Add(time.Hour), "lists lack an instance that exists", "instance", o.Instance())
		return life.Event{Kind: life.There, At: v.began}, true, nil
	}
	return life.Event{Kind: life.Gone, At: v.began}, true, nil
}

// billWait is how long a task whose instance may have destroyed itself waits for the bill: the market
// bills by the day, and lags.
const billWait = 36 * time.Hour

// askBill looks in the bill for the end of a task whose instance is gone. An instance that may have destroyed itself, a
// grace after the end of its task, does not run again. Lists lag.
func (r *Runner) askBill(ctx context.Context, v *view, o *order) life.Event {
	word, complete := r.toldByBill(ctx, v, o)
	if why, never := life.Never(word); never {
		return life.Event{Kind: life.Unbegun, At: r.now(), Why: why}
	}
	if word != "" {
		r.step(o, life.Event{Kind: life.Tells, Word: word})
	}
	grace := r.grace(*o.Own())
	return life.Event{
		Kind: life.Billed, At: r.now(), Complete: complete,
		Itself: grace >= 0 && o.MissingSince().Sub(latest(o.Own().Seen, o.Own().Born))+r.Settle >= grace,
	}
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
