package control

import (
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
