package task

import (
	"testing"
	"time"
)

func TestAbsence(t *testing.T) {
	start := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		misses []time.Duration // after the start
		fact   bool
	}{
		{"no look", nil, false},
		{"one", []time.Duration{0}, false},
		{"many within a minute", []time.Duration{0, 1e9, 2e9, 3e9, 4e9, 5e9, 6e9, 7e9, 8e9, 9e9, 30e9}, false},
		{"one a minute", []time.Duration{0, 60e9, 120e9, 180e9, 240e9}, true},
		{"four a minute apart", []time.Duration{0, 60e9, 120e9, 180e9}, false},
		{"the clock jumps ahead", []time.Duration{0, 24 * time.Hour, 24*time.Hour + 1e9, 24*time.Hour + 2e9}, false},
		{"the clock is set back", []time.Duration{0, -time.Hour, -time.Hour + 60e9, -time.Hour + 120e9, -time.Hour + 180e9, -time.Hour + 240e9}, true},
	} {
		var a Absence
		for _, d := range tt.misses {
			a = a.Again(start.Add(d))
		}
		if a.Fact() != tt.fact || a.IsZero() != (len(tt.misses) == 0) {
			t.Errorf("%s: %+v; want fact %v", tt.name, a, tt.fact)
		}
	}
	// The clock was wrong when it began.
	ahead := Absence{}.Again(start.Add(30 * time.Hour))
	for d := range 20 {
		ahead = ahead.Again(start.Add(time.Duration(d) * time.Minute))
	}
	if d := ahead.For(start.Add(20 * time.Minute)); d < 10*time.Minute || d > 20*time.Minute {
		t.Errorf("after a clock that was ahead, 20 minutes count for %v", d)
	}
	jumped := Absence{}.Again(start).Again(start.Add(24 * time.Hour))
	if d := jumped.For(start.Add(24 * time.Hour)); d > 10*time.Minute {
		t.Errorf("two looks and a jump of the clock count for %v", d)
	}
}
