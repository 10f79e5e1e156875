// Package shell decides whether a command line needs a shell. Without one it
// starts in less than half the time.
package shell

import "strings"

// special are the characters that are special to a shell, wherever they are.
const special = "|&;<>()$`\\\"'*?[]#~=%!{}\n\r"

// Words that are builtins or keywords of a shell.
var builtin = map[string]bool{}

func init() {
	for w := range strings.FieldsSeq(`. : [ alias bg bind break builtin caller case cd command compgen complete
		compopt continue coproc declare dirs disown do done elif else enable esac eval exec exit export fc fg fi
		for function getopts hash help history if in jobs let local logout mapfile popd pushd pwd read readarray
		readonly return select set shift shopt source suspend then time times trap type typeset ulimit umask unalias
		unset until wait while`) {
		builtin[w] = true
	}
}

// Split returns the words of a command line that can be run without a shell and
// would mean the same with one; false if it cannot.
func Split(line string) ([]string, bool) {
	if strings.ContainsAny(line, special) || strings.IndexByte(line, 0) >= 0 {
		return nil, false
	}
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 0 || builtin[words[0]] {
		return nil, false
	}
	return words, true
}

// Quote makes one word of s for any shell.
func Quote(s string) string {
	if s != "" && !strings.ContainsAny(s, special) && !strings.ContainsAny(s, " \t\x00") && !hasControl(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func hasControl(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0
}

// Join makes a command line of words.
func Join(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = Quote(w)
	}
	return strings.Join(out, " ")
}
