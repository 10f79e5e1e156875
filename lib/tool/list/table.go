package list

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/agent/metrics"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// record is a task as --json prints it: its file without secrets, and what a listing knows
// beyond it.
type record struct {
	queue.Entry
	Retried     bool           `json:"retried,omitempty"`
	WaitSeconds *float64       `json:"wait_seconds,omitempty"`
	RunSeconds  *float64       `json:"run_seconds,omitempty"`
	Metrics     metrics.Values `json:"metrics,omitempty"`
}

// whole reads the files of tasks. One that is gone meanwhile is left out.
func (l *listing) whole(found []queue.Summary, do func(record) error) error {
	numbers := tasklist.OpenMetrics(l.spool)
	for _, s := range found {
		e, err := l.spool.Read(s)
		if err != nil {
			continue
		}
		if !e.State.Final() {
			e.Reason = s.Reason // what it waits for
		}
		e.Env = nil // holds secrets
		e.Source.Repository = task.CleanAddress(e.Source.Repository)
		r := record{Entry: e, Retried: s.Retried}
		if !e.Started.IsZero() {
			seconds := max(0, e.Started.Sub(e.Created).Seconds())
			r.WaitSeconds = &seconds
			if !e.Ended.IsZero() {
				seconds := max(0, e.Ended.Sub(e.Started).Seconds())
				r.RunSeconds = &seconds
			}
		}
		if e.Started.IsZero() {
			err = nil // it has written nothing
		} else if s.State.Final() {
			r.Metrics, err = numbers.Ended(e)
		} else {
			r.Metrics, err = numbers.Running(s)
		}
		if err != nil {
			app.Report(l.stderr, name, fmt.Errorf("warning: metrics of task %s: %w", s.ID.Short(), err))
		}
		if err := do(r); err != nil {
			return err
		}
	}
	return nil
}

// asked is how many tasks accounting is asked about at a time.
const asked = 2000

// batches reads the files of tasks, with what their jobs used, many at a time.
func (l *listing) batches(found []queue.Summary, do func([]record) error) error {
	accounting := true
	for part := range slices.Chunk(found, asked) {
		var rows []record
		if err := l.whole(part, func(r record) error {
			rows = append(rows, r)
			return nil
		}); err != nil {
			return err
		}
		if accounting {
			accounting = l.used(rows)
		}
		if err := do(rows); err != nil {
			return err
		}
	}
	return nil
}

// used fills in what the jobs of tasks used, by one call of sacct. It reports whether
// accounting answers; without it, that is not known, which is said if there should be an answer.
func (l *listing) used(rows []record) bool {
	at := map[string]int{}
	for i, r := range rows {
		if slurmJob.MatchString(r.Job) && !r.Started.IsZero() {
			at[r.Job] = i
		}
	}
	if len(at) == 0 {
		return true
	}
	var doubts slurm.Doubts
	client := &slurm.Client{Soon: true, Odd: doubts.Add}
	err := client.EachConsumed(l.c.Context, slices.Sorted(maps.Keys(at)), slurm.Period{}, func(c *slurm.Consumed) error {
		i, ok := at[c.Label]
		if !ok || !ranIn(c, rows[i].Entry) {
			return nil
		}
		u := usage.Of(c)
		if u.CPUSeconds != usage.Unknown {
			rows[i].CPUSeconds = &u.CPUSeconds
		}
		if u.PeakMB != usage.Unknown {
			bytes := int64(u.PeakMB * (1 << 20))
			rows[i].MaxMemory = &bytes
		}
		return nil
	})
	for _, doubt := range doubts.Warnings() {
		app.Report(l.stderr, name, fmt.Errorf("warning: %s", doubt))
	}
	if why, _ := slurm.FailureOf(err); why == slurm.NoAnswer || why == slurm.NoDatabase {
		app.Report(l.stderr, name, fmt.Errorf("warning: what the tasks used is not known: %w", err))
	}
	return err == nil
}

// slurmJob is the id of a job, or of one of an array. One bad id would fail the call.
var slurmJob = regexp.MustCompile(`^\d+(_\d+)?$`)

// ranIn reports whether a job with the id of a task's job is that one, as Slurm uses ids again: it was
// not submitted before the task, and has the task's mark. That is its comment, where the cluster stores
// comments, or the beginning of its name.
func ranIn(c *slurm.Consumed, e queue.Entry) bool {
	if slurm.Time(c.Submit).Before(e.Created.Truncate(time.Second)) {
		return false
	}
	if c.Comment != "" {
		return slices.Contains(task.Marked(c.Comment), e.ID)
	}
	return strings.HasPrefix(c.Name, "ponos-")
}

