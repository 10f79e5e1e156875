package vastai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/fault"
)

// What an answer of the market means for the caller.
var (
	ErrOfferGone = errors.New("the offer is gone")
	ErrBusy      = errors.New("too many requests")
	// ErrQuota says that the account's searches of this day are used up.
	ErrQuota = errors.New("the daily quota of searches is used up")
	// ErrRejected says that the market does not make this contract: the offer may be why,
	// or the order.
	ErrRejected = errors.New("the market rejects the order")
	ErrCredit   = errors.New("the account lacks credit")
	ErrAuth     = errors.New("the key is not accepted")
	// ErrUnknown says that it is unknown whether the request had an effect.
	ErrUnknown = errors.New("the outcome is unknown")
	ErrInvalid = errors.New("the request is refused")
	// ErrMore says that there are more pages than were to be read at a time.
	ErrMore = errors.New("there are more pages")
	// ErrNotReady says that a log is not there yet.
	ErrNotReady = errors.New("the log is not ready")
)

// API is what the agent needs of the market. Its errors are of kind
// fault.Unavailable and wrap one of the above where that is what happened.
type API interface {
	// Name is the transport's name: api or cli.
	Name() string
	// Account is who the key belongs to.
	Account(ctx context.Context) (Account, error)
	// Search returns offers as the market has them, cheapest first.
	Search(ctx context.Context, s Search) (Found, error)
	// Create orders an instance. It is never repeated by itself. A Created with an
	// id beside an error is a contract that exists and must be destroyed.
	Create(ctx context.Context, offer int64, o Order) (Created, error)
	// List returns all instances of the account, or those of one label if that is
	// not empty: all of them, or an error.
	List(ctx context.Context, label string) (Listing, error)
	// Destroy requests the end of instances, of several by one request. One that is gone
	// is success; whether it is gone is for List to say.
	Destroy(ctx context.Context, ids ...int64) error
	// Log returns the last lines of an instance's output.
	Log(ctx context.Context, id int64, lines int) ([]byte, error)
	// Charges is a page of what the market has billed for instances that cost anything in a
	// span of time, which is of whole days (UTC), and may lag: the first page, or the one
	// after a token. Next is the token of the next page, empty after the last.
	Charges(ctx context.Context, from, to time.Time, after string) (page []Charge, next string, err error)
	// Calls is how many requests were made so far.
	Calls() int64
}

// Account is the account of a key.
type Account struct {
	ID     int64   `json:"id"`
	Credit float64 `json:"credit"` // dollars
}

// Search is what offers are asked for.
type Search struct {
	Filters Filters
	Disk    float64 // GB that will be ordered: part of the price
	Limit   int     // 0: the market's own
	// Bid requests what can be had for a bid: machines that can be lost to a higher bid.
	Bid bool
}

// Found is what a search has found.
type Found struct {
	Offers []Offer
	Odd    int // rows that are not offers, and were left out
}

// Listing is a list of instances.
type Listing struct {
	Instances []Instance `json:"instances"`
	// Odd is how many rows could not be read. What is missing from a list that has some
	// may still exist.
	Odd int `json:"odd,omitempty"`
	// OddLabels are the labels of those that have one, or are known to have none ("").
	OddLabels []string `json:"odd_labels,omitempty"`
	// At is when it was requested.
	At time.Time `json:"at"`
}

// Nameless is how many rows could not be read, not even their label.
func (l Listing) Nameless() int { return l.Odd - len(l.OddLabels) }

// Charge is what one instance was billed, in dollars.
type Charge struct {
	// Instance is 0 where the row of an instance cannot be read: the amount is not known.
	Instance int64     `json:"instance"`
	Label    string    `json:"label,omitempty"`
	From     time.Time `json:"from"`
	Until    time.Time `json:"until"`
	Amount   float64   `json:"amount"`
}

// Order is an instance to be created: the image's entrypoint is replaced by
// Entrypoint, which gets Args.
type Order struct {
	Image      string
	Env        map[string]string
	Entrypoint string
	Args       []string
	Disk       float64
	Label      string
	Login      string  // for a private image: -u USER -p PASSWORD REGISTRY
	Bid        float64 // dollars an hour without the disk, for a machine that can be lost; 0: for one that cannot
}

