package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/app"
)

// compgen is what bash completes a kind with.
var compgen = map[kind]string{files: "-f", directories: "-d", commands: "-c -f", users: "-u"}

// hasLive reports whether a tool has values that are asked for.
func hasLive(all []level) bool {
	for _, l := range all {
		if live[kindOf(l.Args, l.Usage)] != "" {
			return true
		}
		for _, f := range l.Flags {
			if f.Value != "" && len(f.Words) == 0 && live[kindOf(f.Value, f.Usage)] != "" {
				return true
			}
		}
	}
	return false
}

// hasLists reports whether a flag of a tool takes a list of known words.
func hasLists(all []level) bool {
	for _, l := range all {
		if slices.ContainsFunc(l.Flags, func(f app.FlagInfo) bool { return f.List }) {
			return true
		}
	}
	return false
}

// bash writes a completion that needs nothing but bash.
func bash(w io.Writer, d app.Description) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	all := levels(d)
	name := identifier(d.Name)
	line("# bash completion of %s, made by completions/generate", d.Name)
	line("")
	if hasLive(all) {
		line("# Adds what ponos-task knows at the moment. Without quotes, bash replaces what is behind the last = or :.")
		line("%s_live() {", name)
		line("\tlocal found cut=")
		line("\tif [[ $whole == [\\'\\\"]* ]]; then whole=${whole:1}; else cut=${whole%%\"$word\"}; fi")
		line("\twhile IFS=$'\\t' read -r found _; do")
		line("\t\tif [[ $whole == \"$word\" && $found == *[\\ \\(]* ]]; then found=\\'$found; fi")
		line("\t\tCOMPREPLY+=(\"${found#\"$cut\"}\")")
		line("\tdone < <(ponos-task words \"$1\" \"$whole\" 2>/dev/null)")
		line("\t[[ ${COMPREPLY[*]} != *[=\\(] ]] || compopt -o nospace 2>/dev/null")
		line("}")
		line("")
	}
	line("%s() {", name)
	line("\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} level= i how=() live=")
	line("\tCOMPREPLY=()")
	line("\t# --flag=value and a:b are three words here.")
	line("\tlocal at=$COMP_CWORD whole IFS=$' \\t\\n'")
	line("\tif [[ $word == [=:] ]]; then word=; fi")
	line("\twhile ((at > 1)) && [[ ${COMP_WORDS[at]} == [=:] || ${COMP_WORDS[at - 1]} == [=:] ]]; do ((at--)); done")
	line("\tbefore=${COMP_WORDS[at - 1]}")
	line("\tif ((at < COMP_CWORD)) && [[ ${COMP_WORDS[at]} == -* ]]; then before=${COMP_WORDS[at]} at=$((at + 2)); fi")
	line("\tprintf -v whole %%s \"${COMP_WORDS[@]:at:COMP_CWORD - at + 1}\"")
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
	if hasLists(all) {
		line("\tlocal list=")
		line("\tif [[ $word == *,* ]]; then list=${word%%,*},; fi")
	}
	line("\tcase $level:$before in")
	for _, l := range all {
		for _, f := range l.Flags {
			if f.Value == "" {
				continue
			}
			k, at := kindOf(f.Value, f.Usage), patterns(strings.Join(l.path, "/"), f.Names)
			switch options := compgen[k]; {
			case f.List:
				line("\t%s) how=(-P \"$list\" -W %s) word=${word#\"$list\"} ;;", at, quote(strings.Join(f.Words, " ")))
			case len(f.Words) > 0:
				line("\t%s) how=(-W %s) ;;", at, quote(strings.Join(f.Words, " ")))
			case live[k] != "" && options != "":
				line("\t%s) how=(%s) live=%s ;;", at, options, live[k])
			case live[k] != "":
				line("\t%s) %s_live %s; return ;;", at, name, live[k])
			case options != "":
				line("\t%s) how=(%s) ;;", at, options)
			default:
				line("\t%s) return ;;", at)
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
		k := kindOf(l.Args, l.Usage)
		rest := compgen[k]
		if len(names) > 0 {
			rest = strings.TrimSpace(rest + " -W " + quote(strings.Join(names, " ")))
		}
		line("\t%s)", quote(strings.Join(l.path, "/")))
		line("\t\thow=(%s)", rest)
		if live[k] != "" {
			line("\t\tlive=%s", live[k])
		}
		line("\t\tif [[ $word == -* && $i == \"$COMP_CWORD\" ]]; then how=(-W %s) live=; fi", quote(strings.Join(flags, " ")))
		line("\t\t;;")
	}
	line("\tesac")
	if hasLive(all) {
		line("\tif [[ $live ]]; then %s_live \"$live\"; fi", name)
	}
	line("\t[[ ${#how[@]} -gt 0 ]] || return")
	line("\t[[ ${how[*]} == *-W* ]] || compopt -o filenames 2>/dev/null")
	line("\tmapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen \"${how[@]}\" -- \"$word\")")
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
