package app

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// wrongFlag replaces the messages of the standard library's flag package, which has no error types
// for them.
func wrongFlag(err error, name string, flags []cli.Flag, explain func(option string) string) error {
	text, hint := err.Error(), fmt.Sprintf("see %q", name+" --help")
	if flag, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		var names []string
		for _, f := range flags {
			names = append(names, f.Names()...)
		}
		if near := Nearest(strings.TrimLeft(flag, "-"), names); near != "" && len(near) > 1 {
			hint = fmt.Sprintf("did you mean --%s?", near)
		}
		if option := withWord(flags, strings.TrimLeft(flag, "-")); option != "" {
			hint = fmt.Sprintf("did you mean %s?", option)
		}
		hint = cmp.Or(explain(dashed(flag)), hint)
		text = "unknown option " + dashed(flag)
	} else if flag, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		text = "option " + dashed(flag) + " needs a value"
	} else if m := invalidValue.FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("option %s: %s", dashed(m[2]), complaint(flags, m[2], m[1], m[3]))
	}
	return fault.Hint(fault.Errorf(fault.Usage, "%s", text), hint)
}

// withWord returns the option that takes a word which was typed as an option itself, such as --state failed for --failed; "": none does.
func withWord(flags []cli.Flag, word string) string {
	for _, f := range flags {
		if c, ok := f.(interface{ choices() ([]string, bool) }); ok {
			if words, _ := c.choices(); len(word) > 1 && slices.Contains(words, word) {
				return fmt.Sprintf("--%s %s", f.Names()[0], word)
			}
		}
	}
	return ""
}

// complaint describes the problem with the quoted value of a flag.
func complaint(flags []cli.Flag, name, value, otherwise string) string {
	for _, f := range flags {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *cli.IntFlag:
			return "invalid value " + value + ": expected a whole number"
		case *cli.BoolFlag:
			return "unexpected value " + value
		}
	}
	return "invalid value " + value + ": " + otherwise
}

var invalidValue = regexp.MustCompile(`^invalid (?:boolean )?value ("(?:[^"\\]|\\.)*") for (?:flag )?-([^:]+): (.*)$`)

// dashed returns the name of an option as it is usually typed.
func dashed(name string) string {
	name = strings.TrimLeft(name, "-")
	if utf8.RuneCountInString(strings.TrimRight(name, "0123456789")) <= 1 { // -n and -n5
		return "-" + name
	}
	return "--" + name
}
