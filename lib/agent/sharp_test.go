//go:build !race

package agent

import "testing"

// No row can be taken out, and none can say something else, without a broken promise.
func TestTableIsSharp(t *testing.T) {
	whole := table
	defer func() { table = whole }()
	verdicts := map[verdict]bool{}
	for _, r := range whole {
		verdicts[r.follow] = true
	}
	breaks := func(r row) bool {
		found := false
		cases(func(x facts) bool { found = r.fits(x) && unsound(x) != ""; return !found })
		return found
	}
	for i, r := range whole {
		if table = append(append([]row{}, whole[:i]...), whole[i+1:]...); !breaks(r) {
			t.Errorf("without row %d (%+v) nothing breaks", i, r)
		}
		for v := range verdicts {
			changed := r
			changed.follow = v
			table = append(append(append([]row{}, whole[:i]...), changed), whole[i+1:]...)
			if v != r.follow && !breaks(r) {
				t.Errorf("row %d (%+v) may as well say %s", i, r, v)
			}
		}
	}
}
