package task

import (
	"slices"
	"testing"

	"github.com/ponos-tools/ponos/lib/task"
)

func TestNamed(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{`[{"id":"a","tags":["x","y"]},{"id":"b"}]`, []string{"x", "y"}},
		{"{\"tags\":\"x\"}\n{\"tags\":[\"y\"]}\n", []string{"x", "y"}},
		{`[{"tags":["x"]},`, nil},
		{`{"tags":7}`, nil},
		{"", nil},
	} {
		if got := named(tt.text, "tags"); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

func FuzzMarked(f *testing.F) {
	f.Add("PONOS_TASK=a-1\nother\n PONOS_TASK=b \nPONOS_TASK=../x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, id := range marked(text) {
			if _, err := task.ParseID(id); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
