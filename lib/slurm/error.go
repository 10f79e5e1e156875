package slurm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// ErrNoAccounting reports that the cluster keeps no accounting, as opposed to a database that
// does not answer.
var ErrNoAccounting = errors.New("the cluster keeps no accounting")

// A Failure is why a command of Slurm gave no answer.
type Failure int

// The failures.
const (
	Refused      Failure = iota // the command ran and reported a failure
	NoAnswer                    // Slurm's daemons did not answer, or not in time
	NoDatabase                  // slurmdbd did not answer
	NotInstalled                // the command was not found
	Unreadable                  // the output cannot be parsed
)

// Error reports that a command of Slurm failed, so that its answer is unknown. An empty result
// is not an Error.
type Error struct {
	Command string
	Failure Failure
	Exit    *command.ExitError // nil if the command did not run, or was stopped
	err     error
}

// Refusal returns the error for a command that exited with a failure, classified by its
// messages.
func Refusal(name string, exit *command.ExitError) *Error {
	e := &Error{Command: name, Exit: exit, err: exit}
	switch {
	case e.Says(databaseWords...):
		e.Failure = NoDatabase
	case e.Says(controllerWords...):
		e.Failure = NoAnswer
	}
	return e
}

// newError returns the error for a failed command, with its kind and a hint.
func newError(name string, err error) error {
	e := &Error{Command: name, Failure: NoAnswer, err: err}
	var exit *command.ExitError
	var missing *command.NotFoundError
	if name == "sacct" || name == "sacctmgr" || name == "sreport" {
		e.Failure = NoDatabase
	}
	switch {
	case errors.As(err, &exit):
		if e = Refusal(name, exit); e.Says(noAccountingWords...) {
			return fault.Wrap(fault.Unavailable, ErrNoAccounting)
		}
	case errors.As(err, &missing):
		e.Failure = NotInstalled
	}
	var told error = e
	switch e.Failure {
	case NoDatabase:
		told = fault.Hint(e, "Slurm's database (slurmdbd) does not answer; the controller can work without it for a while")
	case NoAnswer:
		hint := `check Slurm's controller with "scontrol ping"`
		if errors.As(err, new(*command.TimeoutError)) {
			hint += "; if it is only slow, set " + limitEnv
		}
		told = fault.Hint(e, hint)
	}
	return fault.Wrap(fault.Unavailable, told)
}

// parseError returns the error for output that cannot be parsed.
func parseError(command string, line int, format string, args ...any) error {
	return fault.Wrap(fault.Unavailable, &Error{
		Command: command, Failure: Unreadable, err: fmt.Errorf("%s: line %d of its output: %w", command, line, fmt.Errorf(format, args...)),
	})
}

func (e *Error) Error() string {
	if words := e.Words(); words != "" {
		return e.Command + ": " + words
	}
	return e.err.Error()
}

func (e *Error) Unwrap() error { return e.err }

// Words returns Slurm's message on one line, without prefixes such as "sbatch: error:".
func (e *Error) Words() string {
	if e.Exit == nil {
		return ""
	}
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

// Says reports whether Slurm's message contains one of these texts.
func (e *Error) Says(any ...string) bool {
	for _, words := range any {
		if e.Exit != nil && strings.Contains(e.Exit.Stderr, words) {
			return true
		}
	}
	return false
}

// FailureOf returns why a command of Slurm failed; false if err is not such a failure.
func FailureOf(err error) (Failure, bool) {
	var e *Error
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.Failure, true
}

// WasRefused reports whether the command ran and Slurm refused the request.
func WasRefused(err error) bool {
	why, ok := FailureOf(err)
	return ok && why == Refused
}

// Unreachable reports whether Slurm did not answer, as opposed to a refusal or to output that
// cannot be parsed.
func Unreachable(err error) bool {
	why, ok := FailureOf(err)
	return ok && (why == NoAnswer || why == NoDatabase || why == NotInstalled)
}

// Slurm's exit codes do not distinguish these failures, so messages do. The lists cover all
// versions from 20.11.
var (
	databaseWords = []string{
		"open persistent connection", "slurm_persist_conn_open", "Problem talking to the database", "Unable to connect to database",
	}
	controllerWords = []string{
		"Unable to contact slurm controller", "Unable to establish control", "Connection refused", "Connection timed out",
		"Socket timed out", "Zero Bytes were transmitted", "Transport endpoint", "connect failure",
		"Resource temporarily unavailable", "Could not establish a configuration source", "Slurm backup controller in standby mode",
		"Slurmctld is in the process of starting", "Protocol authentication error", "DNS SRV lookup failed", "fatal: Could not establish",
		"Communication connection failure", "Communication shutdown failure", "Message send failure", "Message receive failure",
		"Invalid authentication credential", "Authentication credential invalid", "Error generating job credential", "is in standby mode",
		"I/O error writing script/environment to file", // the controller's disk is full
	}
	noAccountingWords = []string{
		"accounting storage is disabled", "not running a supported accounting_storage plugin",
		"only works with accounting_storage/slurmdbd",
	}
)
