package rented

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/task"
)

// parseOrder parses the file of an order, also one of the form before this one.
func parseOrder(b []byte) (*order, error) {
	var f former
	if json.Unmarshal(b, &f) == nil && f.Number > 0 {
		return f.order(), nil
	}
	o := &order{}
	return o, json.Unmarshal(b, o)
}

// former is an order whose tries were counted, and not kept: of those before the present one it only has the cost.
type former struct {
	Task     task.ID                   `json:"task"`
	Attempt  int                       `json:"attempt"`
	Nonce    string                    `json:"nonce"`
	Phase    life.Phase                `json:"phase"`
	Since    time.Time                 `json:"since"`
	Doubts   map[life.Doubt]life.Looks `json:"doubts"`
	Instance int64                     `json:"instance"`
	Created  time.Time                 `json:"created"`
	Number   int                       `json:"number"`
	Losses   int                       `json:"losses"`
	Asked    time.Time                 `json:"asked"`
	Rejected int                       `json:"rejected"`
	Held     time.Time                 `json:"held"`
	Status   string                    `json:"status"`
	Nameless int                       `json:"nameless"`
	LogAt    time.Time                 `json:"log_at"`
	LogFrom  int64                     `json:"log_from"`
	LogRead  int64                     `json:"log_read"`
	Bills    map[int64]*life.Bill      `json:"bills"`
	Doomed   []formerDoomed            `json:"doomed"`
	Past     []formerPast              `json:"past"`
	End      *end                      `json:"end"`
	Ran      time.Time                 `json:"ran"`
	Told     string                    `json:"told"`
	Seen     time.Time                 `json:"seen"`
	Wish
	life.Terms
}

type formerDoomed struct {
	ID      int64     `json:"id"`
	Absent  int       `json:"absent"`
	Shown   int       `json:"shown"`
	Seen    time.Time `json:"seen"`
	Counted bool      `json:"counted"`
}

type formerPast struct {
	ID     int64   `json:"id"`
	Cost   float64 `json:"cost"`
	Unseen bool    `json:"unseen"`
}

// order returns the order as it is kept now.
func (f former) order() *order {
	o := &order{
		Task: f.Task, Attempt: f.Attempt, Nonce: f.Nonce, Wish: f.Wish, Nameless: f.Nameless,
		Log: log{f.LogAt, f.LogFrom, f.LogRead}, End: f.End,
		State: life.State{Phase: f.Phase, Since: f.Since, Status: f.Status, Rejected: f.Rejected},
	}
	if f.Phase == life.Waits && f.Held.After(f.Since) {
		o.Phase = life.Held
	}
	own := life.Try{
		Number: f.Number, ID: f.Instance, Terms: f.Terms, Born: f.Created, Ran: f.Ran, Told: f.Told, Seen: f.Seen, Looks: f.Doubts,
		Bill: f.Bills[f.Instance],
	}
	// What is known of one that was given up is its cost until then, and, of the last one, what it costs until it is gone.
	for n, p := range f.Past {
		t := life.Try{ID: p.ID, Fate: life.Faulty, Born: f.Since, Gone: f.Since, Bill: f.Bills[p.ID]}
		if n == len(f.Past)-1 && f.Instance == 0 {
			t.Terms = f.Terms
		}
		t.Traffic = p.Cost
		if p.Unseen {
			t.Fate, t.Born = life.Spare, time.Time{}
		}
		o.Tries = append(o.Tries, t)
	}
	losses := min(f.Losses, 1000) // no rule allows more
	for _, d := range f.Doomed {
		if d.ID == f.Instance {
			continue
		}
		t := o.Try(d.ID)
		if t == nil {
			o.Tries = append(o.Tries, life.Try{ID: d.ID, Fate: life.Spare})
			t = &o.Tries[len(o.Tries)-1]
		}
		if d.Counted && losses > 0 {
			t.Fate, losses = life.WasLost, losses-1
		} else if d.Counted {
			t.Fate = life.NeverBegan
		}
		t.Gone, t.Looks = time.Time{}, d.looks()
	}
	for n := range o.Tries {
		if t := &o.Tries[n]; losses > 0 && t.Fate == life.Faulty {
			t.Fate, losses = life.WasLost, losses-1
		}
	}
	if f.Phase != life.Asked && !f.Asked.IsZero() || losses > 0 || len(o.Tries) == 0 && f.Number > 1 {
		o.Tries = append(o.Tries, life.Try{Fate: life.Unmade, Born: f.Asked})
		for ; losses > 0; losses-- {
			o.Tries = append(o.Tries, life.Try{Fate: life.WasLost, Born: f.Asked})
		}
	}
	for n := range o.Tries { // the next label is another one than those
		o.Tries[n].Number = max(1, f.Number-len(o.Tries)+n)
	}
	at := slices.IndexFunc(f.Doomed, func(d formerDoomed) bool { return d.ID == f.Instance })
	switch {
	case f.Phase == life.Over && f.Instance != 0 && at < 0:
		own.Gone = f.Since
		if f.End != nil {
			own.Gone = f.End.At
		}
	case f.Phase == life.Over && f.Instance != 0:
		own.Looks = f.Doomed[at].looks()
	case f.Phase == life.Asked:
		if own.Born = f.Since; f.Asked.After(own.Born) {
			own.Born = f.Asked
		}
	case f.Instance == 0:
		return o
	}
	o.Tries = append(o.Tries, own)
	return o
}

// looks are how often lists have shown and lacked it.
func (d formerDoomed) looks() map[life.Doubt]life.Looks {
	out := map[life.Doubt]life.Looks{}
	for doubt, times := range map[life.Doubt]int{life.Unlisted: d.Absent, life.Stubborn: d.Shown} {
		if times > 0 {
			out[doubt] = life.Looks{Times: times, First: d.Seen, Last: d.Seen}
		}
	}
	return out
}
