package sbatch

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Lookup returns what is known of an option by its long name or alias, nil if sbatch has none of that
// name: it may be of a plugin.
func Lookup(name string) *Definition { return byName[name] }

// All returns what is known of each option, in the order in which options are printed.
func All() []Definition { return slices.Clone(table) }

// Known reports whether the sbatch of a version has the option.
func (d *Definition) Known(v Version) bool { return d.Since <= v && (d.Until == 0 || v <= d.Until) }

// Name returns the long name of an option as sbatch has it: people also write "_" for "-".
func Name(name string) string {
	name = strings.ReplaceAll(name, "_", "-")
	if d := byName[name]; d != nil {
		return d.Name
	}
	return name
}

// Attribute returns the long name of the option that PySlurm knows by an attribute of its
// JobSubmitDescription, or that sbatch knows by it.
func Attribute(name string) string {
	name = Name(name)
	if d := attributes[name]; d != nil {
		return d.Name
	}
	return name
}

// Short returns the long name of a short option, "" if there is none.
func Short(letter byte) string {
	if d := shorts[letter]; d != nil {
		return d.Name
	}
	return ""
}

// Nearest returns the name of the option that a person who may set options by use may mean by another
// one, or "".
func Nearest(name string, use Use) string {
	var names []string
	for i := range table {
		if table[i].Use&use != 0 {
			names = append(names, table[i].Name)
		}
	}
	for _, long := range []string{Meant(name), Attribute(name)} {
		if slices.Contains(names, long) {
			return long
		}
	}
	return spelling.Nearest(name, names)
}

// Typed returns the option that somebody has typed, by its long or short name with dashes, and perhaps a number behind the short one
// (-N2); or nil, and what is meant by its name, if anything.
func Typed(option string) (o *Definition, meant string) {
	name := strings.TrimLeft(option, "-")
	if len(strings.TrimRight(name, "0123456789")) == 1 {
		name = Short(name[0])
	}
	if o = Lookup(name); o != nil {
		return o, ""
	}
	return nil, Meant(name)
}

// Meant returns the name of the option for what people call a resource, such as memory, or "".
func Meant(word string) string { return words[strings.ToLower(word)] }

// words are what people call a resource.
var words = map[string]string{
	"memory": "mem", "ram": "mem", "cpus": CPUsPerTask, "cpu": CPUsPerTask, "cores": CPUsPerTask, "gpu": "gpus",
	"tasks": "ntasks", "walltime": "time", "timelimit": "time", "queue": "partition", "features": "constraint",
}

// Parse reads NAME=VALUE or NAME, with or without dashes in front. In names, "_" and "-" are the same.
// A flag may also be NAME=yes or NAME=no, and a time may have units, such as 2h. With an error, which says
// what is wrong with the value, the option is as it was given.
func Parse(text string) (Option, error) {
	name, value, hasValue := strings.Cut(text, "=")
	name = Name(strings.TrimPrefix(name, "--"))
	if !hasValue {
		return settle(name, nil)
	}
	return settle(name, &value)
}

// Setting reads a setting, as of a YAML map: the option by any of its names or PySlurm's, and its
// value, nil if there is none.
func Setting(name string, value *string) (Option, error) {
	return settle(Attribute(name), value)
}

// Switch reads a setting that is yes or no, as of a YAML map: the option without a value, or one that takes an earlier one away.
func Switch(name string, yes bool) (Option, error) {
	o := Option{Name: Attribute(name), Off: !yes}
	d := byName[o.Name]
	if d != nil && (d.Form == Flag || d.Optional || slices.Contains(d.Words, no)) {
		text := no
		if yes {
			text = "yes"
		}
		return settle(o.Name, &text)
	}
	if yes && d != nil {
		return o, fmt.Errorf("option %q lacks a value", o.Name)
	}
	return o, nil
}

// settle returns an option with its value in the form that sbatch takes.
func settle(name string, value *string) (Option, error) {
	o := Option{Name: name}
	if value != nil {
		o.Value = *value
	}
	d := byName[name]
	if d == nil {
		return o, nil
	}
	yes, isTruth := Truth(o.Value)
	switch {
	case isTruth && (d.Form == Flag || d.Optional):
		if o.Value, o.Off = "", !yes; o.Name == "requeue" && !yes {
			o = Option{Name: NoRequeue}
		}
	case isTruth && slices.Contains(d.Words, no):
		if o.Value = no; yes {
			o.Value = "yes"
		}
	case value == nil && d.Form != Flag && !d.Optional || value != nil && o.Value == "" && d.Form != Flag:
		return o, fmt.Errorf("option %q lacks a value", name)
	case d.Form == Flag && o.Value != "":
		return o, fmt.Errorf("option %q takes no value", name)
	case d.Form == Time && !forms[Time].MatchString(o.Value):
		if t, err := unit.Duration(o.Value); err == nil { // sbatch does not take "2h"
			o.Value = strings.TrimPrefix(unit.FormatTime(t), "0")
		}
	}
	return o, nil
}

