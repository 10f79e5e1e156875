package worker

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// slowSystem starts one process at a time, and takes its time for it: meanwhile, no file can be opened.
type slowSystem struct {
	handle executor.Handler
	start  time.Duration // how long a start takes
	never  bool          // nothing starts
	busy   chan bool     // has a value while a process is started or runs
}

func (s *slowSystem) Reap() {}

func (s *slowSystem) Signal(int, syscall.Signal) error { return syscall.ESRCH }

func (s *slowSystem) Start(l executor.Launch) {
	go func() {
		select {
		case s.busy <- true:
		default:
			s.tell(executor.SpawnEvent{Tag: l.Tag, Err: syscall.EMFILE})
			return
		}
		if s.never {
			<-s.busy
			s.tell(executor.SpawnEvent{Tag: l.Tag, Err: syscall.EMFILE})
			return
		}
		time.Sleep(s.start)
		s.tell(executor.SpawnEvent{Tag: l.Tag, PID: 100})
		time.Sleep(time.Second)
		<-s.busy
		s.tell(executor.SpawnEvent{Tag: l.Tag, PID: 100, Ended: true})
	}()
}

func (s *slowSystem) tell(e executor.SpawnEvent) {
	if next := s.handle(e); next != nil {
		s.Start(*next)
	}
}

// While starts succeed, however slowly, no task fails for want of files; when none does, all fail in
// bounded time.
func TestWantOfFiles(t *testing.T) {
	for what, tt := range map[string]struct {
		start time.Duration
		never bool
		want  wire.Outcome
		most  time.Duration
	}{
		"slow starts": {start: 9 * time.Second, want: "", most: 31 * time.Second},
		"no starts":   {never: true, want: wire.NoStart, most: patience + time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := clock.Now()
				system := &slowSystem{start: tt.start, never: tt.never, busy: make(chan bool, 1)}
				var messages []*wire.Message
				for seq := range int64(3) {
					messages = append(messages, &wire.Message{Run: &wire.Run{Key: wire.Key{Seq: seq + 1, Attempt: 1}, Text: "true", Need: pool.Need{CPUs: 1}}})
				}
				ends := 0
				attach := func(handle executor.Handler) executor.System { system.handle = handle; return system }
				for _, m := range converse(t, attach, wire.Setup{Dir: wire.Text(t.TempDir())}, false, messages) {
					if m.Done == nil {
						continue
					}
					if ends++; m.Done.What != tt.want {
						t.Errorf("task %d: %q %q, want %q", m.Done.Seq, m.Done.What, m.Done.Error, tt.want)
					}
				}
				if took := clock.Since(begun); ends != 3 || took > tt.most {
					t.Errorf("%d ended in %v", ends, took)
				}
			})
		})
	}
}
