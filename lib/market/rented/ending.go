package rented

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// Switch is where containers download the program vast-switch, which stops an instance whose image
// has neither curl nor python3.
type Switch struct {
	URL string
	Sum string // its SHA-256, in hexadecimal
	// Grace is how long after the end a container waits for the agent before it requests the
	// destruction of its instance. Without Destroy, it first requests to stop it.
	Grace   time.Duration
	Destroy bool
}

// arm puts what the wrapper needs into the environment of an order's container.
func (r *Runner) arm(env map[string]string, o *order) {
	env[nonceEnv], env[labelEnv] = o.Nonce, r.label(o.Task, o.Attempt, o.Number)
	if r.Switch.Grace > 0 {
		env[graceEnv] = strconv.Itoa(int(r.Switch.Grace.Seconds()))
	}
	if r.Switch.Destroy {
		env[endEnv] = "destroy"
	}
	o.Grace = armed(env[graceEnv], env[endEnv])
	if r.Switch.URL != "" {
		env[switchEnv], env[sumEnv] = r.Switch.URL, r.Switch.Sum
	}
}

// armed returns an order's Grace, from what its container was given.
func armed(grace, end string) time.Duration {
	if end == "" {
		return -1
	}
	n, err := strconv.Atoi(grace)
	if err != nil || n <= 0 {
		n = 600 // the default of the wrapper
	}
	return time.Duration(n) * time.Second
}

// grace returns an order's Grace, or the configured one if that is unknown.
func (r *Runner) grace(o *order) time.Duration {
	switch {
	case o.Grace != 0:
		return o.Grace
	case r.Switch.Destroy:
		return r.Switch.Grace
	}
	return -1
}

// muteReads is how many times in a row a log may be unreadable before that is reported to the user.
const muteReads = 10

// unread counts failures to read a log. If they last, that is reported once, in the agent's log and
// in the task's own.
func (r *Runner) unread(o *order, err error) {
	if err == nil {
		if o.Mute >= muteReads {
			r.remark(o, "the log can be read again")
		}
		o.Mute = 0
		return
	}
	if o.Mute++; o.Mute == 1 && !errors.Is(err, vastai.ErrNotReady) {
		r.warn("the log could not be read this time", o, err)
	}
	if o.Mute != muteReads {
		return
	}
	advice := fmt.Sprintf("try \"vastai logs %d\"; the key needs the permission group instance_read; the task itself continues", o.Instance)
	r.warn("the log stays unreadable: "+advice, o, err)
	r.remark(o, fmt.Sprintf("the log could not be read %d times in a row: %s; %s", o.Mute, why(err), advice))
}

// why returns an error as text for a line of a log.
func why(err error) string { return task.Clean(fault.Text(err)) }
