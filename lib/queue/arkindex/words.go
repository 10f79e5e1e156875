package arkindex

import (
	"errors"
	"strings"
)

// splitCommand splits a command into its words as a POSIX shell does, and as
// Docker's Python library, which ran such commands first: quotes and
// backslashes count, but nothing is expanded, and no word is a comment.
func splitCommand(command string) ([]string, error) {
	const none = 0
	var words []string
	var word strings.Builder
	var quote byte // the quote that is open
	inWord := false
	for i := 0; i < len(command); i++ {
		c := command[i]
		switch {
		case c == 0:
			return nil, errors.New("holds a zero byte")
		case quote == '\'' && c != '\'', quote == '"' && c != '"' && c != '\\':
			word.WriteByte(c)
		case quote == c:
			quote = none
		case c == '\\':
			i++
			if i == len(command) {
				return nil, errors.New("ends with a backslash")
			}
			if command[i] == 0 {
				return nil, errors.New("holds a zero byte")
			}
			if quote == '"' && command[i] != '"' && command[i] != '\\' {
				word.WriteByte('\\')
			}
			word.WriteByte(command[i])
			inWord = true
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quote != none {
		return nil, errors.New("has a quote that is never closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
