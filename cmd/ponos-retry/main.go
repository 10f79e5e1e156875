// Command ponos-retry submits tasks of a spool again that did not complete.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/retry"
)

func main() { os.Exit(retry.Main()) }
