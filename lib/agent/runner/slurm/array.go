package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Tasks that are alike are submitted as one job array. Its comment lists all of them in the order of
// the elements, so only Slurm records which element is for which task. The rows of squeue and sacct
// are expanded at once, and then an element is a job like any other: its id is 12_3, and its comment
// that of its task.

// maxComment is how many bytes a comment may have in all versions of Slurm.
const maxComment = 1024

// maxElements is how many elements an array of tasks may have. Any list of pending elements is then
// shorter than slurm.ListLength, so that squeue and sacct do not truncate it.
const maxElements = 100

// arrays caches how many elements an array may have; at most 1: arrays are not submitted.
type arrays struct {
	most int
	once sync.Once
}

// queue returns the rows of squeue, with a row for each element of an array of tasks. Arrays has the
// comments of these arrays by their ids.
func (r *Runner) queue(ctx context.Context) (rows []slurm.Job, arrays map[string]string, err error) {
	if rows, err = r.client.Queue(ctx, r.uid); err != nil {
		return nil, nil, err
	}
	return elements(rows)
}

// elements replaces a row of an array of tasks by a row for each of its elements.
func elements(rows []slurm.Job) (all []slurm.Job, arrays map[string]string, err error) {
	first := slices.IndexFunc(rows, func(row slurm.Job) bool { return row.ArrayID != 0 })
	if first < 0 {
		return rows, nil, nil
	}
	arrays = map[string]string{}
	named := map[string][]task.ID{} // by comment, which the elements of an array share
	all = append(make([]slurm.Job, 0, len(rows)), rows[:first]...)
	for _, row := range rows[first:] {
		var ids []task.ID
		if row.ArrayID != 0 {
			var known bool
			if ids, known = named[row.Comment]; !known {
				ids = task.Marked(row.Comment)
				named[row.Comment] = ids
			}
		}
		if len(ids) < 2 {
			if strings.Contains(row.Label, "[") { // an array that the user has submitted
				row.Label = strconv.FormatUint(row.ArrayID, 10)
			}
			all = append(all, row)
			continue
		}
		indices, ok := slurm.Indices(row.Tasks)
		if !ok {
			return nil, nil, fault.Errorf(fault.Unavailable, "squeue: the elements of array %s cannot be read", row.Label)
		}
		comment, id := row.Comment, strconv.FormatUint(row.ArrayID, 10)
		arrays[id] = comment
		for _, index := range indices {
			if index < len(ids) {
				row.Label, row.Tasks, row.Comment = slurm.Element(id, index), strconv.Itoa(index), task.Marks(ids[index])
				all = append(all, row)
			}
		}
	}
	return all, arrays, nil
}

// index returns the index of an array element, given its id.
func index(job string) (int, bool) {
	_, text, ok := strings.Cut(job, "_")
	n, err := strconv.Atoi(text)
	return n, ok && err == nil
}

// commentOf returns the comment of a job; for an element of an array, the comment of its own task.
func commentOf(job, comment string) string {
	if i, ok := index(job); ok && task.MarkOf(comment, 1) != "" {
		return task.MarkOf(comment, i)
	}
	return comment
}

// pastTask returns the task of a job that accounting shows. Dir returns the directory of a task.
func pastTask(job string, r slurm.Record, dir func(task.ID) string) (task.ID, bool) {
	if r.Comment != "" {
		return taskOf(commentOf(job, r.Comment))
	}
	if id, err := task.ParseID(filepath.Base(r.WorkDir)); err == nil && dir(id) == r.WorkDir {
		return id, true
	}
	id, ok := taskOf(commentOf(job, submitted(r)))
	return id, ok && filepath.Dir(dir(id)) == r.WorkDir
}

// submitted returns the comment with which a job was submitted, from its command line.
func submitted(r slurm.Record) string {
	_, rest, _ := strings.Cut(r.SubmitLine, " --comment=")
	comment, _, _ := strings.Cut(rest, " ")
	return comment
}

// Alike returns a key that is equal for tasks that can be elements of one array: with the same
// options of sbatch, and the same script but for the task. Only first tries are submitted in an
// array, as a job that an earlier try may have left is looked for task by task.
func (r *Runner) Alike(ctx context.Context, s runner.Submission) (key string, most int) {
	if _, p, ok := r.packed(ctx, s); ok {
		return packMark + class(p), maxPacked
	}
	width := len(task.Marks(s.Task, s.Task, s.Task)) - len(task.Marks(s.Task, s.Task))
	most = min(r.takesArrays(ctx), (maxComment-len(task.Marks()))/width)
	if s.Shared == nil || s.Again || len(s.Changed) > 0 || most < 2 {
		return "", 1
	}
	given, err := r.options.forTask(ctx, s.Needs, s.Label)
	if err != nil || given.Has("array") {
		return "", 1
	}
	class := given.Args()
	if r.options.config.Learn != "" { // by the names of jobs
		class = append(class, stem(s.Label))
	}
	return strings.Join(append(class, strconv.Itoa(width), s.Shared.Like), "\x00"), most
}

// stem returns the job name of any task with such a label, without numbers.
func stem(label string) string { return usage.ByName(&usage.Run{Name: jobName(label)}) }

