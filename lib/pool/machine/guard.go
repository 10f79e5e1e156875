package machine

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// GuardMark returns a variable, with its value, for the processes that a guard of this process is to
// end.
func GuardMark(name string) string {
	start, _ := Started(os.Getpid())
	return fmt.Sprintf("%s=%d.%d", name, os.Getpid(), start)
}

// Guard waits until all other ends of a pipe are closed, and kills all processes with a variable until
// none is left: the processes that had the other ends were killed. If it reads something before that, it
// does nothing. Slurm ends it with them where it tracks processes by cgroups.
func Guard(pipe io.Reader, mark string) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	if n, _ := pipe.Read(make([]byte, 1)); n > 0 {
		return
	}
	for {
		left := WithVariables(mark + "\x00")
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		time.Sleep(5 * time.Millisecond)
	}
}
