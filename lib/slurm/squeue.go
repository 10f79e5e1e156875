package slurm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
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

// Queue returns all jobs of a user that the controller knows.
func (c *Client) Queue(ctx context.Context, uid int) ([]Job, error) {
	out, err := c.Output(ctx, 0, "squeue", queueArgs(uid)...)
	if err != nil {
		return nil, err
	}
	return ParseQueue(bytes.NewReader(out))
}

// ParseQueue reads what squeue prints for Queue.
func ParseQueue(r io.Reader) ([]Job, error) {
	var jobs []Job
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if line == "" {
			continue
		}
		var cells [9]string
		at := 0
		for i, f := range queueFormat {
			if at >= len(line) && i < len(queueFormat)-1 {
				return nil, parseError("squeue", n, "it ends after %d of %d columns", i, len(queueFormat))
			}
			end := min(at+f.width, len(line))
			if i == len(queueFormat)-1 {
				end = len(line)
			}
			cells[i] = strings.TrimSpace(line[at:end])
			at = end
		}
		job := Job{ID: cells[0], State: cells[1], Reason: cells[2], Comment: cells[8]}
		if job.Comment == "(null)" {
			job.Comment = ""
		}
		if job.ID == "" || job.ID[0] < '0' || job.ID[0] > '9' {
			return nil, parseError("squeue", n, "%q is no job id", cells[0])
		}
		if job.State == "" || strings.Trim(job.State, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
			return nil, parseError("squeue", n, "%q is no state", cells[1])
		}
		var err [5]error
		job.Exit, err[0] = parseExit(cells[3])
		job.Derived, err[1] = parseExit(cells[4])
		job.Restarts, err[2] = strconv.Atoi(cells[5])
		job.Submit, err[3] = ParseTime(cells[6])
		job.Start, err[4] = ParseTime(cells[7])
		for _, e := range err {
			if e != nil {
				return nil, parseError("squeue", n, "%w", e)
			}
		}
		jobs = append(jobs, job)
	}
	if err := lines.Err(); err != nil {
		return nil, parseError("squeue", len(jobs)+1, "%w", err)
	}
	return jobs, nil
}
