// Command ponos-run runs tasks, shows them and takes the turns of the agent.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/run"
)

func main() { os.Exit(run.Main()) }
