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

// unnamed is a file in memory.
func unnamed() (*os.File, error) {
	fd, err := unix.MemfdCreate("ponos", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "script"), nil
}
