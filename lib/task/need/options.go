package need

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
)

// Limits of a request.
const (
	maxFind    = 4096 // bytes
	maxOptions = 64
	maxOption  = 1024 // bytes
)

// Option reads an option of sbatch as a task has it: NAME=VALUE, or NAME of one without a
// value; "_" is "-", and dashes in front are left out.
func Option(s string) (sbatch.Option, error) {
	o, err := sbatch.Parse(s)
	shown := task.Clean(o.Name)
	known := sbatch.Lookup(o.Name)
	switch {
	case len(s) > maxOption:
		err = fmt.Errorf("option %.20q... is longer than %d bytes", shown, maxOption)
	case strings.ContainsFunc(o.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		err = fmt.Errorf("option %q: the value has a control character", shown)
	case known == nil || known.Use&sbatch.ByTask == 0:
		err = fmt.Errorf("option %q is not allowed for a task", shown)
		switch {
		case known == nil:
			err = fmt.Errorf("sbatch has no option %q", shown)
		case known.Use&(sbatch.ByDaemon|sbatch.ByConfig) == sbatch.ByDaemon:
			return o, fmt.Errorf("option %q is not for tasks: the agent sets it", shown)
		}
		if near := sbatch.Nearest(o.Name, sbatch.ByTask); near != "" && near != o.Name {
			err = fmt.Errorf("%w; did you mean %q?", err, near)
		} else {
			err = fmt.Errorf("%w: expected a long option for resources, such as mem=8G", err)
		}
	case err == nil && SignalsScript(o):
		err = errors.New("option \"signal\": " + OnlyScript + "; ponos-task run saves before the time limit")
	}
	return o, err
}

// OnlyScript is why an option that SignalsScript is not for tasks.
const OnlyScript = "with B: only the job script gets the signal, and not the command"

// SignalsScript reports whether an option has Slurm send a warning signal to the batch script. The job
// script of a task does not pass it to the command.
func SignalsScript(o sbatch.Option) bool {
	prefix, _, found := strings.Cut(o.Value, ":")
	return o.Name == "signal" && found && strings.ContainsAny(prefix, "Bb")
}

// Override returns a request with later options of sbatch, which replace those of the same name and those that say the
// same in another way.
func Override(r task.Request, later []string) (task.Request, error) {
	first, err := Options(r.Sbatch)
	if err != nil {
		return r, err
	}
	second, err := Options(later)
	if err != nil {
		return r, err
	}
	r.Sbatch = nil
	for _, o := range first.With(second...) {
		r.Sbatch = append(r.Sbatch, strings.TrimPrefix(o.Arg(), "--"))
	}
	return r, nil
}

// Options reads the options of sbatch of one source, as Option does each.
func Options(texts []string) (all sbatch.Options, err error) {
	for _, text := range texts {
		o, err := Option(text)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// Check checks the bounds of a request, and the names of its options. What it asks for is
// checked when it is solved.
func Check(r task.Request) error {
	switch {
	case len(r.Find) > maxFind:
		return fmt.Errorf("the request is longer than %d bytes", maxFind)
	case strings.ContainsFunc(r.Find, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return errors.New("the request has a control character")
	case len(r.Sbatch) > maxOptions:
		return fmt.Errorf("%d options of sbatch, more than %d", len(r.Sbatch), maxOptions)
	}
	seen := map[string]bool{}
	for _, s := range r.Sbatch {
		o, err := Option(s)
		if err != nil {
			return err
		}
		if seen[o.Name] {
			return fmt.Errorf("option %q is given twice", o.Name)
		}
		seen[o.Name] = true
	}
	return nil
}

// CheckValues checks the values of the options of sbatch of a request, so that a mistake is reported when the
// task is submitted.
func CheckValues(r task.Request) error {
	all, err := Options(r.Sbatch)
	if err != nil {
		return err
	}
	for _, o := range all {
		if err := o.Check(); err != nil {
			return err
		}
	}
	return all.Conflict(sbatch.Newest)
}
