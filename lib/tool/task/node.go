package task

import (
	"context"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/probe"
	"github.com/ponos-tools/ponos/lib/base/command"
)

// probing is how long the probe of a node may take: drivers of broken GPUs hang.
const probing = 2 * time.Minute

// recordNode records beside the work what GPUs the node has, for lfind, if the job has some and that was not done for a
// while. A failure is nobody's business here. The caller ends what is left of it by stop.
func (t *tool) recordNode(ctx context.Context) (stop func()) {
	node, cluster, dir := t.getenv("SLURMD_NODENAME"), t.getenv("SLURM_CLUSTER_NAME"), probe.Dirs()[0]
	if local := t.getenv("SLURM_LOCALID"); local != "" && local != "0" { // one of the processes on the node is enough
		return func() {}
	}
	if t.getenv("SLURM_JOB_GPUS") == "" || node == "" || cluster == "" {
		return func() {}
	}
	if !probe.Older(probe.Recorded(dir, node, cluster), t.now(), probe.Fresh) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = command.System.Run(ctx, command.Cmd{
			Name: "sh", Args: []string{"-s", "--", dir}, Stdin: strings.NewReader(probe.Script), Timeout: probing, DieWithParent: true,
		})
	}()
	return func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Second): // a driver that cannot be killed keeps nobody waiting
		}
	}
}
