package slurm

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/fault"
)

// Batch is a batch job to submit.
type Batch struct {
	Options []string // arguments of sbatch, such as --time=10
	Script  string   // path
	Args    []string // of the script
	Env     []string // environment of sbatch and, unless --export says otherwise, of the job
	// Hold stays open in sbatch, so that a lock on it lasts until sbatch has ended
	// even if this process is killed meanwhile.
	Hold *os.File
}

// Argv are the arguments of sbatch.
func (b Batch) Argv() []string {
	argv := append([]string{"--parsable"}, b.Options...)
	return append(append(argv, b.Script), b.Args...)
}

// Submit submits a batch job and returns its id. It is refused by an Error.
func (c *Client) Submit(ctx context.Context, b Batch) (id string, err error) {
	cmd := command.Cmd{Name: "sbatch", Args: b.Argv(), Env: b.Env, DieWithParent: true}
	if b.Hold != nil {
		cmd.ExtraFiles = []*os.File{b.Hold}
	}
	out, err := c.Command(ctx, cmd)
	if err != nil {
		return "", err
	}
	return parseSubmitted(out)
}

// parseSubmitted reads what sbatch --parsable prints: the id, and perhaps the
// cluster. A site's own sbatch may say more before.
func parseSubmitted(out []byte) (string, error) {
	text := strings.TrimSpace(string(out))
	id, _, _ := strings.Cut(text[strings.LastIndexByte(text, '\n')+1:], ";")
	if id == "" || strings.Trim(id, "0123456789") != "" {
		return "", fault.Wrap(fault.Unavailable, fmt.Errorf("sbatch: it printed %.60q, not a job id", out))
	}
	return id, nil
}
