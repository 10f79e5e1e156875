package launcher

import (
	"context"
	"strings"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/launcher/file"
	"github.com/ponos-tools/ponos/lib/shell"
)

// Hostname is the machine of a connector; "" is this one.
func Hostname(f *file.File, connector string) string {
	for _, c := range f.Connectors {
		if c.ID == connector {
			return c.Hostname
		}
	}
	return ""
}

// OverSSH returns the command that runs argv on another machine.
func OverSSH(host string, argv []string) []string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = shell.Quote(a)
	}
	return []string{"ssh", "--", host, strings.Join(words, " ")}
}

// Runner returns what runs programs on the machine of a host name; "" is this one.
func Runner(host string, run command.Runner) command.Runner {
	if host == "" {
		return run
	}
	return remote{host, run}
}

type remote struct {
	host string
	run  command.Runner
}

// Run runs c over ssh. Of its environment nothing goes along but the plain locale,
// in which Slurm's output is read.
func (r remote) Run(ctx context.Context, c command.Cmd) (command.Result, error) {
	argv := OverSSH(r.host, append([]string{"env", "LC_ALL=C", c.Name}, c.Args...))
	c.Name, c.Args = argv[0], argv[1:]
	return r.run.Run(ctx, c)
}
