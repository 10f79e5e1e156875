// Command ponos-log prints the logs of tasks of a spool.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/logs"
)

func main() { os.Exit(logs.Main()) }
