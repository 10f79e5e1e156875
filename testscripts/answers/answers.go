// Package answers replaces the programs that a test of a package asks: each command line has an
// answer that was captured before, and any other fails the test.
package answers

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

// What an answer may begin with.
const (
	Refusal = "! " // it is printed to standard error, and the exit status is 1
	Aside   = "& " // it is printed to standard error
)

// Mark is a delimiter that is new in each call.
const Mark = "MARK"

// Programs makes PATH a directory with the programs of the command lines, which answer those only, and
// with a shell. It returns what was asked up to then. In a command line and its answer, Mark stands for what
// --delimiter= has in that call.
func Programs(tb testing.TB, lines map[string]string) (asked func() []string) {
	tb.Helper()
	dir := tb.TempDir()
	log, unexpected := filepath.Join(dir, "asked"), filepath.Join(dir, "unexpected")
	cases := map[string]string{}
	for i, line := range slices.Sorted(maps.Keys(lines)) {
		program, args, _ := strings.Cut(line, " ")
		answer := filepath.Join(dir, fmt.Sprint("answer", i))
		text, refused := strings.CutPrefix(lines[line], Refusal)
		text, aside := strings.CutPrefix(text, Aside)
		if err := os.WriteFile(answer, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		run, pattern := "/bin/cat "+shell.Quote(answer), shell.Quote(args)
		if before, after, marked := strings.Cut(args, "--delimiter="+Mark+" "); marked {
			pattern = shell.Quote(before+"--delimiter=") + `*\ ` + shell.Quote(after)
			run = `all="$*"; mark=${all#*--delimiter=}; /bin/sed "s/` + Mark + `/${mark%% *}/g" ` + shell.Quote(answer)
		}
		switch {
		case refused:
			run += " >&2; exit 1"
		case aside:
			run += " >&2"
		}
		cases[program] += fmt.Sprintf("%s) %s ;;\n", pattern, run)
	}
	for program, of := range cases {
		executable.Write(tb, filepath.Join(dir, "bin", program), fmt.Sprintf(
			"#!/bin/sh\necho \"%s $*\" >>%s\ncase \"$*\" in\n%s*) echo \"%[1]s $*\" >>%[4]s; exit 99 ;;\nesac\n", program, shell.Quote(log), of, shell.Quote(unexpected)))
	}
	tb.Setenv("PATH", filepath.Join(dir, "bin"))
	tb.Cleanup(func() {
		if text, err := os.ReadFile(unexpected); err == nil {
			tb.Errorf("unexpected command lines:\n%s", text)
		}
	})
	return func() []string {
		text, err := os.ReadFile(log)
		if err != nil {
			return nil
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}
