package request

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// habits maps words of sbatch and other tools to a hint about the term to use here.
var habits = map[string]string{
	"time": "write duration=4h", "walltime": "write duration=4h", "timelimit": "write duration=4h", "t": "write duration=4h",
	"mem":    "main memory is written cpu(mem=16G), that of a GPU cuda(mem=16G)",
	"memory": "main memory is written cpu(mem=16G), that of a GPU cuda(mem=16G)",
	"ram":    "write cpu(mem=16G)", "vram": "write cuda(mem=16G)",
	"mem_per_cpu": "write cpu(mem=16G) for the memory of each node",
	"cpus":        "write cpu(cores=4)", "cores": "write cpu(cores=4)", "ncpus": "write cpu(cores=4)",
	"cpus_per_task": "write cpu(cores=4)", "c": "write cpu(cores=4)",
	"gpus": "write gpu() * 2", "ngpus": "write gpu() * 2", "gpus_per_node": "write gpu() * 2",
	"ntasks": "write tasks=4", "n": "write tasks=4", "ntasks_per_node": "write tasks=4",
	"node": "write nodes=2", "nnodes": "write nodes=2", "queue": "write partition=NAME",
	"constraint": "write feature=NAME", "features": "write feature=NAME",
	"nodelist": "write host=NAME", "exclude": "write host!=NAME",
	"tmp": "write disk=100G", "tmpdisk": "write disk=100G",
	"model": "write cuda(model=a100)", "cc": "write cuda(cc>=8.0)", "accelerator": "write gpu() or cuda(model=a100)",
	"and": `terms are joined by "&"`, "or": `alternatives are separated by "|"`, "not": "write partition!=NAME",
	"mig":  "write slice(), slice(mem=10G) or slice(model=1g.10gb)",
	"spot": "write preemptible=no, or leave it out",
}

// habit returns the error for such a word. A size or a number behind it is put into the hint.
func (p *parser) habit(start int, word, hint string) error {
	message := fmt.Sprintf("unknown word %q", word)
	hint = p.withValue(hint)
	if Kind(word).known() {
		message = fmt.Sprintf("unexpected %q", string(p.peek()))
	}
	return p.fail(start, message, wantTerm, hint)
}

// withValue puts the value that stands here, behind an operator, in place of the one of a hint.
func (p *parser) withValue(hint string) string {
	rest := strings.TrimLeft(p.text[p.pos:], "<>=: ")
	value := rest[:len(rest)-len(strings.TrimLeftFunc(rest, isName))]
	if value == "" || !unicode.IsDigit(rune(value[0])) || value == rest && p.pos == 0 {
		return hint
	}
	if strings.ContainsFunc(value, unicode.IsLetter) {
		return strings.ReplaceAll(hint, "16G", value)
	}
	for _, example := range []string{"cores=4", "tasks=4", "nodes=2", "* 2"} {
		if isNumber(value) {
			hint = strings.ReplaceAll(hint, example, strings.TrimRight(example, "24")+value)
		}
	}
	return hint
}

// typedHint is for sbatch's way to request GPUs: gpu:a100:2.
func typedHint(kind Kind, rest string) string {
	model, count, found := strings.Cut(rest, ":")
	end := func(s string, part func(rune) bool) string {
		if i := strings.IndexFunc(s, func(r rune) bool { return !part(r) }); i >= 0 {
			return s[:i]
		}
		return s
	}
	if model = end(model, isGRES); isNumber(model) {
		return fmt.Sprintf("write %s() * %s", kind, model)
	}
	hint := fmt.Sprintf("write %s(model=%s)", kind, model)
	if count = end(count, unicode.IsDigit); found && count != "" {
		hint += " * " + count
	}
	return hint
}

