package record

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Owner is the name of the symbolic link in a task's directory that names the job which runs the
// task. The first job to create it owns the task; a second job for the same task finds it and exits
// without doing anything.
func Owner(attempt int) string { return "owner." + strconv.Itoa(attempt) }

// ReadOwner returns the job that owns the task, or "" if none does. A missing directory is an error,
// as it says nothing about owners.
func ReadOwner(dir string, attempt int) (string, error) {
	job, err := os.Readlink(filepath.Join(dir, Owner(attempt)))
	if !errors.Is(err, fs.ErrNotExist) {
		return job, err
	}
	_, err = os.Stat(dir)
	return "", err
}

// LastOwner returns the job that owns the last attempt of a task that a job has begun, or "" if there is none.
func LastOwner(dir string) (attempt int, job string, err error) {
	names, err := os.ReadDir(dir)
	for _, e := range names {
		text, ok := strings.CutPrefix(e.Name(), "owner.")
		if n, err := strconv.Atoi(text); ok && err == nil && n > attempt {
			attempt = n
		}
	}
	if err != nil || attempt == 0 {
		return 0, "", err
	}
	job, err = ReadOwner(dir, attempt)
	return attempt, job, err
}

// Run is what the job script has recorded of one start of a job. A job that the scheduler requeues
// has a run for each start.
type Run struct {
	Restart int // the scheduler's restart count, from 0
	// Begun says that the command may have run.
	Begun bool
	// Ended says that the command has ended by itself, with Code. No later start of the job runs it
	// again.
	Ended bool
	// Cut says that the command has ended, with Code, after the job was asked to end: at a time
	// limit, by preemption, or because it was cancelled. If the scheduler requeues the job, the
	// command is run again.
	Cut bool
	// Closed says that the job script has written the last line of the journal. Before that, it may
	// still receive a request to end.
	Closed bool
	Code   int
	Used   Used
}

// Used is the resource use of one start of a job, where it was measured.
type Used struct {
	CPU    time.Duration // 0: not known
	Memory int64         // bytes: the highest sample; 0: not known
}

// Over reports whether the command has ended, by itself or on request.
func (r Run) Over() bool { return r.Ended || r.Cut }

// Interrupted is the reason of a task whose command has ended with exit code 0 after the job was asked to
// end: nobody knows whether all was done.
const Interrupted = "the command ended with exit code 0 after a signal had asked the job to end"

// Journal is the name of the file in a task's directory that has the journal of one start of a job.
func Journal(job string, restart int) string { return fmt.Sprintf("run.%s.%d", job, restart) }

// WriteRun adds a line to a journal for a job script that was killed before it could: word is "ended"
// or "cut".
func WriteRun(dir, job string, restart int, word string, code int) error {
	return addTo(filepath.Join(dir, Journal(job, restart)), fmt.Sprintf("%s %d", word, code))
}

// WriteUsed adds the resource use of a start to its journal.
func WriteUsed(dir, job string, restart int, u Used) error {
	return addTo(filepath.Join(dir, Journal(job, restart)), usedLine(u))
}

func usedLine(u Used) string { return fmt.Sprintf("used %d %d", u.CPU.Microseconds(), u.Memory) }

// addTo adds a line to a file, and makes that.
func addTo(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(add(f, line), f.Close())
}

// add adds a line to a journal, and brings it to the disk. What an earlier try has left of it stays a line of
// its own.
func add(f *os.File, line string) error {
	_, err := fmt.Fprintf(f, "\n%s;\n", line)
	return errors.Join(err, f.Sync())
}

// ParseRun reads a journal: lines "begun HOST PID START;", "used MICROSECONDS 0;", "exited CODE;", and right after that
// "ended CODE;" or "cut CODE;", depending on whether the job script has received a request to end. If
// that line is missing, the script was killed: the command has ended by itself, unless a signal
// ended it. A pilot adds "used MICROSECONDS BYTES;". A line that was truncated by a full disk does
// not count; after a retry, a line may occur twice.
func ParseRun(b []byte) Run {
	var r Run
	for line := range strings.Lines(string(b)) {
		text, whole := strings.CutSuffix(line, ";\n")
		word, rest, _ := strings.Cut(text, " ")
		if !whole {
			// The command runs only after the whole line was written; a truncated one may be complete
			// in another host's cache.
			if word == "begun" {
				r.Begun, r.Cut, r.Closed = true, false, false
			}
			continue
		}
		if word == "used" {
			r.Used = parseUsed(rest)
			continue
		}
		code, err := strconv.Atoi(rest)
		switch {
		case word == "begun":
			r.Begun, r.Cut, r.Closed = true, false, false // begun once more
		case (word == "ended" || word == "cut") && err == nil && code >= 0 && code < 256:
			r.Begun, r.Code = true, code
			r.Ended, r.Cut, r.Closed = word == "ended", word == "cut", true
		case word == "exited" && err == nil && code >= 0 && code < 256:
			r.Begun, r.Code = true, code
			r.Ended, r.Cut, r.Closed = code < 128, code >= 128, false
		}
	}
	return r
}

// parseBegun returns who has begun in a journal.
func parseBegun(b []byte, restart int) (all []Begun) {
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(strings.TrimSuffix(line, ";\n"))
		if len(f) < 2 || f[0] != "begun" {
			continue
		}
		begun := Begun{Restart: restart, Host: f[1]}
		if len(f) == 4 { // not one that a full disk has cut off: its command has not begun
			begun.PID, _ = strconv.Atoi(f[2])
			begun.Started, _ = strconv.ParseUint(f[3], 10, 64)
		}
		all = append(all, begun)
	}
	return all
}

// parseUsed parses microseconds and bytes; an invalid number is not known.
func parseUsed(text string) (u Used) {
	cpu, memory, _ := strings.Cut(text, " ")
	if us, err := strconv.ParseInt(cpu, 10, 64); err == nil && us > 0 && us < math.MaxInt64/int64(time.Microsecond) {
		u.CPU = time.Duration(us) * time.Microsecond
	}
	if bytes, err := strconv.ParseInt(memory, 10, 64); err == nil && bytes > 0 {
		u.Memory = bytes
	}
	return u
}

// ReadRun returns the run of a job that counts: one in which the command has ended by itself, or else
// the last one. It is the zero value if no start has written anything. A missing directory is an
// error.
func ReadRun(dir, job string) (Run, error) {
	run, _, err := read(dir, job)
	return run, err
}

// read is ReadRun, and returns who has begun.
func read(dir, job string) (last Run, begun []Begun, err error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return Run{}, nil, err
	}
	for _, e := range names {
		text, ok := strings.CutPrefix(e.Name(), "run."+job+".")
		restart, err := strconv.Atoi(text)
		if !ok || err != nil || restart < 0 {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return Run{}, nil, err
		}
		r := ParseRun(b)
		r.Restart = restart
		switch {
		case r.Ended == last.Ended && (restart > last.Restart || !last.Begun), r.Ended && !last.Ended:
			last = r
		}
		begun = append(begun, parseBegun(b, restart)...)
	}
	return last, begun, nil
}

// Node returns the node on which the last start of the job began, by its journals; "" if that is
// unknown.
func Node(dir, job string) string {
	run, begun, _ := read(dir, job)
	name := ""
	for _, b := range begun {
		if b.Restart == run.Restart {
			name = b.Host
		}
	}
	return name
}
