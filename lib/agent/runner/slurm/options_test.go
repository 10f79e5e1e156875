package slurm

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

func opts(args ...string) sbatch.Options {
	var out sbatch.Options
	for _, a := range args {
		o, _ := sbatch.Parse(a)
		out = append(out, o)
	}
	return out
}

// What a task needs takes the place of what is configured, also where that says the same in
// other words.
func TestNeedsOfATask(t *testing.T) {
	asked := 0
	o := &options{
		config: config.Slurm{Base: opts("time=5", "account=a", "no-requeue"), CPU: opts("partition=cpu", "mem-per-cpu=1G"), GPU: opts("partition=gpu", "gres=gpu:1,shard:2,disk:4", "constraint=x")},
		find: func(_ context.Context, request string, _ usage.Learned, _ Job) (sbatch.Options, error) {
			asked++
			switch request {
			case "none":
				return nil, fault.Errorf(fault.Failed, "nothing matches")
			case "away":
				return nil, fault.Errorf(fault.Unavailable, "no answer")
			}
			return opts("partition=big", "gpus-per-node=2", "time=1:00:00"), nil
		},
		now: time.Now, partitionsRead: true, partitions: []slurm.Partition{{Name: "cpu", Default: true}},
	}
	for _, tt := range []struct {
		needs  runner.Needs
		limits config.Limits
		want   string
		kind   fault.Kind
	}{
		{runner.Needs{}, config.Limits{}, "--time=5 --account=a --no-requeue --partition=cpu --mem-per-cpu=1G", 0},
		{runner.Needs{Request: task.Request{Sbatch: []string{"mem=8G", "time=2h"}}}, config.Limits{}, "--account=a --no-requeue --partition=cpu --mem=8G --time=2:00:00", 0},
		{runner.Needs{Request: task.Request{Sbatch: []string{"requeue", "time=90"}}}, config.Limits{}, "--account=a --partition=cpu --mem-per-cpu=1G --requeue --time=90", 0},
		{runner.Needs{GPU: true, Request: task.Request{Sbatch: []string{"gpus=3"}}}, config.Limits{}, "--time=5 --account=a --no-requeue --partition=gpu --gres=disk:4 --constraint=x --gpus=3", 0},
		{runner.Needs{GPU: true, Request: task.Request{Sbatch: []string{"gpus=4", "gres=gpu:2"}}}, config.Limits{}, "--time=5 --account=a --no-requeue --partition=gpu --constraint=x --gpus=4 --gres=gpu:2", 0},
		{runner.Needs{GPU: true, Request: task.Request{Sbatch: []string{"gres=shard:1"}}}, config.Limits{}, "--time=5 --account=a --no-requeue --partition=gpu --constraint=x --gres=shard:1", 0},
		{runner.Needs{GPU: true, Request: task.Request{Find: "f"}}, config.Limits{}, "--account=a --no-requeue --gres=disk:4 --partition=big --gpus-per-node=2 --time=1:00:00", 0},
		{runner.Needs{Request: task.Request{Find: "f", Sbatch: []string{"time=10"}}, Changed: []string{"mem=2G", "time=0:20:00"}}, config.Limits{},
			"--account=a --no-requeue --partition=big --gpus-per-node=2 --mem=2G --time=0:20:00", 0},
		{runner.Needs{Request: task.Request{Find: "none"}}, config.Limits{}, "the request: nothing matches", fault.Failed},
		{runner.Needs{Request: task.Request{Find: "away"}}, config.Limits{}, "no answer", fault.Unavailable},
		{runner.Needs{Request: task.Request{Sbatch: []string{"wrap=x"}}}, config.Limits{}, "not allowed for a task", fault.Usage},
		{runner.Needs{Request: task.Request{Sbatch: []string{"time=3:00:00"}}}, config.Limits{Time: config.Duration(2 * time.Hour)}, "a time limit of 3:00:00; 2:00:00 at most", fault.Usage},
		{runner.Needs{Request: task.Request{Sbatch: []string{"time=0"}}}, config.Limits{Time: config.Duration(2 * time.Hour)}, "a time limit of 0", fault.Usage},
		{runner.Needs{Request: task.Request{Sbatch: []string{"time=UNLIMITED"}}}, config.Limits{Time: config.Duration(2 * time.Hour)}, "a time limit of UNLIMITED", fault.Usage},
		{runner.Needs{Request: task.Request{Sbatch: []string{"account=b"}}}, config.Limits{Accounts: config.Names{"a", "c"}}, "account b; allowed are a, c", fault.Usage},
		{runner.Needs{Request: task.Request{Sbatch: []string{"partition=cpu,gpu"}}}, config.Limits{Partitions: config.Names{"cpu"}}, "partition gpu; allowed are cpu", fault.Usage},
		{runner.Needs{GPU: true, Request: task.Request{Sbatch: []string{"gpus-per-node=a100:2", "nodes=1-2"}}}, config.Limits{GPUs: 3}, "4 GPUs; 3 at most", fault.Usage},
		{runner.Needs{GPU: true, Request: task.Request{Sbatch: []string{"gpus-per-task=1", "ntasks=4"}}}, config.Limits{GPUs: 4}, "--time=5 --account=a --no-requeue --partition=gpu --gres=disk:4 --constraint=x --gpus-per-task=1 --ntasks=4", 0},
		{runner.Needs{GPU: true, Request: task.Request{Sbatch: []string{"gpus=many:x"}}}, config.Limits{GPUs: 4}, "do not say how many", fault.Usage},
	} {
		o.config.Limits = tt.limits
		got, err := o.forTask(t.Context(), tt.needs, "")
		if tt.kind != 0 {
			if err == nil || fault.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v: %q, %v; want %s", tt.needs, got, err, tt.want)
			}
			continue
		}
		if err != nil || got.String() != tt.want {
			t.Errorf("%+v: %q, %v; want %s", tt.needs, got, err, tt.want)
		}
	}
	if asked != 4 { // an answer serves for a while, and the same request beside other options is asked again
		t.Errorf("asked %d times", asked)
	}
	// Without options of its own, a job must not pass the ceilings either.
	o.config = config.Slurm{Limits: config.Limits{Time: config.Duration(time.Hour), Partitions: config.Names{"gpu"}, Accounts: config.Names{"a"}}}
	o.isMade = [2]bool{}
	if got, err := o.forTask(t.Context(), runner.Needs{}, ""); err != nil || got.String() != "--time=1:00:00 --partition=gpu --account=a" {
		t.Errorf("%q, %v", got, err)
	}
}

