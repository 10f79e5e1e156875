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

// queueScreen is how the list of jobs is steered.
type queueScreen struct {
	me      string
	all     []int // the rows before they were filtered
	mine    bool
	running bool
	sorted  int // index into sortings
	filter  string
	typing  bool
	chosen  string // the label of a job
	lines   int
	first   int // row on the screen

	details  *queueView // of the chosen job
	scrolled int        // lines of them that are above the screen
	log      string     // its path
	tail     []string
	gone     string // why there is nothing to show
}

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
func (v *queueView) arrange() {
	s := v.screen
	if s == nil {
		return
	}
	v.rows = v.rows[:0]
	for _, i := range s.all {
		j := &v.jobs[i]
		text := strings.ToLower(strings.Join([]string{j.Label, j.User, j.Account, j.Partition, j.QOS, j.Name, j.Reason, j.State}, " "))
		if (!s.mine || j.User == s.me) && strings.Contains(text, strings.ToLower(s.filter)) {
			v.rows = append(v.rows, i)
		}
	}
	if less := sortings[s.sorted].less; less != nil {
		slices.SortStableFunc(v.rows, func(a, b int) int { return less(&v.jobs[a], &v.jobs[b]) })
	}
	at := max(0, v.chosenRow())
	if len(v.rows) > 0 && v.chosenRow() < 0 {
		s.chosen = v.jobs[v.rows[0]].Label
	}
	if room := s.lines - 6; s.lines > 0 && room > 0 && len(v.rows) > room {
		s.first = max(0, min(s.first, at, len(v.rows)-room))
		if at >= s.first+room {
			s.first = at - room + 1
		}
		v.rows = v.rows[s.first : s.first+room]
	} else {
		s.first = 0
	}
}

// chosenRow is the place of the chosen job among the rows, or -1.
func (v *queueView) chosenRow() int {
	return slices.IndexFunc(v.rows, func(i int) bool { return v.jobs[i].Label == v.screen.chosen })
}

func (v *queueView) typed() bool { return v.screen.typing }

func (v *queueView) fit(lines int) { v.screen.lines = lines }

func (v *queueView) help() string {
	s := v.screen
	switch {
	case s.typing:
		return "filter: " + app.Sanitize(s.filter) + "_  enter keeps it, esc ends it"
	case s.log != "":
		return "esc:back q:quit"
	case s.details != nil || s.gone != "":
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
func (v *queueView) key(name string) (draw, ask bool) {
	s := v.screen
	if s.typing {
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
		v.arrange()
		return true, false
	}
	if s.details != nil || s.log != "" || s.gone != "" {
		switch name {
		case app.KeyEscape, app.KeyBack:
			s.details, s.log, s.tail, s.gone = nil, "", nil, ""
			return true, true
		case "l":
			s.details, s.gone, s.log = nil, "", "?"
			return true, true
		case "j", app.KeyDown:
			s.scrolled++
			return true, false
		case "k", app.KeyUp:
			s.scrolled = max(0, s.scrolled-1)
			return true, false
		}
		return false, false
	}
	s.scrolled = 0
	switch name {
	case "j", app.KeyDown, "k", app.KeyUp:
		all := s.first + v.chosenRow()
		v.unwindow()
		if name == "j" || name == app.KeyDown {
			all++
		} else {
			all--
		}
		if len(v.rows) > 0 {
			s.chosen = v.jobs[v.rows[max(0, min(len(v.rows)-1, all))]].Label
		}
	case app.KeyEnter:
		if s.chosen != "" {
			s.details = &queueView{ask: v.ask, ids: []string{s.chosen}}
			return true, true
		}
	case "l":
		if s.chosen != "" {
			s.log = "?"
			return true, true
		}
	case "s":
		s.sorted = (s.sorted + 1) % len(sortings)
	case "/":
		s.typing = true
	case "m":
		s.mine = !s.mine
	case "r":
		s.running = !s.running
		return true, true
	case " ":
		return true, true
	case app.KeyEscape:
		s.filter = ""
	default:
		return false, false
	}
	v.arrange()
	return true, false
}

// unwindow takes all rows again that are not filtered out.
func (v *queueView) unwindow() {
	lines := v.screen.lines
	v.screen.lines = 0
	first := v.screen.first
	v.arrange()
	v.screen.lines, v.screen.first = lines, first
}

// inside requests what is shown instead of the list; done is whether that is all.
func (v *queueView) inside(ctx context.Context) (done bool, err error) {
	s := v.screen
	switch {
	case s == nil:
		return false, nil
	case s.log != "":
		return true, v.readLog(ctx)
	case s.details != nil:
		if err := s.details.load(ctx); fault.KindOf(err) == fault.Usage {
			s.details, s.gone = nil, "job "+s.chosen+" is no longer in the queue"
		} else if err != nil {
			return true, err
		}
		return true, nil
	case s.gone != "":
		return true, nil
	}
	return false, nil
}

// maxLog is how much of the end of a log is read.
const maxLog = 64 << 10

// readLog reads the end of what the chosen job has written.
func (v *queueView) readLog(ctx context.Context) error {
	s := v.screen
	s.tail, s.gone = nil, ""
	at := slices.IndexFunc(v.jobs, func(j slurm.Job) bool { return j.Label == s.chosen })
	if at < 0 {
		s.log, s.gone = "", "job "+s.chosen+" is no longer in the queue"
		return nil
	}
	details, err := v.ask.Client.JobDetails(ctx, planner.RawID(v.jobs[at].ID))
	if err != nil {
		return err
	}
	if len(details) == 0 || details[0].StdOut == "" {
		s.log, s.gone = "", "Slurm reports no log of job "+s.chosen
		return nil
	}
	s.log = details[0].StdOut
	text, err := endOf(s.log)
	if err != nil {
		s.log, s.gone = "", "no log: "+fault.Text(err)
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	s.tail = lines[max(0, len(lines)-max(1, s.lines-5)):]
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

// screenText writes what is shown instead of the list; done is whether that is all.
func (v *queueView) screenText(p *page) (done bool, err error) {
	s := v.screen
	switch {
	case s == nil:
		return false, nil
	case s.gone != "":
		p.line("", "%s", s.gone)
	case s.log != "":
		p.printf("%s\n", p.paint(bold, app.Sanitize(s.log)))
		for _, line := range s.tail {
			p.printf("%s\n", app.Cut(app.Sanitize(line), max(1, p.width)))
		}
	case s.details != nil:
		var b bytes.Buffer
		inner := newPage(&b, p.width, p.color)
		if err := errors.Join(s.details.text(inner), inner.Flush()); err != nil {
			return true, err
		}
		lines := strings.SplitAfter(b.String(), "\n")
		s.scrolled = max(0, min(s.scrolled, len(lines)-max(3, s.lines)+2)) // a height may be unknown, or tiny
		p.print(strings.Join(lines[s.scrolled:], ""))
	default:
		return false, nil
	}
	return true, nil
}
