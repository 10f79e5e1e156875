package vastai

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/market/vastai/own"
)

// Stage is what the row of an instance says of its container.
type Stage int

// The stages of an instance.
const (
	Loads      Stage = iota // the host loads the image
	Runs                    // the container runs
	Exited                  // it has ended, or is being stopped
	Stopped                 // it is stopped: it may have run
	Stops                   // it is to be stopped, and has not run
	Restarts                // the host restarts it
	Falters                 // the host is offline, or worse
	BadMachine              // the machine cannot run the image
	BadImage                // no machine can run the image
)

// Begun reports whether the container may have begun.
func (s Stage) Begun() bool { return s != Loads && s != Stops && s != BadMachine && s != BadImage }

// Messages of a host that indicate a fault while it loads an image.
var (
	machineFaults = []string{
		"error response from daemon", "oci runtime create failed", "failed to create", "no space left on device",
		"failed to resolve", "no such host", "i/o timeout", "unexpected eof", "toomanyrequests", "pull rate limit",
	}
	imageFaults = []string{
		"manifest unknown", "manifest for", "pull access denied", "unauthorized", "repository does not exist", "invalid reference format",
	}
)

// Halted reports whether the instance is stopped, or is to be.
func (i Instance) Halted() bool {
	return i.Intended == "stopped" || i.Actual == "stopped" || i.Actual == "frozen" || i.Intended == "frozen"
}

// Stage returns what the row says of the container, and why if that is a fault.
func (i Instance) Stage() (s Stage, why string) {
	switch {
	case i.Actual == "exited" || i.Actual == "running" && i.Halted():
		return Exited, ""
	case i.Actual == "running":
		return Runs, ""
	case i.Actual == "stopped" || i.Actual == "frozen":
		return Stopped, ""
	case i.Halted():
		return Stops, ""
	case i.Actual == "rebooting" || i.Actual == "recycling":
		return Restarts, ""
	case i.Actual != "" && i.Actual != "created" && i.Actual != "loading": // unknown, offline, and any other state
		return Falters, i.Actual
	}
	message := strings.ToLower(i.Message)
	says := func(signs []string) bool {
		return slices.ContainsFunc(signs, func(s string) bool { return strings.Contains(message, s) })
	}
	switch {
	case strings.Contains(i.Message, `"/bin/sh"`) && says([]string{"no such file", "not found"}):
		return BadImage, "the image has no /bin/sh to run the task's command: " + i.Message
	case says(imageFaults):
		return BadImage, "the image cannot be pulled: " + i.Message
	case says(machineFaults):
		return BadMachine, "the machine cannot run the image: " + i.Message
	}
	return Loads, ""
}

// noLog reports whether the text of a log is a message that there is none yet.
func noLog(text []byte) bool {
	return bytes.HasPrefix(text, []byte("Error response from daemon")) || bytes.HasPrefix(text, []byte("No such container"))
}

// Within adds the conditions of an order's disk, in GB, and of its price, in dollars an hour; 0: none.
func (f Filters) Within(disk, price float64) Filters {
	out := slices.Clone(f)
	if disk > 0 {
		out = append(out, Condition{Field: "disk_space", Op: "gte", Value: disk, Text: fmt.Sprintf("disk %v", disk)})
	}
	if price > 0 {
		out = append(out, Condition{Field: "dph_total", Op: "lte", Value: price, Text: fmt.Sprintf("max_price_per_hour %v", price)})
	}
	return out
}

// Nothing is a filter that no offer passes.
func Nothing(text string) Filters {
	return Filters{{Field: "id", Text: text, Test: func(any) bool { return false }}}
}

// Split returns the conditions that tell which machines a search is about at all, and those that choose among them.
func (f Filters) Split() (about, choose Filters) {
	for _, c := range f {
		switch {
		case c.Field == "rentable" || c.Field == "external" || c.Field == "num_gpus":
			about = append(about, c)
		case c.Op != anything:
			choose = append(choose, c)
		}
	}
	return about, choose
}

// Reserved are variables that the market sets itself, or that have a meaning there.
var Reserved = []string{
	own.IDEnv, own.KeyEnv, "VAST_CONTAINERLABEL", "PUBLIC_IPADDR", own.GPUsEnv, "DATA_DIRECTORY", "SSH_PUBLIC_KEY",
	"JUPYTER_TOKEN", "JUPYTER_SERVER_ROOT", "JUPYTER_SERVER_URL", "OPEN_BUTTON_PORT", "OPEN_BUTTON_TOKEN", "PORTAL_CONFIG",
}
