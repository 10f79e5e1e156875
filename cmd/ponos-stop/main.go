// Command ponos-stop stops the tasks that the queue wants stopped.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/stop"
)

func main() { os.Exit(stop.Main()) }
