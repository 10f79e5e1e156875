package harness

import (
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// raw are texts of Go's library, which no tool prints: package fault words them. A text that another
// program prints as well would be left out here.
var raw = regexp.MustCompile(strings.Join([]string{
	`context (?:deadline exceeded|canceled)`, `token too long`, `cannot unmarshal`, `unexpected end of JSON input`, `invalid character '`,
	`(?:^|: )(?:unexpected )?EOF$`, `broken pipe`, `i/o timeout`, `no such host`, `\b(?:dial|read|write|listen) (?:tcp|udp|unix)\b`,
	`\bstrconv\.`, `executable file not found`, `\bexec: "`, `fork/exec `, `(?:^|: )(?:json|yaml): `, `net/http: `, `file already closed`,
	`use of closed`, `%!`, `^goroutine \d+ \[`,
}, "|"))

// watched runs scripts as testscript does with -v, and fails those in which a command prints what is raw.
type watched struct{ *testing.T }

func (w watched) Run(name string, run func(testscript.T)) {
	w.T.Run(name, func(t *testing.T) { run(watched{t}) })
}

// Verbose has the log of a script hold what its commands print.
func (watched) Verbose() bool { return true }

// Log gets the log of a script. Its own lines begin with a mark.
func (w watched) Log(args ...any) {
	w.Helper()
	w.T.Log(args...)
	for _, arg := range args {
		text, _ := arg.(string)
		for _, line := range rawLines(text) {
			w.Errorf("a command prints an error of Go's library: %s", line)
		}
	}
}

func rawLines(log string) (found []string) {
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\r\n")
		if !strings.HasPrefix(line, "> ") && !strings.HasPrefix(line, "FAIL: ") && raw.MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}
