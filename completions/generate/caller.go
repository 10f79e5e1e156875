package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/app"
)

// caller returns what writes the completions of a program whose first argument is one of tools, and
// the others are that tool's: bash, zsh, fish.
func caller(tools []string) [3]func(io.Writer, app.Description) {
	names := strings.Join(tools, " ")
	flags := func(d app.Description) (words []string) {
		for _, f := range d.Flags {
			for _, n := range f.Names {
				words = append(words, dashed(n))
			}
		}
		return words
	}
	bash := func(w io.Writer, d app.Description) {
		fmt.Fprintf(w, `# bash completion of %[1]s, made by completions/generate

%[2]s() {
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W '%[3]s %[4]s' -- "${COMP_WORDS[1]}")
	elif declare -F _command_offset >/dev/null; then
		_command_offset 1
	fi
}

complete -F %[2]s %[1]s
`, d.Name, identifier(d.Name), names, strings.Join(flags(d), " "))
	}
	zsh := func(w io.Writer, d app.Description) {
		fmt.Fprintf(w, "#compdef %[1]s\n# zsh completion of %[1]s, made by completions/generate\n\n_arguments -S \\\n", d.Name)
		for _, f := range d.Flags {
			fmt.Fprintf(w, "\t%s \\\n", zshFlag(d.Name, f))
		}
		fmt.Fprintf(w, "\t'1:tool:(%s)' '*:: :_normal -P'\n", names)
	}
	fish := func(w io.Writer, d app.Description) {
		fmt.Fprintf(w, "# fish completion of %[1]s, made by completions/generate\n\n", d.Name)
		first := "-n 'test (count (commandline -opc)) -eq 1'"
		fmt.Fprintf(w, "complete -c %s %s -f -a '%s'\n", d.Name, first, names)
		fmt.Fprintf(w, "complete -c %s -n 'test (count (commandline -opc)) -gt 1' -f -a '(__fish_complete_subcommand)'\n", d.Name)
		for _, f := range d.Flags {
			fmt.Fprintf(w, "complete -c %s %s%s -d %s\n", d.Name, first, fishNames(f), fishQuote(f.Usage))
		}
	}
	return [3]func(io.Writer, app.Description){bash, zsh, fish}
}
