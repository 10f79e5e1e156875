// Command ponos-poll is one turn of the agent, or one after the other.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/poll"
)

func main() { os.Exit(poll.Main()) }
