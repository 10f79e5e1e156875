package slurm

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

// listed answers a sacct of all jobs of a user with a text.
type listed struct {
	text  string
	err   error
	asked int
}

func (s *listed) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	s.asked++
	if c.Name != "sacct" || !slices.Contains(c.Args, "--user=1000") || !slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--starttime=") }) {
		return command.Result{}, errors.New("asked for " + c.Name + strings.Join(c.Args, " "))
	}
	_, _ = io.WriteString(c.Stdout, captures.Delimited(s.text, c.Args...))
	return command.Result{}, s.err
}

// Jobs of ten seconds and 100 MiB teach what the next one of that name asks for; what the
// task, or another attempt, says itself stands, and nothing goes beyond what is configured.
func TestLearned(t *testing.T) {
	const end = "2026-11-22T01:47:02"
	runs := ""
	for _, id := range []string{"1", "2", "3"} {
		runs += consumed(id, "ponos-train-"+id, "COMPLETED", "01:00:00", end, "100")
		runs += consumed("1"+id, "ponos-cut", "TIMEOUT", "01:00:00", end, "100")
		runs += consumed("2"+id, "train-"+id, "COMPLETED", "01:00:00", end, "3000") // not of a task
	}
	base := opts("time=60", "mem=1G")
	find := func(_ context.Context, request string, l usage.Learned, _ Job) (sbatch.Options, error) {
		return opts("partition="+request, "time="+slurm.FormatDuration(l.Time)), nil
	}
	for _, tt := range []struct {
		what   string
		config config.Slurm
		needs  runner.Needs
		name   string
		err    error
		want   string
	}{
		{"all", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{}, "train-9", nil, "--time=0:05:00 --mem=200M"},
		{"not wanted", config.Slurm{Base: base}, runner.Needs{}, "train-9", nil, "--time=60 --mem=1G"},
		{"of another name", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{}, "test-9", nil, "--time=60 --mem=1G"},
		{"without a name", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{}, "", nil, "--time=60 --mem=1G"},
		{"less is configured", config.Slurm{Base: opts("time=3", "mem=150M"), Learn: "5%"}, runner.Needs{}, "train-9", nil, "--time=3 --mem=150M"},
		{"nothing is configured", config.Slurm{Learn: "5%", Limits: config.Limits{Time: config.Duration(3 * time.Minute)}}, runner.Needs{}, "train-9", nil, "--time=0:03:00 --mem=200M"},
		{"memory by CPU", config.Slurm{Base: opts("mem-per-cpu=1G"), Learn: "5%"}, runner.Needs{}, "train-9", nil, "--time=0:05:00 --mem=200M"},
		{
			"less is configured by CPU", config.Slurm{Base: opts("mem-per-cpu=50M", "cpus-per-task=2"), Learn: "5%"}, runner.Needs{}, "train-9", nil,
			"--mem-per-cpu=50M --cpus-per-task=2 --time=0:05:00",
		},
		{"runs that were cut", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{}, "cut", nil, "--time=60 --mem=200M"},
		{"the task's own", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{Request: task.Request{Sbatch: []string{"time=2h"}}}, "train-9", nil, "--mem=200M --time=2:00:00"},
		{"another attempt", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{Changed: []string{"time=0:10:00"}}, "train-9", nil, "--mem=200M --time=0:10:00"},
		{"a request", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{Request: task.Request{Find: "p"}}, "train-9", nil, "--partition=p --time=0:05:00"},
		{"no accounting", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{}, "train-9", errors.New("no answer"), "--time=60 --mem=1G"},
		{"packed tasks", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{}, "short-9", nil, "--time=0:15:00 --mem=400M"},
		{"packed tasks and no accounting", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{}, "short-9", errors.New("no answer"), "--time=0:15:00 --mem=400M"},
		{"packed tasks that were cut", config.Slurm{Base: base, Learn: "5%"}, runner.Needs{}, "long", nil, "--time=60 --mem=1G"},
	} {
		sacct := &listed{text: runs, err: tt.err}
		o := &options{client: &slurm.Client{Run: sacct}, config: tt.config, find: find, now: time.Now, uid: 1000, partitionsRead: true}
		o.packed = func(time.Time) ([]usage.Run, error) {
			return []usage.Run{
				{Name: "ponos-short-1", State: "COMPLETED", Start: 1, End: 421, Elapsed: 7 * time.Minute, Nodes: 1, Tasks: 1, CPUs: 1, PeakMB: 200, CPUSeconds: usage.Unknown, GPUPart: usage.Unknown},
				{Name: "ponos-short-2", State: "COMPLETED", Start: 1, End: 61, Elapsed: time.Minute, Nodes: 1, Tasks: 1, CPUs: 1, PeakMB: 100, CPUSeconds: usage.Unknown, GPUPart: usage.Unknown},
				{Name: "ponos-long", State: "TIMEOUT", Start: 1, End: 61, Elapsed: time.Minute, Nodes: 1, Tasks: 1, CPUs: 1, PeakMB: usage.Unknown, CPUSeconds: usage.Unknown, GPUPart: usage.Unknown},
			}, nil
		}
		for range 2 {
			if got, err := o.forTask(t.Context(), tt.needs, tt.name); err != nil || got.String() != tt.want {
				t.Errorf("%s: %q, %v; want %s", tt.what, got, err, tt.want)
			}
		}
		if sacct.asked > 1 || (tt.config.Learn == "" || tt.name == "") != (sacct.asked == 0) {
			t.Errorf("%s: asked %d times", tt.what, sacct.asked)
		}
	}
}
