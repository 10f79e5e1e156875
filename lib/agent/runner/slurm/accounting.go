package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Accounting limits the time that turns spend on accounting that hangs.
//
//	answers ──no answer within Limit──► left alone until Next ──► asked with twice the Limit ──no answer──► left alone, longer
//	   ▲                                                                      │
//	   └────────── answered: Limit is at least twice what that took ◄─────────┘
type Accounting struct {
	File string            // where it is remembered between turns; "": nowhere
	Warn func(text string) // nil: nobody is warned
	base time.Duration     // the shortest limit; 0: 5 s
}

// patience is what a file of Accounting has.
type patience struct {
	Limit  time.Duration `json:"limit"` // ns, of a query
	Pauses int           `json:"pauses,omitempty"`
	Next   time.Time     `json:"next,omitzero"` // when it is asked again
}

const (
	shortestQuery = 5 * time.Second
	longestQuery  = 2 * time.Minute
	longestSilent = 10 * time.Minute
)

// errSilent says that accounting is left alone, as it has not answered.
var errSilent = errors.New("accounting has not answered, and is left alone for some time")

// Account says how accounting that hangs is remembered, and who is warned of it, and of what Slurm says that cannot be believed.
func (r *Runner) Account(a Accounting) { r.accounting, r.options.warn = a, a.Warn }

func (a Accounting) shortest() time.Duration {
	if a.base > 0 {
		return a.base
	}
	return shortestQuery
}

// ask runs a query within the limit, unless accounting is left alone.
func (a Accounting) ask(ctx context.Context, now func() time.Time, query func(context.Context) error) error {
	p := a.read()
	if wait := p.Next.Sub(now()); wait > 0 && wait <= longestSilent {
		return errSilent
	}
	limited, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	began := clock.Now()
	err := query(limited)
	took := clock.Since(began)
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil && (limited.Err() != nil || errors.As(err, new(*command.TimeoutError))):
		pause := min(time.Minute<<min(p.Pauses, 10), longestSilent)
		p.Pauses++
		p.Next = now().Add(pause)
		if p.Pauses == 1 && a.Warn != nil {
			a.Warn(fmt.Sprintf("accounting (sacct) has not answered within %v; it is asked again in %v, and jobs that have ended are "+
				"reported by what they have recorded", p.Limit, pause))
		}
		p.Limit = min(2*p.Limit, longestQuery)
	case err == nil:
		p = patience{Limit: min(max(a.shortest(), 2*took), longestQuery)}
	default:
		return err // an answer
	}
	if writeErr := a.write(p); writeErr != nil {
		return fault.Wrap(fault.Failed, errors.Join(err, writeErr))
	}
	return err
}

// read returns what is remembered; a missing or damaged file is that of accounting that answers.
func (a Accounting) read() patience {
	var p patience
	if a.File != "" {
		if b, err := os.ReadFile(a.File); err != nil || json.Unmarshal(b, &p) != nil {
			p = patience{}
		}
	}
	p.Limit = min(max(p.Limit, a.shortest()), longestQuery)
	return p
}

func (a Accounting) write(p patience) error {
	if a.File == "" {
		return nil
	}
	if p == (patience{Limit: a.shortest()}) {
		if err := os.Remove(a.File); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return renameio.WriteFile(a.File, append(b, '\n'), 0o600, renameio.WithTempDir(filepath.Dir(a.File)))
}
