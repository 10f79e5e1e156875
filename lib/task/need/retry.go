package need

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/task"
)

// Reasons for which an attempt may be followed by another one. The exit code of the
// command is one only where a rule names it.
const (
	OOM     = "oom"     // more memory than asked for
	Timeout = "timeout" // the time limit
	Node    = "node"    // a node failed
	Lost    = "lost"    // preempted and not requeued, or killed from outside
	Prepare = "prepare" // its code or data could not be prepared
	Exit    = "exit"    // of the command, with a code
	Any     = "any"     // in rules: each reason that no other rule names
)

var reasons = []string{OOM, Timeout, Node, Lost, Prepare, Exit, Any}

const (
	maxRules    = 4096 // bytes
	usualTries  = 3
	boundTries  = 10 // of a rule whose bound ends it
	maxTries    = 100
	maxFactor   = 100
	maxAttempts = 100 // of a task, whatever its rules say
)

// Rule says what follows one reason.
type Rule struct {
	Reason  string
	Code    int // of Exit, 1 to 255
	Tries   int // how often at most, for this reason
	Memory  Growth[int64]
	Time    Growth[time.Duration]
	Exclude bool // the nodes that failed
}

// Growth is how a limit changes with each try: it is multiplied, but not beyond a
// bound. Factor 0: it stays as it is; Most 0: there is no bound.
type Growth[T int64 | time.Duration] struct {
	Factor float64
	Most   T // bytes, or a time
}

// Rules are the rules of a task. Without any, it is not tried again.
type Rules []Rule

// None is how rules are written that nothing follows from.
const None = "none"

// ParseRules reads rules such as "oom: mem*2 <= 64G, timeout: time*2; 2, node: exclude,
// lost, exit=75: 3, any: 1". A number alone is that of any. Sizes are as in options of sbatch: G is 1024 M.
func ParseRules(s string) (Rules, error) {
	switch text := strings.TrimSpace(s); {
	case len(s) > maxRules:
		return nil, fmt.Errorf("the rules are longer than %d bytes", maxRules)
	case text == "" || text == None:
		return nil, nil
	}
	var out Rules
	if _, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
		s = Any + ":" + s
	}
	for part := range strings.SplitSeq(s, ",") {
		r, err := parseRule(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o Rule) bool { return o.Reason == r.Reason && o.Code == r.Code }) {
			return nil, fmt.Errorf("%q: duplicate rule for this reason", task.Clean(part))
		}
		out = append(out, r)
	}
	return out, nil
}

func parseRule(s string) (Rule, error) {
	fail := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("%q: "+format, append([]any{task.Clean(s)}, args...)...)
	}
	reason, steps, hasSteps := strings.Cut(s, ":")
	reason = strings.TrimSpace(reason)
	r := Rule{Reason: reason}
	if code, ok := strings.CutPrefix(reason, Exit); ok {
		r.Reason = Exit
		number, ok := strings.CutPrefix(strings.TrimSpace(code), "=")
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if !ok || err != nil || n < 1 || n > 255 {
			return fail("expected an exit code from 1 to 255, such as exit=75")
		}
		r.Code = n
	}
	if !slices.Contains(reasons, r.Reason) {
		if near := spelling.Nearest(r.Reason, reasons); near != "" {
			return fail("unknown reason; did you mean %q?", near)
		}
		return fail("unknown reason; known are oom, timeout, node, lost, prepare, exit=CODE and any")
	}
	if hasSteps {
		for step := range strings.SplitSeq(steps, ";") {
			if err := r.step(strings.TrimSpace(step)); err != nil {
				return fail("%v", fault.Text(err))
			}
		}
	}
	if r.Tries == 0 {
		r.Tries = usualTries
		if r.Memory.Most > 0 || r.Time.Most > 0 {
			r.Tries = boundTries
		}
	}
	return r, nil
}

func (r *Rule) step(s string) error {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > maxTries {
			return fmt.Errorf("%d tries: expected 1 to %d", n, maxTries)
		}
		if r.Tries != 0 {
			return errors.New("the number of tries is given twice")
		}
		r.Tries = n
		return nil
	}
	if s == "exclude" {
		if r.Exclude {
			return errors.New("exclude is given twice")
		}
		r.Exclude = true
		return nil
	}
	left, bound, bounded := strings.Cut(s, "<=")
	what, factor, ok := strings.Cut(left, "*")
	what, bound = strings.TrimSpace(what), strings.TrimSpace(bound)
	f, err := strconv.ParseFloat(strings.TrimSpace(factor), 64)
	switch {
	case !ok || what != "mem" && what != "time":
		return fmt.Errorf("unknown step %q; known are mem*2 <= 64G, time*2 <= 2 days, exclude, and a number of tries", task.Clean(s))
	case err != nil || !(f > 1 && f <= maxFactor):
		return fmt.Errorf("%s: expected a factor of more than 1, and at most %d", what, maxFactor)
	case what == "mem":
		if r.Memory.Factor != 0 {
			return errors.New("mem is given twice")
		}
		r.Memory.Factor = f
		if bounded {
			if r.Memory.Most, err = Memory(bound); err != nil {
				return err
			}
		}
	default:
		if r.Time.Factor != 0 {
			return errors.New("time is given twice")
		}
		r.Time.Factor = f
		if bounded {
			if r.Time.Most, err = unit.Duration(bound); err != nil {
				return err
			}
			if r.Time.Most < time.Minute {
				return fmt.Errorf("%q: expected at least a minute", bound)
			}
		}
	}
	return nil
}

