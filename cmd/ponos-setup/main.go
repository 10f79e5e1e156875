// Command ponos-setup checks a configuration and makes an agent ready to work.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/setup"
)

func main() { os.Exit(setup.Main()) }
