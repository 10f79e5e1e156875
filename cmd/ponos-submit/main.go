// Command ponos-submit puts tasks into a spool.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/submit"
)

func main() { os.Exit(submit.Main()) }
