package jobpool

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/control"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
)

func TestSbatchOptions(t *testing.T) {
	for text, want := range map[string]string{
		"--partition=gpu":                         "--partition=gpu",
		"--partition=cpu,gpu  --time=2:00:00 ":    "--partition=cpu,gpu --time=2:00:00",
		"-p cpu -t 5 -n1 --requeue":               "--partition=cpu --time=5 --ntasks=1 --requeue",
		"--time 5 --exclusive":                    "--time=5 --exclusive",
		"--exclusive=user -p\tcpu --nice=-5":      "--exclusive=user --partition=cpu --nice=-5",
		"--mcs-label='two words' --nice=-5":       "--mcs-label=two words --nice=-5",
		"-t 2h --time-min=90min":                  "--time=2:00:00 --time-min=1:30:00",
		"--exclusive=yes --requeue=no":            "--exclusive --no-requeue",
		"--My_Plugin=no":                          "--My_Plugin=no",
		"--begin=now+1hour\n--constraint=[a|b]*2": "--begin=now+1hour --constraint=[a|b]*2",
		"": "", " ": "",
	} {
		if got, err := sbatchOptions([]string{text}); err != nil || got.String() != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	several, err := sbatchOptions([]string{"--gpus=4 -t 5", "--gres=gpu:2", "-t 6"})
	if err != nil || several.String() != "--gpus=4 --gres=gpu:2 --time=6" {
		t.Errorf("several texts: %s, %v", several, err)
	}
	for text, want := range map[string][2]string{
		"cpu": {`"cpu" is not an option of sbatch`, "write it as"}, "partition=cpu --time=5": {"is not an option", "write it as"}, "-": {"is not an option", ""},
		"-H cpu": {`"cpu" is not an option`, ""}, "-n1 cpu": {`"cpu" is not an option`, ""}, "-sQ cpu": {`"cpu" is not an option`, ""},
		"-N1 : -N2": {"", ""}, "--array=1-3": {"--array is not allowed for the jobs of a pool", "--max-jobs sets how many there are"},
		"-p cpu -a1-3": {"--array is not allowed", "--max-jobs"}, "--wrap=true": {"--wrap is not allowed", ""}, "--job-name=x": {"--job-name is not allowed", ""},
		"--mem=1.5G": {"expected megabytes", ""}, "--mem=1G --mem-per-cpu=1G": {"cannot be combined", ""}, "--comment='a": {"unmatched", ""}, "--mem": {"lacks a value", ""},
		"--requeue=no --no-requeue --mem=1G --mem-per-gpu=1G": {"cannot be combined", ""}, "-t 2x": {"a duration such as 2h", ""},
		"--memory=8G": {`did you mean "mem"?`, ""}, "--cpus=8": {"did you mean --cpus-per-task?", ""},
	} {
		got, err := sbatchOptions([]string{text})
		if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), want[0]) || !strings.Contains(fault.HintOf(err), want[1]) {
			t.Errorf("%q: %q, %v, hint %q", text, got, err, fault.HintOf(err))
		}
	}
}

// The schedulers of a pool are told what the call was told, however that was written, and take it as it is.
func TestSchedulersAreToldTheSame(t *testing.T) {
	for line, want := range map[string]string{
		"--alloc cpu() -j2 true":                                       "run --jobs=2 -- true",
		"--alloc=cpu() --jobs 2 --resume --run=x -k true --run y":      "run --jobs=2 --keep-order=true -- true --run y",
		"run --max-jobs=2 --linger 5m -a in -a - --env A,B echo {}":    "run --arg-file=in --arg-file=- --env=A,B -- echo {}",
		"--alloc-sbatch=-pcpu -I ,, run -E run run --alloc x ::: -a b": "run --eof=run --replace=,, -- run --alloc x ::: -a b",
		"-X -k=false --alloc=a -- --resume {} ::: --alloc":             "run --X=true --keep-order=false -- --resume {} ::: --alloc",
		"--alloc a --retries=3 --header : --colsep=, cmd --retries 9":  "run --colsep=, --header=: --retries=3 -- cmd --retries 9",
	} {
		var got []string
		for range 2 { // what they are told says the same again
			tool := tool()
			tool.StopAtArg = true
			tool.Action = func(c *cli.Context) error { got = passOn(c, false); return nil }
			tool.Commands[0].Action = tool.Action
			var errs strings.Builder
			words := append([]string{"jobpool"}, strings.Fields(line)...)
			if code := tool.Run(t.Context(), words, nil, io.Discard, &errs); code != 0 || strings.Join(got, " ") != want {
				t.Errorf("%s: %q, want %q; status %d: %s", line, got, want, code, &errs)
			}
			line = want
		}
	}
}

// broken is the connection to a step of srun that has failed.
type broken struct{ error }

func (b broken) Read([]byte) (int, error)  { return 0, b.error }
func (broken) Write(b []byte) (int, error) { return len(b), nil }
func (broken) CloseWrite() error           { return nil }
func (broken) Close() error                { return nil }

// A run directory names the job of its scheduler also after that was killed.
func TestExchangeWithAKilledScheduler(t *testing.T) {
	// As srun of 22.05.8 prints it.
	expired := errors.New("srun: error: Slurm job 3 has expired; srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 3")
	for _, c := range []struct {
		err  error
		hint string
	}{{expired, noScheduler}, {errors.New("srun: error: Unable to contact slurm controller (connect failure)"), ""}} {
		_, err := exchange(control.NewClient(broken{c.err}), &scheduler.Request{Op: "status"})
		if err == nil || !strings.Contains(err.Error(), c.err.Error()) || fault.HintOf(err) != c.hint {
			t.Errorf("%v, hint %q", err, fault.HintOf(err))
		}
	}
}
