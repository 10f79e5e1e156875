package task

import (
	"slices"
	"strings"
	"testing"
)

func TestSplitCommand(t *testing.T) {
	for line, want := range map[string][]string{
		"worker-run":                {"worker-run"},
		" a  b\tc\n":                {"a", "b", "c"},
		`sh -c 'echo "$HOME"' x`:    {"sh", "-c", `echo "$HOME"`, "x"},
		`a "b \"c\" \n" ''`:         {"a", `b "c" \n`, ""},
		`a\ b *.py $(rm -rf /) ; x`: {"a b", "*.py", "$(rm", "-rf", "/)", ";", "x"},
		`it''s`:                     {"its"},
		// As Python's shlex.split has it.
		`a""b '' ""`:            {"ab", "", ""},
		`--x="y z"'w'`:          {"--x=y zw"},
		`\"c\" \\d`:             {`"c"`, `\d`},
		`"a\"b\\c\d\$e" 'a\b'`:  {`a"b\c\d\$e`, `a\b`},
		"a # b; c && d | e > f": {"a", "#", "b;", "c", "&&", "d", "|", "e", ">", "f"},
		"é 'ü ß'":               {"é", "ü ß"},
	} {
		if got, err := SplitCommand(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("SplitCommand(%q) = %q, %v; want %q", line, got, err, want)
		}
	}
	for line, want := range map[string]string{
		"": "empty", "  ": "empty", "it's": "single quote", `say "x`: "double quote", `x\`: "backslash", "a\x00b": "zero byte", "'a\x00'": "zero byte", "\"\x00\"": "zero byte", "\\\x00": "zero byte",
	} {
		if got, err := SplitCommand(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("SplitCommand(%q) = %q, %v; want %q", line, got, err, want)
		}
	}
}

func FuzzSplitCommand(f *testing.F) {
	f.Add(`sh -c 'echo "$HOME"' x`)
	f.Add(`d"e'f\`)
	f.Fuzz(func(t *testing.T, line string) {
		words, err := SplitCommand(line)
		if (err == nil) == (len(words) == 0) {
			t.Errorf("%q: %q, %v", line, words, err)
		}
		// Words that are quoted come back as they were.
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'"'"'`)+"'")
		}
		if again, bad := SplitCommand(strings.Join(quoted, " ")); err == nil && (bad != nil || !slices.Equal(again, words)) {
			t.Errorf("%q come back as %q, %v", words, again, bad)
		}
	})
}
