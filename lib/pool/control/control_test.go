package control

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
)

// A request that comes as the pool ends is answered as one that finds no pool.
func TestAskedAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	s, err := Listen(dir, pool.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(&scheduler.Request{Op: "status"}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if a, err := c.Receive(); !fault.Is(err, fault.Unavailable) || err.Error() != "the pool has ended" {
		t.Errorf("%+v %v", a, err)
	}
}

// Another user is told that the run is not theirs, and not that it has ended.
func TestAskedByAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	dir := t.TempDir()
	s, err := Listen(dir, pool.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	answer := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with this function, as its user has changed
		err := syscall.Setfsuid(65534)
		if err == nil {
			_, err = Dial(dir)
		}
		answer <- err
	}()
	if err := <-answer; !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("%v", err)
	}
}
