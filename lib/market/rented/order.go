package rented

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// order is all that is known of one attempt of a task: which one it is, where it stands, the machine, and the money. It
// holds no secret: variables and command stay in the task's directory.
type order struct {
	identity
	life.State
	rental
	ledger
	End *end `json:"end,omitempty"`

	saved []byte // content of its file
	// unread is why the log of a container that has ended could not be read just now.
	unread error
}

// identity is which attempt it is, and what it needs.
type identity struct {
	Task    task.ID `json:"task"`
	Attempt int     `json:"attempt"`
	Slug    string  `json:"slug,omitempty"`
	Dir     string  `json:"dir,omitempty"`   // of the task
	Image   string  `json:"image,omitempty"` // "": the order was rebuilt from an instance, and cannot be placed again
	Find    string  `json:"find,omitempty"`  // the task's own request
	Nonce   string  `json:"nonce"`
}

// rental is what was ordered last, and what is known of the machine and its log.
type rental struct {
	Machine int64   `json:"machine,omitempty"`
	GPU     string  `json:"gpu,omitempty"`
	Price   float64 `json:"price,omitempty"`   // dollars an hour
	Traffic float64 `json:"traffic,omitempty"` // dollars, of image and models

	Unnoted bool      `json:"unnoted,omitempty"` // the journal may not have it
	Checked bool      `json:"checked,omitempty"` // it is the machine that was ordered
	Seen    time.Time `json:"seen,omitzero"`     // when a list has last shown it, accurate to a third of the grace
	// Grace is how long after the end its container destroys the instance; negative: it stops it
	// instead; 0: unknown.
	Grace    time.Duration `json:"grace,omitempty"`
	Nameless int           `json:"nameless,omitempty"` // how many rows without a label were in the list that has shown it last

	LogAt time.Time `json:"log_at,omitzero"` // when its log was last read
	// Byte LogRead of this instance's output is at LogFrom in the task's, and what follows there is what follows here.
	LogFrom int64 `json:"log_from,omitempty"`
	LogRead int64 `json:"log_read,omitempty"`
	Mute    int   `json:"mute,omitempty"` // how many times its log could not be read since then
}

// ledger is what the instances of an order have cost.
type ledger struct {
	// Bills has what the market has billed for this instance and earlier ones.
	Bills map[int64]bill `json:"bills,omitempty"`
	Past  []spell        `json:"past,omitempty"` // the instances before this one
}

// end is how a task has ended, when, and for how much.
type end struct {
	At time.Time `json:"at"`
	life.End
	Cost      float64 `json:"cost"`
	Estimated float64 `json:"estimated,omitempty"` // without regard to bills
}

// bill is what was billed for an instance until a time.
type bill struct {
	Amount float64   `json:"amount"`
	Until  time.Time `json:"until"`
}

// spell is an earlier instance of the order, with its estimated cost.
type spell struct {
	ID   int64   `json:"id"`
	Cost float64 `json:"cost"`
	// Unseen is an instance that only the bill has shown.
	Unseen bool `json:"unseen,omitempty"`
}

// newOrder returns an order of an attempt of which nothing else is known.
func newOrder(id task.ID, attempt int) *order {
	return &order{identity: identity{Task: id, Attempt: attempt}, State: life.State{Phase: life.Waits, Number: 1}}
}

// nameOf returns the name of the order of an attempt.
func nameOf(id task.ID, attempt int) string { return string(id) + "." + strconv.Itoa(attempt) }

const (
	ordersDir, doneDir = "orders", "done"
	journalFile        = "journal.jsonl"
)

func random(n int) (string, error) {
	b := make([]byte, n)
	_, err := rand.Read(b)
	return hex.EncodeToString(b), err
}

// newNonce returns a unique nonce. It begins with the mark of the journal that the order is in.
func (r *Runner) newNonce() (string, error) {
	mark, err := r.mark()
	if err != nil {
		return "", err
	}
	n, err := random(8)
	return mark + "-" + n, err
}

// markFile holds the mark of the journal.
const markFile = "mark"

