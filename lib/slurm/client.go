package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
)

// Client runs Slurm's commands.
type Client struct {
	Run command.Runner // nil: command.System
	Dir string         // of Slurm's commands; "": search PATH
	// Cluster is another cluster than that of the host, which Slurm's commands know by name; "": the host's.
	Cluster string
	// Soon has each command end after [Soon], not after [Patience].
	Soon bool
	// Env is the environment for the commands, from which environ removes the variables that
	// change their output; nil: os.Environ().
	Env []string
	// Odd is called, perhaps from several goroutines, for each record of a listing that cannot be read or
	// believed; the listing goes on without it. nil: such a record fails the listing.
	Odd func(error)
}

// Without returns a client whose listings go on without a record that cannot be read or believed, and call odd for each: for what
// is asked of the cluster, and not for what has to be whole, such as a list of one's own jobs.
func (c *Client) Without(odd func(error)) *Client {
	other := *c
	other.Odd = odd
	return &other
}

// ListLength is how many characters squeue and sacct print of a list of pending array elements
// before they shorten it.
const ListLength = 256

// changesOutput reports whether an environment variable changes what Slurm's commands select or
// print.
func changesOutput(name string) bool {
	for _, prefix := range []string{
		"SQUEUE_", "SINFO_", "SACCT_", "SBATCH_", "SALLOC_", "SRUN_", "SCANCEL_", "SPRIO_", "SSHARE_", "SREPORT_",
		"SSTAT_", "SCONTROL_",
	} {
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

// environ returns the environment for Slurm's commands.
func (c *Client) environ() []string {
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	clean := make([]string, 0, len(env)+2)
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); !changesOutput(name) {
			clean = append(clean, v)
		}
	}
	if c.Cluster != "" {
		clean = append(clean, "SLURM_CLUSTERS="+c.Cluster)
	}
	// SLURM_BITSTR_LEN limits the list in an id such as 12_[0,2,4-7]. The default is 64
	// characters, and without the variable squeue truncates the id after 31.
	return append(clean, "LC_ALL=C", "SLURM_BITSTR_LEN="+strconv.Itoa(ListLength))
}

// Command runs a command of Slurm within its limit and returns its standard output. If cmd.Env is set, it is
// used unchanged; cmd.Timeout is not used. A failure is an *Error of kind fault.Unavailable, or ErrNoAccounting; an
// empty result is not an error.
func (c *Client) Command(ctx context.Context, cmd command.Cmd) ([]byte, error) {
	name := cmd.Name
	if c.Dir != "" {
		cmd.Name = path.Join(c.Dir, name)
	}
	if cmd.Env == nil {
		cmd.Env = c.environ()
	}
	limit := Patience()
	if c.Soon || name == "sacctmgr" { // callers can continue without the associations
		limit = min(limit, soon)
	}
	cmd.Timeout, cmd.DieWithParent = limit, true
	run := c.Run
	if run == nil {
		run = command.System
	}
	answered := progress.Wait(ctx, "Slurm: "+name)
	result, err := run.Run(ctx, cmd)
	answered()
	if err == nil {
		return result.Stdout, nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, err
	}
	err = newError(name, err)
	note(ctx, err)
	return result.Stdout, err
}

// Output runs a command of Slurm and returns its standard output.
func (c *Client) Output(ctx context.Context, name string, args ...string) ([]byte, error) {
	return c.Command(ctx, command.Cmd{Name: name, Args: args})
}

// Stream runs a command of Slurm and passes its output to read as it arrives. Use the results
// of read only if Stream returns nil: the command may fail after its last line.
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
		stop() // nothing reads the rest of the output
	}
	err = <-failed
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil && !errors.Is(err, context.Canceled):
		return err // the cause of an error of read, if the output was cut short
	case readErr != nil && fault.KindOf(readErr) == fault.Failed:
		return fault.Wrap(fault.Unavailable, readErr)
	}
	return readErr
}

// stream is Stream for a parser that returns a whole listing.
func stream[T any](ctx context.Context, c *Client, parse func(io.Reader) (T, error), name string, args ...string) (T, error) {
	var listing, nothing T
	err := c.Stream(ctx, func(r io.Reader) (err error) {
		listing, err = parse(r)
		return err
	}, name, args...)
	if err != nil {
		return nothing, err
	}
	return listing, nil
}

// Ping reports whether a controller answers.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.Output(ctx, "scontrol", "ping")
	return err
}

// Version returns the version of a command of Slurm, such as 22.05.8.
func (c *Client) Version(ctx context.Context, name string) (string, error) {
	out, err := c.Output(ctx, name, "--version")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(out))
	if len(fields) < 2 {
		return "", parseError(name, 1, "invalid version %q", strings.TrimSpace(string(out)))
	}
	return fields[1], nil
}

// year is after what time Slurm ends a job without a time limit.
const year = 365 * 24 * time.Hour

// JobEnd returns when a job is to end, and whether it is suspended. The time is zero if Slurm knows none.
// A job without a time limit ends a year after its start, for Slurm as well: squeue prints NONE for that.
func (c *Client) JobEnd(ctx context.Context, id string) (end time.Time, suspended bool, err error) {
	// A local time is ambiguous for an hour of the year, and Go does not know all time zones of squeue.
	rows, err := c.cells(ctx, "eTS", append(c.environ(), "SLURM_TIME_FORMAT=%s"), "--local", "--jobs="+id)
	if err != nil || len(rows) == 0 {
		return end, false, err
	}
	fields := rows[0]
	seconds := func(text string) int64 {
		t, ok := parseNumber(text)
		if !ok {
			t, _ = ParseTime(text) // 0 if it is not known
		}
		return t
	}
	end = Time(seconds(fields[0]))
	if start := seconds(fields[2]); fields[0] == "NONE" && start > 0 {
		end = Time(start).Add(year)
	}
	return end, fields[1] == "SUSPENDED", nil
}
