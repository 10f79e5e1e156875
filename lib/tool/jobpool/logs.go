package jobpool

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

func logCommand() *cli.Command {
	return &cli.Command{
		Name: "log", Usage: "print what tasks have printed", ArgsUsage: "[TASK...]", Action: printLogs,
		Flags: []cli.Flag{runFlag("read"), &cli.BoolFlag{Name: "failed", Usage: "only failed tasks, each with its end"}},
	}
}

// taskLog is what is kept of the output of a task: files, or the ends in the journal.
type taskLog struct {
	files [2]string
	past  *journal.PastTask // nil: it has succeeded, or has not begun
}

func (l *taskLog) kept() bool {
	return l.files != [2]string{} || l.past != nil && l.past.Stdout.Size+l.past.Stderr.Size > 0
}

// printLogs prints what tasks have printed, of all tasks without arguments.
func printLogs(c *cli.Context) error {
	dir := existing(c)
	p, err := journal.ReadPast(dir)
	if err != nil {
		return err
	}
	logs, err := findLogs(filepath.Join(dir, "logs"))
	if err != nil {
		return err
	}
	for i := range p.Tasks {
		logs.of(p.Tasks[i].Seq).past = &p.Tasks[i]
	}
	if c.Bool("failed") {
		return printFailed(c, logs)
	}
	if !c.Args().Present() {
		return logs.printAll(dir, c.App.Writer, c.App.ErrWriter)
	}
	var seqs, missing []int64
	for _, a := range c.Args().Slice() {
		seq, err := strconv.ParseInt(a, 10, 64)
		if err != nil || seq < 1 {
			return fault.Errorf(fault.Usage, "unknown task %q", a)
		}
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	for _, seq := range slices.Compact(seqs) {
		if l := logs[seq]; l == nil || !l.kept() {
			missing = append(missing, seq)
		} else if err := l.print(c.App.Writer, c.App.ErrWriter); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fault.Hint(fmt.Errorf("no output of %s is kept", journal.Tasks(missing)),
			"the ends of the output of failed tasks are kept, and that of all tasks with --output files")
	}
	return nil
}

// printFailed prints the output of failed tasks, each after a line that says how the task has ended.
func printFailed(c *cli.Context, logs taskLogs) error {
	if c.Args().Present() {
		return fault.Errorf(fault.Usage, "--failed takes no task")
	}
	w, printed := c.App.Writer, false
	for _, seq := range logs.seqs() {
		l := logs[seq]
		if t := l.past; t == nil || t.State() != journal.TaskFailed && (t.State() != journal.TaskLeft || !l.kept()) {
			continue
		}
		if printed {
			fmt.Fprintln(w)
		}
		printed = true
		fmt.Fprintf(w, "==> %s <==\n", app.Sanitize(l.title()))
		if err := l.print(w, w); err != nil {
			return err
		}
	}
	return nil
}

// title says which task it is, and how it has ended.
func (l *taskLog) title() string {
	t := l.past
	text := fmt.Sprintf("task %d", t.Seq)
	if t.Node != "" {
		text += " on " + t.Node
	}
	text += " " + scheduler.Outcome(&t.Record)
	if t.Command != "" {
		text += ": " + string(t.Command)
	}
	return text
}

// print prints the output of a task, and says what of it was not kept.
func (l *taskLog) print(stdout, stderr io.Writer) error {
	for i, w := range []io.Writer{stdout, stderr} {
		if name := l.files[i]; name != "" {
			if err := copyFile(w, name); err != nil {
				return err
			}
			continue
		}
		if l.past == nil || l.files != [2]string{} {
			continue
		}
		tail := []wire.Tail{l.past.Stdout, l.past.Stderr}[i]
		if cut := tail.Size - int64(len(tail.Text)); cut > 0 {
			fmt.Fprintf(stderr, "jobpool: task %d: the first %s of %s were not kept\n",
				l.past.Seq, unit.FormatSize(cut), [2]string{"standard output", "standard error"}[i])
		}
		if _, err := io.WriteString(w, string(tail.Text)); err != nil {
			return err
		}
	}
	return nil
}

// taskLogs are the logs by the numbers of their tasks.
type taskLogs map[int64]*taskLog

func (logs taskLogs) of(seq int64) *taskLog {
	if logs[seq] == nil {
		logs[seq] = &taskLog{}
	}
	return logs[seq]
}

func (logs taskLogs) seqs() []int64 {
	seqs := make([]int64, 0, len(logs))
	for seq := range logs {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	return seqs
}

// printAll prints the logs of all tasks, and those that a node has of all its tasks.
func (logs taskLogs) printAll(dir string, stdout, stderr io.Writer) error {
	printed := false
	for _, seq := range logs.seqs() {
		if l := logs[seq]; l.kept() {
			printed = true
			if err := l.print(stdout, stderr); err != nil {
				return err
			}
		}
	}
	for ext, w := range map[string]io.Writer{".out": stdout, ".err": stderr} {
		files, err := filepath.Glob(filepath.Join(dir, "logs", "*"+ext))
		if err != nil {
			return err
		}
		for _, name := range files {
			printed = true
			if err := copyFile(w, name); err != nil {
				return err
			}
		}
	}
	if !printed {
		return fault.Hint(fmt.Errorf("the run in %q has kept no output", dir),
			"the ends of the output of failed tasks are kept, and that of all tasks with --output files")
	}
	return nil
}

var logName = regexp.MustCompile(`^(\d+)(?:\.(\d+))?\.(out|err)$`)

// findLogs returns the files of the last attempt of each task that has any.
func findLogs(dir string) (taskLogs, error) {
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*", "*"))
	if err != nil {
		return nil, err
	}
	logs, last := taskLogs{}, map[int64]int{}
	for _, name := range files {
		m := logName.FindStringSubmatch(filepath.Base(name))
		if m == nil {
			continue
		}
		seq, e1 := strconv.ParseInt(m[1], 10, 64)
		attempt, e2 := strconv.Atoi(cmp.Or(m[2], "1"))
		if e1 != nil || e2 != nil || attempt < last[seq] {
			continue
		}
		l := logs.of(seq)
		if attempt > last[seq] {
			last[seq], l.files = attempt, [2]string{}
		}
		l.files[map[string]int{"out": 0, "err": 1}[m[3]]] = name
	}
	return logs, nil
}

func copyFile(w io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
