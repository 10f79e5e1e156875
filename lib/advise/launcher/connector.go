package launcher

import (
	"context"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/shell"
)

// Hostname returns the host of a connector; "" is this machine.
func Hostname(f *file.File, connector string) string {
	for _, c := range f.Connectors {
		if c.ID == connector {
			return c.Hostname
		}
	}
	return ""
}

// OverSSH returns the ssh command that runs argv on another host.
func OverSSH(host string, argv []string) []string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = shell.Quote(a)
	}
	return []string{"ssh", "--", host, strings.Join(words, " ")}
}

// Runner returns a runner for programs on a host, over ssh; for "", this machine, it returns
// run.
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

// Run runs c over ssh. Its environment is dropped, except for the C locale that the parsers of
// Slurm's output expect.
func (r remote) Run(ctx context.Context, c command.Cmd) (command.Result, error) {
	argv := OverSSH(r.host, append([]string{"env", "LC_ALL=C", c.Name}, c.Args...))
	c.Name, c.Args = argv[0], argv[1:]
	return r.run.Run(ctx, c)
}
