// Command ponos-start starts the tasks that the queue wants started.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/start"
)

func main() { os.Exit(start.Main()) }
