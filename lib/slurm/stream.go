package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/fault"
)

// Stream runs a command of Slurm and has its output read while it is printed.
// What read has got is good only if Stream returns nil: the command may still fail
// after its last line.
func (c *Client) Stream(ctx context.Context, read func(io.Reader) error, name string, args ...string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	widen(w)
	running, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	go func() {
		_, err := c.Command(running, command.Cmd{Name: name, Args: args, Stdout: w})
		w.Close()
		failed <- err
	}()
	readErr := read(r)
	if readErr != nil {
		stop() // nobody reads what it still has to say
	}
	err = <-failed
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil && !errors.Is(err, context.Canceled):
		return err // the reason why the output is cut short, if it is
	case readErr != nil && fault.KindOf(readErr) == fault.Failed:
		return fault.Wrap(fault.Unavailable, readErr)
	}
	return readErr
}
