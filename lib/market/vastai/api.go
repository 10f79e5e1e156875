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

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// The causes of failed calls. Errors of API wrap one of them where it applies.
var (
	ErrOfferGone = errors.New("the offer is gone")
	ErrBusy      = errors.New("too many requests")
	// ErrQuota: the account's daily quota of searches is used up.
	ErrQuota = errors.New("the daily quota of searches is used up")
	// ErrRejected: the market refuses to create the instance, because of the offer or
	// of the order.
	ErrRejected = errors.New("the market rejects the order")
	ErrCredit   = errors.New("the account lacks credit")
	ErrAuth     = errors.New("the key is not accepted")
	// ErrUnknown: it is unknown whether the request had an effect.
	ErrUnknown = errors.New("no clear answer")
	ErrInvalid = errors.New("the request is refused")
	// ErrMore: there are more pages than one call reads.
	ErrMore = errors.New("there are more pages")
	// ErrNotReady: the log is not available yet.
	ErrNotReady = errors.New("the log is not ready")
)

// API is the part of the marketplace that the agent uses. Its errors are of kind
// fault.Unavailable, and wrap one of the causes above where it applies.
type API interface {
	// Name is the transport's name: api or cli.
	Name() string
	// Account returns the account of the key.
	Account(ctx context.Context) (Account, error)
	// Search returns the matching offers of the market, cheapest first.
	Search(ctx context.Context, s Search) (Found, error)
	// Create orders an instance. It is never repeated automatically. If it returns an
	// id and an error, the instance exists and must be destroyed.
	Create(ctx context.Context, offer int64, o Order) (Created, error)
	// List returns all instances of the account or, if label is not "", all with that
	// label. It never returns a part of them.
	List(ctx context.Context, label string) (Listing, error)
	// Show asks for one instance by its id. It returns nil only if the market says that there is
	// none; every other answer is an error.
	Show(ctx context.Context, id int64) (*Instance, error)
	// Destroy destroys instances with one request. A single instance that does not exist is
	// not an error; of several, it is unknown which ones the market means, so that is one. Use List
	// to learn whether instances are gone.
	Destroy(ctx context.Context, ids ...int64) error
	// Log returns the last lines of an instance's output.
	Log(ctx context.Context, id int64, lines int) ([]byte, error)
	// Charges returns a page of what was billed for instances from one time to another.
	// The market bills whole days (UTC), with some delay. after is the token of the page,
	// or "" for the first; next is that of the next page, or "" after the last.
	Charges(ctx context.Context, from, to time.Time, after string) (page []Charge, next string, err error)
}

// transport is what both transports have.
type transport struct {
	// Wait is the pause before the first retry, and doubles with each; Tries is the maximum number of tries. Orders are never retried.
	Wait  time.Duration
	Tries int
	Now   func() time.Time // default: clock.Now
	pace  func(ctx context.Context, op string) error
}

var patient = transport{Wait: 2 * time.Second, Tries: 4}

// SetPace sets a function that is called before each request; its error is that of the call.
func (t *transport) SetPace(pace func(ctx context.Context, op string) error) { t.pace = pace }

func (t *transport) now() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return clock.Now()
}

// Account is the account that a key belongs to.
type Account struct {
	ID     int64   `json:"id"`
	Credit float64 `json:"credit"` // dollars
}

// Search is a search for offers.
type Search struct {
	Filters Filters
	Disk    float64 // disk to order, in GB; it is part of the price
	Limit   int     // number of offers; 0: the market's default
	// Bid searches for interruptible machines: they are rented for a bid, and lost to a higher
	// one.
	Bid bool
}

// Found is the result of a search.
type Found struct {
	Offers []Offer
	Odd    int // rows that could not be parsed, and were omitted
}

// Listing is a list of instances.
type Listing struct {
	Instances []Instance `json:"instances"`
	// Odd is the number of rows that could not be parsed. If it is not 0, an instance that is
	// missing from the list may still exist.
	Odd int `json:"odd,omitempty"`
	// OddLabels are the labels of such rows, where the label could be read; "" is a row known
	// to have none.
	OddLabels []string `json:"odd_labels,omitempty"`
	// At is the time of the request.
	At time.Time `json:"at"`
}

// Nameless returns the number of rows of which not even the label could be parsed.
func (l Listing) Nameless() int { return l.Odd - len(l.OddLabels) }

// Charge is the amount billed for one instance, in dollars.
type Charge struct {
	// Instance is 0 if the row could not be parsed; the amount is then unknown.
	Instance int64     `json:"instance"`
	Label    string    `json:"label,omitempty"`
	From     time.Time `json:"from"`
	Until    time.Time `json:"until"`
	Amount   float64   `json:"amount"`
}

// Order is an instance to create. Entrypoint replaces that of the image, and gets Args.
type Order struct {
	Image      string
	Env        map[string]string
	Entrypoint string
	Args       []string
	Disk       float64
	Label      string
	Login      string  // for a private registry: -u USER -p PASSWORD REGISTRY
	Bid        float64 // dollars per hour without the disk, for an interruptible machine; 0: not interruptible
}

