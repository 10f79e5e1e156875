package command

import "strings"

// plain are the characters that no shell changes, wherever they are in an argument.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,@%+"

// Quote returns an argument as any POSIX shell reads it back. Package pool/shell quotes more: it also
// writes the first word of a command, in which "=" begins an assignment.
func Quote(word string) string {
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
