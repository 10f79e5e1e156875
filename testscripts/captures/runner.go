package captures

import (
	"bytes"
	"context"

	"github.com/ponos-tools/ponos/lib/base/command"
)

// A Runner is the file of a capture, which answers each command.
type Runner string

// Run prints the capture as the command would.
func (file Runner) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	if c.Stdout != nil {
		return command.Result{}, Replay(c.Stdout, string(file), c.Name, c.Args...)
	}
	var out bytes.Buffer
	err := Replay(&out, string(file), c.Name, c.Args...)
	return command.Result{Stdout: out.Bytes()}, err
}
