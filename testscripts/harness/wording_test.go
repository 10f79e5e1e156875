package harness

import (
	"slices"
	"testing"
)

func TestRawLines(t *testing.T) {
	log := "> exec tool\n[stderr]\ntool: asking: context deadline exceeded\ntool: a: EOF\ntool: %!d(string=x)\ntool: an EOF, quoted\n" +
		"> stderr 'no such host'\ntool: cannot connect to 127.0.0.1:1: connection refused\n[stdout]\ntool: dial tcp 127.0.0.1:1: connect: connection refused\n"
	want := []string{
		"tool: asking: context deadline exceeded", "tool: a: EOF", "tool: %!d(string=x)", "tool: dial tcp 127.0.0.1:1: connect: connection refused",
	}
	if got := rawLines(log); !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}
