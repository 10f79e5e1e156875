package control

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/testscripts/needs"
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
	needs.Root(t, "to be another user")
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

// served answers each request of a connection, and ends as a pool does after a request to drain.
func served(t *testing.T) *Client {
	t.Helper()
	dir := t.TempDir()
	s, err := Listen(dir, pool.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for r := range s.Requests {
			r.Answer(&scheduler.Answer{Tag: r.Tag})
			if r.Op == "drain" || r.Op == "cancel" {
				s.Close()
				return
			}
		}
	}()
	return c
}

// An answer that is given as the pool ends is sent.
func TestLastAnswer(t *testing.T) {
	for range 50 {
		c := served(t)
		if err := c.Send(&scheduler.Request{Op: "drain", Tag: json.RawMessage(`"last"`)}); err != nil {
			t.Fatal(err)
		}
		if a, err := c.Receive(); err != nil || string(a.Tag) != `"last"` {
			t.Fatalf("%+v %v", a, err)
		}
	}
}

// The pool may end before the input of a program that has asked for its end, and before no other's.
func TestRaw(t *testing.T) {
	long := `{"op": "status", "tag": "` + strings.Repeat("drain", 20<<10) + `"}` + "\n"
	for input, want := range map[string]string{
		`{"op": "status", "tag": "1"}` + "\n" + `{"op": "drain", "tag": "2"}` + "\n": "",
		long + `{"tag": "2", "op": "drain"}` + "\n":                                  "",
		`{"op": "status", "tag": "drain"}` + "\n" + `{"op": "cancel"}` + "\n":        "the pool has ended",
	} {
		open, w := io.Pipe() // it does not end
		go func() { _, _ = io.WriteString(w, input) }()
		var out strings.Builder
		err := served(t).Raw(open, &out)
		if got := fmt.Sprint(err); got != want && (err != nil || want != "") {
			t.Errorf("%.80s: %v, expected %q", input, err, want)
		}
		if n := strings.Count(out.String(), "\n"); n != 2 {
			t.Errorf("%.80s: %d answers", input, n)
		}
		open.Close()
	}
}
