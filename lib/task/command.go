package task

import (
	"errors"
	"strings"
)

// IsVariable reports whether a shell takes a name as that of a variable.
func IsVariable(name string) bool {
	return name != "" && (name[0] < '0' || name[0] > '9') && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9')
	})
}

// SplitCommand splits a command line into its words as a shell does, with single
// and double quotes and backslashes, but expands nothing: $HOME and * stay as they
// are. This is how Docker's clients read the command of an image.
func SplitCommand(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	if strings.ContainsRune(line, 0) {
		return nil, errors.New("the command has a zero byte")
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\n', '\r':
			if inWord {
				words, inWord = append(words, word.String()), false
				word.Reset()
			}
		case '\\':
			if i++; i == len(line) {
				return nil, errors.New("the command ends with a backslash")
			}
			inWord = true
			word.WriteByte(line[i])
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, errors.New("a single quote of the command is not closed")
			}
			inWord = true
			word.WriteString(line[i+1 : i+1+end])
			i += end + 1
		case '"':
			inWord = true
			for i++; ; i++ {
				if i >= len(line) {
					return nil, errors.New("a double quote of the command is not closed")
				}
				if line[i] == '"' {
					break
				}
				if line[i] == '\\' && i+1 < len(line) && (line[i+1] == '"' || line[i+1] == '\\') {
					i++
				}
				word.WriteByte(line[i])
			}
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("the command is empty")
	}
	return words, nil
}
