package submit

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/sweep"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// job is a job script for sbatch as a task.
type job struct {
	name    string
	words   []string     // the command that runs it
	array   *sweep.Table // of --array; nil: there is none
	mailed  bool         // one mail for all tasks takes the place of Slurm's
	late    int          // line of an #SBATCH line behind the first command; 0: there is none
	logged  []string     // options of which the task's log takes the place
	ignored []string     // options that have no meaning for a task
}

// ignorable are options of sbatch that change nothing of what a task does.
var ignorable = []string{"autocomplete", "comment", "get-user-env", "ignore-pbs", sbatch.OpenMode,
	"parsable", "propagate", "quiet", "verbose"}

// index is the variable that tells the elements of an array from each other.
const index = "SLURM_ARRAY_TASK_ID"

// jobScript reads the first word after the options as a job script, if no "--" is before it, and it is a file with #SBATCH lines, or one of
// this directory that begins with #! and is no program of PATH.
// The options in the lines are given to this tool, unless the command line has them. nil: it is a command.
func jobScript(c *cli.Context, args, words []string) (*job, error) {
	if before := len(args) - len(words) - 1; len(words) == 0 || c.IsSet("image") || before < 0 || args[before] == "--" {
		return nil, nil
	}
	code := wanted(c)
	file := words[0]
	if dir := code.Here(); dir != "" && !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	text, shown := textOf(file), task.Clean(words[0])
	jobs, err := sbatch.Script(text)
	_, program := command.Path(words[0])
	switch {
	case err == nil && len(jobs[0]) == 0 && len(jobs) == 1 &&
		(!strings.HasPrefix(text, "#!") || strings.Contains(words[0], "/") || program == nil):
		return nil, nil // a program, which may be a script
	case !strings.HasPrefix(text, "#!"):
		return nil, fault.Errorf(fault.Usage, "%s has #SBATCH lines, but does not begin with #! and the path of an interpreter", shown)
	case strings.Contains(text, "\r\n"):
		return nil, fault.Hint(fault.Errorf(fault.Usage, "%s has the line breaks of DOS (\\r\\n)", shown),
			"sed -i 's/\\r$//' "+shell.Quote(words[0])+" makes them those of Unix")
	case err != nil:
		return nil, fault.Errorf(fault.Usage, "%s: %w", shown, err)
	case len(jobs) > 1:
		return nil, fault.Errorf(fault.Usage, "%s: a heterogeneous job cannot be a task", shown)
	}
	j := &job{name: words[0], late: sbatch.Late(text)}
	if code.Directory == "" && code.Repository == "" {
		if err := c.Set("in-place", "true"); err != nil {
			return nil, err
		}
	}
	variables, err := j.take(c, jobs[0])
	if err != nil {
		return nil, fault.Wrap(fault.Usage, fmt.Errorf("%s: %w", task.Clean(words[0]), err))
	}
	line, _, _ := strings.Cut(text[2:], "\n")
	interpreter := strings.SplitN(strings.TrimSpace(line), " ", 2) // as the kernel has it: one argument at most
	if len(variables) > 0 {
		j.words = append([]string{"/usr/bin/env", "--"}, variables...)
	}
	if c.IsSet("directory") && c.Bool("in-place") && code.Directory == "" { // that of --chdir, where the script may not be
		if file, err = filepath.Abs(file); err != nil {
			return nil, err
		}
		words = append([]string{file}, words[1:]...)
	}
	j.words = append(append(j.words, interpreter...), words...)
	if !c.IsSet("name") {
		err = c.Set("name", jobName(filepath.Base(words[0]), j.array != nil))
	}
	return j, err
}

// jobName is a name for the tasks of a script.
func jobName(base string, array bool) string {
	base = strings.TrimSuffix(base, filepath.Ext(base))
	if queue.CheckName(base) != nil {
		base = "task"
	}
	if array {
		base += "-{" + index + "}"
	}
	return base
}

