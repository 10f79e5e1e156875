package request

import (
	"slices"
	"strings"
)

// Complete returns the requests that text can go on to, one word further: a term, an argument, a unit, or a name. names knows those
// of a field on this cluster: model, partition, feature, qos, account, host, gres and license. A word that is sure to go on, such as
// "cuda(", has a second form beside it, so that no shell closes the quotes behind it.
func Complete(text string, names func(field string) []string) []string {
	call, list, start := "", false, 0 // what the last word stands in, and where it begins
	for i, r := range text {
		switch r {
		case '(':
			call = strings.TrimSpace(text[start:i])
		case '[':
			list = true
		case ']', ')':
			call, list = map[bool]string{true: call}[r == ']'], false
		case '&', '|', ',':
		default:
			continue
		}
		start = i + 1
		if r == ']' || r == ')' { // nothing but a sign follows
			start = len(text) + 1
		}
	}
	if start > len(text) {
		return nil
	}
	word := strings.TrimLeft(text[start:], " \t\n")
	head := text[:len(text)-len(word)]
	var all []string
	field, value, valued := strings.Cut(word, "=")
	switch {
	case list:
		all = names("model")
	case call == "gres" || call == "license":
		for _, n := range names(call) {
			all = append(all, n+")")
		}
	case valued:
		before := word[:len(word)-len(value)]
		for _, v := range values(strings.TrimRight(field, " !<>"), strings.TrimSpace(value), names) {
			all = append(all, before+v)
		}
	case call == "cpu":
		all = []string{"mem=", "mem=4G", "cores=", "cores=4"}
	case call != "":
		all = []string{"mem=", "mem>=", "mem<=", "model=", "model!=", "cc=", "cc>=", "cc<="}
	default:
		for _, t := range terms {
			switch t {
			case "gres", "license":
				all = append(all, t+"(")
			case "cuda", "gpu", "slice", "mps", "rocm", "xpu", "cpu":
				all = append(all, t+"(", t+"()")
			case "duration", "deadline":
				all = append(all, t+"=", t+"=4h")
			case "disk", "mem_per_gpu":
				all = append(all, t+"=", t+"=4G")
			case "preemptible":
				all = append(all, t+"=no", t+"=yes")
			case "partition", "feature", "qos", "account", "host":
				all = append(all, t+"=", t+"!=")
			case "exclusive":
				all = append(all, t)
			default:
				all = append(all, t+"=", t+"=4")
			}
		}
	}
	all = slices.DeleteFunc(all, func(w string) bool { return !strings.HasPrefix(w, word) })
	for i := range all {
		all[i] = head + all[i]
	}
	return all
}

// values are what the value of a field can be.
func values(field, value string, names func(string) []string) []string {
	var units []string
	switch field {
	case "mem", "disk", "mem_per_gpu":
		units = []string{"G", "M", "T"}
	case "duration", "deadline":
		units = []string{"min", "h", "d"}
	case "preemptible":
		return []string{"no", "yes"}
	case "model", "partition", "feature", "qos", "account", "host":
		return names(field)
	}
	number := strings.TrimRight(value, "GMTminhd")
	if number == "" || strings.Trim(number, "0123456789.") != "" {
		return nil
	}
	for i := range units {
		units[i] = number + units[i]
	}
	return units
}
