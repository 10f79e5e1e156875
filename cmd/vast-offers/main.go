// Command vast-offers shows what the filters of the configuration would find now.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/offers"
)

func main() { os.Exit(offers.Main()) }
