package vastai

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/base/replace"
)

// A Governor makes all requests of an account and limits their rate. It keeps its state in a
// directory that all tools of the user share. One list of instances, one account and one search
// for each set of filters therefore serve all tools, requests keep the distances that the
// market documents, and a refusal with a time applies to all tools.
type Governor struct {
	API API
	Dir string
	// Unit scales all times: five seconds for the real market, less for tests.
	Unit time.Duration
	// Keep are the variables of instances that the cache may hold. Others may be secrets.
	Keep  []string
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error

	mu    sync.Mutex
	batch *batch // destroy requests that wait for their turn

	updating  sync.Mutex
	unwritten *ledger // the ledger, if it could not be written
}

// distances are the minimum times between two requests of a class, in tenths of a Unit (half a
// second). Sources: x-rate-limit in the market's OpenAPI documents (order 4.5 s, destroy 3 s,
// charges 1 s, search about ten per minute). For the newest paths of lists and accounts, the
// documents give none; older paths had one or two seconds.
var distances = map[string]time.Duration{
	"list": 2, "show": 4, "account": 2, "search": 12, "order": 10, "destroy": 6, "log": 1, "charges": 2,
}

// Times in Units.
const (
	searchServes  = 6  // how long a search is reused for orders
	accountServes = 12 // how long the account's credit is reused
	leastIdle     = 3  // first pause after a search without a usable offer
	mostIdle      = 60
	maxSlot       = 24  // longest wait for a turn
	busyPenalty   = 3   // first pause after a refusal without a time
	mostBusy      = 120 // longest pause after a refusal with a time
)

// NewGovernor returns a governor of a transport, and makes the transport keep its distances.
func NewGovernor(api API, dir string, unit time.Duration, now func() time.Time) *Governor {
	g := &Governor{API: api, Dir: dir, Unit: unit, Now: now, Sleep: sleep}
	if t, ok := api.(interface {
		SetPace(pace func(ctx context.Context, op string) error)
	}); ok {
		t.SetPace(g.pace)
	}
	return g
}

