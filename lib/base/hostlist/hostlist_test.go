package hostlist

import (
	"slices"
	"strings"
	"testing"
)

// The expansions are those of "scontrol show hostnames" of Slurm 22.05.8.
func TestExpand(t *testing.T) {
	for list, want := range map[string]string{
		"":                       "",
		"cpu1":                   "cpu1",
		"node[01-03,12]":         "node01 node02 node03 node12",
		"a[1-2]b[3,5]":           "a1b3 a1b5 a2b3 a2b5",
		"gpu[1-2],small1":        "gpu1 gpu2 small1",
		"n[9-11]":                "n9 n10 n11",
		"n[009-011]":             "n009 n010 n011",
		"r[1-2]-eth":             "r1-eth r2-eth",
		"z2,a1":                  "z2 a1",
		"x[1],x[1]":              "x1 x1",
		"node-a[0-1].cluster.de": "node-a0.cluster.de node-a1.cluster.de",
	} {
		got, err := Expand(list)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("Expand(%q) = %q, %v; want %q", list, got, err, want)
		}
	}
	for _, list := range []string{"a[1-", "a[2-1]", "a[x]", "a]", "a[0-99999999]", "a[1-99999999999]", "a b", "a[]", "a[1-1000][1-1000][1-9]"} {
		if got, err := Expand(list); err == nil {
			t.Errorf("Expand(%q) gives %d names; want an error", list, len(got))
		}
	}
}

func TestCompress(t *testing.T) {
	for names, want := range map[string]string{
		"":                            "",
		"cpu1":                        "cpu1",
		"node01 node02 node03 node12": "node[01-03,12]",
		"n9 n10 n11":                  "n[9-11]",
		"gpu2 small1 gpu1 login":      "gpu[1-2],small1,login",
		"a1 a1":                       "a1",
		"r1-eth r2-eth":               "r[1-2]-eth",
	} {
		if got := Compress(strings.Fields(names)); got != want {
			t.Errorf("Compress(%q) = %q; want %q", names, got, want)
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, seed := range []string{"node[01-10,12]", "a[1-2]b[3,5],c", "n[009-011]", "x0,x00,x1", "a1234567890123"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := Expand(list)
		if err != nil || len(names) > 10000 {
			return
		}
		back, err := Expand(Compress(names))
		if err != nil {
			t.Fatalf("%q: %v", list, err)
		}
		slices.Sort(names)
		slices.Sort(back)
		if names = slices.Compact(names); !slices.Equal(names, back) {
			t.Errorf("%q: %q became %q", list, names, back)
		}
	})
}
