// Command ponos-cancel stops tasks of a spool.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/cancel"
)

func main() { os.Exit(cancel.Main()) }
