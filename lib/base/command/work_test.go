package command

import (
	"os/exec"
	"testing"
	"time"
)

// A program that has ended is known to have, before and after something waits for it.
func TestWorkEnded(t *testing.T) {
	p := exec.Command("cat")
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	w := &Work{p: p, done: make(chan struct{})}
	if w.Ended() {
		t.Error("it has ended at once")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); !w.Ended(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 3*time.Minute {
			t.Fatal("its end is not seen")
		}
	}
	if err := p.Wait(); err != nil || !w.Ended() {
		t.Errorf("ended %v, %v", w.Ended(), err)
	}
	close(w.done)
	if !w.Ended() {
		t.Error("it runs again")
	}
}
