package input

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool"
)

// maxCount limits CPUs and GPUs of a task.
const maxCount = 1 << 14

// amounts are the settings that --need may have, too, by name.
var amounts = map[string]func(n *pool.Need, value string) error{
	"cpus": func(n *pool.Need, v string) (err error) { n.CPUs, err = count(v, 1); return },
	"gpus": func(n *pool.Need, v string) (err error) { n.GPUs, n.Share, err = gpus(v); return },
	"mem":  func(n *pool.Need, v string) (err error) { n.Mem, err = unit.SizeWithUnit(v); return },
	"nodes": func(n *pool.Need, v string) error {
		nodes, err := count(v, 1)
		if n.Nodes = int32(nodes); nodes == 1 {
			n.Nodes = 0
		}
		return err
	},
}

// setters are the other settings a task can have.
var setters = map[string]func(s *pool.Spec, value string) error{
	"need": need,
	"timeout": func(s *pool.Spec, v string) (err error) {
		s.Timeout, err = unit.Seconds(v)
		return
	},
	"time": func(s *pool.Spec, v string) (err error) { s.Time, err = unit.Seconds(v); return },
	"priority": func(s *pool.Spec, v string) (err error) {
		s.Priority, err = strconv.Atoi(v)
		if err != nil || s.Priority < -1e6 || s.Priority > 1e6 {
			err = fmt.Errorf("invalid number %q: expected a whole number from -1000000 to 1000000", v)
		}
		return
	},
	"cwd": func(s *pool.Spec, v string) error { s.Dir = v; return nil },
}

// Set changes one setting of s, such as "cpus".
func Set(s *pool.Spec, name, value string) error {
	var err error
	if set, ok := amounts[name]; ok {
		err = set(&s.Need, value)
	} else if set, ok := setters[name]; ok {
		err = set(s, value)
	} else {
		names := append(slices.Collect(maps.Keys(amounts)), slices.Collect(maps.Keys(setters))...)
		slices.Sort(names)
		return fmt.Errorf("unknown setting %q: expected one of %s", name, strings.Join(names, ", "))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// need reads "license=1,scratch=50G,gpus=1". Named resources are no others than these.
func need(s *pool.Spec, text string) error {
	if strings.Contains(text, "|") {
		return fmt.Errorf("%q has alternatives: a task needs one list of resources", text)
	}
	var named []string
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		set, ok := amounts[name]
		switch {
		case !ok:
			named = append(named, part)
			continue
		case seen[name]:
			return fmt.Errorf("resource %q is named twice", name)
		}
		seen[name] = true
		if err := set(&s.Need, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	s.Need.Named = pool.Named{}
	if named == nil {
		return nil
	}
	var err error
	s.Need.Named, err = pool.ParseNamed(strings.Join(named, ","))
	return err
}

// gpus reads a number of GPUs, or a part of one in thousandths.
func gpus(v string) (whole int, share int32, err error) {
	if !strings.Contains(v, ".") {
		whole, err = count(v, 0)
		return whole, 0, err
	}
	switch part, err := pool.ParseAmount(v); {
	case err != nil:
		return 0, 0, err
	case part%pool.WholeGPU == 0 && part <= maxCount*pool.WholeGPU:
		return int(part / pool.WholeGPU), 0, nil
	case part > pool.WholeGPU:
		return 0, 0, fmt.Errorf("%q is neither a whole number nor a part of one GPU", v)
	default:
		return 0, int32(part), nil
	}
}

func count(v string, least int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > maxCount {
		return 0, fmt.Errorf("invalid number %q: expected a whole number from %d to %d", v, least, maxCount)
	}
	return n, nil
}

// Directive starts a comment that sets what the tasks below it need.
const Directive = "#JOBPOOL"

// directive applies "cpus=4 gpus=1 …" to the defaults. "reset" goes back to those
// of the command line.
func directive(base, now pool.Spec, text string) (pool.Spec, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return now, errors.New("empty directive")
	}
	for _, w := range words {
		if w == "reset" {
			now = base
			continue
		}
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			return now, fmt.Errorf("directive %q is not of the form NAME=VALUE", w)
		}
		if err := Set(&now, name, value); err != nil {
			return now, err
		}
	}
	return now, nil
}

// interner lets equal Specs be one.
type interner struct {
	known map[string]*pool.Spec
	last  *pool.Spec
}

func (in *interner) get(s pool.Spec) *pool.Spec {
	if in.last != nil && same(in.last, &s) {
		return in.last
	}
	return in.add(s)
}

// add makes another one known.
func (in *interner) add(s pool.Spec) *pool.Spec {
	k := fmt.Sprintf("%d|%d|%d|%d|%d|%v|%d|%d|%d|%q|%q|%v|%v",
		s.Need.CPUs, s.Need.GPUs, s.Need.Share, s.Need.Nodes, s.Need.Mem, s.Need.Named,
		s.Priority, s.Timeout, s.Time, s.Dir, s.Env, s.Argv, s.SlotMark)
	if in.known == nil || len(in.known) > 10000 {
		in.known = map[string]*pool.Spec{} // an endless input must not fill the memory
	}
	if in.known[k] == nil {
		in.known[k] = &s
	}
	in.last = in.known[k]
	return in.last
}

func same(a, b *pool.Spec) bool {
	return a.Need == b.Need && a.Priority == b.Priority && a.Timeout == b.Timeout && a.Time == b.Time &&
		a.Dir == b.Dir && a.Argv == b.Argv && a.SlotMark == b.SlotMark && slices.Equal(a.Env, b.Env)
}
