// Command lfind finds the launcher for a resource request: the options of sbatch,
// or this machine, that give the GPUs, CPUs, memory and time asked for.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/lfind"
)

func main() { os.Exit(lfind.Main()) }
