package slurm

import (
	"os"

	"golang.org/x/sys/unix"
)

// widen enlarges the buffer of a pipe, so that the command rarely waits for the parser. It may
// fail without harm: the kernel limits the pipe buffers of an unprivileged user.
func widen(pipe *os.File) {
	_, _ = unix.FcntlInt(pipe.Fd(), unix.F_SETPIPE_SZ, 1<<20)
}

// unnamed returns a file in memory.
func unnamed() (*os.File, error) {
	fd, err := unix.MemfdCreate("ponos", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "script"), nil
}
