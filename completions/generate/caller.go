package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/app"
)

// caller returns what writes the completions of a program whose first argument is one of tools, and
// the others are that tool's: bash, zsh, fish.
func caller(tools []string) [3]func(io.Writer, app.Description) {
	// "ponos list" is ponos-list.
	var ours, others []string
	for _, tool := range tools {
		if short, ok := strings.CutPrefix(tool, "ponos-"); ok {
			ours = append(ours, short)
		} else {
			others = append(others, tool)
		}
	}
	names := strings.Join(append(slices.Clone(ours), others...), " ")
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
		return
	fi
	# Its completion, in the file beside this one, sees a command line of its own.
	local tool=
	case ${COMP_WORDS[1]} in
	%[5]s) tool=ponos-${COMP_WORDS[1]} ;;
	%[6]s) tool=${COMP_WORDS[1]} ;;
	*) return ;;
	esac
	local complete=_${tool//-/_}
	declare -F "$complete" >/dev/null || . "${BASH_SOURCE[0]%%/*}/$tool" 2>/dev/null || return
	local COMP_WORDS=("$tool" "${COMP_WORDS[@]:2}") COMP_CWORD=$((COMP_CWORD - 1))
	"$complete"
}

complete -F %[2]s %[1]s
`, d.Name, identifier(d.Name), names, strings.Join(flags(d), " "), strings.Join(ours, " | "), strings.Join(others, " | "))
	}
	zsh := func(w io.Writer, d app.Description) {
		fmt.Fprintf(w, "#compdef %[1]s\n# zsh completion of %[1]s, made by completions/generate\n\n", d.Name)
		fmt.Fprintf(w, "%s_tool() {\n\tif (( $+_comps[ponos-$words[1]] )); then words[1]=ponos-$words[1]; fi\n", identifier(d.Name))
		fmt.Fprint(w, "\t_normal -P\n}\n\n_arguments -S \\\n")
		for _, f := range d.Flags {
			fmt.Fprintf(w, "\t%s \\\n", zshFlag(d.Name, f))
		}
		fmt.Fprintf(w, "\t'1:tool:(%s)' '*:: :%s_tool'\n", names, identifier(d.Name))
	}
	fish := func(w io.Writer, d app.Description) {
		fmt.Fprintf(w, "# fish completion of %[1]s, made by completions/generate\n\n", d.Name)
		first := "-n 'test (count (commandline -opc)) -eq 1'"
		fmt.Fprintf(w, "complete -c %s %s -f -a '%s'\n", d.Name, first, names)
		after := quote(fmt.Sprintf(fishTool, strings.Join(ours, " ")))
		fmt.Fprintf(w, "complete -c %s -n 'test (count (commandline -opc)) -gt 1' -f -a %s\n", d.Name, after)
		for _, f := range d.Flags {
			fmt.Fprintf(w, "complete -c %s %s%s -d %s\n", d.Name, first, fishNames(f), fishQuote(f.Usage))
		}
	}
	return [3]func(io.Writer, app.Description){bash, zsh, fish}
}

// fishTool completes the command line of a tool that is behind its caller.
const fishTool = "(set -l all (commandline -opc)[2..] (commandline -ct; or echo); " +
	"if contains -- $all[1] %s; set all[1] ponos-$all[1]; end; complete -C \"$all\")"
