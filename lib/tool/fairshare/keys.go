package fairshare

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// screen is a view that is steered by keys while it is watched on a terminal.
type screen interface {
	// key takes a key; draw is that the screen changes, ask that Slurm is asked first.
	key(name string) (draw, ask bool)
	// typed is whether letters are text, and no keys.
	typed() bool
	// help is the last line.
	help() string
	// fit reports how many lines there are; 0: not known.
	fit(lines int)
}

// queueScreen is the list of jobs as keys steer it. It shows one of three things; what is behind it is the last look at the queue.
//
//	list --enter--> details --l--> log        esc: back to the list
//	list --l--> log
type queueScreen struct {
	query   queueQuery
	last    *queueView
	me      string
	mine    bool
	sorted  int // index into sortings
	filter  string
	typing  bool
	chosen  string // the label of a job
	lines   int
	first   int   // row on the screen
	rows    []int // of the last look, those on the screen
	matched int   // how many rows the filter left

	shows    shown
	gone     string     // why there is neither details nor log
	details  *queueView // of the chosen job
	scrolled int        // lines of them that are above the screen
	log      string     // its path
	tail     []string
}

// shown is what stands on the screen.
type shown int

const (
	theList shown = iota
	theDetails
	theLog
)

// sortings are the orders of the list; the first is that of the scheduler.
var sortings = []struct {
	name string
	less func(a, b *slurm.Job) int
}{
	{"rank", nil},
	{"submission", func(a, b *slurm.Job) int { return int(max(-1, min(1, a.Submit-b.Submit))) }},
	{"start", func(a, b *slurm.Job) int { return int(max(-1, min(1, unplannedLast(a)-unplannedLast(b)))) }},
	{"user", func(a, b *slurm.Job) int { return strings.Compare(a.User, b.User) }},
}

func unplannedLast(j *slurm.Job) int64 {
	if j.Start == 0 {
		return 1 << 60
	}
	return j.Start
}

// arrange filters and sorts the rows, and keeps the chosen one in sight.
func (s *queueScreen) arrange() {
	if s.last == nil {
		return
	}
	s.rows = s.filtered()
	s.matched = len(s.rows)
	at := s.chosenRow(s.rows)
	if at < 0 && len(s.rows) > 0 {
		at, s.chosen = 0, s.last.jobs[s.rows[0]].Label
	}
	if room := s.lines - 6; s.lines > 0 && room > 0 && len(s.rows) > room {
		s.first = max(at-room+1, min(s.first, at, len(s.rows)-room), 0)
		s.rows = s.rows[s.first : s.first+room]
	} else {
		s.first = 0
	}
}

// filtered are the rows that the filter leaves, in the order that was chosen.
func (s *queueScreen) filtered() (rows []int) {
	jobs := s.last.jobs
	for _, i := range s.last.rows {
		j := &jobs[i]
		text := strings.ToLower(strings.Join([]string{j.Label, j.User, j.Account, j.Partition, j.QOS, j.Name, j.Reason, j.State}, " "))
		if (!s.mine || j.User == s.me) && strings.Contains(text, strings.ToLower(s.filter)) {
			rows = append(rows, i)
		}
	}
	if less := sortings[s.sorted].less; less != nil {
		slices.SortStableFunc(rows, func(a, b int) int { return less(&jobs[a], &jobs[b]) })
	}
	return rows
}

// chosenRow is the place of the chosen job among rows, or -1.
func (s *queueScreen) chosenRow(rows []int) int {
	return slices.IndexFunc(rows, func(i int) bool { return s.last.jobs[i].Label == s.chosen })
}

func (s *queueScreen) typed() bool { return s.typing }

func (s *queueScreen) fit(lines int) {
	s.lines = lines
	s.arrange()
}

func (s *queueScreen) help() string {
	switch {
	case s.typing:
		return "filter: " + app.Sanitize(s.filter) + "_  enter keeps it, esc ends it"
	case s.shows == theLog && s.gone == "":
		return "esc:back q:quit"
	case s.shows != theList:
		return "j/k:scroll esc:back l:log q:quit"
	}
	var on []string
	if s.sorted > 0 {
		on = append(on, "by "+sortings[s.sorted].name)
	}
	if s.mine {
		on = append(on, "mine")
	}
	if s.filter != "" {
		on = append(on, "filter "+app.Sanitize(s.filter))
	}
	text := "j/k enter:details l:log s:sort /:filter m:mine r:running q:quit"
	if len(on) > 0 {
		text = "[" + strings.Join(on, ", ") + "] " + text
	}
	return text
}

// key steers the list of jobs.
func (s *queueScreen) key(name string) (draw, ask bool) {
	switch {
	case s.typing:
		s.edit(name)
	case s.shows != theList:
		return s.keyInside(name)
	default:
		if draw, ask = s.keyInList(name); !draw {
			return false, false
		}
	}
	s.arrange()
	return true, ask
}

// edit takes a key as text of the filter.
func (s *queueScreen) edit(name string) {
	switch {
	case name == app.KeyEnter:
		s.typing = false
	case name == app.KeyEscape:
		s.typing, s.filter = false, ""
	case name == app.KeyBack && s.filter != "":
		r := []rune(s.filter)
		s.filter = string(r[:len(r)-1])
	case len([]rune(name)) == 1:
		s.filter += name
	}
}

