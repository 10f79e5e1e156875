package slurm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Record is a job, or a run of one, from accounting. Fields that the query did not request are
// zero.
type Record struct {
	ID                                  string // the raw id, or 12_3 for an element of an array
	Name, User, Account, Partition, QOS string
	Limit                               time.Duration // Unlimited, or 0: unknown
	Nodes                               int64
	State                               string // only the name: CANCELLED, not "CANCELLED by 0"
	By                                  string // uid of the user who cancelled it
	Submit, Start, End                  int64  // seconds since 1970; 0: not yet
	TRES                                TRES
	Comment                             string // only if the cluster stores comments, and after the end
	WorkDir                             string
	SubmitLine                          string // the command line of sbatch; empty before Slurm 21.08
	Listed                              bool   // expanded from a row of several array elements
	Batch                               Exit
	Steps                               []Step // in the order of their starts, without the batch step
}

// Step is a job step.
type Step struct {
	Name string // number, or interactive
	Exit Exit
}

// FirstFailure returns the first nonzero exit status, of the batch step or else of the steps in
// their order; zero if there is none.
func (r *Record) FirstFailure() Exit {
	if r.Batch != (Exit{}) {
		return r.Batch
	}
	for _, s := range r.Steps {
		if s.Exit != (Exit{}) {
			return s.Exit
		}
	}
	return Exit{}
}

var recordColumns = []column[Record]{
	{"JobIDRaw", func(c *columns, i int, r *Record) {
		b := c.cells[i]
		c.check(len(b) > 0 && b[0] >= '0' && b[0] <= '9', i, "a job id")
		r.ID = string(b)
	}},
	{"JobID", func(c *columns, i int, r *Record) {
		b := c.cells[i]
		c.check(len(b) > 0 && b[0] >= '0' && b[0] <= '9', i, "a job id")
		r.ID = string(b)
	}},
	{"User", func(c *columns, i int, r *Record) { r.User = c.text(i) }},
	{"Account", func(c *columns, i int, r *Record) { r.Account = c.text(i) }},
	{"Partition", func(c *columns, i int, r *Record) { r.Partition = c.text(i) }},
	{"State", func(c *columns, i int, r *Record) {
		r.State = c.state(i)
		_, r.By, _ = strings.Cut(c.text(i), " by ")
	}},
	{"Start", func(c *columns, i int, r *Record) { r.Start = c.stamp(i) }},
	{"End", func(c *columns, i int, r *Record) { r.End = c.stamp(i) }},
	{"AllocTRES", func(c *columns, i int, r *Record) { r.TRES = c.list(i) }},
	{"ExitCode", func(c *columns, i int, r *Record) { r.Batch = c.exit(i) }},
	{"QOS", func(c *columns, i int, r *Record) { r.QOS = c.text(i) }},
	{"Timelimit", func(c *columns, i int, r *Record) { r.Limit = c.limit(i) }},
	{"NNodes", func(c *columns, i int, r *Record) { r.Nodes = int64(c.optional(i)) }},
	{"Submit", func(c *columns, i int, r *Record) { r.Submit = c.stamp(i) }},
	{"Comment", func(c *columns, i int, r *Record) { r.Comment = string(c.cells[i]) }},
	{"JobName", func(c *columns, i int, r *Record) { r.Name = c.recent(i) }},
	{"WorkDir", func(c *columns, i int, r *Record) { r.WorkDir = string(c.cells[i]) }},
	{"SubmitLine", func(c *columns, i int, r *Record) { r.SubmitLine = string(c.cells[i]) }},
}

// The columns that each query requests: usageColumns EachRun, runColumns EachEnded (from which
// forecasts learn run times), startColumns Starts, endColumns and partColumns Account, pastColumns
// and lineColumns Past.
var (
	usageColumns = pick(recordColumns, "JobIDRaw", "User", "Account", "Partition", "State", "Start", "End", "AllocTRES")
	runColumns   = pick(recordColumns, "JobIDRaw", "User", "Account", "Partition", "QOS", "State",
		"Submit", "Start", "End", "Timelimit", "NNodes", "AllocTRES", "JobName")
	startColumns = pick(recordColumns, "JobIDRaw", "Submit", "Start", "End")
	endColumns   = pick(recordColumns, "JobID", "State", "ExitCode", "Submit", "End", "Comment", "JobName")
	pastColumns  = pick(recordColumns, "JobID", "State", "Submit", "Comment", "WorkDir")
	lineColumns  = append(slices.Clip(pastColumns), pick(recordColumns, "SubmitLine")...)
	partColumns  = append(slices.Clip(endColumns), pick(recordColumns, "SubmitLine")...)
)

