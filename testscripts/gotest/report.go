package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// An event is one object of the output of "go test -json": see "go doc test2json".
type event struct {
	Action, Package, Test, Output string
}

// A report prints what "go test" prints without -json, and collects the reasons why tests were skipped.
type report struct {
	out     io.Writer
	verbose bool
	lines   map[string][]line // by package: what its tests have printed, but for those that have passed
	skipped []*reason
}

// A line was printed by a test; the test "" is the package.
type line struct{ test, text string }

// A reason is why tests were skipped, with their packages and names.
type reason struct {
	why   string
	tests [][2]string
}

// read prints the output of one "go test -json".
func (r *report) read(in io.Reader) error {
	r.lines = map[string][]line{}
	for events := json.NewDecoder(in); ; {
		var e event
		if err := events.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		r.event(e)
	}
}

// Lines of the test binary that say what runs. They are printed with -v only.
var progress = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) |^PASS\n$`)

func (r *report) event(e event) {
	if e.Action == "build-output" || r.verbose && e.Action == "output" {
		fmt.Fprint(r.out, e.Output)
	}
	lines := r.lines[e.Package]
	switch e.Action {
	case "output":
		if !progress.MatchString(e.Output) {
			r.lines[e.Package] = append(lines, line{e.Test, e.Output})
		}
	case "skip", "pass":
		if e.Test != "" {
			if e.Action == "skip" {
				r.skip(e.Package, e.Test, why(lines, e.Test))
			}
			r.lines[e.Package] = slices.DeleteFunc(lines, func(l line) bool { return l.test == e.Test })
			return
		}
		fallthrough
	case "fail":
		if e.Test == "" {
			for _, l := range lines {
				if !r.verbose {
					fmt.Fprint(r.out, l.text)
				}
			}
			delete(r.lines, e.Package)
		}
	}
}

// A reason is a message of t.Skip, or the command of a script.
var source = regexp.MustCompile(`^\s+(?:[a-z0-9_]+\.go:[0-9]+: (.*)|> .*\bskip '(.*)')`)

// why returns the reason that a skipped test has printed: its last message.
func why(lines []line, test string) string {
	for _, l := range slices.Backward(lines) {
		if m := source.FindStringSubmatch(l.text); m != nil && l.test == test {
			return m[1] + m[2]
		}
	}
	return "no reason given"
}

func (r *report) skip(pkg, test, why string) {
	name := [2]string{strings.TrimPrefix(pkg, "github.com/ponos-tools/ponos/"), test}
	i := slices.IndexFunc(r.skipped, func(s *reason) bool { return s.why == why })
	if i < 0 {
		i = len(r.skipped)
		r.skipped = append(r.skipped, &reason{why: why})
	}
	r.skipped[i].tests = append(r.skipped[i].tests, name)
}

// summary prints one line for each reason.
func (r *report) summary() {
	for _, s := range r.skipped {
		var packages []string
		for _, name := range s.tests {
			packages = append(packages, name[0])
		}
		slices.Sort(packages)
		what := fmt.Sprintf("%d tests of %s", len(s.tests), strings.Join(slices.Compact(packages), ", "))
		if len(s.tests) == 1 {
			what = strings.TrimPrefix(s.tests[0][0]+"."+s.tests[0][1], ".")
		}
		fmt.Fprintf(r.out, "skipped %s: %s\n", what, s.why)
	}
}
