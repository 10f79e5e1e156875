package life

import (
	"maps"
	"time"
)

// Fate is what has become of a try.
type Fate string

// The fates of tries.
const (
	Current    Fate = ""       // it is the order's own
	Faulty     Fate = "faulty" // given up before it was seen running
	NeverBegan Fate = "never"  // its entrypoint has said that the command never began
	WasLost    Fate = "lost"   // a start of the task there counts
	Unmade     Fate = "unmade" // a request that no list has answered, if there is no id: only the bill would show an instance
	Spare      Fate = "spare"  // an instance that the order never wanted
)

// Try is an instance of an order, or a request for one: what was ordered, the evidence, and what it costs.
type Try struct {
	Number int   `json:"number"`       // of its label
	ID     int64 `json:"id,omitempty"` // 0: no answer has told it
	Fate   Fate  `json:"fate,omitempty"`
	Terms
	// Born is when the instance was made; without an id, when the market may last have made one; zero: unknown.
	Born  time.Time       `json:"born,omitzero"`
	Ran   time.Time       `json:"ran,omitzero"`   // when it was first seen running
	Told  string          `json:"told,omitempty"` // the last word of its entrypoint in its label: see [Word]
	Seen  time.Time       `json:"seen,omitzero"`  // when a list has last shown it, accurate to a third of the grace
	Looks map[Doubt]Looks `json:"looks,omitempty"`
	Gone  time.Time       `json:"gone,omitzero"`  // since when it is known to be gone
	Bill  *Bill           `json:"bill,omitempty"` // nil: unknown
}

// Terms are what was ordered.
type Terms struct {
	Machine int64   `json:"machine,omitempty"`
	GPU     string  `json:"gpu,omitempty"`
	Price   float64 `json:"price,omitempty"`   // dollars an hour
	Traffic float64 `json:"traffic,omitempty"` // dollars, of image and models
	// Grace is how long after the end its container destroys the instance; negative: it stops it instead; 0: unknown.
	Grace time.Duration `json:"grace,omitempty"`
}

// Bill is what was billed for an instance until a time.
type Bill struct {
	Amount float64   `json:"amount"`
	Until  time.Time `json:"until"`
}

// Looks is how often in a row the same was seen, and when first and last.
type Looks struct {
	Times int       `json:"times"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

func (t *Try) look(d Doubt, at time.Time) {
	if t == nil {
		return
	}
	l := t.Looks[d]
	if !l.Last.IsZero() && !at.After(l.Last) {
		return
	}
	if l.Last = at; l.First.IsZero() {
		l.First = at
	}
	l.Times++
	if t.Looks = maps.Clone(t.Looks); t.Looks == nil {
		t.Looks = map[Doubt]Looks{}
	}
	t.Looks[d] = l
}

func (t *Try) forget(d Doubt) {
	if t == nil {
		return
	}
	if _, known := t.Looks[d]; !known {
		return
	}
	if t.Looks = maps.Clone(t.Looks); len(t.Looks) == 1 {
		t.Looks = nil
		return
	}
	delete(t.Looks, d)
}

// retire keeps since when lists lack the instance, which costs nothing since then. How many do is counted anew: it is to be destroyed
// now, and what was seen before that says nothing of it.
func (t *Try) retire() {
	l, missing := t.Looks[Unlisted]
	if t.Looks = nil; missing && t.ID > 0 {
		l.Times = 0
		t.Looks = map[Doubt]Looks{Unlisted: l}
	}
}

// until returns until when the instance may have existed: what lists no longer show costs nothing.
func (t Try) until(now time.Time) time.Time {
	for _, gone := range []time.Time{t.Gone, t.Looks[Unlisted].First} {
		if !gone.IsZero() && gone.Before(now) {
			now = gone
		}
	}
	return now
}

func hours(d time.Duration) float64 { return max(0, d.Hours()) }

// Between returns how much of the estimate of its cost is for the time from one time to another.
func (t Try) Between(from, to time.Time) float64 {
	if t.ID == 0 || t.Born.IsZero() {
		return 0
	}
	if from.Before(t.Born) {
		from = t.Born
	}
	return hours(t.until(to).Sub(from)) * t.Price
}

// Estimate returns what the instance has cost until a time, without regard to its bill. That is more than will be billed for the time
// in which the image is loaded.
func (t Try) Estimate(to time.Time) float64 {
	if t.ID == 0 || t.Born.IsZero() {
		return 0
	}
	return t.Between(t.Born, to) + t.Traffic
}

// Cost returns what the instance has cost until a time: what was billed, and, for the time after that, the price per hour. A bill
// whose time lies ahead of now is that of a contract or of a day: how much of that was billed is unknown.
func (t Try) Cost(to, now time.Time) float64 {
	switch {
	case t.Bill == nil:
		return t.Estimate(to)
	case t.Bill.Until.After(now):
		return max(t.Bill.Amount, t.Estimate(to))
	}
	return t.Bill.Amount + t.Between(t.Bill.Until, to)
}