// mark returns the string that tells this journal from that of another agent with the same name.
func (r *Runner) mark() (string, error) {
	path := filepath.Join(r.Dir, markFile)
	read := func() (string, error) {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return strings.TrimSpace(string(b)), err
	}
	mark, err := read()
	if err != nil || mark != "" {
		return mark, err
	}
	own, err := random(4)
	if err != nil {
		return "", err
	}
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(r.Dir))
	if err != nil {
		return "", err
	}
	defer f.Cleanup()
	if _, err = f.WriteString(own + "\n"); err == nil {
		err = f.Sync() // orders that have the mark outlive a power failure
	}
	if err == nil { // the first process creates it
		err = os.Link(f.Name(), path)
	}
	if errors.Is(err, fs.ErrExist) {
		if mark, err = read(); err == nil && mark == "" { // left by a full disk
			err = f.CloseAtomicallyReplace()
		}
	}
	if err == nil {
		mark, err = read()
	}
	return mark, err
}

// untracked reports whether an instance was ordered by another journal than this one: that of another
// agent of the same name, or this agent's own before it was lost.
func (r *Runner) untracked(i vastai.Instance) (bool, error) {
	mark, err := r.mark()
	of, _, _ := strings.Cut(i.Env(entry.NonceEnv), "-")
	return of != mark, err
}

func (o *order) name() string { return nameOf(o.Task, o.Attempt) }

// rebuilt reports whether the order was rebuilt from an instance: what is needed to order another one is lost.
func (o *order) rebuilt() bool { return o.Image == "" }

// job returns the job's name, which does not change with the instance.
func (r *Runner) job(o *order) string { return r.label(o.Task, o.Attempt, 1) }

func (r *Runner) prefix() string { return "ponos:" + r.Agent + ":" }

// label returns the label of an instance.
func (r *Runner) label(id task.ID, attempt, number int) string {
	l := r.prefix() + string(id) + ":" + strconv.Itoa(attempt)
	if number > 1 {
		l += "." + strconv.Itoa(number)
	}
	return l
}

// Label is a parsed label: whose instance it is, and how its task has ended, once that is known: an
// exit code, or a word of its entrypoint.
type Label struct {
	Agent   string
	Task    task.ID
	Attempt int
	Number  int
	End     string
}

// bears reports whether an instance has a label, with or without an end appended to it.
func bears(i vastai.Instance, label string) bool {
	given, _, _ := strings.Cut(i.Label, entry.EndMark)
	return given == label
}

// isEnd reports whether a word tells how a task has ended.
func isEnd(word string) bool { _, known := life.Word(word); return known }

// ParseLabel parses the label of an instance of any agent of this project.
func ParseLabel(s string) (Label, bool) {
	s, end, told := strings.Cut(s, entry.EndMark)
	if _, never := life.Never(end); told && !never && !isEnd(end) {
		return Label{}, false
	}
	p := strings.Split(s, ":")
	if len(p) != 4 || p[0] != "ponos" || p[1] == "" {
		return Label{}, false
	}
	id, err := task.ParseID(p[2])
	if err != nil {
		return Label{}, false
	}
	attempt, number, dotted := strings.Cut(p[3], ".")
	a, err := strconv.Atoi(attempt)
	n := 1
	if err == nil && dotted {
		n, err = strconv.Atoi(number)
	}
	return Label{p[1], id, a, n, end}, err == nil && a > 0 && n > 0
}

func (r *Runner) orderPath(dir, name string) string { return filepath.Join(r.Dir, dir, name+".json") }

// hold takes the lock of an order.
func (r *Runner) hold(name string, wait time.Duration) (*lock.Lock, error) {
	return lock.TryFor(filepath.Join(r.Dir, ordersDir, name+".lock"), wait)
}

func (r *Runner) read(dir, name string) (*order, error) {
	b, err := os.ReadFile(r.orderPath(dir, name))
	if err != nil {
		return nil, err
	}
	o := &order{}
	if err := json.Unmarshal(b, o); err != nil || o.name() != name || o.Phase == "" {
		return nil, fmt.Errorf("%s: not an order", r.orderPath(dir, name))
	}
	if dir == ordersDir {
		o.saved = b
	}
	return o, nil
}

// save replaces the file of an order; it is on disk when save returns.
func (r *Runner) save(o *order) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if bytes.Equal(b, o.saved) {
		return nil // in most turns, most orders are unchanged
	}
	dir := filepath.Join(r.Dir, ordersDir)
	if err := renameio.WriteFile(r.orderPath(ordersDir, o.name()), b, 0o600, renameio.WithTempDir(dir)); err != nil {
		return err
	}
	// The new name must survive a power failure as well.
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return err
	}
	o.saved = b
	return nil
}

