// Package shell quotes words for a shell, and decides whether a command line needs one: without, it
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

// plain are the characters that no shell changes, wherever they are in an argument.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,@%+"

// Quote returns an argument of a command as any POSIX shell reads it back. That of mvdan.cc/sh refuses
// control characters for POSIX shells, and arguments of tasks have tabs and line breaks.
func Quote(word string) string {
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// QuoteAnywhere quotes a word that may be the first of a command, where "=" begins an assignment and "%" a job.
func QuoteAnywhere(word string) string {
	if quoted := Quote(word); quoted != word || !strings.ContainsAny(word, "=%") {
		return quoted
	}
	return "'" + word + "'"
}

// Join makes a command line of words.
func Join(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		if out[i] = Quote(w); i == 0 {
			out[i] = QuoteAnywhere(w)
		}
	}
	return strings.Join(out, " ")
}
