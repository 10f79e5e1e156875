// Command ponos-task is for job scripts and for Slurm's prolog and epilog: it
// tells a script about its task and its run, notes how a task is, and saves the
// work of a job that has to give way.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/task"
)

func main() { os.Exit(task.Main()) }