// orders returns the names of all open orders.
func (r *Runner) orders() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(r.Dir, ordersDir))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// close closes an order of which the market has no instance any more.
func (r *Runner) close(o *order) error {
	if err := r.journal(o, "gone", 0); err != nil {
		return err
	}
	err := os.Rename(r.orderPath(ordersDir, o.name()), r.orderPath(doneDir, o.name()))
	_ = os.Remove(filepath.Join(r.Dir, ordersDir, o.name()+".lock"))
	return err
}

// forget removes an order that was never placed.
func (r *Runner) forget(o *order) error {
	err := os.Remove(r.orderPath(ordersDir, o.name()))
	_ = os.Remove(filepath.Join(r.Dir, ordersDir, o.name()+".lock"))
	return err
}

// Entry is a line of the journal.
type Entry struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"` // intent created rejected fault lost ended destroy gone billed
	Task     task.ID   `json:"task"`
	Slug     string    `json:"slug,omitempty"`
	Attempt  int       `json:"attempt"`
	Instance int64     `json:"instance,omitempty"`
	Machine  int64     `json:"machine,omitempty"`
	GPU      string    `json:"gpu,omitempty"`
	Price    float64   `json:"dollars_per_hour,omitempty"`
	State    string    `json:"state,omitempty"`
	Cost     float64   `json:"cost_dollars,omitempty"`
	Billed   *float64  `json:"billed_dollars,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// journal appends a line to the journal; it is on disk when journal returns. It is called before the
// file of the order is written: a duplicate line is better than a missing cost.
func (r *Runner) journal(o *order, event string, instance int64) error {
	e := Entry{
		Time: r.now().UTC(), Event: event, Task: o.Task, Slug: o.Slug, Attempt: o.Attempt,
		Instance: instance, Machine: o.Machine, GPU: o.GPU, Price: o.Price,
	}
	if instance == 0 {
		e.Instance = o.Instance
	}
	if o.End != nil {
		e.State, e.Cost, e.Reason = string(o.End.State), o.End.Cost, o.End.Reason
	} else if event == "rejected" {
		e.Reason = o.Status
	} else if event == "fault" || event == "lost" {
		e.Cost, e.Reason = o.cost(r.now()), o.Status
	}
	return r.note(e)
}

// note appends an entry to the journal.
func (r *Runner) note(e Entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(r.Dir, journalFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// cost returns what the order has cost until now, as far as the agent knows: what was billed, and,
// for the time after that, the price per hour and the traffic of the image. That is more than will be
// billed for the time in which the image is loaded.
func (o *order) cost(now time.Time) float64 {
	spent := 0.0
	for _, p := range o.Past {
		if b, ok := o.Bills[p.ID]; ok {
			spent += b.Amount
		} else {
			spent += p.Cost
		}
	}
	if o.Instance == 0 {
		return spent + o.leaving(now)
	}
	now = o.there(now)
	b, ok := o.Bills[o.Instance]
	switch {
	case ok && b.Until.After(now): // the end of the contract or of the day: how much of that was billed is unknown
		return spent + max(b.Amount, o.estimate(now))
	case ok:
		return spent + b.Amount + hours(now.Sub(latest(b.Until, o.Created)))*o.Price
	}
	return spent + o.estimate(now)
}

// spent is what instances before the present one have cost, without regard to bills.
func (o *order) spent() (total float64) {
	for _, p := range o.Past {
		total += p.Cost
	}
	return total
}

// estimate returns the estimated cost of the present instance, without regard to bills.
func (o *order) estimate(now time.Time) float64 {
	return hours(o.there(now).Sub(o.Created))*o.Price + o.Traffic
}

// leaving returns what an instance that was given up has cost since then, while it is not gone.
func (o *order) leaving(now time.Time) float64 {
	if o.Phase != life.Waits || len(o.Doomed) == 0 {
		return 0
	}
	return hours(now.Sub(o.Since)) * o.Price
}

// left enters that no such instance is left.
func (o *order) left(cost float64) {
	if n := len(o.Past); n > 0 && len(o.Doomed) == 0 {
		o.Past[n-1].Cost += cost
	}
}

// there returns until when the present instance may have existed: what lists no longer show costs
// nothing.
func (o *order) there(now time.Time) time.Time {
	if missing := o.MissingSince(); !missing.IsZero() && missing.Before(now) {
		return missing
	}
	return now
}

// part enters what an instance that is given up has cost.
func (o *order) part(id int64, cost float64) {
	o.Past = append(o.Past, spell{ID: id, Cost: cost})
	o.Checked, o.Seen = false, time.Time{}
}

// rewind moves times in the future to the present, as after the clock was set back.
func (o *order) rewind(now time.Time) {
	o.Rewind(now)
	for _, t := range []*time.Time{&o.Seen, &o.LogAt} {
		if t.After(now.Add(time.Minute)) {
			*t = now.Add(-time.Millisecond)
		}
	}
}

// fill enters what a row shows of the present instance, and returns the last word that its label has.
func (o *order) fill(i vastai.Instance) (word string) {
	if i.Price > 0 {
		o.Price = i.Price
	}
	if o.Machine = i.Machine; i.GPU != "" {
		o.GPU = i.GPU
	}
	if nonce := i.Env(entry.NonceEnv); nonce != "" {
		o.Nonce = nonce
	}
	if grace := i.Env(entry.GraceEnv); grace != "" {
		o.Grace = graceOf(grace)
	}
	if l, ok := ParseLabel(i.Label); ok && l.Task == o.Task && l.Attempt == o.Attempt {
		return l.End
	}
	return ""
}

// market is the state that all orders share: when the last ones were placed, the avoided machines, and
// what is known of others.
type market struct {
	Creates []time.Time       `json:"creates,omitempty"`
	Avoided map[int64]Avoided `json:"avoided,omitempty"`
	// Quick has the machines on which tasks have failed at once, and none has done better since; Well
	// is when a task has done better on any machine.
	Quick map[int64]quick `json:"quick,omitempty"`
	Well  time.Time       `json:"well,omitzero"`
	// Scarce is why there was no suitable offer lately, by the filters.
	Scarce map[string]Scarce `json:"scarce,omitempty"`
}

// Avoided says until when and why a machine is avoided.
type Avoided struct {
	Until time.Time `json:"until"`
	Why   string    `json:"why"`
}

// quick is which tasks have failed at once on a machine, and since when.
type quick struct {
	Tasks []task.ID `json:"tasks"`
	Since time.Time `json:"since"`
}

// quickFailures is how many different tasks fail at once on a machine that is at fault.
const quickFailures = 2

// ran records how a task has run on a machine, and reports whether the machine is to blame: several
// tasks have failed on it at once, and tasks have done better on others meanwhile, or have not failed
// so on any other. Tasks that fail everywhere are at fault themselves.
func (m *market) ran(machine int64, id task.ID, failed bool, now time.Time) (blame bool) {
	if !failed {
		delete(m.Quick, machine)
		m.Well = now
		return false
	}
	q, known := m.Quick[machine]
	if !known {
		q.Since = now
	}
	if !slices.Contains(q.Tasks, id) {
		q.Tasks = append(q.Tasks, id)
	}
	m.Quick[machine] = q
	return len(q.Tasks) >= quickFailures && (len(m.Quick) == 1 || m.Well.After(q.Since))
}

func (r *Runner) readMarket() (market, error) {
	m := market{Avoided: map[int64]Avoided{}, Quick: map[int64]quick{}, Scarce: map[string]Scarce{}}
	b, err := os.ReadFile(filepath.Join(r.Dir, "market.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if json.Unmarshal(b, &m) != nil { // without its content, ordering continues
		r.fail("market.json cannot be read, and is replaced", "", errors.New("not JSON"))
		m = market{}
	}
	now := r.now()
	for i, t := range m.Creates {
		if t.After(now) { // the clock was set back
			m.Creates[i] = now
		}
	}
	m.Creates = slices.DeleteFunc(m.Creates, func(t time.Time) bool { return now.Sub(t) > time.Hour })
	maps.DeleteFunc(m.Avoided, func(_ int64, a Avoided) bool { return now.After(a.Until) })
	maps.DeleteFunc(m.Scarce, func(_ string, s Scarce) bool { return now.Sub(s.At).Abs() > scarceTime })
	maps.DeleteFunc(m.Quick, func(_ int64, q quick) bool { return now.Sub(q.Since) > r.Avoid })
	if m.Avoided == nil {
		m.Avoided = map[int64]Avoided{}
	}
	if m.Quick == nil {
		m.Quick = map[int64]quick{}
	}
	if m.Scarce == nil {
		m.Scarce = map[string]Scarce{}
	}
	return m, nil
}

func (r *Runner) writeMarket(m market) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(r.Dir, "market.json"), b, 0o600, renameio.WithTempDir(r.Dir))
}
