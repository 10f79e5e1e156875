// Command arkindex-server is the Arkindex server of the tests as a program, to try
// the tools by hand; see server.Main.
package main

import (
	"fmt"
	"os"

	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

func main() {
	if err := server.Main(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "arkindex-server:", err)
		os.Exit(1)
	}
}
