// Command jobpool runs many commands inside one allocation: it opens one
// connection to each node, keeps it open, and hands the CPUs out itself.
package main

import (
	"os"
	"runtime"

	"github.com/ponos-tools/ponos/lib/tool/jobpool"
)

func init() { runtime.LockOSThread() } // for jobpool.Main

func main() { os.Exit(jobpool.Main()) }
