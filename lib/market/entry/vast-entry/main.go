// Vast-entry runs a task in the container of a rented machine: see package entry.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/market/entry"
)

func main() { os.Exit(entry.Main(os.Args, os.Stdin, os.Stdout)) }