// Created is the answer to an order.
type Created struct{ ID int64 }

// Limits of the market for one order, in bytes.
const (
	MaxArgs = 4096 // entrypoint and arguments together
	MaxEnv  = 32768
	// MaxEnvEach is documented, but it is not known whether it is held: Check lets more pass.
	MaxEnvEach = 256
	MaxImage   = 1024
	MaxLabel   = 256
	MinDisk    = 8
)

// Check reports what the market would refuse.
func (o Order) Check() error {
	size := len(o.Entrypoint)
	for _, a := range o.Args {
		size += len(a) + 1
	}
	env := 0
	for name, value := range o.Env {
		env += len(name) + len(value) + 2
	}
	switch {
	case o.Image == "" || len(o.Image) > MaxImage || strings.ContainsAny(o.Image, " \t\n\x00"):
		return fmt.Errorf("%w: invalid image %.80q", ErrInvalid, o.Image)
	case size > MaxArgs:
		return fmt.Errorf("%w: the command has %d bytes with its wrapper, and the market takes %d", ErrInvalid, size, MaxArgs)
	case env > MaxEnv:
		return fmt.Errorf("%w: the variables have %d bytes, and the market takes %d", ErrInvalid, env, MaxEnv)
	case len(o.Label) > MaxLabel:
		return fmt.Errorf("%w: the label is longer than %d bytes", ErrInvalid, MaxLabel)
	case o.Disk < MinDisk:
		return fmt.Errorf("%w: a disk of %v GB is smaller than %d GB", ErrInvalid, o.Disk, MinDisk)
	}
	return nil
}

// Instance is a rented machine, as the list of instances tells it.
type Instance struct {
	ID       int64
	Label    string
	Machine  int64
	Actual   string // "" before anything is known
	Intended string
	Current  string
	Message  string // what the host says, fit for one line
	GPU      string
	Price    float64 // dollars an hour, with the disk
	Storage  float64 // of which the disk
	Started  time.Time
	UpCost   float64 // dollars a GB
	DownCost float64
	Bid      bool // it can be lost to a higher bid
	// Facts are fields of the machine by the market's names: numbers, truth values and
	// text.
	Facts map[string]any
	// Variables are those that the instance was given.
	Variables map[string]string
}

// Env returns one variable that the instance was given.
func (i Instance) Env(name string) string { return i.Variables[name] }

// callError is a call that failed.
type callError struct {
	op     string
	kind   error // one of the above, or nil
	status int
	words  string
	until  time.Time // not to be asked again before; zero: not told
	held   bool      // it was not asked at all
	late   bool      // there was no answer in time
}

func (e *callError) Error() string {
	s := "Vast.ai: " + e.op
	if e.kind != nil {
		s += ": " + e.kind.Error()
	}
	if e.status != 0 {
		s += fmt.Sprintf(": status %d", e.status)
	}
	if e.words != "" {
		s += ": " + e.words
	}
	return s
}

func (e *callError) Unwrap() error { return e.kind }

func failed(op string, kind error, status int, words string) error {
	return hinted(&callError{op: op, kind: kind, status: status, words: clean(words)})
}

func hinted(e *callError) error {
	err := fault.Wrap(fault.Unavailable, e)
	kind := e.kind
	switch {
	case errors.Is(kind, ErrAuth):
		return fault.Hint(err, "check vast_api.api_key (or api_key_file), or \"vastai set api-key KEY\" for the CLI, and what the key may do")
	case errors.Is(kind, ErrCredit):
		return fault.Hint(err, "add credit to the account; nothing is ordered until then")
	}
	return err
}

// hide takes the values of an order out of what the market says of it: it may repeat
// them.
func hide(said []byte, o Order) []byte {
	secrets := []string{o.Login}
	for _, value := range o.Env {
		secrets = append(secrets, value)
	}
	// The longest first: one may be part of another.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range secrets {
		if len(s) < shortSecret {
			continue
		}
		said = bytes.ReplaceAll(said, []byte(s), []byte("***"))
		if quoted, err := json.Marshal(s); err == nil {
			said = bytes.ReplaceAll(said, quoted[1:len(quoted)-1], []byte("***"))
		}
	}
	return said
}