func (l *listing) json(out io.Writer, found []queue.Summary) error {
	return l.batches(found, func(rows []record) error {
		for _, r := range rows {
			if err := app.PrintJSONLine(out, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// columns of a table in front of those of the parameters, and behind them.
var columns = []string{
	"id", "name", "group", "state", "attempt", "submitted", "started", "ended", "wait_seconds", "run_seconds",
	"exit_code", "reason",
}
var moreColumns = []string{"job", "cpu_seconds", "max_memory", "code", "options", "command", "cost_dollars", "machine", "gpu"}

// table writes a table for programs: a header, and a line for each task.
func (l *listing) table(path string, stdout io.Writer, found []queue.Summary) error {
	var rows []record
	parameters, numbers := map[string]bool{}, map[string]bool{}
	if err := l.batches(found, func(part []record) error {
		for _, r := range part {
			for name := range r.Parameters {
				parameters[name] = true
			}
			for name := range r.Metrics {
				numbers[name] = true
			}
		}
		rows = append(rows, part...)
		return nil
	}); err != nil {
		return err
	}
	of := tableOf{slices.Sorted(maps.Keys(parameters)), slices.Sorted(maps.Keys(numbers))}
	if path == "-" {
		return of.write(stdout, rows)
	}
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithPermissions(0o644), renameio.WithExistingPermissions())
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err // the file has a name that the user does not know
		}
		return fault.Errorf(fault.Usage, "--table: %q: %w", path, err)
	}
	defer f.Cleanup()
	out := bufio.NewWriter(f)
	if err = of.write(out, rows); err == nil {
		if err = out.Flush(); err == nil {
			err = f.CloseAtomicallyReplace()
		}
	}
	if err != nil {
		return fmt.Errorf("--table: %w", err)
	}
	return nil
}

// tableOf are the names of the columns that are not those of each table.
type tableOf struct{ parameters, metrics []string }

// header has a name for each column. What is called like another column before it has its kind in front of its name.
func (t tableOf) header() []string {
	header := append(slices.Clone(columns), moreColumns...)
	own := len(columns)
	for _, group := range []struct {
		kind  string
		names []string
	}{{"parameter.", t.parameters}, {"metric.", t.metrics}} {
		for _, name := range group.names {
			if slices.Contains(header, name) {
				name = group.kind + name
			}
			header = slices.Insert(header, own, name)
			own++
		}
	}
	return header
}

func (t tableOf) write(out io.Writer, rows []record) error {
	header := t.header()
	if err := line(out, header); err != nil {
		return err
	}
	for _, r := range rows {
		exit := ""
		if r.State == task.Completed || r.State == task.Failed {
			exit = fmt.Sprint(r.ExitCode)
		}
		memory := ""
		if r.MaxMemory != nil {
			memory = fmt.Sprint(*r.MaxMemory)
		}
		cost, machine := "", ""
		if r.Cost > 0 {
			cost = fmt.Sprintf("%.4f", r.Cost)
		}
		if r.Machine > 0 {
			machine = fmt.Sprint(r.Machine)
		}
		cells := []string{string(r.ID), r.Slug, r.Group, string(r.State), fmt.Sprint(r.Tries()),
			stamp(r.Created), stamp(r.Started), stamp(r.Ended), seconds(r.WaitSeconds), seconds(r.RunSeconds), exit, r.Reason}
		for _, p := range t.parameters {
			cells = append(cells, r.Parameters[p])
		}
		for _, m := range t.metrics {
			cell := ""
			if value, ok := r.Metrics[m]; ok {
				cell = metrics.Exact(value)
			}
			cells = append(cells, cell)
		}
		cells = append(cells, r.Job, seconds(r.CPUSeconds), memory, code(r.Source), options(r.Request), shell.Join(r.Command),
			cost, machine, r.GPU)
		if err := line(out, cells); err != nil {
			return err
		}
	}
	return nil
}

// code is the commit of a source, the digest of its archive, or both; of a task that runs in place, the directory.
func code(s task.Source) string {
	digest, _, _ := strings.Cut(filepath.Base(s.Archive), ".")
	switch {
	case s.InPlace:
		return s.Directory
	case s.Archive == "":
		return s.Revision
	case s.Revision == "":
		return digest
	}
	return s.Revision + "+" + digest
}

// options are those of ponos-submit that make a request.
func options(r task.Request) string {
	var words []string
	if r.Find != "" {
		words = append(words, "--find", r.Find)
	}
	for _, o := range r.Sbatch {
		words = append(words, "--sbatch", o)
	}
	return shell.Join(words)
}

// escape keeps a cell on its line and in its column.
var escape = strings.NewReplacer("\\", `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)

func line(out io.Writer, cells []string) error {
	for i, c := range cells {
		cells[i] = app.Sanitize(escape.Replace(c))
	}
	_, err := io.WriteString(out, strings.Join(cells, "\t")+"\n")
	return err
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func seconds(s *float64) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%.3f", *s)
}
