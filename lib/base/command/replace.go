package command

import (
	"os"
	"syscall"
)

// Replace runs a program in the place of this process: it has the same process id,
// terminal, signals and open files, and its exit status is the caller's. Files that
// keep is called with stay open in it, with the locks that they hold. Replace only
// returns if the program cannot be started.
func Replace(name string, args, env []string, keep ...*os.File) error {
	path, err := Path(name)
	if err != nil {
		return err
	}
	for _, f := range keep {
		if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_SETFD, 0); errno != 0 {
			return &NotFoundError{name, errno}
		}
	}
	return &NotFoundError{name, syscall.Exec(path, append([]string{name}, args...), env)}
}
