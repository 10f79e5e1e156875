package app

import (
	"slices"
	"testing"
)

func TestKeyNames(t *testing.T) {
	for text, want := range map[string][]string{
		"j": {"j"}, "\x1b[A\x1b[B": {KeyUp, KeyDown}, "\x1b": {KeyEscape}, "\r": {KeyEnter}, "\x7fé": {KeyBack, "é"}, "\x03": {KeyEnd}, "\x1b[1;5Cx": {"x"}, "\x1b[": nil, "\xff": nil,
	} {
		if got := keyNames([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