// maxAccount limits the jobs of one query: an argument can have 128 KiB at most.
const maxAccount = 10000

// Account returns, by id, what accounting has of the last run of jobs and of their steps.
// Unknown jobs are omitted, and so are ids beyond the first 10,000. If an id is an element of
// an array, such as 12_3, other elements may be included, and records have a SubmitLine.
func (c *Client) Account(ctx context.Context, ids []string) (map[string]Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	asked := endColumns
	if slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(id, "_") }) {
		asked = partColumns
	}
	form := c.marked("sacct")
	return stream(ctx, c, func(r io.Reader) (map[string]Record, error) { return parseAccount(r, form, asked) }, "sacct",
		append(form.parsable(columnNames(asked)), "--allusers", "--jobs="+strings.Join(arraysOf(ids[:min(len(ids), maxAccount)]), ","))...)
}

// parseAccount parses the output of sacct for Account.
func parseAccount(r io.Reader, form layout, asked []column[Record]) (map[string]Record, error) {
	records := map[string]Record{}
	err := rows(r, form, asked, func(row *Record) error {
		id, step, isStep := strings.Cut(row.ID, ".")
		if !isStep {
			for _, id := range Elements(id) {
				record := *row
				record.Listed, record.ID = id != row.ID, id
				records[id] = record
			}
			return nil
		}
		job, known := records[id]
		switch {
		case !known:
			return parseError("sacct", len(records)+1, "step %q comes before its job", row.ID)
		case step == "batch":
			job.Batch = row.Batch
		case step != "extern":
			job.Steps = append(job.Steps, Step{step, row.Batch})
		}
		records[id] = job
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// Starts returns, by raw id, when jobs were submitted, started and ended; for a requeued job,
// those of its first run that started. Ids beyond the first 10,000 are omitted.
func (c *Client) Starts(ctx context.Context, ids []string) (map[string]Record, error) {
	form := c.marked("sacct")
	read := func(r io.Reader) (map[string]Record, error) {
		records := map[string]Record{}
		return records, rows(r, form, startColumns, func(row *Record) error {
			if before, known := records[row.ID]; !known || before.Submit == row.Submit && before.Start == 0 {
				records[row.ID] = *row
			}
			return nil
		})
	}
	return stream(ctx, c, read, "sacct", append(form.parsable(columnNames(startColumns)), "--allocations", "--duplicates", "--allusers",
		"--jobs="+strings.Join(ids[:min(len(ids), maxAccount)], ","))...)
}

// Past returns the jobs of a user in accounting since a time, without steps. Pending elements
// of an array are one record, such as 12_[0-3].
func (c *Client) Past(ctx context.Context, uid int, since time.Time) ([]Record, error) {
	ask := func(asked []column[Record]) ([]Record, error) {
		form := c.marked("sacct")
		return stream(ctx, c, func(r io.Reader) ([]Record, error) { return tableOf(r, form, asked) }, "sacct",
			append(form.parsable(columnNames(asked)), "--allocations",
				"--user="+strconv.Itoa(uid), "--starttime="+since.Local().Format(timeLayout))...)
	}
	jobs, err := ask(lineColumns)
	var e *Error
	if errors.As(err, &e) && e.Says(unknownField) {
		return ask(pastColumns)
	}
	return jobs, err
}

// unknownField is sacct's message for a column that its version does not have.
const unknownField = "Invalid field requested"

// EarlierRuns returns the final states of the runs of a job, oldest first: PREEMPTED, REQUEUED,
// NODE_FAIL.
func (c *Client) EarlierRuns(ctx context.Context, id string) ([]string, error) {
	states, form := pick(recordColumns, "State"), c.marked("sacct")
	read := func(r io.Reader) ([]string, error) {
		var runs []string
		return runs, rows(r, form, states, func(r *Record) error {
			switch r.State {
			case "PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING": // this run continues
			default:
				runs = append(runs, r.State)
			}
			return nil
		})
	}
	return stream(ctx, c, read, "sacct", append(form.parsable(columnNames(states)), "--allocations", "--duplicates", "--jobs="+id)...)
}

// A Period selects jobs by time, user and account; empty Users or Accounts select all.
type Period struct {
	Since, Until    time.Time
	Users, Accounts []string
}

// args are the options of sacct that select jobs by their ids or, without ids, by the period.
func (p Period) args(ids []string) []string {
	if len(ids) > 0 {
		return []string{"--allusers", "--jobs=" + strings.Join(arraysOf(ids), ",")}
	}
	args := []string{"--starttime=" + p.Since.Format(timeLayout), "--endtime=" + p.Until.Format(timeLayout)}
	if len(p.Users) > 0 {
		args = append(args, "--user="+strings.Join(p.Users, ","))
	} else {
		args = append(args, "--allusers")
	}
	if len(p.Accounts) > 0 {
		args = append(args, "--accounts="+strings.Join(p.Accounts, ","))
	}
	return args
}

// EachRun calls each with the jobs that ran in a period; each run of a requeued job is a row.
// The row is valid during the call; its End is 0 while the job runs.
func (c *Client) EachRun(ctx context.Context, p Period, each func(*Record) error) error {
	form := c.marked("sacct")
	args := append(form.parsable(columnNames(usageColumns)), append(p.args(nil), "--allocations", "--duplicates", "--noconvert")...)
	return c.Stream(ctx, func(r io.Reader) error { return rows(r, form, usageColumns, each) }, "sacct", args...)
}

// RunFormat is the --format of sacct --parsable for ParseRuns.
var RunFormat = strings.Join(columnNames(runColumns), ",")

// EachEnded calls each with the jobs that ended in a period, with their requests. The row is
// valid during the call.
func (c *Client) EachEnded(ctx context.Context, p Period, each func(*Record) error) error {
	form := c.marked("sacct")
	return c.Stream(ctx, func(r io.Reader) error { return rows(r, form, runColumns, each) }, "sacct",
		append(form.parsable(columnNames(runColumns)), "--allocations", "--duplicates",
			"--noconvert", "--allusers", "--starttime="+p.Since.Format(timeLayout), "--endtime="+p.Until.Format(timeLayout),
			"--state=COMPLETED,FAILED,TIMEOUT,CANCELLED,OUT_OF_MEMORY")...)
}

// ParseRuns parses the output of sacct --noheader --parsable --format=RunFormat without steps,
// row by row.
func ParseRuns(r io.Reader, each func(*Record) error) error {
	return rows(r, layout{command: "sacct", mark: "|"}, runColumns, each)
}

// ReportRow is a row of sreport: what a user used in an account, in seconds of a resource. In
// the total of an account, User is empty.
type ReportRow struct {
	Account, User, TRES string
	Seconds             float64
}

var reportColumns = []column[ReportRow]{
	{"Account", func(c *columns, i int, r *ReportRow) { r.Account = c.text(i) }},
	{"Login", func(c *columns, i int, r *ReportRow) { r.User = c.text(i) }},
	{"TresName", func(c *columns, i int, r *ReportRow) { r.TRES = string(bytes.ToLower(c.cells[i])) }},
	{"Used", func(c *columns, i int, r *ReportRow) { r.Seconds = c.float(i) }},
}

// Report returns the usage of trackable resources in a period, as summarized by sreport.
func (c *Client) Report(ctx context.Context, p Period, tres string) ([]ReportRow, error) {
	args := []string{
		"--noheader", "--parsable", "-t", "seconds", "-T", tres, "cluster", "AccountUtilizationByUser",
		"start=" + p.Since.Format(timeLayout), "end=" + p.Until.Format(timeLayout),
		"format=" + strings.Join(columnNames(reportColumns), ","),
	}
	if len(p.Users) > 0 {
		args = append(args, "users="+strings.Join(p.Users, ","))
	}
	if len(p.Accounts) > 0 {
		args = append(args, "accounts="+strings.Join(p.Accounts, ","))
	}
	form := c.barred("sreport")
	return stream(ctx, c, func(r io.Reader) ([]ReportRow, error) { return tableOf(r, form, reportColumns) }, "sreport", args...)
}
