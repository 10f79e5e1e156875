package lfind

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/command"
)

// told is a runner that counts what it is asked, and answers with the words.
type told []string

func (a *told) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	line := strings.Join(append([]string{c.Name}, c.Args...), " ")
	*a = append(*a, line)
	if c.Stdout != nil {
		_, err := c.Stdout.Write([]byte(line))
		return command.Result{}, err
	}
	return command.Result{Stdout: []byte(line)}, nil
}

// The same listing is asked for once, however its output is read; jobs and submissions each time.
func TestOnce(t *testing.T) {
	var asked told
	o := newOnce(&asked)
	for _, line := range []string{"scontrol show config", "ssh far env sacctmgr show qos", "scontrol show job", "squeue", "sbatch --test-only"} {
		words := strings.Fields(line)
		for _, streamed := range []bool{true, false, true} {
			var out bytes.Buffer
			c := command.Cmd{Name: words[0], Args: words[1:]}
			if streamed {
				c.Stdout = &out
			}
			r, err := o.Run(context.Background(), c)
			if got := out.String() + string(r.Stdout); err != nil || got != line {
				t.Errorf("%s: %q, %v", line, got, err)
			}
		}
	}
	want := "scontrol show config|ssh far env sacctmgr show qos|" + strings.Repeat("scontrol show job|", 3) + strings.Repeat("squeue|", 3) + strings.Repeat("sbatch --test-only|", 3)
	if got := strings.Join(asked, "|") + "|"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}
