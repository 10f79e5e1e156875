// Package locale draws bars, lines and charts with the characters that the terminal can show.
package locale

import (
	"os"
	"strings"
)

// UTF8 reports whether output may contain more than ASCII: the locale is one of UTF-8, and the terminal
// is not a dumb one. Without a locale, as in cron, it may not.
func UTF8() bool {
	if os.Getenv("TERM") == "dumb" {
		return false
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := os.Getenv(name); value != "" {
			return isUTF8(value)
		}
	}
	return false
}

// isUTF8 reports whether a locale such as de_DE.UTF-8@euro is one of UTF-8. macOS sends "UTF-8" alone.
func isUTF8(name string) bool {
	_, charset, found := strings.Cut(name, ".")
	if !found {
		charset = name
	}
	charset, _, _ = strings.Cut(charset, "@")
	return strings.EqualFold(charset, "UTF-8") || strings.EqualFold(charset, "UTF8")
}

// ascii has a character of the same width for each symbol. Within one drawing they differ.
var ascii = strings.NewReplacer(
	// sacct marks what it has cut with the same character.
	"…", "+",
	// bars, charts and levels
	"·", ".", "░", ".", "▒", "-", "▓", "=", "█", "#",
	"▁", "_", "▂", "-", "▃", "~", "▄", "=", "▅", "+", "▆", "*", "▇", "%",
	// axes and curves
	"│", "|", "─", "-", "┤", "|", "┼", "+", "├", "|", "└", "+", "┬", "+",
	"╭", ".", "╮", ".", "╰", "'", "╯", "'", "╴", "-", "╶", "-",
)

// Symbols returns what a tool draws, with ASCII characters in place of symbols where only those can be
// shown. It is not for data: names of users, jobs and files remain unchanged.
func Symbols(drawn string) string {
	if UTF8() {
		return drawn
	}
	return ascii.Replace(drawn)
}
