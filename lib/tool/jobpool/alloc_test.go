package jobpool

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/control"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
)

func TestSbatchArgs(t *testing.T) {
	for text, want := range map[string][]string{
		"--partition=gpu":                         {"--partition=gpu"},
		"--partition=cpu,gpu  --time=2:00:00 ":    {"--partition=cpu,gpu", "--time=2:00:00"},
		"-p cpu -t 5 -n1 --requeue":               {"-p", "cpu", "-t", "5", "-n1", "--requeue"},
		"--time 5 --exclusive":                    {"--time=5", "--exclusive"},
		"--exclusive user -p\tcpu --nice -5":      {"--exclusive=user", "-p", "cpu", "--nice=-5"},
		"--comment=two words --nice=-5":           {"--comment=two words", "--nice=-5"},
		"--begin=now+1hour\n--constraint=[a|b]*2": {"--begin=now+1hour", "--constraint=[a|b]*2"},
		"":  nil,
		" ": nil,
	} {
		if got, err := sbatchArgs([]string{text}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"cpu", "partition=cpu --time=5", "-", "--", "-- --time=5", "-H cpu", "-n1 cpu", "-sQ cpu"} {
		if got, err := sbatchArgs([]string{text}); !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "is not an option of sbatch") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestSbatchArgsWithoutArray(t *testing.T) {
	for _, text := range []string{"--array=1-3", "-a 1-3", "-p cpu -a1-3"} {
		if got, err := sbatchArgs([]string{text}); !fault.Is(err, fault.Usage) || fault.HintOf(err) != "--max-jobs sets how many there are" {
			t.Errorf("%q: %q, %v", text, got, err)
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
