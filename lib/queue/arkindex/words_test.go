package arkindex

import (
	"slices"
	"strings"
	"testing"
)

// What Python's shlex.split makes of each, as Docker's library uses it.
func TestSplitCommand(t *testing.T) {
	for command, want := range map[string][]string{
		"":                             nil,
		"  \t\n":                       nil,
		"worker-run":                   {"worker-run"},
		"  a  b\tc\r\nd ":              {"a", "b", "c", "d"},
		`a 'b  c' "d  e"`:              {"a", "b  c", "d  e"},
		`a""b '' ""`:                   {"ab", "", ""},
		`--x="y z"'w'`:                 {"--x=y zw"},
		`a\ b \"c \\d`:                 {"a b", `"c`, `\d`},
		`"a\"b\\c\d\$e"`:               {`a"b\c\d\$e`},
		`'a\b'`:                        {`a\b`},
		"$HOME `id` $(id) *.txt ~ {a}": {"$HOME", "`id`", "$(id)", "*.txt", "~", "{a}"},
		"a # b":                        {"a", "#", "b"},
		"a; b && c | d > e":            {"a;", "b", "&&", "c", "|", "d", ">", "e"},
		"é 'ü ß'":                      {"é", "ü ß"},
	} {
		got, err := splitCommand(command)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("splitCommand(%q) = %q, %v; want %q", command, got, err, want)
		}
	}
	for _, bad := range []string{`a 'b`, `a "b`, `"a\"`, `a\`, "a\x00b", "'a\x00'"} {
		if got, err := splitCommand(bad); err == nil {
			t.Errorf("splitCommand(%q) = %q; want an error", bad, got)
		}
	}
}

// Words that were quoted come back as they were.
func FuzzSplitCommand(f *testing.F) {
	f.Add("a", "b c", `d"e'f\`)
	f.Add("", "\n", "#")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		want := []string{a, b, c}
		var quoted []string
		for _, w := range want {
			if strings.ContainsRune(w, 0) {
				return
			}
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'"'"'`)+"'")
		}
		got, err := splitCommand(strings.Join(quoted, " "))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q come back as %q, %v", want, got, err)
		}
		_, _ = splitCommand(a)
	})
}
