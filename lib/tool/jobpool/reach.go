package jobpool

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/pool/transport"
	"github.com/ponos-tools/ponos/lib/pool/wire"
	"github.com/ponos-tools/ponos/lib/pool/worker"
)

// reachAction is what tasks of several nodes call as ssh: FILE [OPTION...] HOST COMMAND...
func reachAction(c *cli.Context) error {
	args := c.Args().Slice()
	if len(args) == 0 {
		return fault.Errorf(fault.Usage, "reach: the file is missing")
	}
	b, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var about worker.Reaching
	if err := json.Unmarshal(b, &about); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	args = args[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") { // of ssh, such as -x
		args = args[1:]
	}
	if len(args) < 2 {
		return fault.Errorf(fault.Usage, "reach: expected a host and a command")
	}
	i := slices.IndexFunc(about.Nodes, func(p wire.Node) bool { return p.Host == args[0] })
	if i < 0 {
		return fault.Errorf(fault.Usage, "reach: %q is not a node of the task", args[0])
	}
	line := remote(about, i, strings.Join(args[1:], " "))
	if i == 0 {
		return command.Replace("/bin/sh", []string{"-c", line}, os.Environ())
	}
	name, words, env := transport.To(about.Reach, about.Nodes[i], os.Environ(), line)
	return command.Replace(name, words, env)
}

// remote is the command line for a node of a task: it is known there by the task's mark, and
// kept to the CPUs of the task.
func remote(about worker.Reaching, i int, line string) string {
	p := about.Nodes[i]
	set := []string{
		"JOBPOOL_TASK=" + about.Task, "JOBPOOL_NODE=" + p.Node, "JOBPOOL_RUN=" + string(about.Run),
		fmt.Sprintf("JOBPOOL_SEQ=%d", about.Seq), "JOBPOOL_CPUS=" + machine.FormatList(p.CPUs),
	}
	if about.GPUVar != "" {
		ids := strings.Join(p.GPUs, ",")
		set = append(set, "JOBPOOL_GPUS="+ids, about.GPUVar+"="+ids)
	}
	command := "exec env " + shell.Join(append(set, "/bin/sh", "-c", line))
	if about.Pin && len(p.CPUs) > 0 {
		bound := "exec env " + shell.Join(append(set, "taskset", "-c", machine.FormatList(p.CPUs), "/bin/sh", "-c", line))
		return "command -v taskset >/dev/null 2>&1 && " + bound + "; " + command
	}
	return command
}
