package outside

import (
	"syscall"
	"testing"
	"time"
)

// Which ends a signal cuts off: those after it or up to a moment before, or before its warning; and how long ends
// stay open.
func TestHeard(t *testing.T) {
	t.Parallel()
	type heard struct {
		signal syscall.Signal
		at     time.Duration
	}
	const ms = time.Millisecond
	term, usr1, warned := heard{syscall.SIGTERM, 0}, heard{syscall.SIGUSR1, 0}, heard{syscall.SIGCONT, -time.Second}
	begin := time.Unix(1e9, 0)
	for _, tt := range []struct {
		name  string
		heard []heard
		ended time.Duration
		cut   bool
		open  time.Duration
	}{
		{"no signal", nil, 0, false, 0},
		{"long before SIGTERM", []heard{term}, -251 * ms, false, 0},
		{"a moment before SIGTERM", []heard{term}, -250 * ms, true, 0},
		{"with SIGTERM", []heard{term}, 0, true, 0},
		{"long after SIGTERM", []heard{term}, time.Hour, true, 0},
		{"long before SIGUSR1", []heard{usr1}, -251 * ms, false, 0},
		{"a moment before SIGUSR1", []heard{usr1}, -250 * ms, true, 0},
		{"soon after SIGUSR1", []heard{usr1}, Notice, true, 0},
		{"long after SIGUSR1", []heard{usr1}, Notice + ms, false, 0},
		{"after a warning", []heard{warned}, -500 * ms, false, time.Second},
		{"long after a warning", []heard{warned}, 500 * ms, false, 0},
		{"between warning and SIGTERM", []heard{warned, term}, -900 * ms, true, 1400 * ms},
		{"a moment before the warning of SIGTERM", []heard{warned, term}, -1250 * ms, true, 1750 * ms},
		{"long before the warning of SIGTERM", []heard{warned, term}, -1251 * ms, false, 1751 * ms},
		{"a warning that was of nothing, and SIGTERM", []heard{{syscall.SIGCONT, -Notice}, term}, -251 * ms, false, 251 * ms},
		{"a second SIGTERM", []heard{{syscall.SIGTERM, -time.Hour}, term}, -time.Minute, true, 0},
		{"a second SIGUSR1", []heard{{syscall.SIGUSR1, -time.Hour}, usr1}, -time.Minute, false, 0},
		{"another signal", []heard{{syscall.SIGUSR2, 0}, {syscall.SIGHUP, 0}}, 0, false, 0},
	} {
		var h Heard
		for _, s := range tt.heard {
			h.Hear(s.signal, begin.Add(s.at))
		}
		ended := begin.Add(tt.ended)
		if cut, open := h.Cuts(ended), h.Open(ended); cut != tt.cut || open != tt.open {
			t.Errorf("%s: cut off %v, open for %v; want %v, %v", tt.name, cut, open, tt.cut, tt.open)
		}
	}
}
