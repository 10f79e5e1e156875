package rented

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/registry"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Limits limit the cost.
type Limits struct {
	PricePerHour   float64 // dollars; each of these: 0 means no limit
	CostPerTask    float64
	CostPerDay     float64 // of all tasks, in UTC
	Instances      int
	CreatesPerHour int
	MinCredit      float64
	Boot           time.Duration // from an order until its container runs
	Runtime        time.Duration // of a task
}

// Checkpoints configures where checkpoints of tasks outlive their machines.
type Checkpoints struct {
	// Store is the address of a store, in which each task gets a place of its own. "": none.
	Store string
	// Load and Save are commands for the shell of the container, which copy a task's directory from
	// the store and to it; "": the task does that itself.
	Load, Save string
	Interval   time.Duration // between two saves
}

// Runner runs tasks on rented machines.
type Runner struct {
	API     *vastai.Governor
	Dir     string // where orders and the journal are
	Agent   string // the name of the agent, in the labels of its instances
	Filters vastai.Filters
	// Finds are additional filters for tasks, by patterns of slugs; the longest matching pattern
	// counts.
	Finds map[string]vastai.Filters
	// Translate converts a resource request of a task into filters.
	Translate func(find string) (vastai.Filters, error)
	Estimate  vastai.Estimate
	Limits    Limits
	Disk      float64 // GB
	// Bid is what is bid for interruptible machines, in dollars an hour; with Spot, it is a little
	// more than the minimum. Without both, no interruptible machine is rented.
	Bid  float64
	Spot bool
	// Retries is how often a task is started again after its machine was lost.
	Retries     int
	Checkpoints Checkpoints
	// BillInterval is how often the market is asked what it has billed; 0: never.
	BillInterval time.Duration
	// Billed is told what attempts that have ended have cost by the bill, again each time that is asked for; nil: nobody is.
	Billed   func(id task.ID, attempt int, cost float64) error
	Login    string // for private images
	ExtraEnv map[string]string
	// Commands are for images whose tasks have no command: patterns of slugs, and commands.
	Commands map[string]string
	// Images returns what an image runs by itself and which programs it has, given what was seen in
	// it before; nil: unknown, and the container finds out.
	Images  func(ctx context.Context, name string, known registry.Contents) (registry.Image, error)
	Program Program
	// Fetch returns the SHA-256 of what a container would fetch from an address; nil: it is fetched.
	Fetch       func(ctx context.Context, address string) (sum string, err error)
	Avoid       time.Duration // how long a machine is avoided after a fault
	Settle      time.Duration // how long a new instance may be missing from lists
	LogInterval time.Duration
	LogTime     time.Duration // longest wait for one log; default: 30 s
	LockTime    time.Duration // longest wait for a lock, which a suspended tool may hold; default: 2 min
	StopWait    time.Duration
	Log         *slog.Logger
	Now         func() time.Time

	odd int
}

// maxTries is on how many machines a task is tried.
const maxTries = 4

// Name is "vast".
func (r *Runner) Name() string { return "vast" }

func (r *Runner) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return clock.Now()
}

