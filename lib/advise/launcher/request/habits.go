package request

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// habits maps words of sbatch and other tools to a hint about the term to use here.
var habits = map[string]string{
	"time": "write duration=4h", "walltime": "write duration=4h", "timelimit": "write duration=4h", "t": "write duration=4h",
	"mem":    "main memory is written cpu(mem=16G), that of a GPU cuda(mem=16G)",
	"memory": "main memory is written cpu(mem=16G), that of a GPU cuda(mem=16G)",
	"ram":    "write cpu(mem=16G)", "vram": "write cuda(mem=16G)",
	"mem_per_cpu": "write cpu(mem=SIZE) for the memory of each node",
	"cpus":        "write cpu(cores=4)", "cores": "write cpu(cores=4)", "ncpus": "write cpu(cores=4)",
	"cpus_per_task": "write cpu(cores=4)", "c": "write cpu(cores=4)",
	"gpus": "write gpu() * 2", "ngpus": "write gpu() * 2", "gpus_per_node": "write gpu() * 2",
	"ntasks": "write tasks=4", "n": "write tasks=4", "ntasks_per_node": "write tasks=4",
	"node": "write nodes=2 for their number, host=NAME for one", "nnodes": "write nodes=2", "queue": "write partition=NAME",
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
	if value == rest && p.pos == 0 {
		return hint
	}
	return valued(hint, value)
}

