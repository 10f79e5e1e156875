package launcher

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// judge is a Slurm whose sbatch refuses what a site does not want, with words, and takes the rest.
type judge struct {
	refuses func(args string) (words string)
	asked   int
}

func (j *judge) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	j.asked++
	words := j.refuses(strings.Join(c.Args, " "))
	if words == "" {
		_, err := io.WriteString(c.Stderr, "sbatch: Job 5 to start at 2126-11-20T18:00:00 using 1 processors on nodes a in partition p\n")
		return command.Result{}, err
	}
	if _, err := io.WriteString(c.Stderr, words+"\n"); err != nil {
		return command.Result{}, err
	}
	return command.Result{}, &command.ExitError{Name: c.Name, Code: 1}
}

// TestTaken checks which form of which candidate is used if Slurm refuses the first.
func TestTaken(t *testing.T) {
	lacks := func(all ...string) func(string) string {
		return func(args string) string {
			for _, word := range all {
				if !strings.Contains(args, word) {
					return "sbatch: error: this site wants " + word + "\nallocation failure: Unspecified error"
				}
			}
			return ""
		}
	}
	without := func(words, said string) func(string) string {
		return func(args string) string {
			if strings.Contains(args, words) {
				return "allocation failure: " + said
			}
			return ""
		}
	}
	const (
		none = "--nodes=1 --partition=p,q --gpus-per-node=2"
		all  = "--nodes=1 --account=lab --partition=p,q --ntasks-per-node=1 --gpus-per-node=a100:2"
	)
	for _, c := range []struct {
		name    string
		refuses func(string) string
		given   sbatch.Options
		want    string
		asked   int
	}{
		{"nothing is refused", lacks(), nil, none, 1},
		{"the type of the GPUs", lacks("a100:"), nil, "--nodes=1 --partition=p,q --gpus-per-node=a100:2", 2},
		{"the number of tasks", lacks("--ntasks"), nil, "--nodes=1 --partition=p,q --ntasks-per-node=1 --gpus-per-node=2", 3},
		{"the account", lacks("--account"), nil, "--nodes=1 --account=lab --partition=p,q --gpus-per-node=2", 4},
		{"all of them", lacks("a100:", "--ntasks", "--account"), nil, all, 5},
		{"an account that is given stays", lacks("a100:", "--account=own"), sbatch.Options{{Name: "account", Value: "own"}},
			"--nodes=1 --partition=p,q --gpus-per-node=a100:2", 2},
		{"a partition by Slurm itself", without("=p", "Requested partition configuration not available now"), nil,
			"--nodes=1 --partition=q --gpus-per-node=2", 3},
		{"everything", without("--", "nothing today"), nil, none, 15},
		{"no room at this time", without("--", "Job violates accounting/QOS policy (QOSMaxSubmitJobPerUserLimit)"), nil, none, 1},
		{"a form about which the controller does not answer", func(args string) string {
			if strings.Contains(args, "a100:") {
				return "Unable to contact slurm controller"
			}
			return lacks("a100:")(args)
		}, nil, none, 15},
		{"a controller that is away", without("--", "Unable to contact slurm controller"), nil, none, 1},
	} {
		l := Direct(gpu.Builtin())
		s := &Search{Launchers: []*Launcher{l}, Ask: saying(t,
			node("a", "p,q", "Gres=gpu:a100:4 State=IDLE"), "PartitionName=p State=UP\nPartitionName=q State=UP", "c|lab||normal|normal\n", "")}
		r := parse(t, "cuda()*2")
		answer, err := s.Find(context.Background(), r)
		if err != nil || answer == nil {
			t.Fatalf("%s: %v, %v", c.name, answer, err)
		}
		site := &judge{refuses: c.refuses}
		q := Query{World: World{Run: site}, Job: func(found sbatch.Options) sbatch.Options { return found.With(c.given...) }}
		got, err := q.taken(context.Background(), s, r, answer)
		if err != nil || got.String() != c.want || site.asked != c.asked {
			t.Errorf("%s: got %s, %v, asked %d times; want %s, asked %d times", c.name, got, err, site.asked, c.want, c.asked)
		}
	}
}
