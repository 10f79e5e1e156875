package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/app"
)

// zshAction is what zsh completes a kind with; a blank is nothing.
var zshAction = map[kind]string{
	other: " ", files: "_files", directories: "_files -/", commands: "_command_names -e",
}

// zsh writes a completion: a function for the tool and one for each command.
func zsh(w io.Writer, d app.Description) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("#compdef %s", d.Name)
	line("# zsh completion of %s, made by completions/generate", d.Name)
	all := levels(d)
	if hasLive(all) {
		line("")
		line("# Adds the words of a kind that ponos-task knows at the moment.")
		line("%s() {", zshLive(d.Name))
		line("\tlocal -a found words")
		line("\tif [[ $1 == users ]]; then _users; fi")
		line("\tfound=(${(f)\"$(ponos-task words $1 ${(Q)PREFIX} 2>/dev/null)\"})")
		line("\twords=(${found%%%%$'\\t'*})")
		line("\tfound=(${found/$'\\t'/  -- })")
		line("\tif (( ${#words:#*[=\\(]} < $#words )); then")
		line("\t\tcompadd -S '' -a words")
		line("\telse")
		line("\t\tcompadd -l -d found -a words")
		line("\tfi")
		line("}")
	}
	for _, l := range all {
		function := identifier(append([]string{d.Name}, l.path...)...)
		line("")
		line("%s() {", function)
		line("\tlocal curcontext=$curcontext state line")
		line("\ttypeset -A opt_args")
		line("\t_arguments -s -S -C \\")
		for _, f := range l.Flags {
			line("\t\t%s \\", zshFlag(d.Name, f))
		}
		if len(l.Commands) == 0 {
			line("\t\t%s", quote("*:"+zshText(orArgument(l.Args))+":"+zshArguments(d.Name, l)))
			line("}")
			continue
		}
		line("\t\t'1: :->first' '*:: :->rest'")
		line("\tcase $state in")
		line("\tfirst)")
		line("\t\tlocal -a commands=(")
		for _, c := range l.Commands {
			line("\t\t\t%s", quote(c.Name+":"+strings.ReplaceAll(c.Usage, ":", `\:`)))
		}
		line("\t\t)")
		line("\t\t_describe command commands")
		if action := zshArguments(d.Name, l); action != " " {
			line("\t\t%s", action)
		}
		line("\t\t;;")
		line("\trest)")
		line("\t\tcase $line[1] in")
		for _, c := range l.Commands {
			line("\t\t%s) %s ;;", c.Name, function+strings.TrimPrefix(identifier("", c.Name), "_"))
		}
		line("\t\t*) _default ;;")
		line("\t\tesac")
		line("\t\t;;")
		line("\tesac")
		line("}")
	}
	line("")
	line("%s \"$@\"", identifier(d.Name))
}

func orArgument(args string) string {
	if args == "" {
		return "argument"
	}
	return args
}

// zshArguments completes what follows the flags; of a command line, its words.
func zshArguments(tool string, l level) string {
	if k := kindOf(l.Args, l.Usage); k != commands {
		return zshActionOf(tool, k)
	}
	return "_normal -P"
}

// zshLive is the name of the function that asks ponos-task.
func zshLive(tool string) string { return identifier(tool, "live") }

// zshActionOf is what a kind is completed with. The blank in front keeps _arguments
// from adding words of its own.
func zshActionOf(tool string, k kind) string {
	if live[k] != "" {
		return " " + zshLive(tool) + " " + live[k]
	}
	return zshAction[k]
}

// zshFlag is the specification of a flag: '*'{-c+,--config=}'[usage]:FILE:_files'.
func zshFlag(tool string, f app.FlagInfo) string {
	var names []string
	for _, n := range f.Names {
		name := dashed(n)
		if f.Value != "" {
			name += map[bool]string{true: "+", false: "="}[len(n) == 1]
		}
		names = append(names, name)
	}
	spec := "[" + zshText(f.Usage) + "]"
	if f.Value != "" {
		spec += ":" + zshText(f.Value) + ":"
		switch words := strings.Join(f.Words, " "); {
		case f.List:
			spec += "_sequence compadd - " + words
		case words != "":
			spec += "(" + words + ")"
		default:
			spec += zshActionOf(tool, kindOf(f.Value, f.Usage))
		}
	}
	if len(names) == 1 {
		return quote("*" + names[0] + spec)
	}
	return "'*'{" + strings.Join(names, ",") + "}" + quote(spec)
}

// zshText takes their meaning from the characters that have one in a specification.
func zshText(s string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(s)
}