// argumentHint is about a word that stands where the name of an argument is expected.
func (p *parser) argumentHint(call, word string) string {
	gpu := Kind(call).known()
	_, _, isSize := strings.Cut(strings.ToLower(word), "g")
	switch {
	case word == "vram" || word == "ram" || word == "memory":
		return p.withValue(fmt.Sprintf("write %s(mem=16G)", call))
	case gpu && (word == "count" || word == "n" || word == "num"):
		return p.withValue(fmt.Sprintf("write %s() * 2", call))
	case gpu && (word == "cores" || word == "cpus"):
		return p.withValue("write cpu(cores=4)")
	case word != "" && isNumber(word[:1]) && isSize:
		return fmt.Sprintf("write %s(mem=%s)", call, word)
	case isNumber(word) && len(word) < 3 && gpu:
		return fmt.Sprintf("write %s() * %s for a number of GPUs, %s(mem=%sG) for their memory", call, word, call, word)
	case word != "" && isNumber(word[:1]) && gpu:
		return fmt.Sprintf("write %s() * 2 for two GPUs, %s(model=%s) for a model", call, call, word)
	case word != "" && isNumber(word):
		return fmt.Sprintf("write %s(cores=%s)", call, word)
	case gpu && word != "" && strings.ContainsAny(word, "0123456789"):
		return fmt.Sprintf("write %s(model=%s)", call, word)
	}
	return ""
}

// next is the text from here to the end of a name.
func (p *parser) next() string {
	return p.span(func(r rune) bool { return isName(r) })
}

// sbatchHint is about an option of sbatch in a request.
func sbatchHint(rest string) string {
	name, value := rest, ""
	if i := strings.IndexAny(rest, "= "); i >= 0 {
		name, value = rest[:i], strings.TrimLeft(rest[i:], "= ")
	}
	long := strings.TrimLeft(name, "-")
	if len(name) == 2 && name[0] == '-' {
		long = sbatch.Short(name[1])
	}
	long = strings.ReplaceAll(strings.ToLower(long), "-", "_")
	if devices, ok := strings.CutPrefix(value, "gpu:"); ok {
		return typedHint(AnyGPU, devices)
	}
	if strings.HasPrefix(long, "gpus") && value != "" {
		return typedHint(AnyGPU, value)
	}
	if slices.Contains(terms, long) && value != "" {
		return fmt.Sprintf("write %s=%s; --set NAME=VALUE sets other options of sbatch", long, value)
	}
	if hint := habits[long]; hint != "" {
		return hint + "; --set NAME=VALUE sets other options of sbatch"
	}
	return "options of sbatch are given by --set NAME=VALUE"
}

// afterTerm returns the error for text after a term that does not belong there.
func (p *parser) afterTerm() error {
	start := p.pos
	word := strings.ToLower(p.word())
	p.pos = start
	const want = `"&", "|" or the end`
	hint := ""
	switch count := strings.TrimPrefix(word, "x"); {
	case word == "and" || word == "or":
		hint = habits[word]
	case slices.Contains(terms, word) || p.peek() == ',' || p.peek() == ';':
		hint = habits["and"]
	case isNumber(count) && count != word:
		hint = "write * " + count
	default:
		return p.unexpected(want)
	}
	found := word
	if found == "" {
		found = string(p.peek())
	}
	return p.fail(start, fmt.Sprintf("unexpected %q", found), want, hint)
}

// unknownWord returns the error for a word that starts no term.
func (p *parser) unknownWord(start int, word string) error {
	hint := suggest(word, terms)
	rest := strings.TrimLeftFunc(p.text[start+len(word):], unicode.IsSpace)
	isModel := strings.ContainsAny(word, "0123456789")
	count := ""
	for _, sign := range []string{":", "*", "x"} {
		if after, ok := strings.CutPrefix(rest, sign); ok {
			after = strings.TrimSpace(after)
			count = after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
		}
	}
	switch {
	case isModel && count != "":
		hint = fmt.Sprintf("write cuda(model=%s) * %s", word, count)
	case isModel:
		hint = fmt.Sprintf("write cuda(model=%s)", word)
	case count != "" && hint == "":
		hint = fmt.Sprintf("write gres(%s) * %s, or cuda(model=%s) * %s", word, count, word, count)
	}
	return p.fail(start, fmt.Sprintf("unknown word %q", word), wantTerm, hint)
}
