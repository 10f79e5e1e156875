package fault

import (
	"errors"
	"fmt"
	"testing"
)

func TestCode(t *testing.T) {
	plain := errors.New("plain")
	for _, tt := range []struct {
		name   string
		err    error
		code   int
		silent bool
	}{
		{"nil", nil, 0, true},
		{"plain", plain, 1, false},
		{"usage", Errorf(Usage, "bad %q", "x"), 2, false},
		{"wrapped", fmt.Errorf("reading: %w", Errorf(Unavailable, "down")), 3, false},
		{"outermost kind wins", Wrap(Usage, fmt.Errorf("x: %w", Wrap(Unavailable, plain))), 2, false},
		{"joined", errors.Join(plain, Wrap(Busy, plain)), 4, false},
		{"hinted", Hint(Wrap(Busy, plain), "wait"), 4, false},
		{"exact", fmt.Errorf("run: %w", Exit(137, plain)), 137, false},
		{"exact and silent", Exit(75, nil), 75, true},
	} {
		if code, silent := Code(tt.err); code != tt.code || silent != tt.silent {
			t.Errorf("%s: Code = %d, %v; want %d, %v", tt.name, code, silent, tt.code, tt.silent)
		}
	}
	if Wrap(Usage, nil) != nil || Hint(nil, "x") != nil {
		t.Error("nil does not stay nil")
	}
	if !Is(Wrap(Busy, plain), Busy) || Is(nil, Failed) {
		t.Error("Is does not tell kinds apart")
	}
	if got := HintOf(fmt.Errorf("a: %w", Hint(plain, "do this"))); got != "do this" {
		t.Errorf("HintOf = %q", got)
	}
}
