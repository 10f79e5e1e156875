package launcher

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Fold is a number of rows with the same fate.
type Fold struct {
	Verdict     Verdict
	Alternative int
	Where       []string // launchers or partitions
	nodes       map[string]int
	Has         []string
	By          []string // how its GPUs are known
	With        []string // QoS and accounts
	Class       string   // with what is billed
	Why         string
	near        int     // how near the places are to a match; less is nearer
	lacks       float64 // what is missing there, from 0 to 1
}

// nearness orders reasons: what is not known and what is a matter of quantity is
// nearer to a match than what the user may not use.
func nearness(reasons []Reason) (near int, lacks float64) {
	worst := 0
	for _, r := range reasons {
		lacks = max(lacks, r.lacks())
		rank := 1
		switch r.Code {
		case "gpu_unknown":
			rank = 0
		case "gpu_count":
			if strings.HasSuffix(r.Text(), "no GPU available") {
				rank = 2
			}
		case "gpu_kind", "gpu_model", "condition", "gres", "license", "nodes_down":
			rank = 2
		case "partition_state", "group", "account", "qos", "disabled", "unreachable", "no_nodes", "host":
			rank = 3
		case "partition", "kind", "tags": // the request itself, or an option
			rank = 4
		}
		worst = max(worst, rank)
	}
	return worst*100 + len(reasons), lacks
}

// lacks is the part of what is requested that is not there, from 0 to 1; 0 if the reason is not about a quantity.
func (r Reason) lacks() float64 {
	var amounts []float64
	for _, arg := range r.args {
		switch n := reflect.ValueOf(arg); {
		case n.CanInt():
			amounts = append(amounts, float64(n.Int()))
		case n.CanFloat():
			amounts = append(amounts, n.Float())
		}
	}
	if len(amounts) < 2 || amounts[0] <= 0 {
		return 0
	}
	return max(0, 1-amounts[1]/amounts[0])
}

// Folded puts rows together that are alike.
func Folded(rows []Row) []*Fold {
	byKey := map[string]*Fold{}
	var all []*Fold
	for i := range rows {
		row := &rows[i]
		why := make([]string, len(row.Reasons))
		for j, r := range row.Reasons {
			why[j] = r.Text()
		}
		text := strings.Join(why, "; ")
		class := ""
		if row.Verdict == Yes && row.Class != "" {
			class = fmt.Sprintf(", class %s, billed %s", row.Class, FormatBilled(row.Billed))
		}
		key := fmt.Sprintf("%d\x00%s\x00%s\x00%s", row.Alternative, row.Verdict, class, text)
		f := byKey[key]
		if f == nil {
			f = &Fold{Verdict: row.Verdict, Alternative: row.Alternative, nodes: map[string]int{}, Class: class, Why: text}
			f.near, f.lacks = nearness(row.Reasons)
			byKey[key] = f
			all = append(all, f)
		}
		where := row.Partition
		if where == "" {
			where = "launcher " + row.Launcher
		}
		add(&f.Where, where)
		f.nodes[row.Key()] = row.Count
		if len(f.Has) < 4 {
			add(&f.Has, row.Has())
			for _, by := range row.KnownBy() {
				add(&f.By, by)
			}
		}
		if row.Verdict != No && len(f.With) < 8 {
			add(&f.With, submitted(*row))
		}
	}
	return all
}

// submitted says with which QoS and account a job goes there.
func submitted(row Row) string {
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

// Place says how many nodes there are, and of which partitions.
func (f *Fold) Place() string {
	n := 0
	for _, count := range f.nodes {
		n += count
	}
	where := strings.Join(f.Where[:min(len(f.Where), 4)], ", ")
	if more := len(f.Where) - 4; more > 0 {
		where += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case n == 0 || strings.HasPrefix(f.Where[0], "launcher "):
		return where
	case n == 1:
		return "1 node of " + where
	}
	return fmt.Sprintf("%d nodes of %s", n, where)
}

// Match says how many nodes match, and what each of them has.
func (f *Fold) Match() string {
	place, verb := f.Place(), "match"
	if strings.HasPrefix(place, "1 node ") {
		verb = "matches"
	}
	has := strings.Join(f.Has, " or ")
	if verb == "match" {
		has += " each"
	}
	return fmt.Sprintf("%s %s: %s", place, verb, has)
}

// Picked are the folds with a verdict, the nearest to a match first.
func Picked(all []*Fold, v Verdict) []*Fold {
	var some []*Fold
	for _, f := range all {
		if f.Verdict == v {
			some = append(some, f)
		}
	}
	slices.SortStableFunc(some, func(a, b *Fold) int {
		return cmp.Or(a.near-b.near, a.Alternative-b.Alternative, cmp.Compare(a.lacks, b.lacks))
	})
	return some
}

// Nothing is the error that nothing matches a request, with what is misspelt, unknown or nearest to a match.
func (s *Search) Nothing(ctx context.Context, r request.Request) error {
	hint := s.Misspelt(r)
	switch n := s.Unknown(); {
	case hint != "":
	case n > 0 && !s.AllowUnknown:
		hint = `for some nodes it is not known whether their GPUs match: ` +
			`"lfind probe" lists them and finds it out, --allow-unknown accepts them`
	default:
		hint = `"lfind explain" shows the reasons`
		if rows, _, err := s.Explain(ctx, r); err == nil {
			if misses := Picked(Folded(rows), No); len(misses) > 0 {
				hint = fmt.Sprintf("nearest miss: %s: %s; %s", misses[0].Place(), misses[0].Why, hint)
			}
		}
	}
	return fault.Hint(fault.Errorf(fault.Failed, "nothing matches %s", r), hint)
}
