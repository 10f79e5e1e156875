package slurm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/fault"
)

// Record is what accounting knows of a job's last run.
type Record struct {
	ID      string
	State   string // without what follows it, such as "by 0" of CANCELLED
	By      string // uid of the one who cancelled it
	Submit  time.Time
	End     time.Time
	Comment string // empty unless the cluster stores comments, and until the end
	Name    string
	Batch   Exit
	Steps   []Exit // in the order they were started, the batch step first
}

// FirstFailure is the first exit of a step that is not zero, the batch step's
// first; zero if all went well.
func (r Record) FirstFailure() Exit {
	for _, e := range append([]Exit{r.Batch}, r.Steps...) {
		if e != (Exit{}) {
			return e
		}
	}
	return Exit{}
}

// ErrNoAccounting says that the cluster keeps no accounts.
var ErrNoAccounting = errors.New("the cluster keeps no accounting")

// unit separates fields: no name, state or time can hold it.
const unit = "\x1f"

// maxAccount bounds how many jobs one call asks for: an argument is at most 128 KiB.
const maxAccount = 10000

func accountArgs(ids []string) []string {
	return []string{
		"--noheader", "--parsable2", "--delimiter=" + unit, "--allusers", "--jobs=" + strings.Join(ids, ","),
		"--format=JobIDRaw,State,ExitCode,Submit,End,Comment,JobName",
	}
}

// pastFields are what sacct is asked for the jobs of a user. The directory has the last
// word, as it may have any character.
const pastFields = "JobIDRaw,State,Submit,Comment,WorkDir"

// PastJob is a job of the past, as accounting knows it.
type PastJob struct {
	ID      string
	State   string // without what follows it
	Submit  time.Time
	Comment string // empty unless the cluster stores comments
	WorkDir string
}

func pastArgs(uid int, since time.Time) []string {
	return []string{
		"--noheader", "--parsable2", "--delimiter=" + unit, "--allocations", "--user=" + strconv.Itoa(uid),
		"--starttime=" + since.Local().Format("2006-01-02T15:04:05"), "--format=" + pastFields,
	}
}

// Past returns the jobs of a user that accounting has known since a time, of this
// cluster.
func (c *Client) Past(ctx context.Context, uid int, since time.Time) ([]PastJob, error) {
	out, err := c.Output(ctx, 0, "sacct", pastArgs(uid, since)...)
	if err != nil {
		var e *Error
		if errors.As(err, &e) && strings.Contains(e.Exit.Stderr, "accounting storage is disabled") {
			return nil, fault.Wrap(fault.Unavailable, ErrNoAccounting)
		}
		return nil, err
	}
	return ParsePast(bytes.NewReader(out))
}

// ParsePast reads what sacct prints for Past.
func ParsePast(r io.Reader) ([]PastJob, error) {
	var jobs []PastJob
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if lines.Text() == "" {
			continue
		}
		f := strings.SplitN(lines.Text(), unit, 5)
		if len(f) != 5 {
			return nil, parseError("sacct", n, "it has %d fields, not 5", len(f))
		}
		if f[0] == "" || strings.Trim(f[0], "0123456789") != "" {
			return nil, parseError("sacct", n, "invalid job id %q", f[0])
		}
		state, err := accountState(f[1])
		if err != nil {
			return nil, parseError("sacct", n, "%w", err)
		}
		submit, err := ParseTime(f[2])
		if err != nil {
			return nil, parseError("sacct", n, "%w", err)
		}
		jobs = append(jobs, PastJob{ID: f[0], State: state, Submit: submit, Comment: f[3], WorkDir: f[4]})
	}
	if err := lines.Err(); err != nil {
		return nil, parseError("sacct", len(jobs)+1, "%w", err)
	}
	return jobs, nil
}

// accountState is the state in what sacct prints, without what follows it.
func accountState(text string) (string, error) {
	state, _, _ := strings.Cut(text, " ")
	state = strings.TrimSuffix(state, "+")
	if state == "" || strings.Trim(state, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
		return "", fmt.Errorf("invalid state %q", text)
	}
	return state, nil
}

// Account returns what accounting knows of jobs; those it does not know are left
// out. Of more than 10,000 jobs, only the first 10,000 are asked for.
func (c *Client) Account(ctx context.Context, ids []string) (map[string]Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out, err := c.Output(ctx, 0, "sacct", accountArgs(ids[:min(len(ids), maxAccount)])...)
	if err != nil {
		var e *Error
		if errors.As(err, &e) && strings.Contains(e.Exit.Stderr, "accounting storage is disabled") {
			return nil, fault.Wrap(fault.Unavailable, ErrNoAccounting)
		}
		return nil, err
	}
	return ParseAccount(bytes.NewReader(out))
}

// ParseAccount reads what sacct prints for Account.
func ParseAccount(r io.Reader) (map[string]Record, error) {
	records := map[string]Record{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if lines.Text() == "" {
			continue
		}
		f := strings.SplitN(lines.Text(), unit, 7)
		if len(f) != 7 {
			return nil, parseError("sacct", n, "it has %d fields, not 7", len(f))
		}
		exit, err := parseExit(f[2])
		if err != nil {
			return nil, parseError("sacct", n, "%w", err)
		}
		id, step, isStep := strings.Cut(f[0], ".")
		if id == "" || id[0] < '0' || id[0] > '9' {
			return nil, parseError("sacct", n, "%q is no job id", f[0])
		}
		record := records[id]
		if isStep {
			if record.ID == "" {
				return nil, parseError("sacct", n, "step %q comes before its job", f[0])
			}
			if step == "batch" {
				record.Batch = exit
			} else if step != "extern" {
				record.Steps = append(record.Steps, exit)
			}
			records[id] = record
			continue
		}
		state, err := accountState(f[1])
		if err != nil {
			return nil, parseError("sacct", n, "%w", err)
		}
		_, more, _ := strings.Cut(f[1], " ")
		record = Record{ID: id, State: state, By: strings.TrimPrefix(more, "by "), Batch: exit, Comment: f[5], Name: f[6]}
		if record.Submit, err = ParseTime(f[3]); err == nil {
			record.End, err = ParseTime(f[4])
		}
		if err != nil {
			return nil, parseError("sacct", n, "%w", err)
		}
		records[id] = record
	}
	if err := lines.Err(); err != nil {
		return nil, parseError("sacct", len(records)+1, "%w", err)
	}
	return records, nil
}
