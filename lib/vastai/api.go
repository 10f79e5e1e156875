package vastai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/fault"
)

// What an answer of the market means for the caller.
var (
	ErrOfferGone = errors.New("the offer is gone")
	ErrBusy      = errors.New("too many requests")
	ErrCredit    = errors.New("the account lacks credit")
	ErrAuth      = errors.New("the key is not accepted")
	// ErrUnknown says that nobody can tell whether the request had an effect.
	ErrUnknown = errors.New("whether it was done is not known")
	ErrInvalid = errors.New("the request is refused")
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
	Search(ctx context.Context, s Search) ([]Offer, error)
	// Create orders an instance. It is never repeated by itself. A Created with an
	// id beside an error is a contract that exists and must be destroyed.
	Create(ctx context.Context, offer int64, o Order) (Created, error)
	// List returns all instances of the account, or those of one label if that is
	// not empty: all of them, or an error.
	List(ctx context.Context, label string) ([]Instance, error)
	// Destroy asks for the end of an instance. One that is gone is success; whether
	// it is gone is for List to say.
	Destroy(ctx context.Context, id int64) error
	// Log returns the last lines of an instance's output.
	Log(ctx context.Context, id int64, lines int) ([]byte, error)
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
	Login      string // for a private image: -u USER -p PASSWORD REGISTRY
}

// Created is the answer to an order.
type Created struct{ ID int64 }

// Limits of the market for one order, in bytes.
const (
	MaxArgs  = 4096 // entrypoint and arguments together
	MaxEnv   = 32768
	MaxImage = 1024
	MaxLabel = 256
	MinDisk  = 8
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
		return fmt.Errorf("%w: %.80q is no image", ErrInvalid, o.Image)
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
	ID        int64
	Label     string
	Machine   int64
	Actual    string // "" before anything is known
	Intended  string
	Current   string
	Message   string // what the host says, fit for one line
	GPU       string
	Price     float64 // dollars an hour, with the disk
	Storage   float64 // of which the disk
	Started   time.Time
	UpCost    float64 // dollars a GB
	DownCost  float64
	variables map[string]string
}

// Env returns one variable that the instance was given.
func (i Instance) Env(name string) string { return i.variables[name] }

// callError is a call that failed.
type callError struct {
	op     string
	kind   error // one of the above, or nil
	status int
	words  string
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
	err := fault.Wrap(fault.Unavailable, &callError{op, kind, status, clean(words)})
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
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return strings.TrimSpace(s)
}

// outcome tells by status and words what an answer means.
func outcome(status int, words string) error {
	lower := strings.ToLower(words)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(lower, p) })
	}
	switch {
	case has("no_such_ask"):
		return ErrOfferGone
	case has("insufficient_credit", "lacks credit", "spend_rate_limit", "missing_billing"):
		return ErrCredit
	case status == 429:
		return ErrBusy
	case status == 401, status == 403, has("auth_error", "invalid user key"):
		return ErrAuth
	case status >= 500:
		return ErrUnknown
	case status >= 400:
		return ErrInvalid
	}
	return nil
}
