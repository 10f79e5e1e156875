package task

import "time"

// Absence records that listings do not show something: a task of the queue, a job of the scheduler.
// One listing without it proves nothing: the listing may be incomplete, a file system not mounted, a
// cache old. The zero value is the absence of something that is present.
type Absence struct {
	Since  time.Time `json:"since"` // the first listing without it
	Last   time.Time `json:"last"`  // the last one that counts
	Misses int       `json:"misses"`
}

// An absence is a fact after this many listings, none of which counts if it follows the last one too
// soon. Together that is longer than NFS caches the absence of a name (60 s), and no single jump of
// the clock makes it shorter.
const (
	Fact        = 5
	absencePace = 45 * time.Second
)

// Again returns the absence after one more listing without the thing.
func (a Absence) Again(now time.Time) Absence {
	switch {
	case a.Misses == 0:
		return Absence{Since: now, Last: now, Misses: 1}
	case now.Before(a.Last): // the clock was set back
		a.Last = now
		if now.Before(a.Since) {
			a.Since = now
		}
	case now.Sub(a.Last) >= absencePace:
		a.Misses++
		a.Last = now
	}
	return a
}

// IsZero reports whether the last listing had the thing.
func (a Absence) IsZero() bool { return a.Misses == 0 }

// Fact reports whether the thing was absent in enough listings, over a long enough time, for
// irreversible steps.
func (a Absence) Fact() bool { return a.Misses >= Fact }

// For returns how long the thing has been absent, by the listings that count: with few of them, or
// after a jump of the clock, it is short.
func (a Absence) For(now time.Time) time.Duration {
	if a.Misses == 0 {
		return 0
	}
	return min(max(0, now.Sub(a.Since)), time.Duration(a.Misses)*3*absencePace)
}