// Created is the answer to an order.
type Created struct{ ID int64 }

// The market's limits for one order, in bytes except MinDisk.
const (
	MaxArgs = 4096 // of entrypoint and arguments together
	MaxEnv  = 32768
	// MaxEnvEach limits one variable in the market's documents. Check does not enforce it,
	// as it is unknown whether the market does.
	MaxEnvEach = 256
	MaxImage   = 1024
	MaxLabel   = 256
	MinDisk    = 8 // GB
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
		return fmt.Errorf("%w: entrypoint and arguments have %d bytes, and the market takes %d", ErrInvalid, size, MaxArgs)
	case env > MaxEnv:
		return fmt.Errorf("%w: command and variables have %d bytes, and the market takes %d", ErrInvalid, env, MaxEnv)
	case len(o.Label) > MaxLabel:
		return fmt.Errorf("%w: the label is longer than %d bytes", ErrInvalid, MaxLabel)
	case o.Disk < MinDisk:
		return fmt.Errorf("%w: a disk of %v GB is smaller than %d GB", ErrInvalid, o.Disk, MinDisk)
	}
	return nil
}

// Instance is a rented machine, from the list of instances.
type Instance struct {
	ID       int64
	Label    string
	Machine  int64
	Actual   string // "" until the host reports a state
	Intended string
	Current  string
	Message  string // the host's message, on one line
	GPU      string
	Price    float64 // dollars per hour, with the disk
	Storage  float64 // part of Price for the disk
	Started  time.Time
	UpCost   float64 // dollars per GB
	DownCost float64
	Bid      bool // interruptible: it is lost to a higher bid
	// Facts are the properties of the machine by the market's names: numbers, booleans and
	// text.
	Facts map[string]any
	// Variables are the environment variables of the instance.
	Variables map[string]string
}

// Env returns an environment variable of the instance.
func (i Instance) Env(name string) string { return i.Variables[name] }

// callError describes a failed call.
type callError struct {
	op     string
	kind   error // one of the causes above, or nil
	status int
	words  string
	until  time.Time // earliest time of the next try; zero: not given
	held   bool      // the request was not sent
	late   bool      // the request timed out
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
	case errors.Is(kind, ErrAuth) && expired(e.words):
		return fault.Hint(err, "the session of a login with two factors is over: log in again, or use a key from the market's console")
	case errors.Is(kind, ErrAuth):
		return fault.Hint(err,
			"check vast_api.api_key (or api_key_file), or \"vastai set api-key KEY\" for the CLI, and the permissions of the key")
	case errors.Is(kind, ErrCredit):
		return fault.Hint(err, "add credit to the account; nothing is ordered until then")
	}
	return err
}

// expired reports whether the market says that a login, and not a key, is no longer valid.
func expired(words string) bool {
	lower := strings.ToLower(words)
	return strings.Contains(lower, "two factor") || strings.Contains(lower, "session expired")
}

// hide removes the values of an order from an answer of the market, which may repeat them.
func hide(said []byte, o Order) []byte {
	secrets := []string{o.Login}
	for _, value := range o.Env {
		secrets = append(secrets, value)
	}
	// Longest first, as one value may contain another.
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

// shortSecret is the minimum length of a value that is treated as a secret.
const shortSecret = 6

// LacksPermission reports whether the market knows the key but does not permit it this call.
func LacksPermission(err error) bool {
	var e *callError
	return errors.As(err, &e) && strings.Contains(e.words, "permission group")
}

// Expired reports whether the login that the key stands for is over.
func Expired(err error) bool {
	var e *callError
	return errors.As(err, &e) && expired(e.words)
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

// clean makes a message of the market fit for one line of a log, and removes what may be a key
// or the address of a log.
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

// Until returns when a failed call may be tried again, or the zero time if the market did not
// say.
func Until(err error) time.Time {
	var e *callError
	if errors.As(err, &e) {
		return e.until
	}
	return time.Time{}
}

// resets matches the end of a quota in messages of the vastai program.
var resets = regexp.MustCompile(`(?i)resets at (\d{4}-\d\d-\d\d \d\d:\d\d) UTC`)

// pacing returns when a refused call may be tried again, from the headers of the answer or from
// its message. The default for the end of a quota is midnight UTC.
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
		return midnight // the clocks differ, or the header is invalid
	}
	return until
}

// outcome classifies an answer by its status and message. Except for the account itself, a
// refusal may concern the order, log or instance instead of the key.
func outcome(op string, status int, words string) error {
	lower := strings.ToLower(words)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(lower, p) })
	}
	denied := has("auth_error", "invalid user key", "requires login", "permission group", "not_authorized") || expired(words)
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
		return ErrUnknown // for example, the page of a firewall
	case status >= 500:
		return ErrUnknown
	case status >= 400 && op == orderOp:
		return ErrRejected
	case status >= 400:
		return ErrInvalid
	}
	return nil
}

// QuotaError returns the error of searches until the account's quota is reset.
func QuotaError(until time.Time) error {
	return hinted(&callError{op: "search", kind: ErrQuota, status: http.StatusTooManyRequests, until: until})
}
