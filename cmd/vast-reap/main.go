// Command vast-reap finds and destroys orphaned instances.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/reap"
)

func main() { os.Exit(reap.Main()) }