// keyInside takes a key while details or a log are shown.
func (s *queueScreen) keyInside(name string) (draw, ask bool) {
	switch name {
	case app.KeyEscape, app.KeyBack:
		s.open(theList)
		return true, true
	case "l":
		s.open(theLog)
		return true, true
	case "j", app.KeyDown:
		s.scrolled++
	case "k", app.KeyUp:
		s.scrolled = max(0, s.scrolled-1)
	default:
		return false, false
	}
	return true, false
}

func (s *queueScreen) open(what shown) {
	s.shows, s.gone, s.details, s.log, s.tail, s.scrolled = what, "", nil, "", nil, 0
}

func (s *queueScreen) keyInList(name string) (draw, ask bool) {
	switch name {
	case "j", app.KeyDown:
		s.step(1)
	case "k", app.KeyUp:
		s.step(-1)
	case app.KeyEnter, "l":
		if s.chosen == "" {
			return true, false
		}
		if s.open(theDetails); name == "l" {
			s.open(theLog)
		}
		return true, true
	case "s":
		s.sorted = (s.sorted + 1) % len(sortings)
	case "/":
		s.typing = true
	case "m":
		s.mine = !s.mine
	case "r":
		s.query.running = !s.query.running
		return true, true
	case " ":
		return true, true
	case app.KeyEscape:
		s.filter = ""
	default:
		return false, false
	}
	return true, false
}

// step chooses the row that is so many below.
func (s *queueScreen) step(by int) {
	if s.last == nil {
		return
	}
	if rows := s.filtered(); len(rows) > 0 {
		s.chosen = s.last.jobs[rows[max(0, min(len(rows)-1, s.chosenRow(rows)+by))]].Label
	}
}

// load asks for what is shown. A look that fails leaves what the last one showed.
func (s *queueScreen) load(ctx context.Context) (answer, error) {
	var err error
	switch {
	case s.gone != "":
	case s.shows == theLog:
		err = s.readLog(ctx)
	case s.shows == theDetails:
		of := queueQuery{ask: s.query.ask, budget: s.query.budget, ids: []string{s.chosen}}
		var details *queueView
		if details, err = of.look(ctx); fault.KindOf(err) == fault.Usage {
			s.gone, err = "job "+s.chosen+" is no longer in the queue", nil
		} else if err == nil {
			s.details = details
		}
	default:
		var next *queueView
		if next, err = s.query.look(ctx); err == nil {
			s.last = next
			s.arrange()
		}
	}
	return s, err
}

func (s *queueScreen) json(w io.Writer) error { return s.last.json(w) }
func (s *queueScreen) metrics() []metric      { return s.last.metrics() }
func (s *queueScreen) clusterName() string    { return s.last.clusterName() }

// maxLog is how much of the end of a log is read.
const maxLog = 64 << 10

// readLog reads the end of what the chosen job has written.
func (s *queueScreen) readLog(ctx context.Context) error {
	jobs := s.last.jobs
	at := slices.IndexFunc(jobs, func(j slurm.Job) bool { return j.Label == s.chosen })
	if at < 0 {
		s.gone = "job " + s.chosen + " is no longer in the queue"
		return nil
	}
	details, err := s.query.ask.Client.JobDetails(ctx, planner.RawID(jobs[at].ID))
	if err != nil {
		return err
	}
	if len(details) == 0 || details[0].StdOut == "" {
		s.gone = "Slurm reports no log of job " + s.chosen
		return nil
	}
	text, err := endOf(details[0].StdOut)
	if err != nil {
		s.gone = "no log: " + fault.Text(err)
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	s.log, s.tail = details[0].StdOut, lines[max(0, len(lines)-max(1, s.lines-5)):]
	return nil
}

// endOf is the end of a regular file; of anything else, nothing.
func endOf(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fault.Errorf(fault.Failed, "%s is not a file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > maxLog {
		if _, err := f.Seek(-maxLog, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, maxLog))
}

func (s *queueScreen) text(p *page) error {
	switch {
	case s.gone != "":
		p.line("", "%s", s.gone)
	case s.shows == theLog:
		p.printf("%s\n", p.paint(bold, app.Sanitize(s.log)))
		for _, line := range s.tail {
			p.printf("%s\n", app.Cut(app.Sanitize(line), max(1, p.width)))
		}
	case s.shows == theDetails && s.details != nil:
		var b bytes.Buffer
		inner := newPage(&b, p.width, p.color)
		if err := errors.Join(s.details.text(inner), inner.Flush()); err != nil {
			return err
		}
		lines := strings.SplitAfter(b.String(), "\n")
		s.scrolled = max(0, min(s.scrolled, len(lines)-max(3, s.lines)+2)) // a height may be unknown, or tiny
		p.print(strings.Join(lines[s.scrolled:], ""))
	case s.matched == 0 && len(s.last.rows) > 0:
		p.line("", "no job matches the filter")
	case s.matched == 0:
		return s.last.text(p)
	default:
		s.last.list(p, s.rows, s.chosen)
	}
	return nil
}
