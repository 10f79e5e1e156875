package rented

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// Program is how the program vast-entry gets into a container, and what it does at the end.
type Program struct {
	URL  string // without the architecture, which is appended; "": there is none, and nothing can be ordered
	Sums string // its SHA-256 for each architecture, in hexadecimal
	// Grace is how long after the end it waits for the agent before it destroys its instance. Without Destroy, it stops
	// it first.
	Grace   time.Duration
	Destroy bool
}

// Variables in a task's directory that the job of its container is made of.
const (
	limitEnv    = "PONOS_MAX_RUNTIME" // seconds
	loadEnv     = "PONOS_CHECKPOINT_LOAD"
	saveEnv     = "PONOS_CHECKPOINT_SAVE"
	intervalEnv = "PONOS_CHECKPOINT_INTERVAL" // seconds
)

// The variables that tell a task, and the commands that load and save its checkpoints, where those are: in the store, and
// in the container.
const (
	storeEnv       = "PONOS_CHECKPOINT_STORE"
	checkpointsDir = "/data/checkpoints"
)

// arm returns the variables of an order's container: those of the task, and the job. Those that are too long for the
// market are in the job.
func (r *Runner) arm(env map[string]string, command []string, o *order, m entry.Machine) (map[string]string, error) {
	seconds := func(name string, without time.Duration) time.Duration {
		n, _ := strconv.Atoi(env[name])
		return cmp.Or(time.Duration(n)*time.Second, without)
	}
	job := entry.Job{
		Command: command, Env: map[string]string{}, Label: r.label(o.Task, o.Attempt, o.Number()), Machine: m,
		Runtime: seconds(limitEnv, 24*time.Hour), Patience: cmp.Or(r.Limits.Boot, 20*time.Minute),
		Grace: r.Program.grace(), Stop: !r.Program.Destroy,
		Load: env[loadEnv], Save: env[saveEnv], Interval: seconds(intervalEnv, 10*time.Minute),
	}
	out := map[string]string{}
	for name, value := range env {
		switch {
		case slices.Contains([]string{limitEnv, loadEnv, saveEnv, intervalEnv}, name):
		case len(name)+len(value) >= vastai.MaxEnvEach:
			job.Env[name] = value
		default:
			out[name] = value
		}
	}
	packed, err := job.Pack()
	if err != nil {
		return nil, err
	}
	maps.Copy(out, packed)
	out[entry.NonceEnv], out[entry.URLEnv], out[entry.SumsEnv], out[entry.LabelEnv] = o.Nonce, r.Program.URL, r.Program.Sums, job.Label
	if out[entry.GraceEnv] = "-1"; !job.Stop {
		out[entry.GraceEnv] = strconv.Itoa(int(job.Grace.Seconds()))
	}
	return out, nil
}

// graceOf returns the grace of an instance, from what its container was given.
func graceOf(given string) time.Duration {
	n, err := strconv.Atoi(given)
	if err != nil || n < 0 {
		return -1
	}
	return time.Duration(n) * time.Second
}

// request is the order of a container for an attempt.
func (r *Runner) request(image, label string, env map[string]string) vastai.Order {
	return vastai.Order{
		Image: image, Env: env, Entrypoint: "/bin/sh", Args: []string{"-c", entry.Loader}, Label: label,
		Disk: max(r.Disk, vastai.MinDisk), Login: r.Login,
	}
}

// machine is what a container can look at of what was ordered.
func (r *Runner) machine(o *order, offer vastai.Offer) entry.Machine {
	m := entry.Machine{GPUs: offer.GPUs, GPU: offer.GPU, GPUMemory: int(offer.Number("gpu_ram")), Disk: int(r.Disk)}
	for _, c := range r.All(o.Wish) {
		if least, ok := c.Value.(float64); ok && c.Field == "cpu_ram" && (c.Op == "gte" || c.Op == "gt" || c.Op == "eq") {
			m.Memory = max(m.Memory, int(least))
		}
	}
	return m
}

func (p Program) grace() time.Duration { return cmp.Or(p.Grace, 10*time.Minute) }

// grace returns the grace of an instance, or the configured one if that is unknown.
func (r *Runner) grace(t life.Try) time.Duration {
	switch {
	case t.Grace != 0:
		return t.Grace
	case r.Program.Destroy:
		return r.Program.Grace
	}
	return -1
}

// muteReads is how many times in a row a log may be unreadable before that is reported to the user.
const muteReads = 10

// unread counts failures to read a log. If they last, that is reported once, in the agent's log and
// in the task's own.
func (r *Runner) unread(o *order, err error) {
	was, now := o.Own().Looks[life.Mute].Times, r.now()
	if err == nil {
		if was >= muteReads {
			r.remark(o, "the log can be read again")
		}
		r.step(o, life.Event{Kind: life.Legible, At: now})
		return
	}
	r.step(o, life.Event{Kind: life.Deaf, At: now})
	if was == 0 && !errors.Is(err, vastai.ErrNotReady) {
		r.warn("the log could not be read this time", o, err)
	}
	if was+1 != muteReads {
		return
	}
	advice := fmt.Sprintf("try \"vastai logs %d\"; the key needs the permission group instance_read; the task itself continues",
		o.Instance())
	r.warn("the log stays unreadable: "+advice, o, err)
	r.remark(o, fmt.Sprintf("the log could not be read %d times in a row: %s; %s", muteReads, why(err), advice))
}

// why returns an error as text for a line of a log.
func why(err error) string { return task.Clean(fault.Text(err)) }

func dollars(f float64) string { return fmt.Sprintf("$%.4f", f) }

// errNoEntry says that a container would have nothing to run its task with.
var errNoEntry = fault.Hint(errors.New("this build was not released, so containers have nowhere to fetch vast-entry from"),
	"put the files of \"make entry\" on a web server that rented machines can reach, and set vast_api.entry_url and vast_api.entry_sha256")
