// Package hostlist turns node lists as Slurm writes them, node[01-10,12], into
// names and back.
//
// Several brackets in one name, zero padding and commas are understood; order is
// kept. A list comes from outside, so its size is bounded.
package hostlist

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Max is the largest number of names that a list may stand for.
const Max = 1 << 20

// Expand returns the names that a list stands for, in its order.
func Expand(list string) ([]string, error) {
	var names []string
	for _, part := range Split(list) {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		expanded, err := expand(part, Max-len(names))
		if err != nil {
			return nil, fmt.Errorf("node list %.80q: %w", list, err)
		}
		names = append(names, expanded...)
	}
	return names, nil
}

// Split splits at the commas outside brackets.
func Split(list string) []string {
	var parts []string
	depth, start := 0, 0
	for i := range len(list) {
		switch list[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts, start = append(parts, list[start:i]), i+1
			}
		}
	}
	return append(parts, list[start:])
}

// expand returns the names of one part, at most limit of them.
func expand(part string, limit int) ([]string, error) {
	open := strings.IndexByte(part, '[')
	if open < 0 {
		if strings.ContainsAny(part, "] \t\n") {
			return nil, fmt.Errorf("invalid name %q", part)
		}
		if limit < 1 {
			return nil, fmt.Errorf("more than %d names", Max)
		}
		return []string{part}, nil
	}
	length := strings.IndexByte(part[open:], ']')
	if length < 0 {
		return nil, fmt.Errorf("'[' is not closed")
	}
	prefix, ranges, rest := part[:open], part[open+1:open+length], part[open+length+1:]
	if strings.ContainsAny(prefix, "] \t\n") {
		return nil, fmt.Errorf("invalid name %q", prefix)
	}
	tails := []string{""}
	if rest != "" {
		var err error
		if tails, err = expand(rest, limit); err != nil {
			return nil, err
		}
	}
	var names []string
	for r := range strings.SplitSeq(ranges, ",") {
		low, high, isRange := strings.Cut(r, "-")
		if !isRange {
			high = low
		}
		from, err1 := number(low)
		to, err2 := number(high)
		if err1 != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("invalid range %q", r)
		}
		if to-from >= limit || (len(names)+(to-from+1)*len(tails)) > limit {
			return nil, fmt.Errorf("more than %d names", Max)
		}
		for n := from; n <= to; n++ {
			middle := fmt.Sprintf("%0*d", len(low), n)
			for _, tail := range tails {
				names = append(names, prefix+middle+tail)
			}
		}
	}
	return names, nil
}

func number(s string) (int, error) {
	if len(s) > 9 {
		return 0, fmt.Errorf("%q is too long", s)
	}
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err
}

// Compress writes names as a list: those that differ only in their last number
// share a bracket, sorted by it. Groups stand in the order of their first name, and
// a name that appears twice is written once.
func Compress(names []string) string {
	padded := map[key]bool{}
	for _, name := range names {
		if k, _, ok := split(name); ok && k.width > 1 && name[len(k.prefix)] == '0' {
			padded[k] = true
		}
	}
	numbers := map[key][]int{}
	var order []any // key, or a name without a number
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		k, n, ok := split(name)
		if !ok {
			order = append(order, name)
			continue
		}
		if !padded[k] {
			k.width = 1 // 9 and 10 belong together
		}
		if numbers[k] == nil {
			order = append(order, k)
		}
		numbers[k] = append(numbers[k], n)
	}
	var parts []string
	for _, o := range order {
		k, ok := o.(key)
		if !ok {
			parts = append(parts, o.(string))
			continue
		}
		parts = append(parts, k.prefix+ranges(numbers[k], k.width)+k.suffix)
	}
	return strings.Join(parts, ",")
}

// key is what names in one bracket have in common; width is the number of digits.
type key struct {
	prefix, suffix string
	width          int
}

// split takes a name apart at its last number, if it has one.
func split(name string) (k key, n int, ok bool) {
	end := strings.LastIndexAny(name, "0123456789") + 1
	if end == 0 || strings.ContainsAny(name, "[],") {
		return key{}, 0, false
	}
	start := end
	for start > 0 && name[start-1] >= '0' && name[start-1] <= '9' && end-start < 9 {
		start--
	}
	n, err := strconv.Atoi(name[start:end])
	return key{name[:start], name[end:], end - start}, n, err == nil
}

// ranges writes numbers as a bracket, or alone as they are.
func ranges(numbers []int, width int) string {
	sort.Ints(numbers)
	var out []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		text := fmt.Sprintf("%0*d", width, numbers[i])
		if j > i {
			text += fmt.Sprintf("-%0*d", width, numbers[j])
		}
		out, i = append(out, text), j+1
	}
	if len(numbers) == 1 {
		return out[0]
	}
	return "[" + strings.Join(out, ",") + "]"
}
