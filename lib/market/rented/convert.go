package rented

import (
	"encoding/json"
	"time"

	"github.com/ponos-tools/ponos/lib/market/life"
)

// former is what an order of an earlier version has instead of a phase and doubts.
type former struct {
	Intent     time.Time `json:"intent"`
	GivenUp    time.Time `json:"given_up"`
	Misses     int       `json:"misses"`
	MissedAt   time.Time `json:"missed_at"`
	Unanswered bool      `json:"unanswered"`
	Holds      int       `json:"holds"`
	Found      time.Time `json:"found"`
	Odd        time.Time `json:"odd"`
	Dead       int       `json:"dead"`
	DeadAt     time.Time `json:"dead_at"`
	Absent     int       `json:"absent"`
	Missing    time.Time `json:"missing"`
	ToldBy     int64     `json:"told_by"`
	Rebuilt    bool      `json:"rebuilt"`
}

// convert reads where an order of an earlier release stands.
func (o *order) convert(b []byte, open bool) error {
	var f former
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	if f.Rebuilt {
		o.Image = ""
	}
	if f.ToldBy != o.Instance {
		o.Told = ""
	}
	o.Rejected += f.Holds * life.OffersInARow
	doubt := func(d life.Doubt, l life.Looks) {
		if l.Times > 0 {
			o.Doubts = map[life.Doubt]life.Looks{d: l}
		}
	}
	if f.Unanswered || !f.Intent.IsZero() && o.End != nil {
		o.Asked = latest(latest(f.GivenUp, f.Intent), time.Unix(1, 0).UTC())
	}
	switch {
	case o.End != nil:
		o.Phase, o.Since = life.Over, o.End.At
		if o.Instance != 0 && open && !o.IsDoomed(o.Instance) {
			o.Doomed = append(o.Doomed, life.Doomed{ID: o.Instance})
		}
	case o.Instance == 0 && f.Intent.IsZero():
		o.Phase, o.Since = life.Waits, latest(o.Created, f.GivenUp)
	case o.Instance == 0:
		o.Phase, o.Since, o.Asked = life.Asked, f.Intent, latest(o.Asked, f.GivenUp)
		doubt(life.Unlisted, life.Looks{Times: f.Misses, First: f.MissedAt, Last: f.MissedAt})
	default:
		if o.Phase, o.Since = life.Boots, latest(o.Created, f.Found); !o.Ran.IsZero() {
			o.Phase, o.Since = life.Runs, o.Ran
		}
		switch {
		case f.Absent > 0:
			doubt(life.Unlisted, life.Looks{Times: f.Absent, First: f.Missing, Last: f.Missing})
			if f.Absent >= 2 && o.Status == life.Awaited {
				o.Phase = life.Unbilled
			}
		case f.Dead > 0 && !f.DeadAt.IsZero():
			doubt(life.Silent, life.Looks{Times: f.Dead, First: f.DeadAt, Last: f.DeadAt})
		case !f.Odd.IsZero():
			doubt(life.Offline, life.Looks{Times: 1, First: f.Odd, Last: f.Odd})
		}
	}
	return nil
}
