package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/fault"
)

// Client runs Slurm's commands.
type Client struct {
	Run command.Runner // nil: command.System
	// Timeout bounds each command; 0: DefaultTimeout.
	Timeout time.Duration
	// Env is the environment of this process, before what changes the commands'
	// output is taken away; nil: os.Environ().
	Env []string
}

// DefaultTimeout bounds a command of Slurm. The commands themselves give up on a
// controller that does not answer after MessageTimeout, 10 to 100 seconds.
const DefaultTimeout = 2 * time.Minute

// changesOutput reports whether an environment variable changes what a command
// of Slurm asks for or prints.
func changesOutput(name string) bool {
	for _, prefix := range []string{"SQUEUE_", "SINFO_", "SACCT_", "SBATCH_", "SALLOC_", "SRUN_", "SCANCEL_", "SPRIO_", "SSHARE_", "SREPORT_", "SSTAT_", "SCONTROL_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN", "SLURM_EXIT_ERROR", "SLURM_CLUSTERS", "SLURM_DEBUG",
		"SLURM_EXPORT_ENV", "LANG", "LANGUAGE", "LC_TIME", "LC_NUMERIC", "LC_MESSAGES", "LC_ALL", "LC_CTYPE":
		return true
	}
	return false
}

// environ is the environment that Slurm's commands run in.
func (c *Client) environ() []string {
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	clean := make([]string, 0, len(env)+1)
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); !changesOutput(name) {
			clean = append(clean, v)
		}
	}
	return append(clean, "LC_ALL=C")
}

// Command runs a command of Slurm. Env of cmd, if any, is used as it is.
func (c *Client) Command(ctx context.Context, cmd command.Cmd) ([]byte, error) {
	if cmd.Env == nil {
		cmd.Env = c.environ()
	}
	if cmd.Timeout == 0 {
		if cmd.Timeout = c.Timeout; cmd.Timeout == 0 {
			cmd.Timeout = DefaultTimeout
		}
	}
	run := c.Run
	if run == nil {
		run = command.System
	}
	result, err := run.Run(ctx, cmd)
	if err == nil {
		return result.Stdout, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	var exit *command.ExitError
	if errors.As(err, &exit) {
		err = &Error{Command: cmd.Name, Exit: exit}
		switch {
		case NoDatabase(err):
			err = fault.Hint(err, "Slurm's database (slurmdbd) does not answer; the controller may do without it for a while")
		case Unreachable(err):
			err = fault.Hint(err, `ask Slurm's controller with "scontrol ping"`)
		}
	}
	return result.Stdout, fault.Wrap(fault.Unavailable, err)
}

// Output runs a command of Slurm and returns what it printed.
func (c *Client) Output(ctx context.Context, timeout time.Duration, name string, args ...string) ([]byte, error) {
	return c.Command(ctx, command.Cmd{Name: name, Args: args, Timeout: timeout})
}

// Error reports that a command of Slurm ran and failed, in Slurm's own words.
type Error struct {
	Command string
	Exit    *command.ExitError
}

func (e *Error) Error() string {
	words := e.Words()
	if words == "" {
		return e.Exit.Error()
	}
	return e.Command + ": " + words
}

func (e *Error) Unwrap() error { return e.Exit }

// Words is what Slurm said, without the names and prefixes in front of it, in
// one line.
func (e *Error) Words() string {
	var words []string
	for line := range strings.SplitSeq(e.Exit.Stderr, "\n") {
		line = strings.TrimSpace(line)
		line = strings.TrimPrefix(line, e.Command+": ")
		line = strings.TrimPrefix(line, "error: ")
		if line != "" {
			words = append(words, line)
		}
	}
	return strings.Join(words, "; ")
}

// Unreachable reports whether err says that Slurm's daemons did not answer, as
// opposed to having refused. It goes by the words of Slurm's commands, which have
// no exit codes for it, in all versions from 20.11 on.
func Unreachable(err error) bool {
	var late *command.TimeoutError
	var missing *command.NotFoundError
	if errors.As(err, &late) || errors.As(err, &missing) {
		return true
	}
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, words := range []string{
		"Unable to contact slurm controller", "Unable to establish control", "Connection refused", "Connection timed out",
		"Socket timed out", "Zero Bytes were transmitted", "Transport endpoint", "connect failure",
		"Resource temporarily unavailable", "slurm_persist_conn_open", "Could not establish a configuration source",
		"Problem talking to the database", "Unable to connect to database", "Slurm backup controller in standby mode",
		"Slurmctld is in the process of starting", "Protocol authentication error", "DNS SRV lookup failed", "fatal: Could not establish",
		"Communication connection failure", "Communication shutdown failure", "Message send failure", "Message receive failure",
		"Invalid authentication credential", "Authentication credential invalid", "Error generating job credential", "is in standby mode",
		"I/O error writing script/environment to file", // the controller's disk is full
	} {
		if strings.Contains(e.Exit.Stderr, words) {
			return true
		}
	}
	return false
}

// NoDatabase reports whether err says that slurmdbd did not answer.
func NoDatabase(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, words := range []string{"slurm_persist_conn_open", "Problem talking to the database", "Unable to connect to database"} {
		if strings.Contains(e.Exit.Stderr, words) {
			return true
		}
	}
	return false
}

// parseError reports output that does not have the expected shape.
func parseError(command string, line int, format string, args ...any) error {
	return fault.Errorf(fault.Unavailable, "%s: line %d of its output: %w", command, line, fmt.Errorf(format, args...))
}
