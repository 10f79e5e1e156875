package run

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/metrics"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// screen is where a run is shown: a view that is drawn again in its place on a terminal, and lines elsewhere. Of a single task the log is
// shown, and nothing else.
type screen struct {
	r       *running
	keys    <-chan string // nil: there are none
	restore func()
	inPlace bool
	raw     bool
	height  int // lines of the view on the terminal
	said    string
	drawn   time.Time
	text    string    // drawn last
	counted string    // printed last
	waited  string    // the reason for which nothing runs, printed last
	idle    time.Time // since when nothing has run; after a line, since that
}

func openScreen(r *running, stdin io.Reader) *screen {
	s := &screen{r: r}
	if r.single != "" || !progress.Shows(r.stderr) {
		return s
	}
	s.inPlace = true
	if keys, restore, ok := app.ReadKeys(stdin); ok {
		s.keys, s.restore, s.raw = keys, restore, true
	}
	return s
}

// close takes the view away, and gives the terminal back.
func (s *screen) close() {
	if s.height > 0 {
		fmt.Fprint(s.r.stderr, s.up())
		s.height = 0
	}
	if s.restore != nil {
		s.restore()
		s.restore = nil
	}
	s.inPlace, s.raw, s.keys = false, false, nil
}

// up goes to the first line of the view, and erases from there.
func (s *screen) up() string {
	if s.height == 0 {
		return "\r\x1b[J"
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", s.height)
}

// say shows a line.
func (s *screen) say(text string) {
	if s.inPlace {
		s.said, s.text = text, ""
		return
	}
	fmt.Fprintf(s.r.stderr, "%s: %s\n", name, text)
}

// show shows the state of the tasks.
func (s *screen) show(tasks []queue.Summary, notes *notes, now time.Time) {
	fresh, note := notes.take()
	if !s.inPlace {
		s.print(fresh)
		s.lines(tasks, now)
		return
	}
	if s.said != "" {
		note = s.said
	}
	if now.Sub(s.drawn) < redraw && s.text != "" && !now.Before(s.drawn) {
		return
	}
	v := view{
		name: s.r.group, where: s.r.where, tasks: tasks, began: s.r.began, note: note, keys: s.keys != nil, why: s.r.why,
		metrics: s.r.metrics(),
	}
	text := strings.Join(v.lines(now, app.Width(s.r.stderr), app.Height(s.r.stderr)), "\n") + "\n"
	s.drawn = now
	if text == s.text {
		return
	}
	s.text = text
	if s.raw {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	fmt.Fprint(s.r.stderr, s.up()+text)
	s.height = strings.Count(text, "\n")
}

// flush prints what the agent has said, and was not shown yet.
func (s *screen) flush(notes *notes) {
	fresh, _ := notes.take()
	s.print(fresh)
}

func (s *screen) print(lines []string) {
	for _, text := range lines {
		fmt.Fprintf(s.r.stderr, "%s: %s\n", name, text)
	}
}

// waits prints why nothing runs, where that lasts, and again when it changes.
func (s *screen) waits(tasks []queue.Summary, now time.Time) {
	why := waitsFor(tasks)
	switch {
	case why == "" || s.idle.IsZero() || now.Before(s.idle):
		s.idle = now
	case why != s.waited && now.Sub(s.idle) >= showAnyway:
		s.waited, s.idle = why, now
		s.print([]string{"waits: " + why})
	}
}

// waitsFor is what tasks wait for of which none runs; "": some do, or nothing is known of them.
func waitsFor(tasks []queue.Summary) (why string) {
	for _, t := range tasks {
		switch {
		case t.State.Final():
		case !t.Started.IsZero():
			return ""
		case why == "":
			why = task.Clean(t.Reason)
		}
	}
	return why
}

// lines prints a line when there is something new to count, where there is no terminal.
func (s *screen) lines(tasks []queue.Summary, now time.Time) {
	s.waits(tasks, now)
	if s.r.single != "" || len(tasks) == 0 {
		return
	}
	counted := tasklist.CountOf(tasks).String()
	if counted == s.counted || s.counted != "" && now.Sub(s.drawn) < showAnyway && !now.Before(s.drawn) {
		return
	}
	first := s.counted == ""
	s.counted, s.drawn = counted, now
	if first {
		counted += ", " + s.r.where
	}
	fmt.Fprintf(s.r.stderr, "%s: %s: %s\n", name, s.r.group, counted)
}

// view is what is to be seen of a run at a time.
type view struct {
	name, where string
	tasks       []queue.Summary
	began       time.Time
	note        string
	keys        bool
	why         func(queue.Summary) string // the reason of a failure, and its last line
	metrics     func(queue.Summary) string // of a task that runs
}

// states are the parts of the bar, in its order, and their characters.
var states = []struct {
	state task.State
	char  string
}{
	{task.Completed, "#"}, {task.Failed, "x"}, {task.Error, "x"}, {task.Stopped, "-"},
	{task.Stopping, ">"}, {task.Running, ">"}, {task.Pending, "."},
}

// longName is how much of a name is shown, in columns.
const longName = 24

// lines are the lines of the view, at most one screen of them. A width or height of 0 is not known.
func (v view) lines(now time.Time, width, height int) []string {
	width, height = cmp.Or(width, 80), cmp.Or(height, 24)
	count := tasklist.CountOf(v.tasks)
	lines := []string{fmt.Sprintf("%s: %s, %s", v.name, count, v.where), v.bar(width-1, v.left(now))}
	room := height - len(lines) - 2 // below are the keys, and the line of the cursor
	if v.note != "" {
		room--
	}
	room = max(0, room)
	var running, bad, waits []queue.Summary
	for _, t := range v.tasks {
		switch {
		case !t.State.Final() && !t.Started.IsZero():
			running = append(running, t)
		case t.State.Final() && t.State != task.Completed:
			bad = append(bad, t)
		case !t.State.Final():
			waits = append(waits, t)
		}
	}
	slices.SortStableFunc(bad, func(a, b queue.Summary) int { return b.Ended.Compare(a.Ended) })
	each := max(1, room/3)
	add := func(tasks []queue.Summary, what string, text func(queue.Summary) string) {
		shown := min(len(tasks), each, room)
		for _, t := range tasks[:shown] {
			called := app.Fill(app.Cut(task.Clean(t.Slug), longName), min(longName, v.widest()))
			lines = append(lines, fmt.Sprintf("  %-9s %s  %s", t.State, called, text(t)))
		}
		if room -= shown; shown < len(tasks) && room > 0 && shown > 0 {
			lines = append(lines, fmt.Sprintf("  and %d more %s", len(tasks)-shown, what))
			room--
		}
	}
	add(bad, "that have not completed", v.why)
	add(running, "that run", func(t queue.Summary) string {
		return strings.TrimRight(fmt.Sprintf("%s  %s", max(0, now.Sub(t.Started)).Truncate(time.Second), v.metrics(t)), " ")
	})
	add(waits, "that wait", func(t queue.Summary) string { return task.Clean(t.Reason) })
	if v.note != "" {
		lines = append(lines, v.note)
	}
	if v.keys {
		lines = append(lines, "q leaves the run, which goes on; ^C ^C cancels it")
	}
	for i := range lines {
		lines[i] = app.Cut(app.Sanitize(lines[i]), width-1)
	}
	return lines[:min(len(lines), max(1, height-1))]
}

// widest is how wide the widest name is.
func (v view) widest() (width int) {
	for _, t := range v.tasks {
		width = max(width, app.TextWidth(t.Slug))
	}
	return width
}

// bar draws the states of the tasks, in front of what is known of the end, for which there is room in any case.
func (v view) bar(width int, left string) string {
	count := tasklist.CountOf(v.tasks)
	if width = min(width, 78) - 2; left != "" {
		left = "  " + left
		width -= len(left)
	}
	if count.Total == 0 || width < 1 {
		return strings.TrimSpace(left)
	}
	var b strings.Builder
	done, drawn := 0, 0
	for _, s := range states {
		done += count.By[s.state]
		to := done * width / count.Total
		b.WriteString(strings.Repeat(s.char, to-drawn))
		drawn = to
	}
	return "[" + b.String() + "]" + left
}

// left is the rate at which tasks have ended, and how long those take that have not, at that rate; "": that is not known.
func (v view) left(now time.Time) string {
	ended, open := 0, 0
	for _, t := range v.tasks {
		switch {
		case !t.State.Final():
			open++
		case t.Ended.After(v.began):
			ended++
		}
	}
	const enough = 5 // to make a rate of
	passed := now.Sub(v.began)
	if ended < enough || open == 0 || passed <= 0 {
		return ""
	}
	left := time.Duration(float64(passed) * float64(open) / float64(ended)).Truncate(time.Second)
	return fmt.Sprintf("%s, about %s left", progress.Rate(float64(ended)/passed.Seconds()), max(time.Second, left))
}

// metrics returns what words a task's metrics. One that cannot be read is told by ponos-list: it may be half written now.
func (r *running) metrics() func(queue.Summary) string {
	numbers := tasklist.OpenMetrics(r.spool)
	return func(t queue.Summary) string {
		values, _ := numbers.Running(t)
		var words []string
		for _, name := range values.Names() {
			words = append(words, name+" "+metrics.Short(values[name]))
		}
		return strings.Join(words, "  ")
	}
}

// why is the reason of a task, and the last line that it has written.
func (r *running) why(t queue.Summary) string {
	text := task.Clean(t.Reason)
	if line := r.lastLine(t.ID); line != "" {
		text += ": " + line
	}
	return text
}

// lastLine is the last line of a log that the task has written; "" if there is none.
func (r *running) lastLine(id task.ID) string {
	if line, ok := r.ends[id]; ok {
		return line
	}
	path := r.spool.Log(id)
	const lines = 20
	from, err := tasklist.Tail(path, lines)
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return ""
	}
	const most = 64 << 10
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	line := ownLine(string(b), r.config.Logging.TaskFormat)
	if r.ends == nil {
		r.ends = map[task.ID]string{}
	}
	r.ends[id] = line
	return line
}

// ownLine is the last line of a text that is not the agent's, whose lines have a format.
func ownLine(text, format string) string {
	prefix, _, _ := strings.Cut(format, "%")
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" && (prefix == "" || !strings.HasPrefix(line, prefix)) {
			return task.Clean(line)
		}
	}
	return ""
}
