package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ponos-tools/ponos/lib/app"
)

// compgen is what bash completes a kind with.
var compgen = map[kind]string{files: "-f", directories: "-d", commands: "-c -f", users: "-u"}

// bash writes a completion that needs nothing but bash.
func bash(w io.Writer, d app.Description) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	all := levels(d)
	name := identifier(d.Name)
	line("# bash completion of %s, made by completions/generate", d.Name)
	line("")
	line("%s() {", name)
	line("\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} level= i how=()")
	line("\tCOMPREPLY=()")
	line("\t# --flag=value is three words here.")
	line("\tif [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi")
	line("")
	line("\t# Which command is it, if any? Values of flags are passed over.")
	line("\tfor ((i = 1; i < COMP_CWORD; i++)); do")
	line("\t\tcase $level:${COMP_WORDS[i]} in")
	line("\t\t*:--) break ;;")
	for _, l := range all {
		at := strings.Join(l.path, "/")
		for _, c := range l.Commands {
			line("\t\t%s) level=%s ;;", quote(at+":"+c.Name), quote(strings.TrimPrefix(at+"/"+c.Name, "/")))
		}
		if values := valueFlags(l); values != "" {
			line("\t\t%s)", values)
			line("\t\t\tif [[ ${COMP_WORDS[i + 1]} == = ]]; then ((i++)); fi")
			line("\t\t\t((i++))")
			line("\t\t\t;;")
		}
	}
	line("\t\tesac")
	line("\tdone")
	line("")
	line("\tcase $level:$before in")
	for _, l := range all {
		for _, f := range l.Flags {
			if f.Value == "" {
				continue
			}
			if options := compgen[kindOf(f.Value, f.Usage)]; options != "" {
				line("\t%s) how=(%s) ;;", patterns(strings.Join(l.path, "/"), f.Names), options)
			} else {
				line("\t%s) return ;;", patterns(strings.Join(l.path, "/"), f.Names))
			}
		}
	}
	line("\tesac")
	line("\t[[ ${#how[@]} -gt 0 ]] || case $level in")
	for _, l := range all {
		var flags, names []string
		for _, f := range l.Flags {
			for _, n := range f.Names {
				flags = append(flags, dashed(n))
			}
		}
		for _, c := range l.Commands {
			names = append(names, c.Name)
		}
		rest := compgen[kindOf(l.Args, l.Usage)]
		if len(names) > 0 {
			rest = strings.TrimSpace(rest + " -W " + quote(strings.Join(names, " ")))
		}
		line("\t%s)", quote(strings.Join(l.path, "/")))
		line("\t\thow=(%s)", rest)
		line("\t\tif [[ $word == -* && $i == \"$COMP_CWORD\" ]]; then how=(-W %s); fi", quote(strings.Join(flags, " ")))
		line("\t\t;;")
	}
	line("\tesac")
	line("\t[[ ${#how[@]} -gt 0 ]] || return")
	line("\t[[ ${how[*]} == *-W* ]] || compopt -o filenames 2>/dev/null")
	line("\tmapfile -t COMPREPLY < <(compgen \"${how[@]}\" -- \"$word\")")
	line("}")
	line("")
	line("complete -F %s %s", name, d.Name)
}

// valueFlags are the alternatives of a case for all flags that take a value.
func valueFlags(l level) string {
	var names []string
	for _, f := range l.Flags {
		if f.Value != "" {
			names = append(names, f.Names...)
		}
	}
	return patterns(strings.Join(l.path, "/"), names)
}

// patterns are the alternatives of a case for the names of flags.
func patterns(at string, names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = quote(at + ":" + dashed(n))
	}
	return strings.Join(out, " | ")
}