func sleep(ctx context.Context, d time.Duration) error {
	if d > 0 && !pause(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// Name returns the name of the transport.
func (g *Governor) Name() string { return g.API.Name() }

// units returns n Units.
func (g *Governor) units(n time.Duration) time.Duration { return n * g.Unit }

// class returns the class of an operation: its first word.
func class(op string) string {
	word, _, _ := strings.Cut(op, " ")
	return word
}

// course is the rate limit of a class of requests.
type course struct {
	Next  time.Time     `json:"next,omitzero"`  // earliest time of the next request
	Until time.Time     `json:"until,omitzero"` // no request before, after a failure
	Kind  string        `json:"kind,omitempty"` // of that failure: a key of kinds
	Words string        `json:"words,omitempty"`
	Pause time.Duration `json:"pause,omitempty"` // last pause that the market did not set
}

// ledger holds the courses of all classes, and when offers were tried.
type ledger struct {
	Courses map[string]course   `json:"courses,omitempty"`
	Tried   map[int64]time.Time `json:"tried,omitempty"`
}

// kinds are the failures that suspend requests, by their names in the ledger.
var kinds = map[string]error{"busy": ErrBusy, "quota": ErrQuota, "unknown": ErrUnknown}

// How long to wait for a lock, in Units. A process that holds it longer may be stopped (SIGSTOP),
// and others must not wait for a user to resume it. Without the lock, some requests are made twice.
const (
	ledgerPatience = 1
	cachePatience  = maxSlot
)

// hold takes a lock. If it cannot within patience, or at all (on a full disk), it returns nil
// without an error; release accepts nil.
func (g *Governor) hold(ctx context.Context, path string, patience time.Duration) (*lock.Lock, error) {
	waiting, cancel := context.WithTimeout(ctx, g.units(patience))
	defer cancel()
	held, err := lock.Wait(waiting, path+".lock")
	if err != nil && ctx.Err() == nil {
		return nil, nil
	}
	return held, err
}

func release(held *lock.Lock) {
	if held != nil {
		_ = held.Close()
	}
}

// updateLedger changes the ledger under its lock. An unreadable ledger is replaced, as it only
// limits the rate of requests and no guarantee depends on it. If the ledger cannot be written,
// this process keeps it in memory.
func (g *Governor) updateLedger(ctx context.Context, change func(l *ledger)) error {
	_ = os.MkdirAll(g.Dir, 0o700)
	path := filepath.Join(g.Dir, "requests.json")
	held, err := g.hold(ctx, path, ledgerPatience)
	if err != nil {
		return err
	}
	defer release(held)
	g.updating.Lock()
	defer g.updating.Unlock()
	was, l := []byte(nil), ledger{}
	if g.unwritten != nil {
		l = *g.unwritten
	} else if was, err = place.ReadFile(path); err == nil && json.Unmarshal(was, &l) != nil {
		l = ledger{}
	}
	if l.Courses == nil {
		l.Courses = map[string]course{}
	}
	if l.Tried == nil {
		l.Tried = map[int64]time.Time{}
	}
	now := g.Now()
	for id, at := range l.Tried {
		if now.Sub(at) > time.Hour || at.After(now) {
			delete(l.Tried, id)
		}
	}
	for name, c := range l.Courses {
		if c.Next.After(now.Add(g.units(2 * maxSlot))) { // the clock has been set back
			c.Next = time.Time{}
		}
		if c.Until.After(now.Add(49 * time.Hour)) {
			c.Until = time.Time{}
		}
		l.Courses[name] = c
	}
	change(&l)
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if b = append(b, '\n'); bytes.Equal(b, was) {
		return nil
	}
	g.unwritten = nil
	if replace.File(path, b, 0o600) != nil {
		g.unwritten = &l
	}
	return nil
}

// pace waits until a request may be made, or returns the error why it is not made.
func (g *Governor) pace(ctx context.Context, op string) error {
	name := class(op)
	var wait time.Duration
	var refused *callError
	err := g.updateLedger(ctx, func(l *ledger) {
		now, c := g.Now(), l.Courses[name]
		if now.Before(c.Until) {
			refused = &callError{op: op, kind: kinds[c.Kind], words: c.Words, until: c.Until, held: true}
			return
		}
		slot := now
		if c.Next.After(now) {
			slot = c.Next
		}
		if wait = slot.Sub(now); wait > g.units(maxSlot) {
			refused = &callError{op: op, kind: ErrBusy, words: "too many requests are waiting already", until: slot, held: true}
			return
		}
		c.Next = slot.Add(distances[name] * g.Unit / 10)
		l.Courses[name] = c
	})
	switch {
	case err != nil:
		return failed(op, ErrUnknown, 0, fault.Text(err))
	case refused != nil:
		return hinted(refused)
	}
	return g.Sleep(ctx, wait)
}

// learn records the result of a call. After too many requests, no request of the class is made
// until the time that the market names or, without one, for growing pauses. The same holds for
// searches, accounts and charges while the market does not work.
func (g *Governor) learn(ctx context.Context, name string, err error) {
	kind := ""
	switch {
	case errors.Is(err, ErrQuota):
		kind = "quota"
	case errors.Is(err, ErrBusy):
		kind = "busy"
	case errors.Is(err, ErrUnknown) && (name == "search" || name == "account" || name == "charges") && ctx.Err() == nil:
		kind = "unknown"
	case err != nil:
		return
	}
	// On failure, the next request gets the same refusal.
	_ = g.updateLedger(ctx, func(l *ledger) {
		now, c := g.Now(), l.Courses[name]
		if kind == "" {
			if c.Kind != "" || c.Pause != 0 {
				l.Courses[name] = course{Next: c.Next}
			}
			return
		}
		if now.Before(c.Until) {
			return // the request was not sent
		}
		c.Kind, c.Words = kind, ""
		var e *callError
		if errors.As(err, &e) {
			c.Words = e.words
		}
		if c.Until = Until(err); kind != "quota" && c.Until.After(now.Add(g.units(mostBusy))) {
			c.Until = now.Add(g.units(mostBusy)) // destroying instances cannot wait longer
		}
		if !c.Until.After(now) {
			c.Pause = min(max(2*c.Pause, g.units(busyPenalty)), g.units(mostIdle))
			c.Until = now.Add(c.Pause)
		}
		l.Courses[name] = c
	})
}

// cached is an answer of the market that all tools use.
type cached[T any] struct {
	At    time.Time `json:"at"`
	Value T         `json:"value"`
	// Idle is set if a search found no usable offer; the answer is then kept for Pause.
	Pause time.Duration `json:"pause,omitempty"`
	Idle  bool          `json:"idle,omitempty"`
}

func (c cached[T]) serves(now time.Time, enough func(c cached[T]) bool) bool {
	return !c.At.IsZero() && !c.At.After(now) && enough(c)
}

func readCached[T any](path string) cached[T] {
	var c cached[T]
	if b, err := place.ReadFile(path); err != nil || json.Unmarshal(b, &c) != nil {
		return cached[T]{}
	}
	return c
}

func writeCached[T any](path string, c cached[T]) {
	b, err := json.Marshal(c)
	if err != nil {
		return
	}
	_ = replace.File(path, b, 0o600) // on failure, the request is repeated
}

// shared returns the cached answer of any process, if it is recent enough, or else requests
// one. Processes that come meanwhile wait for it.
func shared[T any](
	ctx context.Context, g *Governor, name, file string, enough func(c cached[T]) bool, ask func() (T, error),
) (cached[T], error) {
	path := filepath.Join(g.Dir, file+".json")
	if c := readCached[T](path); c.serves(g.Now(), enough) {
		return c, nil
	}
	_ = os.MkdirAll(g.Dir, 0o700) // without it, nothing is shared
	held, err := g.hold(ctx, path, cachePatience)
	if err != nil {
		return cached[T]{}, err
	}
	defer release(held)
	before := readCached[T](path)
	if before.serves(g.Now(), enough) {
		return before, nil
	}
	c := cached[T]{At: g.Now()}
	if before.Idle {
		c.Pause = before.Pause
	}
	c.Value, err = ask()
	g.learn(ctx, name, err)
	if err != nil {
		return cached[T]{}, err
	}
	writeCached(path, c)
	return c, nil
}

// List returns all instances of the account as of since or later.
func (g *Governor) List(ctx context.Context, since time.Time) (Listing, error) {
	c, err := shared(ctx, g, "list", "instances", func(c cached[Listing]) bool { return !c.At.Before(since) }, func() (Listing, error) {
		l, err := g.API.List(ctx, "")
		l.Instances = slices.Clone(l.Instances)
		for k := range l.Instances {
			kept := map[string]string{}
			for _, name := range g.Keep {
				if v, ok := l.Instances[k].Variables[name]; ok {
					kept[name] = v
				}
			}
			l.Instances[k].Variables = kept
		}
		return l, err
	})
	c.Value.At = c.At
	return c.Value, err
}

// Show asks for one instance by its id; nil: there is none.
func (g *Governor) Show(ctx context.Context, id int64) (*Instance, error) {
	i, err := g.API.Show(ctx, id)
	g.learn(ctx, "show", err)
	return i, err
}

// Account returns the account as of since or later; the zero time allows a recent cached
// answer.
func (g *Governor) Account(ctx context.Context, since time.Time) (Account, error) {
	if since.IsZero() {
		since = g.Now().Add(-g.units(accountServes))
	}
	c, err := shared(ctx, g, "account", "account", func(c cached[Account]) bool { return !c.At.Before(since) }, func() (Account, error) {
		return g.API.Account(ctx)
	})
	return c.Value, err
}

// Search returns the offers of a search, without those that were tried within the last hour. If
// patient is set, it accepts a recent search of any process, and an older one if that found
// nothing usable. Otherwise the search is new.
func (g *Governor) Search(ctx context.Context, s Search, patient bool) (Found, error) {
	now := g.Now()
	c, err := shared(ctx, g, "search", g.searchFile(s), func(c cached[Found]) bool {
		serves := time.Duration(0)
		if patient {
			serves = g.units(searchServes)
		}
		if patient && c.Idle {
			serves = c.Pause
		}
		return now.Sub(c.At) < serves
	}, func() (Found, error) { return g.API.Search(ctx, s) })
	if err != nil {
		return Found{}, err
	}
	found := c.Value
	_ = g.updateLedger(ctx, func(l *ledger) { // on failure, they are tried again
		found.Offers = slices.DeleteFunc(slices.Clone(found.Offers), func(o Offer) bool {
			_, tried := l.Tried[o.ID]
			return tried
		})
	})
	return found, nil
}

func (g *Governor) searchFile(s Search) string {
	b, _ := json.Marshal([]any{s.Filters.body(), s.Disk, s.Limit, s.Bid})
	sum := sha256.Sum256(b)
	return "search-" + hex.EncodeToString(sum[:8])
}

// Idle records that the last search found no usable offer. The next search is made after a
// pause, which grows with each such search.
func (g *Governor) Idle(ctx context.Context, s Search) {
	path := filepath.Join(g.Dir, g.searchFile(s)+".json")
	held, err := g.hold(ctx, path, ledgerPatience)
	if err != nil {
		return
	}
	defer release(held)
	c := readCached[Found](path)
	if c.At.IsZero() || c.Idle {
		return // once per answer, even if many tasks wait
	}
	c.Idle, c.Pause = true, min(max(2*c.Pause, g.units(leastIdle)), g.units(mostIdle))
	writeCached(path, c)
}

// Create orders an instance, once.
func (g *Governor) Create(ctx context.Context, offer int64, o Order) (Created, error) {
	created, err := g.API.Create(ctx, offer, o)
	g.learn(ctx, "order", err)
	if err == nil || created.ID > 0 || errors.Is(err, ErrOfferGone) || errors.Is(err, ErrRejected) && !LacksPermission(err) {
		_ = g.updateLedger(ctx, func(l *ledger) { l.Tried[offer] = g.Now() }) // on failure, it is tried again
	}
	return created, err
}

// Log returns the last lines of an instance's output.
func (g *Governor) Log(ctx context.Context, id int64, lines int) ([]byte, error) {
	text, err := g.API.Log(ctx, id, lines)
	if errors.Is(err, ErrBusy) || err == nil {
		g.learn(ctx, "log", err)
	}
	if err == nil && noLog(text) {
		return nil, ErrNotReady
	}
	return text, err
}

// batch is instances to destroy with one request.
type batch struct {
	ids  []int64
	done chan struct{}
	err  error
}

// Destroy destroys instances. While a request waits for its turn, further calls add their
// instances to it, as one request can destroy any number.
func (g *Governor) Destroy(ctx context.Context, ids ...int64) error {
	g.mu.Lock()
	b := g.batch
	if b != nil {
		for _, id := range ids {
			if !slices.Contains(b.ids, id) {
				b.ids = append(b.ids, id)
			}
		}
		g.mu.Unlock()
		select {
		case <-b.done:
			return b.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	b = &batch{ids: slices.Clone(ids), done: make(chan struct{})}
	g.batch = b
	g.mu.Unlock()
	err := g.pace(ctx, "destroy")
	g.mu.Lock()
	g.batch = nil
	ids = b.ids
	g.mu.Unlock()
	if err == nil {
		err = g.destroy(ctx, ids)
	}
	b.err = err
	close(b.done)
	return err
}

// refusedInARow: after so many refusals in a row, the key lacks the permission, and no more
// instances are tried.
const refusedInARow = 3

// destroy destroys instances with one request or, if the market refuses that, one by one, so
// that one refused instance does not block the others.
func (g *Governor) destroy(ctx context.Context, ids []int64) error {
	// The cached list is no longer valid.
	defer os.Remove(filepath.Join(g.Dir, "instances.json"))
	err := g.API.Destroy(paced(ctx), ids...)
	g.learn(ctx, "destroy", err)
	if err == nil || len(ids) == 1 || errors.Is(err, ErrBusy) || ctx.Err() != nil {
		return err
	}
	var errs []error
	refused := 0
	for _, id := range ids {
		err := g.API.Destroy(ctx, id)
		g.learn(ctx, "destroy", err)
		errs = append(errs, err)
		if refused++; !errors.Is(err, ErrAuth) {
			refused = 0
		}
		if refused == refusedInARow || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

type pacedKey struct{}

// paced marks a context whose next request has already waited for its turn.
func paced(ctx context.Context) context.Context {
	var once sync.Once
	return context.WithValue(ctx, pacedKey{}, &once)
}

// keepPace calls a transport's pace before a request.
func keepPace(ctx context.Context, pace func(ctx context.Context, op string) error, op string) error {
	if pace == nil {
		return nil
	}
	if once, ok := ctx.Value(pacedKey{}).(*sync.Once); ok {
		first := false
		once.Do(func() { first = true })
		if first {
			return nil
		}
	}
	return pace(ctx, op)
}
