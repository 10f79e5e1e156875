package worker

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Supervise runs the worker as a child and returns its exit status, which is wire.Over if the worker
// has failed and nothing of it is left. If the worker is killed, its tasks are reparented to this
// process, which ends them; if this process is killed, the worker gets SIGTERM. A worker that still
// exists when its lease expires, for example because it is stopped, is killed. The output of the
// node's teardown goes to complaints.
func Supervise(argv []string, env []string, signals <-chan os.Signal, complaints io.Writer) (int, error) {
	if err := command.AdoptOrphans(); err != nil {
		return 1, err
	}
	temp, err := makeTemp()
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(temp)
	defer clear(temp, complaints)
	lease, err := os.OpenFile(filepath.Join(temp, leaseFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 1, err
	}
	defer lease.Close()
	child, err := command.StartChild("/proc/self/exe", argv, append(env, TempVar+"="+temp))
	if err != nil {
		return 1, err
	}
	// Only the child has the connection: it must close with it.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		_ = syscall.Dup3(int(null.Fd()), 0, 0)
		_ = syscall.Dup3(int(null.Fd()), 1, 0)
	}
	done := make(chan syscall.WaitStatus, 1)
	go func() { done <- child.Wait() }()
	clock := time.NewTicker(250 * time.Millisecond)
	defer clock.Stop()
	ticked, mercy := machine.Clock(), int64(0)
	for {
		select {
		case s := <-signals:
			_ = syscall.Kill(child.PID, s.(syscall.Signal))
		case <-clock.C:
			now := machine.Clock()
			if now-ticked > int64(stall) { // the worker may have been stopped as well
				mercy = now + int64(answer+stall)
			}
			ticked = now
			if end := leaseEnd(lease); end > 0 && now > end-int64(time.Second) && now > mercy {
				_ = syscall.Kill(child.PID, syscall.SIGKILL)
			}
		case status := <-done:
			well := status.Exited() && status.ExitStatus() == 0
			if _, err := os.Stat(filepath.Join(temp, keepFile)); err == nil && well {
				return 0, nil
			}
			none := killAll(machine.Children, func() { child.Reap(10 * time.Millisecond) })
			switch {
			case none && !well:
				return wire.Over, nil
			case status.Signaled():
				return 128 + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		}
	}
}

// TempVar is the variable that tells a worker its directory for files.
const TempVar = "JOBPOOL_WORKER_TEMP"
