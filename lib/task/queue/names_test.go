package queue

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		name string
		err  error
		want string // part of the error; "": none
	}{
		{"name", CheckName("lr=0.1, seed 3 é"), ""},
		{"empty name", CheckName(""), "empty"},
		{"escape in a name", CheckName("a\x1b[2J"), "control character"},
		{"name that is not UTF-8", CheckName("a\xff"), "UTF-8"},
		{"long name", CheckName(long), "longer than 255"},
		{"no group", CheckGroup(""), ""},
		{"group", CheckGroup("lr-2026.1_b"), ""},
		{"group that leads up", CheckGroup("../x"), "invalid group"},
		{"group with a dot first", CheckGroup(".x"), "invalid group"},
		{"long group", CheckGroup(long), "longer than 128"},
		{"no key", CheckKey(""), ""},
		{"key", CheckKey("paper, table 3"), ""},
		{"key with a newline", CheckKey("a\nb"), "control character"},
		{"parameters", CheckParameters(map[string]string{"lr": "0.1", "_x-y.z": "", "1": "any \n\x1b é"}), ""},
		{"parameter without a name", CheckParameters(map[string]string{"": "1"}), "empty"},
		{"parameter that begins with a dash", CheckParameters(map[string]string{"-1": "1"}), "invalid parameter"},
		{"parameter with a brace", CheckParameters(map[string]string{"a}": "1"}), "invalid parameter"},
		{"zero byte", CheckParameters(map[string]string{"a": "x\x00"}), "zero byte"},
		{"value that is not UTF-8", CheckParameters(map[string]string{"a": "\xff"}), "UTF-8"},
		{"long value", CheckParameters(map[string]string{"a": strings.Repeat("x", 1<<17)}), "longer than"},
	} {
		if (tt.err == nil) != (tt.want == "") || tt.err != nil && !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, tt.err, tt.want)
		}
	}
}