// take gives the options of a script to this tool, and returns variables for the command.
func (j *job) take(c *cli.Context, options sbatch.Options) (variables []string, err error) {
	set := func(flag, value string) error {
		if c.IsSet(flag) {
			return nil
		}
		return c.Set(flag, value)
	}
	limit := "" // of the elements at a time
	var mail sbatch.Options
	for _, o := range options {
		d := sbatch.Lookup(o.Name)
		switch {
		case given(c, o.Name):
		case o.Name == "array":
			j.array, limit, err = elements(o.Value)
		case o.Name == sbatch.JobName:
			err = set("name", o.Value)
		case o.Name == "output" || o.Name == "error":
			j.logged = append(j.logged, "--"+o.Name)
		case o.Name == "chdir":
			if c.Bool("in-place") {
				err = set("directory", o.Value)
			} else {
				j.ignored = append(j.ignored, "--"+o.Name)
			}
		case o.Name == "wait":
			err = set("wait", "true")
		case o.Name == "export":
			var more []string
			more, err = exported(o.Value)
			variables = append(variables, more...)
		case o.Name == sbatch.MailType || o.Name == sbatch.MailUser:
			mail, err = append(mail, o), o.Check()
		case d == nil || d.Use&sbatch.ByTask != 0:
			if o, err = need.Option(o.Arg()); err == nil {
				err = o.Check()
			}
			if err == nil {
				err = c.Set("sbatch", strings.TrimPrefix(o.Arg(), "--"))
			}
		case slices.Contains(ignorable, o.Name):
			j.ignored = append(j.ignored, "--"+o.Name)
		default:
			err = fmt.Errorf("a task cannot have the option --%s of its #SBATCH lines", task.Clean(o.Name))
		}
		if err != nil {
			return nil, err
		}
	}
	if line := mailLine(mail); j.array != nil && line != "" {
		if err = set("on-end", line); err != nil {
			return nil, err
		}
		j.mailed, mail = c.String("on-end") == line, nil
	}
	for _, o := range mail {
		if err = c.Set("sbatch", strings.TrimPrefix(o.Arg(), "--")); err != nil {
			return nil, err
		}
	}
	if j.array != nil {
		variables = append(variables, fmt.Sprintf("%s={%s}", index, index), fmt.Sprintf("SLURM_ARRAY_TASK_COUNT=%d", len(j.array.Rows)))
		if name := c.String("name"); name != "" && !strings.Contains(name, "{") {
			err = c.Set("name", name+"-{"+index+"}")
		}
	}
	if limit != "" && err == nil {
		err = set("at-most", limit)
	}
	return variables, err
}

// mailLine is the command that does for a group what Slurm does for an array with these options: one mail at its end; "": Slurm sends
// the mail of each task.
func mailLine(options sbatch.Options) string {
	atEnd, to := false, `"$(id -un)"`
	for _, o := range options {
		if o.Name == sbatch.MailUser {
			to = shell.Quote(o.Value)
			continue
		}
		types := strings.Split(strings.ToUpper(o.Value), ",")
		if slices.Contains(types, "ARRAY_TASKS") {
			return ""
		}
		atEnd = slices.Contains(types, "END") || slices.Contains(types, "ALL")
	}
	if !atEnd {
		return ""
	}
	return `mail -s "$PONOS_GROUP: $PONOS_COMPLETED of $PONOS_TASKS tasks completed" ` + to + ` </dev/null`
}

// exported are the variables of --export. Those of the shell are not the task's.
func exported(value string) (variables []string, err error) {
	for word := range strings.SplitSeq(value, ",") {
		switch {
		case word == "ALL" || word == "NONE" || word == "NIL" || word == "":
		case strings.Contains(word, "="):
			variables = append(variables, word)
		default:
			return nil, fmt.Errorf("--export %s: a task does not have the variables of the shell: give --env-file", task.Clean(word))
		}
	}
	return variables, nil
}

// elements is the table of the tasks of an array: 0-9:3,12%4, without the limit behind %.
func elements(value string) (table *sweep.Table, limit string, err error) {
	value, limit, _ = strings.Cut(value, "%")
	bad := fmt.Errorf("invalid --array %q", task.Clean(value))
	table = &sweep.Table{Columns: []string{index}}
	for part := range strings.SplitSeq(value, ",") {
		part, by, stepped := strings.Cut(part, ":")
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		step := "1"
		if stepped {
			step = by
		}
		from, errFrom := strconv.ParseUint(first, 10, 31)
		to, errTo := strconv.ParseUint(last, 10, 31)
		every, errEvery := strconv.ParseUint(step, 10, 31)
		if errors.Join(errFrom, errTo, errEvery) != nil || every == 0 || to < from || stepped && !isRange {
			return nil, "", bad
		}
		for n := from; n <= to; n += every {
			if table.Rows = append(table.Rows, []string{strconv.FormatUint(n, 10)}); len(table.Rows) > queue.MaxBatch {
				return nil, "", fmt.Errorf("--array has more than %d elements", queue.MaxBatch)
			}
		}
	}
	return table, limit, nil
}

// note says what became of the lines of a script that are not options of the task's job; "": nothing.
func (j *job) note() string {
	var parts []string
	if len(j.logged) > 0 {
		parts = append(parts, strings.Join(j.logged, " and ")+": the output is in the log of the task (ponos-log)")
	}
	if j.mailed {
		parts = append(parts, "--mail-type: one mail when all tasks have ended (--on-end)")
	}
	if len(j.ignored) > 0 {
		parts = append(parts, "ignored: "+strings.Join(j.ignored, ", "))
	}
	if j.late > 0 {
		parts = append(parts, fmt.Sprintf("line %d is not read, as by sbatch: #SBATCH lines come before the first command", j.late))
	}
	if len(parts) == 0 {
		return ""
	}
	return task.Clean(j.name) + ": " + strings.Join(parts, "; ")
}
