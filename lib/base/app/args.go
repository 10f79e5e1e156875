package app

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// normalize rewrites a command line in the style of Unix tools into the one that urfave/cli
// understands: flags go before arguments, "-n5" becomes "-n 5", and a negative number is a value, not
// a flag. Nothing after "--" is changed. A flag that lacks its value before "--" ends the command line, which
// makes it an error.
func (t Tool) normalize(args []string) []string {
	if len(args) == 0 {
		return []string{t.Name}
	}
	out := []string{args[0]}
	rest := args[1:]
	flags, commands, stop := append(slices.Clone(t.Flags), versionFlag), t.Commands, t.StopAtArg
	for {
		known := index(flags)
		var moved [][]string // each an option, with its value
		var kept []string
		var next *cli.Command
		for i := 0; i < len(rest); i++ {
			arg := rest[i]
			if arg == "--" {
				kept = append(kept, rest[i:]...)
				break
			}
			if len(arg) < 2 || arg[0] != '-' {
				if next = command(commands, arg); next != nil && len(kept) == 0 {
					rest = rest[i:]
					break
				}
				next = nil
				if stop { // the rest belongs to another command, with every "--" in it
					kept = append([]string{"--"}, rest[i:]...)
					break
				}
				kept = append(kept, arg)
				continue
			}
			split, takesValue := known.split(arg)
			moved = append(moved, split...)
			if takesValue && i+1 < len(rest) && rest[i+1] == "--" { // which is never meant as its value
				return append(out, slices.Concat(moved...)...)
			}
			if takesValue && i+1 < len(rest) {
				i++
				moved[len(moved)-1] = append(moved[len(moved)-1], rest[i])
			}
		}
		if next == nil {
			return append(append(out, slices.Concat(moved...)...), protect(kept)...)
		}
		// An option that the command has, too, is the command's: the library would forget it.
		its, behind := index(next.Flags), []string(nil)
		for _, option := range moved {
			if its.has(option[0]) {
				behind = append(behind, option...)
			} else {
				out = append(out, option...)
			}
		}
		out, rest = append(out, rest[0]), append(behind, rest[1:]...)
		flags, commands = next.Flags, next.Subcommands
		stop = stop || next.SkipFlagParsing
		if next.SkipFlagParsing {
			return append(out, rest...)
		}
	}
}

// protect puts "--" before arguments, so that none is taken for a flag or for urfave/cli's own
// command "help".
func protect(args []string) []string {
	if len(args) == 0 || slices.Contains(args, "--") {
		if i := slices.Index(args, "--"); i > 0 {
			return append(append([]string{"--"}, args[:i]...), args[i+1:]...)
		}
		return args
	}
	return append([]string{"--"}, args...)
}

func command(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// flagIndex records for each name of a flag whether it takes a value.
type flagIndex map[string]bool

func index(flags []cli.Flag) flagIndex {
	known := flagIndex{"help": false, "h": false, "help-all": false}
	for _, f := range flags {
		takes := false
		if d, ok := f.(cli.DocGenerationFlag); ok {
			takes = d.TakesValue()
		}
		for _, name := range f.Names() {
			known[name] = takes
		}
	}
	return known
}

// split splits one argument that begins with '-', and reports whether its last flag still needs a
// value.
func (known flagIndex) split(arg string) (out [][]string, takesValue bool) {
	if strings.HasPrefix(arg, "--") || strings.Contains(arg, "=") {
		name := strings.TrimLeft(arg, "-")
		return [][]string{{arg}}, !strings.Contains(name, "=") && known[name]
	}
	if takes, ok := known[arg[1:]]; ok { // -output, and -n
		return [][]string{{arg}}, takes
	}
	for i := 1; i < len(arg); i++ { // -an5 is -a -n 5
		takes, ok := known[arg[i:i+1]]
		switch {
		case !ok:
			return [][]string{{arg}}, false
		case takes && i+1 < len(arg):
			return append(out, []string{"-" + arg[i:i+1], arg[i+1:]}), false
		}
		out, takesValue = append(out, []string{"-" + arg[i:i+1]}), takes
	}
	return out, takesValue
}

// has reports whether an option is among the flags.
func (known flagIndex) has(option string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(option, "-"), "=")
	_, ok := known[name]
	return ok
}
