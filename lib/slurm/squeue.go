package slurm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
)

// Job is a job as squeue shows it, ended ones included for as long as the
// controller remembers them (MinJobAge).
type Job struct {
	ID       string
	State    string // Slurm's name in upper case, such as RUNNING
	Reason   string
	Exit     Exit // of the batch script
	Derived  Exit // the largest of its steps
	Restarts int
	Submit   time.Time
	Start    time.Time // expected or real; zero: not known
	Comment  string    // cut at 80 bytes
}

// Exit is how a program ended.
type Exit struct {
	Code   int
	Signal int
}

// Status is the exit status as a shell would tell it.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + e.Signal
	}
	return e.Code
}

// parseExit reads CODE:SIGNAL, or the wait status that squeue prints.
func parseExit(s string) (Exit, error) {
	code, signal, isPair := strings.Cut(s, ":")
	c, err1 := strconv.ParseUint(code, 10, 32)
	n, err2 := uint64(0), error(nil)
	if isPair {
		n, err2 = strconv.ParseUint(signal, 10, 32)
	} else {
		c, n = c>>8&0xff, c&0x7f
	}
	if err1 != nil || err2 != nil {
		return Exit{}, fmt.Errorf("%q is no exit code", s)
	}
	return Exit{int(c), int(n)}, nil
}

// queueFormat is what squeue is asked for. Columns of a fixed width can be told
// apart whatever is in them; the free text is last.
var queueFormat = []struct {
	field string
	width int
}{
	{"JobID", 20}, {"State", 20}, {"Reason", 40}, {"exit_code", 12}, {"DerivedEC", 12}, {"RestartCnt", 8},
	{"SubmitTime", 24}, {"StartTime", 24}, {"Comment", 80},
}

// queueArgs asks for all jobs of a user, by number.
func queueArgs(uid int) []string {
	fields := make([]string, len(queueFormat))
	for i, f := range queueFormat {
		fields[i] = fmt.Sprintf("%s:%d", f.field, f.width)
	}
	return []string{"--noheader", "--local", "--all", "--states=all", "--user=" + strconv.Itoa(uid), "--Format=" + strings.Join(fields, ",")}
}

// Queue returns all jobs of a user that the controller knows. They are read while
// squeue prints them.
func (c *Client) Queue(ctx context.Context, uid int) ([]Job, error) {
	var q queueReader
	_, err := c.Command(ctx, command.Cmd{Name: "squeue", Args: queueArgs(uid), Stdout: &q})
	if q.err != nil {
		return nil, q.err // what squeue says to its output being closed is of no use
	}
	if err != nil {
		return nil, err
	}
	return q.end()
}

// ParseQueue reads what squeue prints for Queue.
func ParseQueue(r io.Reader) ([]Job, error) {
	var q queueReader
	if _, err := io.Copy(&q, r); err != nil {
		if q.err != nil {
			return nil, q.err
		}
		return nil, parseError("squeue", q.lines+1, "%w", err)
	}
	return q.end()
}

// maxQueueLine bounds a line of squeue in bytes.
const maxQueueLine = 1 << 20

// queueReader reads lines of squeue as they are written to it.
type queueReader struct {
	jobs  []Job
	lines int
	rest  []byte // the beginning of a line
	err   error
	// Neighbours mostly have the same states, reasons and times.
	state, reason string
	times         [2]struct {
		text string
		time time.Time
	}
}

func (q *queueReader) Write(p []byte) (int, error) {
	all := len(p)
	for q.err == nil {
		line, more, ok := bytes.Cut(p, []byte{'\n'})
		if !ok {
			if q.rest = append(q.rest, p...); len(q.rest) > maxQueueLine {
				q.err = parseError("squeue", q.lines+1, "it is longer than %d bytes", maxQueueLine)
			}
			break
		}
		if len(q.rest) > 0 {
			line = append(q.rest, line...)
			q.rest = line[:0]
		}
		p = more
		q.line(line)
	}
	if q.err != nil {
		return 0, q.err
	}
	return all, nil
}

// end returns the jobs; the last line need not have a newline.
func (q *queueReader) end() ([]Job, error) {
	if q.err == nil && len(q.rest) > 0 {
		q.line(q.rest)
	}
	if q.err != nil {
		return nil, q.err
	}
	return q.jobs, nil
}

func (q *queueReader) line(line []byte) {
	q.lines++
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if len(line) == 0 {
		return
	}
	job, err := q.job(line)
	if err != nil {
		q.err = parseError("squeue", q.lines, "%w", err)
		return
	}
	q.jobs = append(q.jobs, job)
}

func (q *queueReader) job(line []byte) (Job, error) {
	var cells [9][]byte
	at := 0
	for i, f := range queueFormat {
		if at >= len(line) && i < len(queueFormat)-1 {
			return Job{}, fmt.Errorf("it ends after %d of %d columns", i, len(queueFormat))
		}
		end := min(at+f.width, len(line))
		if i == len(queueFormat)-1 {
			end = len(line)
		}
		cells[i] = bytes.TrimSpace(line[at:end])
		at = end
	}
	if id := cells[0]; len(id) == 0 || id[0] < '0' || id[0] > '9' {
		return Job{}, fmt.Errorf("%q is no job id", id)
	}
	if string(cells[1]) != q.state {
		if len(cells[1]) == 0 || len(bytes.Trim(cells[1], "ABCDEFGHIJKLMNOPQRSTUVWXYZ_")) != 0 {
			return Job{}, fmt.Errorf("%q is no state", cells[1])
		}
		q.state = string(cells[1])
	}
	if string(cells[2]) != q.reason {
		q.reason = string(cells[2])
	}
	// One string for both, as there are many.
	text := string(cells[0]) + string(cells[8])
	job := Job{ID: text[:len(cells[0])], State: q.state, Reason: q.reason, Comment: text[len(cells[0]):]}
	if job.Comment == "(null)" {
		job.Comment = ""
	}
	var err [5]error
	job.Exit, err[0] = parseExit(string(cells[3]))
	job.Derived, err[1] = parseExit(string(cells[4]))
	job.Restarts, err[2] = strconv.Atoi(string(cells[5]))
	job.Submit, err[3] = q.time(0, cells[6])
	job.Start, err[4] = q.time(1, cells[7])
	for _, e := range err {
		if e != nil {
			return Job{}, e
		}
	}
	return job, nil
}

// time reads a time of one of the two columns.
func (q *queueReader) time(column int, cell []byte) (time.Time, error) {
	last := &q.times[column]
	if string(cell) != last.text {
		t, err := ParseTime(string(cell))
		if err != nil {
			return t, err
		}
		last.text, last.time = string(cell), t
	}
	return last.time, nil
}
