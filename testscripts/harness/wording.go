package harness

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

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

// Worded fails a test if a program has printed an error of Go's library.
func Worded(t testing.TB, printed string) {
	t.Helper()
	for _, line := range rawLines(printed) {
		t.Errorf("a command prints an error of Go's library: %s", line)
	}
}

// WordedFiles fails a test at its end if a file that was written below a directory meanwhile, such as a log, has an error of Go's
// library.
func WordedFiles(t testing.TB, dir string) {
	t.Helper()
	before := files(dir)
	t.Cleanup(func() {
		for _, line := range written(dir, before) {
			t.Errorf("a command writes an error of Go's library: %s", line)
		}
	})
}

// maxText is the size of files up to which they are read for errors: larger ones are programs and data.
const maxText = 256 << 10

// others are files that programs of others write.
var others = regexp.MustCompile(`/(site-packages|[^/]*\.git|__pycache__)/|\.(py|pyc|sh|tar|zst|gz)$`)

// written returns the lines of errors of Go's library in the files below a directory, such as logs and what was redirected into a
// file, but for those that were there before.
func written(dir string, before map[string]bool) (found []string) {
	for path := range files(dir) {
		text, err := os.ReadFile(path)
		if before[path] || err != nil || len(text) > maxText || !utf8.Valid(text) || others.MatchString(path) {
			continue
		}
		for _, line := range rawLines(string(text)) {
			found = append(found, strings.TrimPrefix(path, dir+"/")+": "+line)
		}
	}
	return found
}

// files are the regular files below a directory that are not too large.
func files(dir string) map[string]bool {
	all := map[string]bool{}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil && info.Size() <= maxText {
				all[path] = true
			}
		}
		return nil
	})
	return all
}
