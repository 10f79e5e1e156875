package outside

import (
	"bytes"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// last is a signal that nothing sends but Listener.Settle. Signals are handed over in the order of their numbers, and
// this one comes after all that are listened to.
const last = syscall.Signal(60)

// Listener calls a function for each signal that this process gets.
type Listener struct {
	set     uint64 // of the signals, as /proc tells one
	signals chan os.Signal
	settled chan struct{}
}

// Listen calls hear for each of these signals, one after the other, until the listener is closed.
func Listen(hear func(os.Signal), signals ...os.Signal) *Listener {
	l := &Listener{signals: make(chan os.Signal, 16), settled: make(chan struct{}, 1)}
	for _, s := range signals {
		l.set |= bit(s.(syscall.Signal))
	}
	signal.Notify(l.signals, append(signals, last)...)
	go func() {
		for s := range l.signals {
			if s != last {
				hear(s)
				continue
			}
			select {
			case l.settled <- struct{}{}:
			default:
			}
		}
	}()
	return l
}

// Close ends the calls.
func (l *Listener) Close() {
	signal.Stop(l.signals)
	close(l.signals)
}

// Settle returns when hear has been called for each signal that this process had got before, or after that time: on a
// busy machine a signal that was sent before the end of a child is else heard after that end.
//
// A thread that has taken a signal may be held up before it handles it, so that another thread handles a later one
// first. Where no signal waits for the process, each thread gets one of its own, SIGURG, which Go uses so, too. It
// takes that when it has handled what it has taken.
func (l *Listener) Settle(within time.Duration) {
	until := clock.Now().Add(within)
	for waits("/proc/self/status", "ShdPnd:", l.set) && clock.Now().Before(until) {
		time.Sleep(time.Millisecond)
	}
	threads, _ := filepath.Glob("/proc/self/task/*")
	for _, t := range threads {
		if id, err := strconv.Atoi(filepath.Base(t)); err == nil {
			_ = unix.Tgkill(os.Getpid(), id, unix.SIGURG)
		}
	}
	for len(threads) > 0 && clock.Now().Before(until) {
		threads = slices.DeleteFunc(threads, func(t string) bool { return !waits(t+"/status", "SigPnd:", bit(unix.SIGURG)) })
		if len(threads) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	select {
	case <-l.settled: // somebody else's
	default:
	}
	if unix.Kill(os.Getpid(), last) != nil {
		return
	}
	select {
	case <-l.settled:
	case <-time.After(until.Sub(clock.Now())):
	}
}

func bit(s syscall.Signal) uint64 { return 1 << (s - 1) }

// waits reports whether one of these signals is in a set of a status file of /proc; not if there is none.
func waits(status, set string, signals uint64) bool {
	b, _ := os.ReadFile(status)
	for line := range bytes.Lines(b) {
		if text, ok := strings.CutPrefix(string(line), set); ok {
			pending, _ := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return pending&signals != 0
		}
	}
	return false
}
