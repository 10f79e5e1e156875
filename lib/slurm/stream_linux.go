package slurm

import (
	"os"

	"golang.org/x/sys/unix"
)

// widen lets a pipe hold more, so that the command need not wait for us. It is a
// wish: an unprivileged user may have too many pipes already.
func widen(pipe *os.File) {
	_, _ = unix.FcntlInt(pipe.Fd(), unix.F_SETPIPE_SZ, 1<<20)
}
