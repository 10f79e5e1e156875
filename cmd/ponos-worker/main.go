// Command ponos-worker runs tasks where ponos-start has put them.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/worker"
)

func main() { os.Exit(worker.Main()) }
