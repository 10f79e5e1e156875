package spelling

import "testing"

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{"partiton": "partition", "nodse": "nodes", "zzz": "", "TIME": "time", "": "", "5": ""} {
		if got := Nearest(word, []string{"partition", "nodes", "time", "["}); got != want {
			t.Errorf("Nearest(%q) = %q; want %q", word, got, want)
		}
	}
}