func (r *Runner) prepare() error {
	for _, d := range []string{ordersDir, doneDir} {
		if err := os.MkdirAll(filepath.Join(r.Dir, d), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// Kept returns the variables of instances that must be known even in lists of other tools.
func Kept() []string { return []string{entry.NonceEnv, entry.GraceEnv} }

// Wish is what a task needs: its image, and a machine for its slug, for which the configuration may have a request, or for a
// request of its own, which replaces that.
type Wish struct {
	Slug  string `json:"slug,omitempty"`
	Find  string `json:"find,omitempty"`
	Image string `json:"image,omitempty"` // "": the order was rebuilt from an instance, and cannot be placed again
}

// All returns the filters of a search for a task, with disk and price.
func (r *Runner) All(w Wish) vastai.Filters {
	all := r.Filters
	var own vastai.Filters
	best := ""
	for _, pattern := range slices.Sorted(maps.Keys(r.Finds)) {
		ok, err := path.Match(pattern, w.Slug)
		if err == nil && ok && (best == "" || pattern == w.Slug || best != w.Slug && len(pattern) > len(best)) {
			own, best = r.Finds[pattern], pattern
		}
	}
	if w.Find != "" {
		var err error
		if own, err = r.Translate(w.Find); err != nil { // it was refused when the order was begun
			own = vastai.Nothing(fault.Text(err))
		}
	}
	return slices.Concat(all, own).Complete().Within(r.Disk, r.Limits.PricePerHour)
}

// Check requests the account, has the market check the filters, and finds out which permissions the
// key has.
func (r *Runner) Check(ctx context.Context) (found runner.Checked, err error) {
	if err := r.prepare(); err != nil {
		return found, err
	}
	account, err := r.API.Account(ctx, r.now())
	if vastai.LacksPermission(err) {
		return found, scoped(err, "user_read") // the key is known, but lacks the permission
	}
	if err != nil {
		return found, err
	}
	limited := r.Searches(Wish{})[0]
	limited.Limit = 1
	offers, err := r.API.Search(ctx, limited, false)
	if errors.Is(err, vastai.ErrInvalid) {
		return found, fault.Errorf(fault.Usage, "vast_api.offer_filters: the market rejects them: %w", err)
	}
	if err != nil {
		return found, scoped(err, "misc")
	}
	if found.Warnings, err = r.warnings(ctx, offers.Offers); err != nil {
		return found, err
	}
	if err := r.scopes(ctx); err != nil {
		return found, err
	}
	served, err := r.served(ctx)
	if err != nil {
		return found, err
	}
	if warning := r.billing(ctx); warning != "" {
		found.Warnings = append(found.Warnings, warning)
	}
	found.Detail = fmt.Sprintf("account %d by %s, credit $%.2f", account.ID, r.API.Name(), account.Credit)
	if p, err := r.purse(""); err == nil && p.Rate > 0 {
		found.Detail = fmt.Sprintf("account %d by %s, %s", account.ID, r.API.Name(), lasts(account.Credit, p.Rate))
	}
	if account.Credit < r.Limits.MinCredit {
		found.Detail += fmt.Sprintf(", less than min_credit $%.2f: nothing will be ordered", r.Limits.MinCredit)
	}
	found.Detail += "; " + served
	return found, nil
}

// Can run images on other machines, which costs money.
func (r *Runner) Can() runner.Abilities { return runner.Abilities{Remote: r, Price: r} }

// scopes finds out whether the key has the permissions that the agent needs: it lists instances, and
// destroys one that cannot exist.
func (r *Runner) scopes(ctx context.Context) error {
	if _, err := r.API.List(ctx, r.now()); err != nil {
		return scoped(err, "instance_read")
	}
	if err := r.API.Destroy(ctx, 0); errors.Is(err, vastai.ErrAuth) {
		return scoped(err, "instance_write")
	}
	return nil
}

// billing returns a warning if charges are to be read and cannot be.
func (r *Runner) billing(ctx context.Context) string {
	if r.BillInterval == 0 {
		return ""
	}
	now := r.now()
	if _, err := r.API.Charges(ctx, now.Add(-24*time.Hour), now, now, 1); err != nil && !errors.Is(err, vastai.ErrMore) {
		return "vast_api: the market's charges cannot be read (" + fault.Text(err) +
			"): give the key the permission billing_read, or set bill_interval: 0; costs stay estimates until then"
	}
	return ""
}

// scoped names the permission that an otherwise valid key may lack.
func scoped(err error, permission string) error {
	if !errors.Is(err, vastai.ErrAuth) || vastai.Expired(err) {
		return err
	}
	return fault.Hint(err, permissionHint(permission))
}

func permissionHint(permission string) string {
	return "give the key the permission " + permission +
		"; the agent needs instance_read, instance_write, user_read and misc, and billing_read for what was billed"
}

// reserved are variables that have a meaning for the market, or for the container; see also entry.IsOurs.
var reserved = append(slices.Clone(vastai.Reserved), limitEnv, storeEnv, entry.CheckpointsEnv, loadEnv, saveEnv, intervalEnv)

// Place returns what a task needs on a rented machine: what a container of this machine would have,
// and what makes its worker download what the agent cannot place there.
func (r *Runner) Place(ctx context.Context, t task.Task) (env map[string]string, command []string, err error) {
	if t.Image == "" {
		return nil, nil, errors.New("the task has no image, and rented machines run only images; set one with ponos-submit --image")
	}
	if command, err = r.command(ctx, t); err != nil {
		return nil, nil, err
	}
	if err := r.equipped(ctx, t.Image); err != nil {
		return nil, nil, err
	}
	if env, err = r.variables(t); err != nil {
		return nil, nil, err
	}
	return env, command, r.carries(t.Image, env, command)
}

// Carries returns why an order cannot carry a task to its machine, as far as that is known before its image is.
func (r *Runner) Carries(t task.Task) error {
	env, err := r.variables(t)
	if err != nil {
		return err
	}
	return r.carries(t.Image, env, t.Command)
}

// variables are those of a task's container.
func (r *Runner) variables(t task.Task) (map[string]string, error) {
	env := maps.Clone(t.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, r.ExtraEnv)
	maps.DeleteFunc(env, func(name, _ string) bool { return entry.IsOurs(name) || slices.Contains(reserved, name) })
	parents := map[string]string{}
	for _, p := range t.Parents {
		slug := p.Slug
		if slug == "" {
			slug = string(p.ID)
		}
		parents[string(p.ID)] = slug
	}
	b, err := json.Marshal(parents) // sorted, and without spaces
	if err != nil {
		return nil, err
	}
	env["PONOS_TASK"], env["PONOS_DATA"] = string(t.ID), "/data"
	env["TASK_BOOTSTRAP"], env["TASK_PARENTS"] = "true", string(b)
	if c := r.Checkpoints; c.Store != "" {
		// It does not change with the machine.
		env[storeEnv], env[entry.CheckpointsEnv] = strings.TrimSuffix(c.Store, "/")+"/"+string(t.ID), checkpointsDir
		if c.Save != "" {
			env[loadEnv], env[saveEnv], env[intervalEnv] = c.Load, c.Save, strconv.Itoa(int(c.Interval.Seconds()))
		}
	}
	if env["ARKINDEX_MODEL_VERSION"] != "" && env["ARKINDEX_MODEL_DIR"] == "" {
		env["ARKINDEX_MODEL_DIR"] = "/data/extra_files" // otherwise the worker does not download it
	}
	if limit := r.runtime(t.TTL); limit > 0 {
		env[limitEnv] = strconv.Itoa(int(limit.Seconds()))
	}
	return env, nil
}

// maxWord is the longest argument or variable of a program on Linux, in bytes.
const maxWord = 128<<10 - 1

// carries reports what an order for a task would have too much of: label and nonce are as long as they get.
func (r *Runner) carries(image string, env map[string]string, command []string) error {
	for n, word := range command {
		if len(word) > maxWord {
			return fmt.Errorf("word %d of the command has %d bytes, and a program takes %d", n+1, len(word), maxWord)
		}
	}
	for name, value := range env {
		if n := len(name) + 1 + len(value); n > maxWord {
			return fmt.Errorf("the variable %s has %d bytes, and a program takes %d", task.Clean(name), n, maxWord)
		}
	}
	o := newOrder(task.ID(strings.Repeat("0", 36)), 1)
	o.Nonce = strings.Repeat("0", 25)
	packed, err := r.arm(env, command, o, entry.Machine{GPUs: 1, GPU: strings.Repeat("0", 40), GPUMemory: 1e6, Memory: 1e6, Disk: 1e4})
	if err != nil {
		return err
	}
	return r.request(image, "", packed).Check()
}

// command returns what a task's container runs. Its entrypoint is replaced, so that must be known.
func (r *Runner) command(ctx context.Context, t task.Task) ([]string, error) {
	if len(t.Command) == 0 {
		for _, pattern := range slices.Sorted(maps.Keys(r.Commands)) {
			if ok, err := path.Match(pattern, t.Slug); err != nil || !ok {
				continue
			}
			command, err := task.SplitCommand(r.Commands[pattern])
			if err != nil {
				return nil, fmt.Errorf("vast_api.commands: %s: %w", pattern, err)
			}
			return command, nil
		}
	}
	if r.Images == nil {
		if len(t.Command) == 0 {
			return nil, errors.New("the task has no command, and image_lookup is off; set vast_api.commands or image_lookup")
		}
		return t.Command, nil
	}
	image, err := r.image(ctx, t.Image)
	switch {
	case errors.Is(err, registry.ErrRefused):
		return nil, err
	case err != nil:
		return nil, later("image %s: %w (set image_lookup: false to skip this)", task.Clean(t.Image), err)
	}
	command := image.Argv(t.Command)
	if len(command) == 0 {
		return nil, fmt.Errorf("neither the task nor its image %s has a command", task.Clean(t.Image))
	}
	return command, nil
}

func (r *Runner) runtime(ttl time.Duration) time.Duration {
	if limit := r.Limits.Runtime; limit > 0 && (ttl == 0 || limit < ttl) {
		return limit
	}
	return ttl
}

// Start orders an instance for a task, unless it has one.
func (r *Runner) Start(ctx context.Context, s runner.Submission) (runner.Job, error) {
	if err := r.prepare(); err != nil {
		return runner.Job{}, err
	}
	name := string(s.Task) + "." + strconv.Itoa(s.Attempt)
	held, err := r.hold(name, 30*time.Second)
	if errors.Is(err, lock.ErrHeld) {
		return runner.Job{}, fmt.Errorf("%w: another process works on its order", runner.ErrLater)
	}
	if err != nil {
		return runner.Job{}, err
	}
	defer held.Close()
	o, err := r.read(ordersDir, name)
	if errors.Is(err, fs.ErrNotExist) {
		if o, err = r.read(doneDir, name); err == nil { // it has ended, and the agent's record was lost
			return r.state(o, runner.Found), nil
		}
		return r.begin(ctx, s)
	}
	if err != nil {
		return runner.Job{}, err
	}
	o.describe(s)
	if o.Instance() != 0 || o.End != nil {
		return r.state(o, runner.Found), r.save(o)
	}
	adopted, err := r.findInstance(ctx, o)
	if err != nil {
		return runner.Job{}, err
	}
	if adopted {
		return r.state(o, runner.Found), nil
	}
	if err := r.place(ctx, o); err != nil {
		return runner.Job{}, err
	}
	return r.state(o, runner.Recorded), nil
}

func (o *order) describe(s runner.Submission) {
	o.Wish = Wish{s.Label, s.Request.Find, s.Image}
}

// begin orders an instance for an attempt that the journal does not know. It may have known it before
// it was lost, so all instances are listed: the market cannot filter by the beginning of a label.
func (r *Runner) begin(ctx context.Context, s runner.Submission) (runner.Job, error) {
	o := newOrder(s.Task, s.Attempt)
	o.describe(s)
	if o.Find != "" {
		if _, err := r.Translate(o.Find); err != nil {
			return runner.Job{}, fmt.Errorf("%w: the request: %w", runner.ErrRefused, err)
		}
	}
	// Output of earlier attempts is kept.
	if info, err := os.Stat(filepath.Join(s.Dir, runner.Output)); err == nil && len(s.Before) > 0 {
		o.Log.From = info.Size()
	}
	m, err := r.readMarket()
	if err != nil {
		return runner.Job{}, err
	}
	if err := r.room(o.name(), m); err != nil {
		return runner.Job{}, err
	}
	list, err := r.API.List(ctx, r.now().Add(-2*r.API.Unit))
	if err != nil {
		return runner.Job{}, r.ordering(ctx, err)
	}
	if old, err := r.old(); err != nil {
		return runner.Job{}, err
	} else if old { // the journal is too old to lack an order
		o.Nameless = list.Nameless()
	}
	if r.hides(list, o) {
		return runner.Job{}, hidden(list)
	}
	var own []vastai.Instance
	for _, i := range list.Instances {
		l, ok := ParseLabel(i.Label)
		if !ok || l.Agent != r.Agent || l.Task != s.Task {
			continue
		}
		other := newOrder(l.Task, l.Attempt)
		if l.Attempt == s.Attempt {
			own = append(own, i)
		} else if !slices.Contains(s.Before, r.job(other)) && !r.over(other.name()) {
			return runner.Job{}, later("attempt %d of the task has instance %d, which the next turn takes over", l.Attempt, i.ID)
		}
	}
	if len(own) > 0 {
		r.choose(o, own)
		err = r.created(o, "order found")
		return r.state(o, runner.Found), err
	}
	if o.Nonce, err = r.newNonce(); err != nil {
		return runner.Job{}, err
	}
	if err := r.place(ctx, o); err != nil {
		return runner.Job{}, err
	}
	return r.state(o, runner.Recorded), nil
}

func hidden(list vastai.Listing) error {
	return later("%d rows of the list of instances cannot be read, and one may be the instance of this task", list.Odd)
}

// youth is how old a journal may be to lack what was ordered before it was lost.
const youth = time.Hour

// old reports whether the journal is older than that.
func (r *Runner) old() (bool, error) {
	if _, err := r.mark(); err != nil {
		return false, err
	}
	info, err := os.Stat(filepath.Join(r.Dir, markFile))
	return err == nil && r.now().Sub(clock.Modified(info)) > youth, err
}

// over reports whether an attempt has ended according to the journal.
func (r *Runner) over(name string) bool {
	if o, err := r.read(ordersDir, name); err == nil {
		return o.End != nil
	}
	_, err := r.read(doneDir, name)
	return err == nil
}

// findInstance finds the instance of an order whose outcome is unknown. If there is none, it gives
// the order another label.
func (r *Runner) findInstance(ctx context.Context, o *order) (found bool, err error) {
	if o.Phase != life.Asked {
		return false, nil // nothing was ordered with this label
	}
	// List all: an ended task has appended its end to the label. A list from the time of the order
	// proves nothing if the order was still on its way.
	list, err := r.API.List(ctx, latest(o.Since, r.now().Add(-2*r.API.Unit/5)))
	if err != nil {
		return false, r.ordering(ctx, err)
	}
	if rows := r.fresh(o, list.Instances); len(rows) > 0 {
		r.choose(o, rows)
		return true, r.created(o, "order found")
	}
	if r.hides(list, o) {
		return false, hidden(list)
	}
	// Of an order whose answer was lost, only lists tell: one that lacks another instance proves nothing.
	names, err := r.orders()
	if err != nil {
		return false, err
	}
	var others []*order
	for _, name := range names {
		if other, err := r.read(ordersDir, name); err == nil {
			others = append(others, other)
		}
	}
	if absent, _ := r.lacking(list, others); absent > 0 {
		return false, later("it is not known yet whether an order has gone through: the list lacks %d other instances", absent)
	}
	// What was not looked for during a grace may have come and gone.
	first, grace := cmp.Or(o.MissingSince(), list.At), r.grace(*o.Own())
	do := r.step(o, life.Event{Kind: life.Missing, At: list.At, Itself: grace >= 0 && first.Sub(o.Pending())+r.Settle >= grace})
	if do.Action == life.AskBill {
		found, err := r.findInBill(ctx, o)
		denied := errors.Is(err, vastai.ErrAuth)
		if found || err != nil && !denied {
			return found, err
		}
		do = r.step(o, life.Event{Kind: life.Billed, At: r.now(), Complete: denied})
	}
	switch do.Action {
	case life.Finish:
		return true, r.finish(o, do.End)
	case life.Lost:
		r.say("machine lost", o, "reason", do.Why, "losses", o.Losses())
		return false, errors.Join(r.journal(o, "lost", 0), r.save(o))
	case life.Wait:
		return false, errors.Join(r.save(o), later("%s", do.Why))
	}
	return false, r.save(o)
}

// findInBill finds the instance of a request that was not answered in the bill, which has labels.
func (r *Runner) findInBill(ctx context.Context, o *order) (found bool, err error) {
	if r.BillInterval <= 0 {
		return false, nil
	}
	now := r.now()
	from := latest(o.Since, now.Add(-billTime)).UTC().Truncate(24 * time.Hour)
	list, err := r.API.Charges(ctx, from, now, now.Add(-r.BillInterval/2), 1)
	if err != nil && !errors.Is(err, vastai.ErrMore) {
		return false, later("it is not known whether an order has gone through: %w", err)
	}
	for _, c := range list {
		if i := (vastai.Instance{ID: c.Instance, Label: c.Label, Started: c.From}); bears(i, r.label(o.Task, o.Attempt, o.Number())) {
			r.choose(o, []vastai.Instance{i})
			return true, r.created(o, "order found in the bill")
		}
	}
	return false, nil
}

// choose makes one of several instances that of the order; the others are to be destroyed.
func (r *Runner) choose(o *order, list []vastai.Instance) {
	slices.SortFunc(list, func(a, b vastai.Instance) int { return int(a.ID - b.ID) })
	first := list[0]
	found := life.Event{Kind: life.Found, At: r.now(), ID: first.ID, Born: first.Started}
	if l, ok := ParseLabel(first.Label); ok {
		found.Number = l.Number
	}
	r.step(o, found)
	if word := o.fill(first); isEnd(word) {
		r.step(o, life.Event{Kind: life.Tells, Word: word})
	}
	for _, i := range list[1:] {
		r.double(o, i)
	}
}

// double enters that a list shows an instance that the order does not need.
func (r *Runner) double(o *order, i vastai.Instance) {
	l, _ := ParseLabel(i.Label)
	r.step(o, life.Event{Kind: life.Double, ID: i.ID, Number: l.Number})
}

func (r *Runner) say(what string, o *order, more ...any) {
	if last := o.Last(); r.Log != nil {
		about := []any{
			"task", o.Task, "attempt", o.Attempt, "instance", o.Instance(), "machine", last.Machine, "price", dollars(last.Price),
		}
		r.Log.Info(what, append(about, more...)...)
	}
}

// state returns the job of an order.
func (r *Runner) state(o *order, claim runner.Claim) runner.Job {
	job := runner.Job{
		Task: o.Task, ID: r.job(o), Sight: runner.Waits, Reason: o.Status, Claim: claim,
		Submitted: o.Last().Born, Restarts: max(0, o.Instances()-1),
	}
	own := o.Own()
	switch {
	case o.End != nil:
		job.Sight, job.Reason = runner.Ended, o.End.Reason
		job.End = runner.End{State: o.End.State, ExitCode: o.End.Code, Rent: r.rent(o)}
		if o.End.Cancelled {
			job.Sight = runner.Cancelled
		}
	case own.Looks[life.Offline].Times > 0 && !own.Ran.IsZero():
		job.Sight = runner.Unclear
	case !own.Ran.IsZero():
		job.Sight, job.Reason = runner.Runs, ""
	}
	return job
}

// rent is what an order that is over has cost, and where its last instance ran.
func (r *Runner) rent(o *order) task.Rent {
	last := o.Last()
	return task.Rent{Cost: o.cost(r.now()), Machine: last.Machine, GPU: task.Clean(last.GPU)}
}

// environment reads the result of Place from the task's directory.
func environment(dir string) (env map[string]string, command []string, err error) {
	words := func(name string) ([]string, error) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		text := strings.TrimSuffix(string(b), "\x00")
		if err != nil || text == "" && len(b) == 0 {
			return nil, err
		}
		return strings.Split(text, "\x00"), nil
	}
	variables, err := words(runner.EnvFile)
	if err != nil {
		return nil, nil, err
	}
	env = map[string]string{}
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	command, err = words(runner.CommandFile)
	return env, command, err
}
