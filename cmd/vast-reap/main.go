// Command vast-reap finds and destroys instances that no task wants.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/reap"
)

func main() { os.Exit(reap.Main()) }
