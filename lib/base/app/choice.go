package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Choice is a flag whose value is one of some words, or a comma-separated list of them. Shells
// complete the words, and any other value is refused.
type Choice struct {
	*cli.StringFlag
	Words []string
	List  bool
}

// OneOf restricts a flag to one of the words.
func OneOf(f *cli.StringFlag, words ...string) cli.Flag {
	return Choice{StringFlag: f, Words: words}
}

// SomeOf restricts a flag to a list of the words.
func SomeOf(f *cli.StringFlag, words ...string) cli.Flag {
	return Choice{StringFlag: f, Words: words, List: true}
}

func (f Choice) choices() ([]string, bool) { return f.Words, f.List }

// repeated is a flag that may be given several times, each time with one of the words.
type repeated struct {
	*cli.StringSliceFlag
	words []string
}

// EachOf declares the words of a repeated flag; the tool checks them.
func EachOf(f *cli.StringSliceFlag, words ...string) cli.Flag { return repeated{f, words} }

func (f repeated) choices() ([]string, bool) { return f.words, false }

// RunAction is called by the library when the flag was given.
func (f Choice) RunAction(c *cli.Context) error {
	value := c.String(f.Name)
	parts := []string{value}
	if f.List {
		parts = strings.Split(value, ",")
	}
	for _, part := range parts {
		part = strings.TrimSpace(part)
		same := func(word string) bool { return strings.EqualFold(word, part) }
		if part == "" && f.List || slices.ContainsFunc(f.Words, same) {
			continue // the tool decides whether case matters
		}
		err := fault.Errorf(fault.Usage, "--%s: invalid value %q: expected one of %s", f.Name, part, strings.Join(f.Words, ", "))
		if near := Nearest(part, f.Words); near != "" {
			return fault.Hint(err, fmt.Sprintf("did you mean %q?", near))
		}
		return err
	}
	return nil
}
