package worker

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Supervise runs the worker as a child and returns its exit status, which is wire.Over if the worker
// has failed and nothing of it is left. If the worker is killed, its tasks are reparented to this
// process, which ends them; if this process is killed, the worker gets SIGTERM. A worker that still
// exists when its lease expires, for example because it is stopped, is killed. The output of the
// node's teardown goes to complaints.
func Supervise(argv []string, env []string, signals <-chan os.Signal, complaints io.Writer) (int, error) {
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
	ticked, mercy := proc.Clock(), int64(0)
	status, none, err := executor.Supervise(executor.Supervised{
		Argv: argv, Env: append(env, TempVar+"="+temp), Var: SupervisorVar, Signals: signals,
		Expired: func() bool {
			now := proc.Clock()
			if now-ticked > int64(stall) { // the worker may have been stopped as well
				mercy = now + int64(answer+stall)
			}
			ticked = now
			end := leaseEnd(lease)
			return end > 0 && now > end-int64(time.Second) && now > mercy
		},
		Keep: func(status syscall.WaitStatus) bool {
			_, err := os.Stat(filepath.Join(temp, keepFile))
			return err == nil && well(status)
		},
	})
	switch {
	case err != nil:
		return 1, err
	case none && !well(status):
		return wire.Over, nil
	case status.Signaled():
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

func well(s syscall.WaitStatus) bool { return s.Exited() && s.ExitStatus() == 0 }

// SupervisorVar is the variable that tells a worker its supervisor.
const SupervisorVar = "JOBPOOL_WORKER_OF"

// TempVar is the variable that tells a worker its directory for files.
const TempVar = "JOBPOOL_WORKER_TEMP"
