// Command ponos-list shows the tasks of a spool.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/list"
)

func main() { os.Exit(list.Main()) }