// Memory reads a size in bytes as sbatch does: 8G are 8 * 1024 M, and a number alone is in
// megabytes.
func Memory(s string) (int64, error) {
	bad := fmt.Errorf("invalid memory %q: expected a size such as 8G", task.Clean(s))
	number := strings.TrimRight(s, "KMGTkmgtBb")
	suffix := strings.TrimSuffix(strings.ToUpper(s[len(number):]), "B")
	scale, ok := map[string]int64{"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[suffix]
	n, err := strconv.ParseFloat(number, 64)
	form := ok && (suffix != "" || number == s) && !strings.ContainsAny(number, "eExXpP_+")
	if !form || err != nil || !(n > 0 && n*float64(scale) < math.MaxInt64/2) {
		return 0, bad
	}
	return int64(n * float64(scale)), nil
}

// After is the next value of a limit that was there, and whether there is one.
func (g Growth[T]) After(had T) (T, bool) {
	next := T(min(float64(had)*g.Factor, math.MaxInt64/2))
	if g.Most > 0 && next > g.Most {
		next = g.Most
	}
	return next, next > had
}

// An End is how an attempt has ended, and what it had.
type End struct {
	Reason string // one of the reasons, or "": there is no other attempt, whatever the rules say
	Code   int    // of Exit
	Memory int64  // bytes that it was limited to; 0: not known
	Time   time.Duration
	Nodes  []string // that failed
}

// A Change is what the next attempt has that the last one had not.
type Change struct {
	Memory  int64 // bytes; 0: as before
	Time    time.Duration
	Exclude []string
}

// Within are the rules where no job may have a longer time limit than most; 0: there is no bound.
func (rules Rules) Within(most time.Duration) Rules {
	rules = slices.Clone(rules)
	for i := range rules {
		if t := &rules[i].Time; t.Factor > 0 && most > 0 && (t.Most == 0 || t.Most > most) {
			t.Most = most
		}
	}
	return rules
}

// Next says whether an attempt that has ended is followed by another one, and by what it
// differs. Before are the reasons of the attempts before, as Name has them. Why says why
// there is no other one, where a rule speaks of the reason.
func (rules Rules) Next(e End, before []string) (c Change, again bool, why string) {
	at := rules.of(e.Name())
	if at < 0 || e.Reason == "" {
		return c, false, ""
	}
	r, n := rules[at], 0
	for _, reason := range before {
		if rules.of(reason) == at {
			n++
		}
	}
	switch {
	case len(before) >= maxAttempts:
		return c, false, fmt.Sprintf("no task has more than %d attempts", maxAttempts)
	case n >= r.Tries && n == 1:
		return c, false, "the rule allows 1 retry for this reason"
	case n >= r.Tries:
		return c, false, fmt.Sprintf("the rule allows %d retries for this reason", r.Tries)
	}
	ok := false
	if r.Memory.Factor > 0 {
		if e.Memory <= 0 {
			return c, false, "how much memory it had is not known, so it is not tried with more"
		}
		if c.Memory, ok = r.Memory.After(e.Memory); !ok {
			return Change{}, false, "it had as much memory as the rule allows"
		}
	}
	if r.Time.Factor > 0 {
		if e.Time <= 0 {
			return Change{}, false, "its time limit is not known, so it is not tried with a longer one"
		}
		if c.Time, ok = r.Time.After(e.Time); !ok {
			return Change{}, false, "its time limit was the longest that is allowed"
		}
	}
	if r.Exclude {
		c.Exclude = e.Nodes
	}
	return c, true, ""
}

// of is the index of the rule for a reason, as Name has it; -1: there is none.
func (rules Rules) of(name string) int {
	at := slices.IndexFunc(rules, func(r Rule) bool { return End{Reason: r.Reason, Code: r.Code}.Name() == name })
	if at < 0 && name != "" {
		at = slices.IndexFunc(rules, func(r Rule) bool { return r.Reason == Any })
	}
	return at
}

// Name is the reason as rules name it.
func (e End) Name() string {
	if e.Reason == Exit {
		return Exit + "=" + strconv.Itoa(e.Code)
	}
	return e.Reason
}
