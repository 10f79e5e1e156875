package slurm

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/command"
)

// says stands in for a program that writes to its standard error, and then waits or fails.
type says struct {
	words string
	waits bool
}

func (s says) Run(ctx context.Context, cmd command.Cmd) (command.Result, error) {
	if _, err := fmt.Fprint(cmd.Stderr, s.words); err != nil {
		return command.Result{}, err
	}
	if s.waits {
		<-ctx.Done()
		return command.Result{}, context.Cause(ctx)
	}
	return command.Result{}, &command.ExitError{Name: "sbatch", Code: 1}
}

// An sbatch that waits for room at MaxJobCount is not waited for; what it says is kept in all cases.
func TestSubmitDoesNotWaitForRoom(t *testing.T) {
	full := "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
	refused := "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
	for _, tt := range []struct {
		says
		atLimit, refused bool
		text             string
	}{
		{says{full, true}, true, false, "sbatch: Slurm temporarily unable to accept job, sleeping and retrying"},
		{says{"a site's greeting\n" + full, true}, true, false, "sbatch: a site's greeting; Slurm temporarily unable to accept job, sleeping and retrying"},
		{says{refused, false}, false, true, "sbatch: Batch job submission failed: Invalid partition name specified"},
	} {
		_, err := (&Client{Run: tt.says}).Submit(t.Context(), Batch{Script: "/job"})
		if AtLimit(err) != tt.atLimit || RefusedJob(err) != tt.refused || err.Error() != tt.text {
			t.Errorf("%q: %v", tt.words, err)
		}
		if QueueFull(err.Error()) != tt.atLimit {
			t.Errorf("%q: is the queue full?", err)
		}
	}
	// The caller's own end is no answer.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Client{Run: says{"sbatch: nothing\n", true}}).Submit(ctx, Batch{Script: "/job"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