// valued puts a value that begins with a digit in place of the examples of its form in a hint.
func valued(hint, value string) string {
	switch {
	case value == "" || !unicode.IsDigit(rune(value[0])):
	case isNumber(value):
		for _, example := range []string{"cores=4", "tasks=4", "nodes=2", "* 2"} {
			hint = strings.ReplaceAll(hint, example, strings.TrimRight(example, "24")+value)
		}
	case strings.Contains(hint, "duration="):
		hint = strings.ReplaceAll(hint, "=4h", "="+value)
	case strings.ContainsFunc(value, unicode.IsLetter):
		hint = strings.NewReplacer("=16G", "="+value, "=100G", "="+value).Replace(hint)
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
	isGPU := Kind(call).known()
	cc, isCC := strings.CutPrefix(strings.ReplaceAll(word, "cc", "sm"), "sm")
	cc = strings.Trim(cc, "_")
	_, _, isSize := strings.Cut(strings.ToLower(word), "g")
	switch {
	case word == "vram" || word == "ram" || word == "memory":
		return p.withValue(fmt.Sprintf("write %s(mem=16G)", call))
	case isGPU && isCC && len(cc) > 1 && isNumber(cc):
		return fmt.Sprintf("write %s(cc>=%s.%s)", call, cc[:len(cc)-1], cc[len(cc)-1:])
	case isGPU && isCC && cc == "":
		return fmt.Sprintf("write %s(cc>=8.0)", call)
	case isGPU && (word == "count" || word == "n" || word == "num"):
		return p.withValue(fmt.Sprintf("write %s() * 2", call))
	case isGPU && (word == "cores" || word == "cpus"):
		return p.withValue("write cpu(cores=4)")
	case word != "" && isNumber(word[:1]) && isSize:
		return fmt.Sprintf("write %s(mem=%s)", call, word)
	case isNumber(word) && len(word) < 3 && isGPU:
		return fmt.Sprintf("write %s() * %s for a number of GPUs, %s(mem=%sG) for their memory", call, word, call, word)
	case word != "" && isNumber(word[:1]) && isGPU:
		return fmt.Sprintf("write %s() * 2 for two GPUs, %s(model=%s) for a model", call, call, word)
	case word != "" && isNumber(word):
		return fmt.Sprintf("write %s(cores=%s)", call, word)
	case isGPU && word != "" && strings.ContainsAny(word, "0123456789"):
		return fmt.Sprintf("write %s(model=%s)", call, word)
	}
	return ""
}

// next is the text from here to the end of a name.
func (p *parser) next() string {
	return p.span(func(r rune) bool { return isName(r) })
}

// Option returns a hint to the option of sbatch that an argument is, such as "--mem=8G", or "-p" with its value in the next
// one: what to write in a request or, for what requests do not have, as --set of lfind. "" if sbatch has no such option.
func Option(argument, next string) string {
	long, isLong := strings.CutPrefix(argument, "--")
	if name, _, _ := strings.Cut(long, "="); isLong && sbatch.Lookup(name) == nil {
		return ""
	}
	line, _ := sbatch.Argv([]string{argument, next}) // next may be anything
	if len(line.Jobs[0]) == 0 {
		return ""
	}
	o := line.Jobs[0][0]
	form, word := sbatch.Lookup(o.Name).Form, strings.ReplaceAll(o.Name, "-", "_")
	item, _, _ := strings.Cut(o.Value, ",")
	device, count, _ := strings.Cut(item, ":")
	switch {
	case form == sbatch.GPUs || form == sbatch.TaskGPUs:
		return typedHint(AnyGPU, cmp.Or(item, "1"))
	case word == "gres" && device == string(AnyGPU):
		return typedHint(AnyGPU, cmp.Or(count, "1"))
	case word == "gres":
		return "write gres(NAME) * N; GPUs are gpu() * N"
	case word == "licenses":
		return "write license(NAME) * N"
	case word == "exclusive":
		return "write exclusive"
	}
	hint := habits[word]
	if slices.Contains(terms, word) {
		hint = "write " + word + "=NAME"
	}
	if hint == "" {
		return "in lfind, write --set " + shell.Quote(strings.TrimPrefix(o.Arg(), "--"))
	}
	return withOption(hint, form, o.Value) + "; --set NAME=VALUE sets other options of sbatch"
}

// optionHint is about text of a request that begins with a dash.
func optionHint(text string) string {
	words := append(strings.Fields(text), "")
	return cmp.Or(Option(words[0], words[1]), "options of sbatch are given by --set NAME=VALUE")
}

// withOption puts the value of an option of sbatch into a hint, in the form that a request takes, if it is a plain one.
func withOption(hint string, form sbatch.Form, value string) string {
	if value == "" || strings.TrimLeftFunc(value, isModel) != "" || strings.ContainsAny(value[:1], "-+") {
		return hint
	}
	switch {
	case form == sbatch.Range:
		value, _, _ = strings.Cut(value, "-")
	case form == sbatch.Time && isNumber(value):
		value += "min"
	case form == sbatch.Size && isNumber(value):
		value += "MiB"
	case form == sbatch.Size:
		value = strings.ToUpper(strings.TrimRight(value, "bBi")) + "iB"
	}
	return valued(strings.ReplaceAll(hint, "NAME", value), value)
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

// numberHint is about text of a request that begins with a number: 2 gpus, 2xA100, 4 cores, 1 hour, 16GB, 1g.10gb.
func numberHint(text string) string {
	run := func(s string, is func(rune) bool) string { return s[:len(s)-len(strings.TrimLeftFunc(s, is))] }
	if name := run(text, isModel); gpu.IsSlice(name) {
		return fmt.Sprintf("write slice(model=%s)", name)
	}
	n := run(text, unicode.IsDigit)
	rest := strings.TrimSpace(text[len(n):])
	word := run(rest, isModel)
	if after := strings.TrimSpace(strings.TrimLeft(rest, "*x")); after != rest && !Kind(word).known() {
		word = run(after, isModel)
	}
	for _, of := range []struct{ words, hint string }{
		{"gpu gpus", "write gpu() * 2"}, {"cpu cpus core cores", habits["cores"]}, {"node nodes", "write nodes=2"},
		{"task tasks", habits["ntasks"]},
	} {
		if slices.Contains(strings.Fields(of.words), strings.ToLower(word)) && !strings.Contains(rest, "(") {
			return valued(of.hint, n)
		}
	}
	if _, err := unit.Duration(n + " " + word); err == nil && word != "" && word != "m" {
		return fmt.Sprintf("write duration=%s%s", n, word)
	}
	if _, err := unit.Size(n + word); err == nil && word != "" {
		return valued(habits["mem"], n+word)
	}
	if strings.ContainsAny(word, "0123456789") && unicode.IsLetter(rune(word[0])) {
		return fmt.Sprintf("write cuda(model=%s) * %s", word, n)
	}
	return "write the number of GPUs at the end: cuda(mem=4G) * 2"
}

// unknownWord returns the error for a word that starts no term.
func (p *parser) unknownWord(start int, word string) error {
	hint := suggest(word, terms)
	rest := strings.TrimLeftFunc(p.text[start+len(word):], unicode.IsSpace)
	numbered := strings.ContainsAny(word, "0123456789")
	count := ""
	for _, sign := range []string{":", "*", "x"} {
		if after, ok := strings.CutPrefix(rest, sign); ok {
			after = strings.TrimSpace(after)
			count = after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
		}
	}
	name := p.text[start : start+len(p.text[start:])-len(strings.TrimLeftFunc(p.text[start:], isModel))]
	switch {
	case gpu.IsSlice(name):
		hint = fmt.Sprintf("write slice(model=%s)", name)
	case word == "shard":
		hint = fmt.Sprintf("write gres(shard) * %s", cmp.Or(count, "1"))
	case numbered && count != "":
		hint = fmt.Sprintf("write cuda(model=%s) * %s", word, count)
	case numbered:
		hint = fmt.Sprintf("write cuda(model=%s)", word)
	case count != "" && hint == "":
		hint = fmt.Sprintf("write gres(%s) * %s, or cuda(model=%s) * %s", word, count, word, count)
	}
	return p.fail(start, fmt.Sprintf("unknown word %q", word), wantTerm, hint)
}
