package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Batch is a batch job to submit.
type Batch struct {
	Options []string // arguments of sbatch, such as --time=10
	Script  string   // path; "" if Options has --wrap, or with Text
	Text    []byte   // the script itself, instead of a path
	Args    []string // of the script
	Env     []string // environment of sbatch and, unless --export says otherwise, of the job
	// Hold are files that sbatch inherits, so that locks on them last until sbatch has ended
	// even if this process is killed.
	Hold []*os.File
}

// Argv returns the arguments of sbatch.
func (b Batch) Argv() []string {
	argv := append([]string{"--parsable"}, b.Options...)
	if b.Script != "" {
		argv = append(argv, b.Script)
	}
	return append(argv, b.Args...)
}

// Submit submits a batch job and returns its id. If sbatch printed an id, the job was
// submitted, whatever the exit status: sbatch may have been killed afterwards. An error means
// that the job was refused (RefusedJob), or that it is unknown whether it was submitted.
func (c *Client) Submit(ctx context.Context, b Batch) (id string, err error) {
	cmd := command.Cmd{Name: "sbatch", Args: b.Argv(), Env: b.Env, ExtraFiles: b.Hold}
	if b.Text != nil {
		script, err := whole(b.Text)
		if err != nil {
			return "", fmt.Errorf("sbatch: its script: %w", err)
		}
		defer script.Close()
		cmd.Stdin = script
	}
	without := *c
	without.Run = impatient{cmp.Or(c.Run, command.System)}
	out, err := without.Command(ctx, cmd)
	id, parseErr := parseSubmitted(out)
	switch {
	case parseErr == nil && (err == nil || strings.HasSuffix(string(out), "\n")): // without the newline, the id may be truncated
		return id, nil
	case err != nil:
		return "", err
	}
	return "", parseErr
}

// queueFull are words of sbatch at MaxJobCount.
var queueFull = []string{"unable to accept job, sleeping and retrying", "queue full, sleeping and retrying"}

// QueueFull reports whether a refusal says that the controller accepts no more jobs of anybody.
func QueueFull(refusal string) bool {
	return slices.ContainsFunc(queueFull, func(words string) bool { return strings.Contains(refusal, words) })
}

// impatient ends sbatch when it says that the controller accepts no more jobs: it would try again for two minutes, the first time
// after a second. After that time, it is not known whether there is a job.
type impatient struct{ command.Runner }

const firstTry = 900 * time.Millisecond

func (r impatient) Run(ctx context.Context, cmd command.Cmd) (command.Result, error) {
	running, end := context.WithCancel(ctx)
	defer end()
	said := &complaints{end: end}
	cmd.Stderr = said
	result, err := r.Runner.Run(running, cmd)
	said.Lock()
	defer said.Unlock()
	var exit *command.ExitError
	switch full := !said.full.IsZero(); {
	case full && ctx.Err() == nil && errors.Is(err, context.Canceled) && clock.Since(said.full) < firstTry:
		err = &command.ExitError{Name: cmd.Name, Code: 1, Stderr: said.text.String()}
	case full && ctx.Err() == nil && errors.Is(err, context.Canceled):
		err = &command.TimeoutError{Name: cmd.Name, Timeout: firstTry}
	case errors.As(err, &exit) && exit.Stderr == "":
		exit.Stderr = said.text.String()
	}
	return result, err
}

// complaints are what sbatch has written to its standard error.
type complaints struct {
	sync.Mutex
	text strings.Builder
	full time.Time // when it said that the queue is full
	end  func()
}

// maxComplaints limits what is kept of them.
const maxComplaints = 64 << 10

func (s *complaints) Write(p []byte) (int, error) {
	s.Lock()
	defer s.Unlock()
	s.text.Write(p[:min(len(p), maxComplaints-s.text.Len())])
	if s.full.IsZero() && QueueFull(s.text.String()) {
		s.full = clock.Now()
		s.end()
	}
	return len(p), nil
}

