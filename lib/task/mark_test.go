package task

import (
	"slices"
	"testing"
)

func TestMarked(t *testing.T) {
	for comment, want := range map[string][]ID{
		"PONOS_TASK=a":    {"a"},
		"PONOS_TASK=a\n":  {"a"},
		"PONOS_TASK=a,b2": {"a", "b2"},
		"PONOS_TASK=":     nil, "PONOS_TASK=a,": nil, "PONOS_TASK=../x": nil, "PONOS_TASK=a,../x": nil, "a": nil, "": nil,
	} {
		if got := Marked(comment); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", comment, got, want)
		}
	}
	for index, want := range map[int]string{-1: "", 0: "PONOS_TASK=a", 1: "PONOS_TASK=b", 2: ""} {
		if got := MarkOf("PONOS_TASK=a,b", index); got != want {
			t.Errorf("%d: %q", index, got)
		}
	}
	if got := Marks("a", "b"); got != "PONOS_TASK=a,b" {
		t.Error(got)
	}
}
