package life

import (
	"reflect"
	"testing"
	"time"
)

// In all orders of events each promise holds. Each row is needed, and no row may say what another one says: without it, or with the consequence of any other row that is
// not the same there, a promise is broken.
func TestTableIsSharp(t *testing.T) {
	whole := table
	defer func() { table = whole }()
	met := map[int][]heard{}
	keep := func(at int, h heard) {
		if n := len(met[at]); n < 150 && (n < 40 || len(h.was.Doomed())+len(h.was.Tries)+h.was.Losses() > n%5) {
			met[at] = append(met[at], h)
		}
	}
	phases := walkAll(t, 8000, time.Hour, keep)
	for _, p := range []Phase{Waits, Held, Asked, Boots, Runs, Unbilled, Over} {
		if phases[p] < 50 {
			t.Errorf("%d states that are %s", phases[p], p)
		}
	}
	walkAll(t, 500, 0, keep)
	// breaks says whether a case goes wrong with the present table, and whether all cases go as before.
	breaks := func(all []heard) (broken, same bool) {
		same = true
		for _, h := range all {
			now, wrong := func() (now heard, wrong string) {
				defer func() {
					if recover() != nil {
						wrong = "it ends at once"
					}
				}()
				now, _, wrong = hear(h.was, h.e, h.r)
				return now, wrong
			}()
			if wrong != "" {
				return true, false
			}
			same = same && reflect.DeepEqual(now.after, h.after) && now.do == h.do
		}
		return false, same
	}
	for i, r := range whole {
		if len(met[i]) == 0 {
			t.Errorf("row %d, %s in %v, is never met", i, r.on, r.in)
			continue
		}
		table = append(append([]row{}, whole[:i]...), whole[i+1:]...)
		if broken, _ := breaks(met[i]); !broken {
			t.Errorf("without row %d, %s in %v, nothing breaks", i, r.on, r.in)
		}
		for j, other := range whole {
			changed := r
			changed.then = other.then
			table = append(append(append([]row{}, whole[:i]...), changed), whole[i+1:]...)
			if broken, same := breaks(met[i]); !broken && !same {
				t.Errorf("row %d, %s in %v, may as well say what row %d, %s in %v, does", i, r.on, r.in, j, other.on, other.in)
			}
		}
	}
}
