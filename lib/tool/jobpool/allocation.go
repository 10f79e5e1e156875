package jobpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// earliest is what is read of the JSON of lfind --soonest.
type earliest struct {
	Hostname string    `json:"hostname"` // where sbatch must be called; empty: here
	Args     []string  `json:"args"`     // of sbatch
	Start    time.Time `json:"start"`
	Wait     int64     `json:"wait_seconds"`
	By       string    `json:"start_by"`

	made time.Time // zero: now
}

// String is the options and their expected start in one line.
func (e *earliest) String() string {
	when := "now"
	if e.Wait > 1 {
		wait := unit.FormatDuration(time.Duration(e.Wait) * time.Second)
		when = fmt.Sprintf("in %s, at %s", wait, e.Start.Local().Format("2006-01-02T15:04:05"))
	}
	how := map[string]string{
		"learned": ", as jobs run here", "limits": ", if jobs run to their time limits", "test-only": ", according to sbatch --test-only",
	}[e.By]
	if !e.made.IsZero() {
		how += ", as planned at " + e.made.Local().Format(time.TimeOnly)
	}
	return fmt.Sprintf("a job with %s is expected to start %s%s", strings.Join(e.Args, " "), when, how)
}

// allocation are the options of sbatch for --alloc: of all matches those with which a job starts
// first, as far as that can be planned.
func allocation(c *cli.Context) (sbatch.Options, error) {
	if !c.IsSet("alloc") {
		return nil, nil
	}
	lfind, err := command.Sibling("lfind")
	if err != nil {
		return nil, fault.Hint(fault.Errorf(fault.Unavailable, "--alloc: %w", err),
			"install lfind beside jobpool, or give the options of sbatch with --alloc-sbatch")
	}
	say := func(format string, args ...any) {
		if !c.Bool("quiet") {
			fmt.Fprintf(c.App.ErrWriter, "jobpool: %s\n", app.Sanitize(fmt.Sprintf(format, args...)))
		}
	}
	if e := keptPlan(c.Context, c.String("alloc")); e != nil {
		say("%s", e)
		return optionsOf(e.Args)
	}
	began := clock.Now()
	answered := progress.Wait(c.Context, "lfind")
	first, unplanned := soonest(c.Context, lfind, c.String("alloc"))
	answered()
	if unplanned == nil {
		keepPlan(c.String("alloc"), first)
		say("%s", first)
		return optionsOf(first.Args)
	}
	var exit *command.ExitError
	if errors.As(unplanned, &exit) && exit.Code == int(fault.Unavailable) && clock.Since(began) >= slurm.Patience() {
		return nil, refused(exit) // Slurm does not answer: it is not asked the same again
	}
	args := append(lfind[1:], "--format", "args0", "--", c.String("alloc"))
	answered = progress.Wait(c.Context, "lfind")
	r, err := command.System.Run(c.Context, command.Cmd{Name: lfind[0], Args: args, Timeout: searchTime()})
	answered()
	if errors.As(err, &exit) && exit.Code > 0 {
		return nil, refused(exit)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err)
	}
	found := strings.Split(strings.TrimSuffix(string(r.Stdout), "\x00"), "\x00")
	if errors.As(unplanned, &exit) {
		unplanned = errors.New(complaint(exit))
	}
	say("when a job with %s starts is not known: %v", strings.Join(found, " "), unplanned)
	return optionsOf(found)
}

// optionsOf reads the answer of lfind.
func optionsOf(args []string) (sbatch.Options, error) {
	line, err := sbatch.Argv(args)
	if err == nil && (len(line.Command) > 0 || len(line.Jobs) > 1) {
		err = fmt.Errorf("unexpected argument %q", args[len(args)-1])
	}
	if err != nil {
		return nil, fault.Errorf(fault.Unavailable, "--alloc: options of lfind: %w", err)
	}
	return line.Jobs[0], nil
}

// searchTime limits lfind, which has a limit for each command of Slurm.
func searchTime() time.Duration { return slurm.Patience() + time.Minute }

// refused is the failure of lfind, with its status and its hint.
func refused(e *command.ExitError) error {
	words, hint, _ := strings.Cut(complaint(e), "\nhint: ")
	err := fmt.Errorf("--alloc: %s", words)
	if hint != "" {
		err = fault.Hint(err, hint)
	}
	return fault.Exit(e.Code, err)
}

// complaint is what lfind says of its failure.
func complaint(e *command.ExitError) string {
	return strings.TrimSpace(strings.ReplaceAll("\n"+e.Stderr, "\nlfind: ", "\n"))
}

// soonest has lfind choose by the expected start. Only launchers of the Slurm to which jobs are
// submitted count: this machine could always start at once, and another cluster has other jobs.
func soonest(ctx context.Context, lfind []string, request string) (*earliest, error) {
	args := append(lfind[1:len(lfind):len(lfind)], "--soonest", "--kind", "slurm", "--json", "--", request)
	r, err := command.System.Run(ctx, command.Cmd{Name: lfind[0], Args: args, Timeout: searchTime()})
	if err != nil {
		return nil, err
	}
	e := new(earliest)
	switch err := json.Unmarshal(r.Stdout, e); {
	case err != nil:
		return nil, fmt.Errorf("lfind --json: %w", err)
	case e.Hostname != "":
		return nil, fmt.Errorf("the first to start is on %s", e.Hostname)
	case e.By == "" || len(e.Args) == 0:
		return nil, errors.New("lfind --soonest reports no start")
	}
	return e, nil
}

// sizeOf returns the CPUs and GPUs of a job as far as its options set them; 0: not known. Of a range of nodes, the job
// has the most. The tasks that --jobs lets run at a node are its CPUs.
func sizeOf(options sbatch.Options, jobs slots) (size pool.Need) {
	a, err := options.Most()
	if err != nil { // sbatch says what is wrong
		return size
	}
	nodes := int(a.Nodes)
	if size.GPUs = int(a.GPUs); !a.Exclusive && !a.Default {
		size.CPUs = int(a.CPUs)
	}
	switch {
	case jobs.fixed > 0:
		size.CPUs = jobs.fixed * nodes
	case jobs.of != nil && size.CPUs > 0:
		size.CPUs = max(1, jobs.of(size.CPUs/nodes)) * nodes
	}
	return size
}