// Truth reads yes and no as YAML 1.1 does.
func Truth(s string) (yes, ok bool) {
	switch strings.ToLower(s) {
	case "true", "yes", "on":
		return true, true
	case "false", no, "off":
		return false, true
	}
	return false, false
}

const (
	deviceItem = `(gres[:/])?[a-z_][\w./-]*([:=][\w.-]+)?([:=][0-9]+[kmgtp]?)?`
	taskGPUs   = `([\w.-]+:)?[0-9]+`
	gpuItem    = `(([\w.-]+:)?[0-9]+[kmgtp]?|[\w.-]+)`
)

// forms are what any version from 20.11 to 26.05 takes; sbatch may still refuse a value that is of the form.
var forms = map[Form]*regexp.Regexp{
	Count: form(`\+?0*[1-9][0-9]*`),
	Whole: form(`[+-]?[0-9]{1,10}`),
	// A list of counts is taken since 23.02; k and m are for thousands and millions.
	Range:    form(`[+-]?[0-9]+[0-9km,:*+/-]*`),
	Size:     form(`[0-9]+([kmgt]b?)?`),
	Time:     form(`[0-9]+|[0-9]+:[0-9]+(:[0-9]+)?|[0-9]+-[0-9]+(:[0-9]+){0,2}|-1|infinite|unlimited`),
	GPUs:     form(gpuItem + `(,` + gpuItem + `)*`),
	TaskGPUs: form(taskGPUs),
	GRES:     form(`none|` + deviceItem + `(,` + deviceItem + `)*`),
	TRES:     form(deviceItem + `(,` + deviceItem + `)*`),
}

func form(pattern string) *regexp.Regexp { return regexp.MustCompile(`^(?i:` + pattern + `)$`) }

// expected says how a value of a form is written.
var expected = map[Form]string{
	Count: "a whole number from 1", Whole: "a whole number", Range: "a number from 1 or a range, such as 4 or 2-8",
	Size: "megabytes, or a whole number and K, M, G or T", Time: "minutes, HH:MM:SS, DAYS-HH:MM:SS or a duration such as 2h",
	GPUs: "a number, a type or both, such as 2 or a100:2", TaskGPUs: "a number, optionally after a type, such as 2 or a100:2",
	GRES: "NAME, NAME:COUNT or NAME:TYPE:COUNT, such as gpu:a100:2",
	TRES: "NAME:COUNT or gres/NAME:COUNT, such as cpu:2,gres/gpu:1",
}

// counts reports whether the numbers of a value are such that Slurm has room for them.
func (d *Definition) counts(value string) (ok bool) {
	ok = true
	switch d.Form {
	case Size:
		_, ok = Megabytes(value)
	case Count:
		_, ok = scaled(value, 1)
	case Range:
		if !strings.ContainsAny(value, ",:*+/") { // a list of counts
			_, _, ok = nodes(value)
		}
	}
	return ok
}

// Check returns an error if no sbatch takes the value of the option, which wraps one that does not name the option, or if its
// name is what people call a resource. Any other name that is not in the table may be of a plugin.
func (o Option) Check() error {
	d, meant := byName[o.Name], Meant(o.Name)
	if d == nil && meant != "" {
		return fmt.Errorf("sbatch has no option %q; did you mean %q?", o.Name, meant)
	}
	if d == nil || o.Off || o.Value == "" && (d.Form == Flag || d.Optional) {
		return nil
	}
	want := expected[d.Form]
	if d.Form == Word {
		if slices.ContainsFunc(d.Words, func(w string) bool { return strings.EqualFold(w, o.Value) }) {
			return nil
		}
		want = "one of " + strings.Join(d.Words, ", ")
	} else if f := forms[d.Form]; f == nil || f.MatchString(o.Value) && d.counts(o.Value) {
		return nil
	}
	return fmt.Errorf("option %q: %w", o.Name, fmt.Errorf("invalid value %q: expected %s", o.Value, want))
}
