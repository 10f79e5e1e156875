package sbatch_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// TestPlugin holds the lists of the plugin against the table: a wrong one takes the arguments of a script for
// options of sbatch.
func TestPlugin(t *testing.T) {
	source, err := os.ReadFile("../../spank/ponos.c")
	if err != nil {
		t.Fatal(err)
	}
	list := func(name string) (words []string) {
		m := regexp.MustCompile(`(?s)\b` + name + `\[\] = \{(.*?)NULL`).FindSubmatch(source)
		if m == nil {
			t.Fatalf("no list %s", name)
		}
		for _, w := range regexp.MustCompile(`"([^"]+)"`).FindAllSubmatch(m[1], -1) {
			words = append(words, string(w[1]))
		}
		return words
	}
	letters := regexp.MustCompile(`with_value\[\] = "([a-zA-Z]+)"`).FindSubmatch(source)
	if letters == nil {
		t.Fatal("no list with_value")
	}
	var withValue, without, short []string
	for _, d := range sbatch.All() {
		names := []string{d.Name}
		if d.Alias != "" {
			names = append(names, d.Alias)
		}
		switch {
		case d.Name == "wrap": // it ends the search
		case d.Form == sbatch.Flag || d.Optional:
			without = append(without, names...)
		default:
			withValue = append(withValue, names...)
			if d.Short != 0 {
				short = append(short, string(d.Short))
			}
		}
	}
	same := func(what string, got, want []string) {
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s of ponos.c:\n%q; the table has\n%q", what, got, want)
		}
	}
	same("with_values", list("with_values"), withValue)
	same("without", list("without"), without)
	same("with_value", strings.Split(string(letters[1]), ""), short)
}
