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

// order is all that is known of one attempt of a task: which one it is and what it needs, where it stands, and how far its output was
// read. It holds no secret: variables and command stay in the task's directory.
type order struct {
	Task    task.ID `json:"task"`
	Attempt int     `json:"attempt"`
	Nonce   string  `json:"nonce"`
	Wish
	life.State
	// Nameless is how many rows without a label were in the list that has shown an instance of it last.
	Nameless int  `json:"nameless,omitempty"`
	Log      log  `json:"log,omitzero"`
	End      *end `json:"end,omitempty"`

	saved []byte // content of its file
	// unread is why the log of a container that has ended could not be read just now.
	unread error
}

// log is how far the output of its own instance was read: byte Read of it is at From in the task's, and what follows there is what
// follows here.
type log struct {
	At   time.Time `json:"at,omitzero"` // when its log was last read
	From int64     `json:"from,omitempty"`
	Read int64     `json:"read,omitempty"`
}

// end is how a task has ended, and when.
type end struct {
	At time.Time `json:"at"`
	life.End
}

// newOrder returns an order of an attempt of which nothing else is known.
func newOrder(id task.ID, attempt int) *order {
	return &order{Task: id, Attempt: attempt, State: life.State{Phase: life.Waits}}
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

// dir returns the task's directory.
func (r *Runner) dir(o *order) string {
	return filepath.Join(filepath.Dir(r.Dir), "tasks", string(o.Task))
}

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
	if _, never := life.Never(end); told && !never && !isEnd(end) && end != entry.Begun {
		return Label{}, false
	}
	if end == entry.Begun {
		end = ""
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
	o, err := parseOrder(b)
	if err != nil || o.name() != name || o.Phase == "" {
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
		Time: r.now().UTC(), Event: event, Task: o.Task, Slug: o.Slug, Attempt: o.Attempt, Instance: instance,
	}
	last := o.Last()
	if instance == 0 {
		e.Instance = o.Instance()
	} else if t := o.Try(instance); t != nil {
		last = *t
	}
	e.Machine, e.GPU, e.Price = last.Machine, last.GPU, last.Price
	if o.End != nil {
		e.State, e.Cost, e.Reason = string(o.End.State), o.cost(r.now()), o.End.Reason
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

// cost returns what the order has cost until now, or its end, as far as the agent knows.
func (o *order) cost(now time.Time) (total float64) {
	for _, t := range o.Tries {
		total += t.Cost(o.until(now), now)
	}
	return total
}

// estimate returns that without regard to bills.
func (o *order) estimate(now time.Time) (total float64) {
	for _, t := range o.Tries {
		total += t.Estimate(o.until(now))
	}
	return total
}

func (o *order) until(now time.Time) time.Time {
	if o.End != nil {
		return o.End.At
	}
	return now
}

// rewind moves times in the future to the present, as after the clock was set back.
func (o *order) rewind(now time.Time) {
	if o.Rewind(now); o.Log.At.After(now.Add(time.Minute)) {
		o.Log.At = now
	}
}

// fill enters what a row shows of the present instance, and returns the last word that its label has.
func (o *order) fill(i vastai.Instance) (word string) {
	t := o.Own()
	if i.Price > 0 {
		t.Price = i.Price
	}
	if t.Machine = i.Machine; i.GPU != "" {
		t.GPU = i.GPU
	}
	if nonce := i.Env(entry.NonceEnv); nonce != "" {
		o.Nonce = nonce
	}
	if grace := i.Env(entry.GraceEnv); grace != "" {
		t.Grace = graceOf(grace)
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
