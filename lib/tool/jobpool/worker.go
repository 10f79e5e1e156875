package jobpool

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/pool/wire"
	"github.com/ponos-tools/ponos/lib/pool/worker"
)

// workerAction is the program at a node: a supervisor, and the worker below it.
func workerAction(c *cli.Context) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGCONT, worker.HungUp)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR2)
	temp := os.Getenv(worker.TempVar)
	if temp == "" {
		code, err := worker.Supervise([]string{"jobpool", "worker"}, os.Environ(), signals, c.App.ErrWriter)
		return fault.Exit(code, err)
	}
	if err := executor.AdoptOrphans(); err != nil {
		return err
	}
	// A thread that starts a process is not there for anything else until the process
	// runs; the rest must not wait for that.
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 16) + 2)
	root := os.DirFS("/")
	ids := machine.Affinity()
	gpus, variable := machine.GPUs(root, os.LookupEnv)
	var processes []wire.Process
	for _, pid := range []int{os.Getpid(), os.Getppid()} {
		if start, alive := proc.Started(pid); alive {
			processes = append(processes, wire.Process{PID: pid, Start: start})
		}
	}
	return worker.Run(worker.Options{
		In: c.App.Reader, Out: c.App.Writer,
		Hello: wire.Hello{
			Version: app.Version, Protocol: wire.Protocol, Host: machine.Hostname(), PID: os.Getpid(),
			CPUs: machine.Topology(root, ids), Mem: machine.Memory(root), GPUs: gpus, GPUVar: variable,
			Kernel: proc.Kernel(), Processes: processes, Clock: proc.Clock(),
		},
		Processes: func(threads int, handle executor.Handler) executor.System {
			return executor.NewSpawner(threads, handle)
		},
		Available: func() int64 { return machine.Available(root) },
		Signals:   signals, Environ: os.Environ(), Temp: temp, Orphans: proc.Orphans(),
		Clock: proc.Clock, Clear: worker.Clear,
		Alone: func() bool { return executor.Alone(worker.SupervisorVar) },
	})
}