// shortSecret is how long a value must be to be taken for a secret.
const shortSecret = 6

// LacksPermission reports whether a call failed because the key may not make it, though the
// market knows it.
func LacksPermission(err error) bool {
	var e *callError
	return errors.As(err, &e) && strings.Contains(e.words, "permission group")
}

// status returns the HTTP status of a failed call, or 0.
func status(err error) int {
	var e *callError
	if errors.As(err, &e) {
		return e.status
	}
	return 0
}

var secretive = regexp.MustCompile(`[0-9a-fA-F]{32,}|https?://\S+|(?i:bearer)\s+\S+`)

// clean makes what the market says fit for one line of a log, without anything
// that may be a key or the address of a log.
func clean(s string) string {
	s = secretive.ReplaceAllString(s, "***")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "..."
	}
	return strings.TrimSpace(s)
}

// Until is when a call that has failed may be made again, if the market has told that.
func Until(err error) time.Time {
	var e *callError
	if errors.As(err, &e) {
		return e.until
	}
	return time.Time{}
}

// resets finds the end of a quota in the words of the vastai program.
var resets = regexp.MustCompile(`(?i)resets at (\d{4}-\d\d-\d\d \d\d:\d\d) UTC`)

// pacing is when a refused call may be made again: by the headers of the answer, or by
// its words. The end of a quota is midnight UTC, if nothing says otherwise.
func pacing(now time.Time, quota bool, header http.Header, words string) time.Time {
	if seconds, err := strconv.ParseFloat(header.Get("Retry-After"), 64); err == nil && seconds >= 0 && seconds < 1e6 && !quota {
		return now.Add(time.Duration(seconds * float64(time.Second)))
	} else if at, err := http.ParseTime(header.Get("Retry-After")); err == nil && !quota {
		return at
	}
	if !quota {
		return time.Time{}
	}
	midnight := now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	until := midnight
	if unix, err := strconv.ParseInt(header.Get("X-RateLimit-Reset"), 10, 64); err == nil {
		until = time.Unix(unix, 0)
	} else if m := resets.FindStringSubmatch(words); m != nil {
		if at, err := time.Parse("2006-01-02 15:04", m[1]); err == nil {
			until = at
		}
	}
	if until.Before(now) || until.After(now.Add(48*time.Hour)) {
		return midnight // clocks differ, or the header is odd
	}
	return until
}

// outcome tells by status and words what an answer to a call means. Only where the
// account itself is asked for does a refusal speak of the key: that of an order, a log or
// an instance may be about just that.
func outcome(op string, status int, words string) error {
	lower := strings.ToLower(words)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(lower, p) })
	}
	denied := has("auth_error", "invalid user key", "requires login", "permission group", "not_authorized", "two factor", "session expired")
	switch {
	case has("no_such_ask"):
		return ErrOfferGone
	case has("insufficient_credit", "lacks credit", "spend_rate_limit", "missing_billing"):
		return ErrCredit
	case has("search_quota_exceeded"), status == http.StatusTooManyRequests && (resets.MatchString(words) || has("search quota")):
		return ErrQuota
	case status == http.StatusTooManyRequests, has("rate_limit_exceeded"):
		return ErrBusy
	case denied && status != http.StatusOK && op != orderOp:
		return ErrAuth
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		if op == orderOp {
			return ErrRejected
		}
		if denied || words == "" || status == http.StatusUnauthorized {
			return ErrAuth
		}
		return ErrUnknown // the page of a firewall, say
	case status >= 500:
		return ErrUnknown
	case status >= 400 && op == orderOp:
		return ErrRejected
	case status >= 400:
		return ErrInvalid
	}
	return nil
}

// QuotaError is what a search fails with until the account's quota is reset.
func QuotaError(until time.Time) error {
	return hinted(&callError{op: "search", kind: ErrQuota, status: http.StatusTooManyRequests, until: until})
}
