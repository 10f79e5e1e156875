// Command fairshare shows who waits in a Slurm queue, why, and where there is
// room: fair share, the pending jobs with where their priorities come from, the
// holes that backfill leaves, the partition in which a job starts soonest, and what
// was used.
package main

import (
	"os"

	"github.com/ponos-tools/ponos/lib/tool/fairshare"
)

func main() { os.Exit(fairshare.Main()) }
