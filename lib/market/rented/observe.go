package rented

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
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

// How long to wait in states that prove nothing by themselves.
const (
	oddGrace  = 5 * time.Minute // a host that is offline or unknown
	lostGrace = 2 * time.Minute // a job without any trace
	deadReads = 3               // how often a container is seen ended without a report
)

// view is the state of the market in one turn.
type view struct {
	began    time.Time // when the list was requested
	all      []vastai.Instance
	byTask   map[string][]vastai.Instance // by order's name
	list     vastai.Listing
	logs     int // how many logs may still be read
	endings  int // how many logs of ended ones may still be read
	dooms    int
	shows    int     // how many instances may still be asked for by their ids
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
	dirs := map[task.ID]string{}
	for _, ref := range known {
		dirs[ref.Task] = ref.Dir
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
	slices.SortStableFunc(orders, func(a, b *order) int { return a.LogAt.Compare(b.LogAt) })
	// Before all of that come orders whose instance was not known: if this process were killed while it
	// reads logs, and the instance vanished, its task would be ordered again, although it may have ended.
	found := slices.DeleteFunc(slices.Clone(orders), func(o *order) bool {
		return o.End != nil || o.Instance != 0 || len(r.fresh(o, v.byTask[o.name()])) == 0
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
		job, ok, err := r.settle(ctx, v, o.name(), dirs[o.Task])
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			r.fail("the order of a task cannot be processed", o.name(), err)
			job, ok = r.state(o, true), true
			job.Doubt, job.Reason = runner.Unclear, fault.Text(err)
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
			gone := job.Doubt == runner.Traceless || job.State == task.Error && job.ExitCode == 0
			if ok && gone && open[(&order{Task: l.Task, Attempt: l.Attempt}).name()] {
				// Another process works on its order, or the order cannot be read.
				job = runner.Job{
					Task: ref.Task, ID: ref.Job, Submitted: ref.Submitted, Doubt: runner.Unclear,
					Reason: "another process works on its order, or the order cannot be read",
				}
			}
			if job.Doubt == runner.Traceless && ok && r.hides(list, &order{Task: l.Task}) {
				job.Doubt = runner.Unclear
			}
			jobs = append(jobs, job)
		}
	}
	if len(v.stubborn) > 0 && r.Log != nil {
		r.Log.Warn("instances still exist, and cost money, after several requests to destroy them; look at them in the console of Vast.ai",
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
		read: map[int64]logText{},
	}
	for _, i := range list.Instances {
		if l, ok := ParseLabel(i.Label); ok && l.Agent == r.Agent {
			o := order{Task: l.Task, Attempt: l.Attempt}
			v.byTask[o.name()] = append(v.byTask[o.name()], i)
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
		if o, err := r.read(doneDir, (&order{Task: l.Task, Attempt: l.Attempt}).name()); err == nil {
			return r.state(o, true) // its end was never reported
		}
	}
	if !ref.Missing.IsZero() && ref.Missing.For(r.now()) >= lostGrace {
		job.State, job.Reason = task.Error, "the instance is gone without a trace"
		return job
	}
	job.Doubt, job.Reason = runner.Traceless, "no trace of the instance"
	return job
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
			o.doom(i.ID)
		}
		r.say("an instance is destroyed again, as it is listed again", o)
		return runner.Job{}, false, r.save(o)
	}
	l, _ := ParseLabel(instances[0].Label)
	o = &order{Task: l.Task, Attempt: l.Attempt, Number: l.Number, Rebuilt: true}
	adopted := false
	for _, ref := range known {
		if ref.Task == l.Task {
			o.Dir, adopted = ref.Dir, adopted || ref.Job == r.job(o)
		}
	}
	r.choose(o, instances)
	if o.Nonce == "" { // not created by Start
		return runner.Job{}, false, nil
	}
	if strange && !adopted {
		// Only the queue knows whose it is. Until it has answered, the instance is left alone.
		job := r.state(o, true)
		job.Doubt, job.Untracked, job.Reason = runner.Unclear, true, "it was not ordered from this data_dir"
		return job, true, nil
	}
	return r.state(o, true), true, r.created(o, "order rebuilt")
}

// created records the instance of an order, the order itself first: if this process is killed and the
// instance vanishes, nothing else keeps the task from being ordered again.
func (r *Runner) created(o *order, how string) error {
	o.Unnoted = true
	if err := errors.Join(r.save(o), r.noteCreated(o)); err != nil {
		return err
	}
	r.say(how, o)
	return r.save(o)
}

// noteCreated enters the instance of an order in the journal, unless it has been.
func (r *Runner) noteCreated(o *order) error {
	if !o.Unnoted {
		return nil
	}
	err := r.journal(o, "created", 0)
	o.Unnoted = err != nil
	return err
}

// settle processes one order.
func (r *Runner) settle(ctx context.Context, v *view, name, dir string) (runner.Job, bool, error) {
	held, err := r.hold(name, 0)
	if errors.Is(err, lock.ErrHeld) { // being started or stopped
		o, err := r.read(ordersDir, name)
		if err != nil || o.Instance == 0 {
			return runner.Job{}, false, nil
		}
		job := r.state(o, true)
		job.Doubt = runner.Unclear
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
	if dir != "" {
		o.Dir = dir
	}
	if o.Dir == "" { // adopted by the agent since
		o.Dir = filepath.Join(filepath.Dir(r.Dir), "tasks", string(o.Task))
	}
	if !o.Created.Before(v.begun()) || !o.Intent.IsZero() && !o.Intent.Before(v.begun()) {
		return r.state(o, true), o.Instance != 0, nil // younger than the list
	}
	if err := r.noteCreated(o); err != nil {
		return runner.Job{}, false, err
	}
	instances := v.byTask[name]
	if err := r.sweep(ctx, v, o, instances); err != nil {
		return runner.Job{}, false, err
	}
	before := o.End
	switch {
	case o.End != nil:
	case o.Instance == 0:
		fresh := r.fresh(o, instances)
		if over(o.Dir) && !o.Rebuilt {
			return runner.Job{}, false, r.drop(ctx, v, o, fresh, instances)
		}
		if len(fresh) > 0 {
			r.choose(o, fresh)
			err = r.created(o, "order found")
		} else if o.Tries > 0 && !o.Rebuilt {
			err = r.again(ctx, v, o)
		}
	default:
		err = r.observe(ctx, v, o, instances)
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
	job := r.state(o, true)
	if o.End != nil && len(o.Doomed) == 0 && (o.Intent.IsZero() || v.began.Sub(o.asked()) > 2*r.Settle) {
		if err := r.close(o); err != nil {
			return runner.Job{}, false, err
		}
	}
	return job, o.Instance != 0 || o.Tries > 0, nil
}

func (v *view) begun() time.Time { return v.began }

// When many instances vanish from the list at once, the list is at fault rather than their hosts: what
// follows waits manySettles times as long.
const (
	manyAbsent  = 3
	manySettles = 10
)

func (v *view) many() bool { return v.absent >= manyAbsent && v.absent > v.present }

// missing counts the instances of orders that the list lacks, and says so if they are many.
func (r *Runner) missing(ctx context.Context, v *view) {
	for _, o := range v.open {
		switch {
		case o.End != nil || o.Instance == 0 || v.began.Sub(o.Created) < r.Settle:
		case slices.ContainsFunc(v.all, func(i vastai.Instance) bool { return i.ID == o.Instance }):
			v.present++
		case o.Status != awaited: // it is known to be gone
			v.absent++
		}
	}
	if v.many() {
		r.once(ctx, "many absent", r.now().Add(manySettles*r.Settle), fmt.Sprintf(
			"the list of instances lacks %d of %d at once: nothing follows before %v, and then each is asked for by its id",
			v.absent, v.absent+v.present, manySettles*r.Settle))
	}
}

// fresh returns the instances of an order with its present label.
func (r *Runner) fresh(o *order, instances []vastai.Instance) []vastai.Instance {
	label := r.label(o.Task, o.Attempt, o.Number)
	return slices.DeleteFunc(slices.Clone(instances), func(i vastai.Instance) bool { return !bears(i, label) || o.isDoomed(i.ID) })
}

// priceSlack is the factor by which the price of an instance may exceed that of its offer, or
// max_price_per_hour, in silence: the cost of its disk is rounded. An instance that is dearer than its
// offer by more than priceBound is given back, unless its task runs.
const (
	priceSlack = 1.05
	priceBound = 1.25
)

// Messages of a host that indicate a fault while it loads an image.
var (
	machineFaults = []string{
		"error response from daemon", "oci runtime create failed", "failed to create", "no space left on device",
		"failed to resolve", "no such host", "i/o timeout", "unexpected eof", "toomanyrequests", "pull rate limit",
	}
	imageFaults = []string{
		"manifest unknown", "manifest for", "pull access denied", "unauthorized", "repository does not exist", "invalid reference format",
	}
)

func says(message string, signs []string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc(signs, func(s string) bool { return strings.Contains(message, s) })
}

// observe processes the instance of an order.
func (r *Runner) observe(ctx context.Context, v *view, o *order, instances []vastai.Instance) error {
	at := slices.IndexFunc(v.all, func(i vastai.Instance) bool { return i.ID == o.Instance })
	now := r.now()
	if at < 0 {
		if r.hides(v.list, o) || !v.began.After(o.Missing) {
			return nil // it may be a row that cannot be read, or this list was seen before
		}
		// Lists lag, so this takes two of them, and some time since the order. What counts is when they were
		// requested: this process may have been suspended since then.
		if o.Absent++; o.Absent == 1 {
			o.Missing = v.began
		}
		if o.Absent < 2 || v.began.Sub(o.Created) < r.Settle || v.began.Sub(o.Missing) < r.Settle {
			return nil
		}
		if v.many() && v.began.Sub(o.Missing) < manySettles*r.Settle {
			return nil
		}
		if there, err := r.show(ctx, v, o.Instance); there || err != nil {
			switch {
			case there:
				o.Absent, o.Missing = 0, time.Time{}
				r.once(ctx, "incomplete list", now.Add(time.Hour), "lists lack an instance that exists", "instance", o.Instance)
			case !errors.Is(err, errNoTime):
				r.warn("it is not known whether an instance is gone", o, err)
			}
			return nil
		}
		billed := r.toldByBill(ctx, v, o)
		if o.told() == nil && r.mayHaveEnded(o) {
			if !billed && r.BillInterval > 0 && now.Sub(o.Missing) < billWait {
				if o.Status != awaited {
					o.Status = awaited
					r.say("instance disappeared", o, "status", awaited)
					r.remark(o, awaited)
				}
				return nil
			}
			return r.finish(o, end{
				State:  task.Error,
				Reason: "the instance has disappeared while the agent was away: whether its task had ended, and how, is not known",
			})
		}
		if o.Ran.IsZero() { // the task may have run between two lists
			return r.lose(ctx, v, o,
				"the instance has disappeared before it was seen running, and whether the task has run is not known", instances)
		}
		return r.lose(ctx, v, o, "the instance has disappeared: its host was lost, or it was destroyed from outside", instances)
	}
	i := v.all[at]
	o.Absent, o.Missing, o.Nameless = 0, time.Time{}, v.list.Nameless()
	before := o.Price
	o.fill(i)
	dearer := !o.Rebuilt && before > 0 && i.Price > before*priceSlack
	if dearer {
		r.say(fmt.Sprintf("the price has changed from %s to %s an hour", dollars(before), dollars(i.Price)), o)
	}
	if grace := r.grace(o); grace >= 0 && v.began.Sub(o.Seen) >= grace/3 || v.began.Before(o.Seen) {
		o.Seen = v.began
	}
	if !o.Checked && o.Ran.IsZero() && !o.Rebuilt {
		bad, whole := r.All(o.wish()).Differing(i)
		if bad != nil {
			why := fmt.Sprintf("the machine is not what was requested: it does not meet %q, and has cost %s",
				bad.Text, dollars(o.estimate(now)))
			return r.fault(ctx, v, o, why, instances)
		}
		if limit := r.Limits.PricePerHour; limit > 0 && i.Price > limit*priceSlack {
			why := fmt.Sprintf("the instance costs %s an hour, more than max_price_per_hour, and has cost %s",
				dollars(i.Price), dollars(o.estimate(now)))
			return r.fault(ctx, v, o, why, instances)
		}
		if dearer && i.Price > before*priceBound {
			why := fmt.Sprintf("the instance costs %s an hour, and its offer %s; it has cost %s",
				dollars(i.Price), dollars(before), dollars(o.estimate(now)))
			return r.fault(ctx, v, o, why, instances)
		}
		o.Checked = whole
	}
	if limit := r.Limits.CostPerTask; limit > 0 && o.cost(now) > limit {
		return r.last(ctx, o, end{State: task.Error, Reason: "the task has cost " + dollars(o.cost(now)) + ", more than max_cost_per_task"})
	}
	if v.over != "" {
		return r.last(ctx, o, end{State: task.Error, Reason: v.over})
	}
	stopped := i.Intended == "stopped" || i.Actual == "stopped" || i.Actual == "frozen" || i.Intended == "frozen"
	switch {
	case i.Actual == "running" || i.Actual == "exited":
		o.Odd = time.Time{}
		if o.Ran.IsZero() {
			o.Ran = now
		}
		if limit := r.Limits.Runtime; limit > 0 && now.Sub(o.Ran) > limit+time.Minute {
			return r.last(ctx, o, end{State: task.Error, Reason: "the task has run longer than max_runtime"})
		}
		return r.listen(ctx, v, o, i, stopped || i.Actual == "exited", stopped, instances)
	case stopped && (!o.Ran.IsZero() || i.Actual == "stopped" || i.Actual == "frozen"): // its log shows whether it ran
		return r.listen(ctx, v, o, i, true, true, instances)
	case stopped:
		why, unpaid, err := r.unpaid(ctx, v)
		switch {
		case err != nil:
			return err
		case unpaid:
			return r.suspend(ctx, v, o, why, instances)
		}
		return r.fault(ctx, v, o, "the machine has stopped it before it ran", instances)
	case i.Actual == "" || i.Actual == "created" || i.Actual == "loading":
		return r.booting(ctx, v, o, i, instances)
	case i.Actual == "rebooting" || i.Actual == "recycling":
		return nil
	}
	// unknown, offline, and any other state.
	if o.Odd.IsZero() {
		o.Odd = now
	}
	o.Status = "the host is " + i.Actual
	if now.Sub(o.Odd) < oddGrace {
		return nil
	}
	why := "the host was lost: it is " + i.Actual
	if err := r.avoid(ctx, o.Machine, why); err != nil {
		return err
	}
	if o.Ran.IsZero() {
		why += " since before the task was seen running, and whether it has run is not known"
	}
	return r.lose(ctx, v, o, why, instances)
}

// billWait is how long a task whose instance may have destroyed itself waits for the bill: the market
// bills by the day, and lags.
const (
	billWait = 36 * time.Hour
	awaited  = "the instance has disappeared, maybe after the end of its task: waiting for the bill, which shows the exit code"
)

// mayHaveEnded reports whether an instance that has disappeared may have destroyed itself, a grace
// after the end of its task. Such a task is not started again. Lists lag.
func (r *Runner) mayHaveEnded(o *order) bool {
	grace := r.grace(o)
	return grace >= 0 && o.Missing.Sub(latest(o.Seen, o.Created))+r.Settle >= grace
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// booting processes an instance whose container does not run yet.
func (r *Runner) booting(ctx context.Context, v *view, o *order, i vastai.Instance, instances []vastai.Instance) error {
	if !o.Ran.IsZero() { // after a restart of the host: the wrapper will report it
		return nil
	}
	switch {
	case strings.Contains(i.Message, `"/bin/sh"`) && says(i.Message, []string{"no such file", "not found"}):
		return r.finish(o, end{State: task.Error, Reason: "the image has no /bin/sh to run the task's command: " + i.Message})
	case says(i.Message, imageFaults):
		return r.finish(o, end{State: task.Error, Reason: "the image cannot be pulled: " + i.Message})
	case says(i.Message, machineFaults):
		return r.fault(ctx, v, o, "the machine cannot run the image: "+i.Message, instances)
	case r.Limits.Boot > 0 && v.began.Sub(latest(o.Created, o.Found)) > r.Limits.Boot: // it may run since the list
		return r.fault(ctx, v, o, "the image was not loaded within boot_timeout", instances)
	}
	o.Status = "the machine loads the image"
	return nil
}
