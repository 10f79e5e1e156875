package lfind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/base/app"
)

// maxFolds limits the lines of each part of a short explanation, so that it fits a
// screen.
const maxFolds = 8

// fold is a number of places with the same fate.
type fold struct {
	verdict     launcher.Verdict
	alternative int
	where       []string // launchers or partitions
	nodes       map[string]int
	has         []string
	by          []string // how its GPUs are known
	with        []string // QoS and accounts
	class       string   // with what is billed
	why         string
	near        int // how near the places are to a match; less is nearer
	first       int
}

// nearness orders reasons: what is not known and what is a matter of quantity is
// nearer to a match than what the user may not use.
func nearness(reasons []launcher.Reason) int {
	worst := 0
	for _, r := range reasons {
		rank := 1
		switch r.Code {
		case "gpu_unknown":
			rank = 0
		case "gpu_kind", "gpu_model", "condition", "gres", "license", "nodes_down":
			rank = 2
		case "partition_state", "group", "account", "qos", "disabled", "unreachable", "no_nodes", "host":
			rank = 3
		case "partition", "kind", "tags": // the request itself, or an option
			rank = 4
		}
		worst = max(worst, rank)
	}
	return worst*100 + len(reasons)
}

// folded puts rows together that are alike.
func folded(rows []launcher.Row) []*fold {
	byKey := map[string]*fold{}
	var all []*fold
	for i := range rows {
		row := &rows[i]
		why := make([]string, len(row.Reasons))
		for j, r := range row.Reasons {
			why[j] = r.Text
		}
		text := strings.Join(why, "; ")
		class := ""
		if row.Verdict == launcher.Yes && row.Class != "" {
			class = fmt.Sprintf(", class %s, billed %s", row.Class, launcher.FormatBilled(row.Billed))
		}
		key := fmt.Sprintf("%d\x00%s\x00%s\x00%s", row.Alternative, row.Verdict, class, text)
		f := byKey[key]
		if f == nil {
			f = &fold{
				verdict: row.Verdict, alternative: row.Alternative, nodes: map[string]int{}, class: class, why: text,
				near: nearness(row.Reasons), first: i,
			}
			byKey[key] = f
			all = append(all, f)
		}
		where := row.Partition
		if where == "" {
			where = "launcher " + row.Launcher
		}
		add(&f.where, where)
		f.nodes[row.Key()] = row.Count
		if len(f.has) < 4 {
			add(&f.has, row.Has())
			for _, by := range row.KnownBy() {
				add(&f.by, by)
			}
		}
		if row.Verdict != launcher.No && len(f.with) < 8 {
			add(&f.with, submitted(*row))
		}
	}
	return all
}

// submitted says with which QoS and account a job goes there.
func submitted(row launcher.Row) string {
	var words []string
	for _, w := range []struct{ what, title, name string }{{"account", "account", row.Account}, {"qos", "QoS", row.QOS}} {
		if w.name == "" {
			continue
		}
		text := w.title + " " + w.name
		if slices.Contains(row.Defaults, w.what) {
			text += " (default)"
		}
		words = append(words, text)
	}
	return strings.Join(words, " and ")
}

func add(list *[]string, word string) {
	if word != "" && !slices.Contains(*list, word) {
		*list = append(*list, word)
	}
}

// place says how many nodes there are, and of which partitions.
func (f *fold) place() string {
	n := 0
	for _, count := range f.nodes {
		n += count
	}
	where := strings.Join(f.where[:min(len(f.where), 4)], ", ")
	if more := len(f.where) - 4; more > 0 {
		where += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case n == 0 || strings.HasPrefix(f.where[0], "launcher "):
		return where
	case n == 1:
		return "1 node of " + where
	}
	return fmt.Sprintf("%d nodes of %s", n, where)
}

// picked are the folds with a verdict, the nearest to a match first.
func picked(all []*fold, v launcher.Verdict) []*fold {
	var some []*fold
	for _, f := range all {
		if f.verdict == v {
			some = append(some, f)
		}
	}
	slices.SortStableFunc(some, func(a, b *fold) int { return a.near - b.near })
	return some
}

// explainShort says what was chosen and why, and then what came nearest to a match.
func (s *session) explainShort(alternatives bool, rows []launcher.Row, answer *launcher.Answer) error {
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, app.Sanitize(fmt.Sprintf(format, args...))) }
	all := folded(rows)
	of := func(f *fold) string {
		if alternatives {
			return fmt.Sprintf("alternative %d: ", f.alternative+1)
		}
		return ""
	}
	part := func(title string, folds []*fold, write func(*fold)) {
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
		if f.verdict != launcher.Yes {
			continue
		}
		with := ""
		if len(f.with) > 0 {
			with = ", with " + f.with[0]
		}
		line("  %s%s match: %s each%s%s", of(f), f.place(), strings.Join(f.has, " or "), f.class, with)
		if len(f.by) > 0 {
			line("  GPUs: %s", strings.Join(f.by, "; "))
		}
		if f.why != "" {
			line("  although %s", f.why)
		}
	}
	part("Also match, but are not in the answer:", picked(all, launcher.Spare),
		func(f *fold) { line("  %s%s: %s", of(f), f.place(), f.why) })
	part("May match:", picked(all, launcher.Maybe), func(f *fold) { line("  %s%s: %s", of(f), f.place(), f.why) })
	part("Nearest misses:", picked(all, launcher.No), func(f *fold) { line("  %s%s: %s", of(f), f.place(), f.why) })
	if len(lines) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(s.stdout, strings.Join(lines, "\n"))
	return err
}
