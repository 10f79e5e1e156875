package lfind

import (
	"fmt"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/base/app"
)

// maxFolds limits the lines of each part of a short explanation, so that it fits a
// screen.
const maxFolds = 8

// explainShort says what was chosen and why, and then what came nearest to a match.
func (s *session) explainShort(alternatives bool, rows []launcher.Row, answer *launcher.Answer) error {
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, app.Sanitize(fmt.Sprintf(format, args...))) }
	all := launcher.Folded(rows)
	of := func(f *launcher.Fold) string {
		if alternatives {
			return fmt.Sprintf("alternative %d: ", f.Alternative+1)
		}
		return ""
	}
	part := func(title string, folds []*launcher.Fold, write func(*launcher.Fold)) {
		if len(folds) == 0 {
			return
		}
		if len(lines) > 0 {
			lines = append(lines, "")
		}
		if title != "" {
			line("%s", title)
		}
		for _, f := range folds[:min(len(folds), maxFolds)] {
			write(f)
		}
		if more := len(folds) - maxFolds; more > 0 {
			line("  and %d more; --all lists everything", more)
		}
	}
	if answer != nil {
		line("%s", chosen(answer))
	}
	for _, f := range all {
		if f.Verdict != launcher.Yes {
			continue
		}
		with := ""
		if len(f.With) > 0 {
			with = ", with " + f.With[0]
		}
		line("  %s%s%s%s", of(f), f.Match(), f.Class, with)
		if len(f.By) > 0 {
			line("  GPUs: %s", strings.Join(f.By, "; "))
		}
		if f.Why != "" {
			line("  although %s", f.Why)
		}
	}
	part("Also match, but are not in the answer:", launcher.Picked(all, launcher.Spare),
		func(f *launcher.Fold) { line("  %s%s: %s", of(f), f.Place(), f.Why) })
	part("May match:", launcher.Picked(all, launcher.Maybe), func(f *launcher.Fold) { line("  %s%s: %s", of(f), f.Place(), f.Why) })
	part("Nearest misses:", launcher.Picked(all, launcher.No), func(f *launcher.Fold) { line("  %s%s: %s", of(f), f.Place(), f.Why) })
	if len(lines) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(s.stdout, strings.Join(lines, "\n"))
	return err
}
