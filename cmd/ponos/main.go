// Command ponos is all tools in one program. It is the tool by whose name it is called: through a
// link, or by the first argument.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/tool/cancel"
	"github.com/ponos-tools/ponos/lib/tool/fairshare"
	"github.com/ponos-tools/ponos/lib/tool/jobpool"
	"github.com/ponos-tools/ponos/lib/tool/lfind"
	"github.com/ponos-tools/ponos/lib/tool/list"
	"github.com/ponos-tools/ponos/lib/tool/logs"
	"github.com/ponos-tools/ponos/lib/tool/offers"
	"github.com/ponos-tools/ponos/lib/tool/poll"
	"github.com/ponos-tools/ponos/lib/tool/reap"
	"github.com/ponos-tools/ponos/lib/tool/retry"
	"github.com/ponos-tools/ponos/lib/tool/run"
	"github.com/ponos-tools/ponos/lib/tool/setup"
	"github.com/ponos-tools/ponos/lib/tool/start"
	"github.com/ponos-tools/ponos/lib/tool/stop"
	"github.com/ponos-tools/ponos/lib/tool/submit"
	"github.com/ponos-tools/ponos/lib/tool/task"
	"github.com/ponos-tools/ponos/lib/tool/worker"
)

const name = "ponos"

var tools = []struct {
	name, usage string
	main        func() int
}{
	{"fairshare", fairshare.Usage, fairshare.Main},
	{"jobpool", jobpool.Usage, jobpool.Main},
	{"lfind", lfind.Usage, lfind.Main},
	{"ponos-cancel", cancel.Usage, cancel.Main},
	{"ponos-list", list.Usage, list.Main},
	{"ponos-log", logs.Usage, logs.Main},
	{"ponos-poll", poll.Usage, poll.Main},
	{"ponos-retry", retry.Usage, retry.Main},
	{"ponos-run", run.Usage, run.Main},
	{"ponos-setup", setup.Usage, setup.Main},
	{"ponos-start", start.Usage, start.Main},
	{"ponos-stop", stop.Usage, stop.Main},
	{"ponos-submit", submit.Usage, submit.Main},
	{"ponos-task", task.Usage, task.Main},
	{"ponos-worker", worker.Usage, worker.Main},
	{"vast-offers", offers.Usage, offers.Main},
	{"vast-reap", reap.Usage, reap.Main},
}

func init() { runtime.LockOSThread() } // for jobpool.Main

func main() {
	called, args := resolve(os.Args)
	if called != "jobpool" {
		runtime.UnlockOSThread()
	}
	command.AllTools = true
	for _, t := range tools {
		if t.name == called {
			os.Args = args
			os.Exit(t.main())
		}
	}
	os.Exit(app.Main(other))
}

// meant are the tools that do what a word says.
var meant = map[string]string{
	"status": "ponos-list", "ls": "ponos-list", "ps": "ponos-list", "logs": "ponos-log", "kill": "ponos-cancel", "rm": "ponos-cancel",
	"init": "ponos-setup --init", "queue": "fairshare jobs", "find": "lfind", "pool": "jobpool",
}

// resolve returns the tool that is called, and its arguments from its name on; "" if none is.
func resolve(args []string) (called string, rest []string) {
	for i, arg := range args[:min(len(args), 2)] {
		if i == 0 {
			arg = filepath.Base(arg)
		}
		for _, t := range tools {
			if arg == t.name || i == 1 && name+"-"+arg == t.name {
				return t.name, append([]string{t.name}, args[i+1:]...)
			}
		}
	}
	return "", nil
}

// other does what is left when no tool is called.
func other(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var names, list []string
	for _, t := range tools {
		if names = append(names, t.name); t.name != "ponos-worker" { // which jobs call, and no person
			list = append(list, fmt.Sprintf("  %-12s  %s", t.name, t.usage))
		}
	}
	unknown := func(tool string) error {
		hint := `see "ponos --help"`
		if does := meant[tool]; does != "" {
			return fault.Hint(fault.Errorf(fault.Usage, "unknown tool %q", tool), "to do that, use "+does)
		}
		for _, word := range []string{tool, name + "-" + tool} {
			if near := app.Nearest(word, names); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
				break
			}
		}
		return fault.Hint(fault.Errorf(fault.Usage, "unknown tool %q", tool), hint)
	}
	link := filepath.Base(args[0])
	if len(args) == 2 && args[1] == "help" {
		args[1] = "--help"
	}
	if link != name {
		args = []string{name} // whatever the options are, it is not known whose
	}
	return app.Tool{
		Name: name, Usage: "all tools in one program", ArgsUsage: "TOOL [ARG...]", StopAtArg: true, Description: strings.Join(list, "\n"),
		Action: func(c *cli.Context) error {
			switch {
			case link != name:
				return unknown(link)
			case !c.Args().Present():
				return fault.Hint(fault.Errorf(fault.Usage, "expected the name of a tool"), `see "ponos --help"`)
			}
			return unknown(c.Args().First())
		},
	}.Run(ctx, args, stdin, stdout, stderr)
}
