package vast

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/vastai"
)

// Switch is where containers get the program vast-switch from, which stops an instance
// where its image has neither curl nor python3.
type Switch struct {
	URL string
	Sum string // its SHA-256, in hexadecimal
	// Grace is how long after the end a container leaves its instance to the agent, until
	// it asks for it to be destroyed. Without Destroy it asks for it to be stopped before.
	Grace   time.Duration
	Destroy bool
}

// arm gives an order's container what its wrapper needs.
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

// armed is an order's Grace by what its container was given.
func armed(grace, end string) time.Duration {
	if end == "" {
		return -1
	}
	n, err := strconv.Atoi(grace)
	if err != nil || n <= 0 {
		n = 600 // as the wrapper has it
	}
	return time.Duration(n) * time.Second
}

// grace is an order's Grace, or what the configuration has where that is not known.
func (r *Runner) grace(o *order) time.Duration {
	switch {
	case o.Grace != 0:
		return o.Grace
	case r.Switch.Destroy:
		return r.Switch.Grace
	}
	return -1
}

// told is how the task has ended by the label of its instance, or nil.
func (o *order) told() *ending {
	if o.ToldBy != o.Instance {
		return nil
	}
	return parseEnding(o.Told)
}

// unless is an end, or that which the label has reported: whatever has become of the
// instance since then, its task was over. A task that was stopped stays so.
func (o *order) unless(e end) end {
	if said := o.told(); said != nil && !e.Cancelled {
		return verdict(*said)
	}
	return e
}

// muteReads is how often a log may be unreadable in a row before the user is asked to do
// something about it.
const muteReads = 10

// unread notes whether a log could be read. What stays unreadable is reported once, in
// the agent's log and in the task's own.
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
	advice := fmt.Sprintf("try \"vastai logs %d\"; the key needs the permission group instance_read; the task itself goes on", o.Instance)
	r.warn("the log stays unreadable: "+advice, o, err)
	r.remark(o, fmt.Sprintf("the log could not be read %d times in a row: %s; %s", o.Mute, why(err), advice))
}

// why is the reason of an error, fit for a line of a log.
func why(err error) string { return task.Clean(err.Error()) }
