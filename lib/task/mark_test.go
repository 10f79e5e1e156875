package task

import (
	"slices"
	"strings"
	"testing"
)

const (
	uuidA = "019ab6c5-4d2e-7c61-9f0a-000000000001"
	uuidB = "ffffffff-ffff-ffff-bfff-ffffffffffff"
)

func TestMarked(t *testing.T) {
	for comment, want := range map[string][]ID{
		"PONOS_TASK=a":    {"a"},
		"PONOS_TASK=a\n":  {"a"},
		"PONOS_TASK=a,b2": {"a", "b2"},
		"PONOS_TASK=.AZq2xU0ufGGfCgAAAAAAAQ.__________-__________w": {uuidA, uuidB},
		"PONOS_TASK=.AZq2xU0ufGGfCgAAAAAAAQ,b":                      {uuidA, "b"},
		"PONOS_TASK=b.AZq2xU0ufGGfCgAAAAAAAQ":                       {"b", uuidA},
		"PONOS_TASK=" + uuidA + "," + uuidB:                         {uuidA, uuidB},
		"PONOS_TASK=":                                               nil, "PONOS_TASK=a,": nil, "PONOS_TASK=../x": nil, "PONOS_TASK=a,../x": nil, "a": nil, "": nil, "PONOS_TASK=,a": nil,
		"PONOS_TASK=.": nil, "PONOS_TASK=.AZq2xU0ufGGfCgAAAAAAA": nil, "PONOS_TASK=.AZq2xU0ufGGfCgAAAAAAAR": nil, "PONOS_TASK=a,.AZq2xU0ufGGfCgAAAAAAAQ": nil,
	} {
		if got := Marked(comment); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", comment, got, want)
		}
		for i := -1; i <= len(want); i++ {
			mark := ""
			if i >= 0 && i < len(want) {
				mark = "PONOS_TASK=" + string(want[i])
			}
			if got := MarkOf(comment, i); want != nil && got != mark {
				t.Errorf("%q, element %d: %q", comment, i, got)
			}
		}
	}
}

func TestMarks(t *testing.T) {
	for want, ids := range map[string][]ID{
		"PONOS_TASK=" + uuidA: {uuidA}, // as it is, for those who look for it
		"PONOS_TASK=a,b":      {"a", "b"},
		"PONOS_TASK=.AZq2xU0ufGGfCgAAAAAAAQ.__________-__________w": {uuidA, uuidB},
		"PONOS_TASK=a.AZq2xU0ufGGfCgAAAAAAAQ,b":                     {"a", uuidA, "b"},
		// Not as a UUID is written: it would be read as another id.
		"PONOS_TASK=a," + strings.ToUpper(uuidA): {"a", ID(strings.ToUpper(uuidA))},
	} {
		if got := Marks(ids...); got != want {
			t.Errorf("%q: %q, want %q", ids, got, want)
		}
	}
	all := make([]ID, 44)
	for i := range all {
		all[i] = uuidB
	}
	if n := len(Marks(all...)); n > 1024 {
		t.Errorf("44 UUIDs take %d bytes: Slurm takes 1024", n)
	}
}

// Whatever ids there are, they are read as they were.
func FuzzMarks(f *testing.F) {
	f.Add("PONOS_TASK=a,b", "a", uuidA, 1)
	f.Add("PONOS_TASK=.AZq2xU0ufGGfCgAAAAAAAQ,b", uuidB, "b", 0)
	f.Add("PONOS_TASK=a,.", "AZq2xU0ufGGfCgAAAAAAAQ", strings.ToUpper(uuidA), 2)
	f.Fuzz(func(t *testing.T, comment, one, other string, index int) {
		for _, id := range Marked(comment) {
			if _, err := ParseID(string(id)); err != nil {
				t.Errorf("%q: %v", comment, err)
			}
		}
		if index < 1000 {
			MarkOf(comment, index)
		}
		a, errA := ParseID(one)
		b, errB := ParseID(other)
		if errA != nil || errB != nil {
			return
		}
		for _, ids := range [][]ID{{a}, {a, b}, {b, a, a}} {
			if got := Marked(Marks(ids...)); !slices.Equal(got, ids) {
				t.Errorf("%q: %q", ids, got)
			}
		}
	})
}
