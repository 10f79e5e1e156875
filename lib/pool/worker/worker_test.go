package worker

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// serve runs a worker that starts no processes, sends it messages, the next one when
// the task of the one before has ended, and returns what it said.
func serve(t *testing.T, setup wire.Setup, messages ...*wire.Message) (said []wire.Message) {
	t.Helper()
	setup.Noop = true
	return converse(t, func(executor.Handler) executor.System { return nil }, setup, true, messages)
}

// converse runs a worker on processes until the tasks of messages have ended, and returns what it said.
// In turn means that each task is sent when the one before has ended.
func converse(t *testing.T, processes func(executor.Handler) executor.System, setup wire.Setup, inTurn bool, messages []*wire.Message) (said []wire.Message) {
	t.Helper()
	in, toWorker := io.Pipe()
	fromWorker, out := io.Pipe()
	done, ended := make(chan error, 1), make(chan bool, 100)
	begun := clock.Now()
	go func() {
		done <- Run(Options{
			In: in, Out: out, Hello: wire.Hello{Protocol: wire.Protocol}, Temp: t.TempDir(), Environ: []string{"PATH=/bin:/usr/bin"},
			Processes: func(_ int, handle executor.Handler) executor.System { return processes(handle) },
			Clock:     func() int64 { return int64(time.Hour + clock.Since(begun)) },
		})
		out.Close()
	}()
	go func() {
		w := wire.NewWriter(toWorker)
		setup.Lease = 1e6
		w.Send(&wire.Message{Setup: &setup})
		open := 0
		for _, m := range messages {
			w.Send(m)
			if !m.Run.Again {
				open++
			}
			for ; inTurn && open > 0; open-- {
				<-ended
			}
		}
		for ; open > 0; open-- {
			<-ended
		}
		_ = w.Close()
		toWorker.Close()
	}()
	r := wire.NewReader(fromWorker)
	if _, err := r.Greeting(); err != nil {
		t.Fatal(err)
	}
	for {
		var m wire.Message
		if err := r.Next(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if said = append(said, m); m.Done != nil {
			ended <- true
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	return said
}

// A scheduler that has not heard yet that a task has followed another may ask for it
// again, when it has even ended. It must not run twice.
func TestTaskThatHasEndedDoesNotRunAgain(t *testing.T) {
	run := func(seq int64, again bool) *wire.Message {
		return &wire.Message{Run: &wire.Run{Key: wire.Key{Seq: seq, Attempt: 1}, Text: "true", Need: pool.Need{CPUs: 1}, Again: again}}
	}
	ends := map[int64]int{}
	for _, m := range serve(t, wire.Setup{}, run(1, false), run(1, true), run(2, false), run(2, true)) {
		if m.Done != nil {
			ends[m.Done.Seq]++
		}
	}
	if ends[1] != 1 || ends[2] != 1 {
		t.Errorf("ends %v; want one each", ends)
	}
}
