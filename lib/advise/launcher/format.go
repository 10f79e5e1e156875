package launcher

import (
	"fmt"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Formats are the output formats of Write, and json.
var Formats = []string{"args", "args0", "lines", "script", "env", "json"}

// Write formats options in one of Formats other than json. The error says why the format cannot
// express them.
func Write(o sbatch.Options, format string) (string, error) {
	switch format {
	case "args":
		line, err := inLine(o.Args())
		return line + "\n", err
	case "args0":
		if len(o) == 0 {
			return "", nil
		}
		return strings.Join(o.Args(), "\x00") + "\x00", nil
	case "lines":
		return strings.Join(append(o.Args(), ""), "\n"), nil
	case "script":
		var b strings.Builder
		for _, option := range o {
			b.WriteString(option.Directive() + "\n")
		}
		return b.String(), nil
	case "env":
		return environment(o)
	}
	return "", fmt.Errorf("unknown format %q", format)
}

// inLine joins arguments for $(...) and $LFIND_ARGS, where the shell splits words and expands
// patterns. Arguments that the shell would change are an error.
func inLine(args []string) (string, error) {
	for _, arg := range args {
		if strings.ContainsAny(arg, " \t\n*?[]\\") {
			return "", fmt.Errorf("%s would be changed by the shell", shell.Quote(arg))
		}
	}
	return strings.Join(args, " "), nil
}

// environment returns shell commands that set the variables that sbatch reads. Options without
// a variable are put into LFIND_ARGS.
func environment(o sbatch.Options) (string, error) {
	var b strings.Builder
	var rest []string
	for _, option := range o {
		if known := sbatch.Lookup(option.Name); known != nil && known.Variable != "" && option.Value != "" {
			fmt.Fprintf(&b, "export %s=%s\n", known.Variable, shell.Quote(option.Value))
		} else {
			rest = append(rest, option.Arg())
		}
	}
	line, err := inLine(rest)
	fmt.Fprintf(&b, "export LFIND_ARGS=%s\n", shell.Quote(line))
	return b.String(), err
}
