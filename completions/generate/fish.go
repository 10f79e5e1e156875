package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/app"
)

// fishValue is how fish completes the value of a flag.
var fishValue = map[kind]string{
	other: "-x", files: "-r -F", directories: "-x -a '(__fish_complete_directories)'",
	commands: "-x -a '(__fish_complete_command)'", users: "-x -a '(__fish_complete_users; ponos-task words users 2>/dev/null)'",
}

// fishLive completes with what ponos-task knows.
func fishLive(k kind) string {
	const word = `(commandline -ct | string replace -r '^(--[a-z-]+=)?["\']?' '')`
	return fishQuote("(ponos-task words " + live[k] + " " + word + " 2>/dev/null)")
}

// fish writes a completion.
func fish(w io.Writer, d app.Description) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("# fish completion of %s, made by completions/generate", d.Name)
	line("")
	for _, l := range levels(d) {
		condition := fishCondition(l)
		switch k := kindOf(l.Args, l.Usage); k {
		default:
			line("complete -c %s%s -f -a %s", d.Name, condition, fishLive(k))
		case other, users:
			line("complete -c %s%s -f", d.Name, condition)
		case files:
		case directories:
			line("complete -c %s%s -f -a '(__fish_complete_directories)'", d.Name, condition)
		case commands:
			line("complete -c %s%s -a '(__fish_complete_command)'", d.Name, condition)
		}
		for _, c := range l.Commands {
			line("complete -c %s%s -a %s -d %s", d.Name, condition, quote(c.Name), fishQuote(c.Usage))
		}
		for _, f := range l.Flags {
			names := fishNames(f)
			if f.Value != "" {
				k := kindOf(f.Value, f.Usage)
				value, ok := fishValue[k]
				switch {
				case f.List:
					value = fmt.Sprintf(`-x -a '(__fish_complete_list , "printf %%s\\\\n %s")'`, strings.Join(f.Words, " "))
				case len(f.Words) > 0:
					value = "-x -a " + quote(strings.Join(f.Words, " "))
				case !ok:
					value = "-x -a " + fishLive(k)
				}
				names += " " + value
			}
			line("complete -c %s%s%s -d %s", d.Name, condition, names, fishQuote(f.Usage))
		}
	}
}

// fishNames are the options of complete that name a flag.
func fishNames(f app.FlagInfo) (names string) {
	for _, n := range f.Names {
		if len(n) == 1 {
			names += " -s " + n
		} else {
			names += " -l " + n
		}
	}
	return names
}

// fishCondition is when a level is the one that is being typed.
func fishCondition(l level) string {
	var tests []string
	for _, name := range l.path {
		tests = append(tests, "__fish_seen_subcommand_from "+name)
	}
	if len(l.Commands) > 0 {
		names := make([]string, len(l.Commands))
		for i, c := range l.Commands {
			names[i] = c.Name
		}
		tests = append(tests, "not __fish_seen_subcommand_from "+strings.Join(names, " "))
	}
	if len(tests) == 0 {
		return ""
	}
	return " -n " + quote(strings.Join(tests, "; and "))
}

// fishQuote quotes for fish, which knows \' within single quotes.
func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}