// A request that can never be met is a refusal, and one that cannot be decided is none.
func TestRefusedNeeds(t *testing.T) {
	for request, refused := range map[string]bool{"none": true, "bad": true, "away": false} {
		kinds := map[string]fault.Kind{"none": fault.Failed, "bad": fault.Usage, "away": fault.Unavailable}
		r := New(&slurm.Client{}, config.Slurm{}, func(context.Context, string, usage.Learned, Job) (sbatch.Options, error) {
			return nil, fault.Errorf(kinds[request], "no")
		})
		r.squeue.Look = func(context.Context) (*listing, error) { return newListing(nil), nil }
		_, err := r.Start(t.Context(), runner.Submission{Task: "t", Dir: "/d", Script: "/d/job.sh", Needs: runner.Needs{Request: task.Request{Find: request}}})
		if err == nil || errors.Is(err, runner.ErrRefused) != refused || errors.Is(err, runner.ErrUnsure) {
			t.Errorf("%s: %v", request, err)
		}
	}
}

// prints is a program that prints this.
type prints string

func (p prints) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	if c.Stdout != nil {
		_, err := io.WriteString(c.Stdout, string(p))
		return command.Result{}, err
	}
	return command.Result{Stdout: []byte(p)}, nil
}

// A record of a partition that cannot be believed costs that partition, with one warning, and no task its start.
func TestOddPartition(t *testing.T) {
	const odd, spot = "PartitionName=odd Nodes=a State=UP State=DOWN\n", "PartitionName=spot Default=YES Nodes=b PreemptMode=REQUEUE State=UP TotalCPUs=8\n"
	for text, fails := range map[string]bool{odd + spot: false, odd: true} {
		var warned []string
		o := &options{
			client: &slurm.Client{Run: prints(text)}, config: config.Slurm{Base: opts("partition=spot")}, now: time.Now,
			warn: func(text string) { warned = append(warned, text) },
		}
		for range 2 {
			got, err := o.forTask(t.Context(), runner.Needs{}, "")
			if (err != nil) != fails || !fails && strings.Join(got.Args(), " ") != "--partition=spot --requeue" {
				t.Errorf("%v, %v", got.Args(), err)
			}
		}
		if !fails && (len(warned) != 1 || !strings.Contains(warned[0], "PartitionName=odd")) {
			t.Errorf("warned of %q", warned)
		}
	}
}