// takesArrays returns how many elements an array may have: MaxArraySize of the controller, whose indices begin with 0. Before
// 21.08, accounting does not record the tasks of the elements, unless it stores comments.
func (r *Runner) takesArrays(ctx context.Context) int {
	r.arrays.once.Do(func() {
		if r.arrays.most < 2 {
			return
		}
		version, err := r.client.Version(ctx, "sbatch")
		var year, month int
		_, scanErr := fmt.Sscanf(version, "%d.%d", &year, &month)
		if err != nil || scanErr != nil || year < 21 || year == 21 && month < 8 {
			r.arrays.most = 0
			return
		}
		// Where it is not known, an array that is too large is refused, and its tasks are submitted one by one.
		c, err := r.client.Config(ctx)
		if most, scanErr := strconv.Atoi(c["MaxArraySize"]); err == nil && scanErr == nil {
			r.arrays.most = min(r.arrays.most, most)
		}
	})
	return r.arrays.most
}

// StartAll starts tasks that are alike in pilots, or by one job array, except those that have a job.
func (r *Runner) StartAll(ctx context.Context, all []runner.Submission) []runner.Started {
	if _, p, ok := r.packed(ctx, all[0]); ok {
		return r.startPacked(ctx, all, p)
	}
	results := make([]runner.Started, len(all))
	l, err := r.recent(ctx)
	if err == nil {
		err = r.clear(ctx, l.rows)
	}
	var at []int // those that are to be submitted
	for i, s := range all {
		switch row := l.existing(s); {
		case err != nil:
			results[i].Err = err
		case row != nil:
			results[i].Job = r.adopted(s, row)
		default:
			at = append(at, i)
		}
	}
	if len(at) > 1 {
		subs := make([]runner.Submission, len(at))
		for k, i := range at {
			subs[k] = all[i]
		}
		array, err := r.submitArray(ctx, subs)
		if err == nil {
			for k, i := range at {
				results[i].Job = runner.Job{Task: all[i].Task, ID: slurm.Element(array, k), Sight: runner.Waits, Submitted: r.now()}
			}
			return results
		}
		if !settled(err) {
			for k, started := range r.uncertain(ctx, subs, err) {
				results[at[k]] = started
			}
			return results
		}
	}
	// A refusal of one task applies to those after it.
	var refused error
	for _, i := range at {
		if refused != nil {
			results[i].Err = refused
			continue
		}
		if err = all[i].Shared.Alone(); err == nil {
			results[i].Job, err = r.Start(ctx, all[i])
		}
		if results[i].Err = err; settled(err) {
			refused = err
		}
	}
	return results
}

// settled reports whether an error of a submission means that there is no job.
func settled(err error) bool {
	return errors.Is(err, runner.ErrRefused) || errors.Is(err, runner.ErrFull) || errors.Is(err, runner.ErrUnmet)
}

// uncertain returns the results of tasks whose submission has failed in a way that leaves open
// whether there are jobs.
func (r *Runner) uncertain(ctx context.Context, all []runner.Submission, err error) []runner.Started {
	results := make([]runner.Started, len(all))
	var l *listing
	if errors.Is(err, runner.ErrUnsure) && ctx.Err() == nil {
		l, _ = r.squeue.Fresh(ctx)
	}
	for i, s := range all {
		if row := l.existing(s); row != nil {
			results[i].Job = r.adopted(s, row)
		} else {
			results[i].Err = err
		}
	}
	return results
}

// submitArray submits an array, and returns its id.
func (r *Runner) submitArray(ctx context.Context, all []runner.Submission) (id string, err error) {
	first := all[0]
	given, err := r.options.forTask(ctx, first.Needs, first.Label)
	if err != nil {
		return "", err
	}
	// Each element writes to the directory of its own task, through a link whose name Slurm forms
	// from the index.
	links := filepath.Join(first.Shared.Links, uuid.NewString())
	tasks, err := filepath.Rel(first.Shared.Links, filepath.Dir(first.Dir))
	if err != nil {
		return "", err
	}
	ids, name := make([]task.ID, len(all)), stem(first.Label)
	var hold []*os.File
	defer func() {
		if err != nil && !errors.Is(err, runner.ErrUnsure) && ctx.Err() == nil { // no job needs them
			for i := range all {
				_ = os.Remove(links + "." + strconv.Itoa(i))
			}
		}
	}()
	for i, s := range all {
		if ids[i] = s.Task; stem(s.Label) != name {
			name = namePrefix + "tasks"
		}
		if s.Hold != nil {
			hold = append(hold, s.Hold)
		}
		if err := os.Symlink(filepath.Join(tasks, filepath.Base(s.Dir)), links+"."+strconv.Itoa(i)); err != nil {
			return "", err
		}
	}
	b := batch(given, name, task.Marks(ids...), links+".%a", filepath.Dir(first.Dir))
	b.Options = append(b.Options, "--array=0-"+strconv.Itoa(len(all)-1))
	b.Text, b.Hold = first.Shared.Script(ids), hold
	if id, err = r.client.Submit(ctx, b); err == nil || ctx.Err() != nil {
		return id, err
	}
	return "", submitError(err)
}