// whole returns a file without a name that contains text. A pipe is not safe: if this process
// were killed while writing, sbatch would submit the first part of the script.
func whole(text []byte) (*os.File, error) {
	f, err := unnamed()
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(text); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// TestOnly asks the controller whether it would accept a job, without submitting it. An error
// may be a refusal.
func (c *Client) TestOnly(ctx context.Context, b Batch) error {
	args := append([]string{"--test-only"}, b.Argv()...)
	_, err := c.Command(ctx, command.Cmd{Name: "sbatch", Args: args, Env: b.Env})
	return err
}

// refusals are messages about a job that Slurm will not accept as it is: of the controller, in
// all versions from 20.11, and of sbatch about its options.
var refusals = []string{
	"Invalid partition name specified", "Invalid account or account/partition combination",
	"Invalid qos specification", "Invalid qos for job",
	"Node count specification invalid", "More processors requested than permitted",
	"Requested time limit is invalid", "Time limit specification required", "PerJobLimit", "PerNodeLimit", "QOSMin",
	"User's group not permitted to use this partition", "Access/permission denied", "Access denied to requested reservation",
	"Requested reservation is invalid",
	"Invalid feature specification", "Invalid cluster feature specification", "Invalid preferred feature specification",
	"Invalid generic resource (gres) specification", "Invalid GRES", "Requested nodes not in this partition", "--batch option is invalid",
	"Invalid accounting frequency", "Invalid core specification", "Invalid delay boot", "Invalid switch specification", "Invalid priority",
	"Invalid Trackable RESource (TRES) specification", "Invalid license specification", "Invalid wckey specification",
	"Invalid node name specified", "Invalid node list specified",
	"Invalid job constraint", "Invalid node count", "Invalid core count", "Invalid deadline time", "Invalid memory specification",
	"Memory required by task is not available", "Job size specification needs to be provided", "Job dependency problem",
	"Job dependency can't be satisfied", "Pathname of a file, directory or other parameter too long", "Duplicate generic resource",
	"Task count specification invalid", "Requested number of CPUs per task", "Zero or negative", "Burst Buffer request invalid",
	"No partition specified or system default partition",
	"unrecognized option", "invalid option --", "requires an argument", "is ambiguous", "doesn't allow an argument", "mutually exclusive",
	"Invalid numeric value", "Invalid --", "invalid --", "unrecognized --", "Priority must be", "Inconsistent values",
	"please use one or the other", "option requires --", "operation not supported",
	"invalid number of", "Invalid job array", "Batch script contains DOS line breaks",
	"This does not look like a batch script", "is not a valid", "Invalid time specification", "Invalid time-min specification",
}

// RefusedJob reports whether an error of Submit or TestOnly means that Slurm will not accept
// the job as it is. An unknown message is not a refusal.
func RefusedJob(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Failure == Refused && e.Exit.Code > 0 && e.Says(refusals...)
}

// shortages are messages about nodes or partitions that are missing at the moment, for example
// while nodes register after a start of the controller, or during maintenance.
var shortages = []string{
	"Requested node configuration is not available", "Requested topology configuration is not available",
	"Requested partition configuration not available", "Required node not available", "Required partition not available",
	"Requested nodes are busy", "Licenses currently unavailable",
}

// Unavailable reports whether an error of Submit or TestOnly means that no suitable nodes are
// known at the moment. The job was not submitted.
func Unavailable(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Failure == Refused && e.Exit.Code > 0 && e.Says(shortages...)
}

// limits are messages about submissions that are refused at the moment.
var limits = []string{"MaxSubmit", "GrpSubmit", "temporarily", "try again later", "Rate limit exceeded"}

// AtLimit reports whether an error of Submit or TestOnly means that no more jobs are accepted
// at the moment. The job was not submitted.
func AtLimit(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Failure == Refused && e.Exit.Code > 0 && e.Says(limits...)
}

// parseSubmitted parses the output of sbatch --parsable: ID or ID;CLUSTER on the last line. A
// site's wrapper of sbatch may print other lines before.
func parseSubmitted(out []byte) (string, error) {
	text := strings.TrimSpace(string(out))
	id, _, _ := strings.Cut(text[strings.LastIndexByte(text, '\n')+1:], ";")
	if id == "" || strings.Trim(id, "0123456789") != "" {
		return "", fault.Wrap(fault.Unavailable, fmt.Errorf("sbatch: it printed %.60q, not a job id", out))
	}
	return id, nil
}
