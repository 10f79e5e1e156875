package outside

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What the process was sent before is heard when Settle returns, however many threads there are to take it.
func TestSettle(t *testing.T) {
	var heard atomic.Int64
	l := Listen(func(os.Signal) { heard.Add(1) }, syscall.SIGWINCH)
	defer l.Close()
	var stop atomic.Bool
	defer stop.Store(true)
	for range 2 { // threads that may be held up
		go func() {
			for !stop.Load() {
			}
		}()
	}
	for i := range int64(100) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
			t.Fatal(err)
		}
		l.Settle(time.Minute)
		if got := heard.Load(); got != i+1 {
			t.Fatalf("%d of %d signals were heard", got, i+1)
		}
	}
}

func BenchmarkSettle(b *testing.B) {
	l := Listen(func(os.Signal) {}, syscall.SIGWINCH)
	defer l.Close()
	for b.Loop() {
		l.Settle(time.Minute)
	}
}
