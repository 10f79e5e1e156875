package slurm

import (
	"io"
	"strings"
	"time"
)

// UsageRow is a job's time on the cluster, from sacct.
type UsageRow struct {
	JobID, User, Account, Partition, State string
	Start, End                             int64 // End is 0 while it runs
	TRES                                   TRESCounts
}

var usageColumns = []string{"JobIDRaw", "User", "Account", "Partition", "State", "Start", "End", "AllocTRES"}

// UsageArgs are sacct's arguments for the jobs that ran in a period, each run of
// a requeued job by itself. Without users and accounts, all are asked for.
func UsageArgs(since, until time.Time, users, accounts []string) []string {
	const form = "2006-01-02T15:04:05"
	args := []string{
		"--noheader", "--parsable", "--allocations", "--duplicates", "--noconvert",
		"--starttime=" + since.Format(form), "--endtime=" + until.Format(form),
		"--format=" + strings.Join(usageColumns, ","),
	}
	if len(users) > 0 {
		args = append(args, "--user="+strings.Join(users, ","))
	} else {
		args = append(args, "--allusers")
	}
	if len(accounts) > 0 {
		args = append(args, "--accounts="+strings.Join(accounts, ","))
	}
	return args
}

// ScanUsage reads sacct's rows one by one. The row is good for one call.
func ScanUsage(r io.Reader, row func(*UsageRow) error) error {
	c := newColumns("sacct", r, "|", usageColumns)
	b := c.cells
	for c.next() {
		u := UsageRow{
			JobID: string(b[0]), User: c.text(b[1]), Account: c.text(b[2]), Partition: c.text(b[3]), State: c.text(b[4]),
			Start: c.stamp(5, b[5]), End: c.stamp(6, b[6]), TRES: c.tres(7, b[7]),
		}
		if c.err != nil {
			return c.err
		}
		if err := row(&u); err != nil {
			return err
		}
	}
	return c.err
}

// ReportRow is a line of sreport: what a user of an account used, in seconds.
// The account's own total has no user.
type ReportRow struct {
	Account, User, TRES string
	Seconds             float64
}

var reportColumns = []string{"Account", "Login", "TresName", "Used"}

// ReportArgs are sreport's arguments for one period.
func ReportArgs(since, until time.Time, tres string, users, accounts []string) []string {
	const form = "2006-01-02T15:04:05"
	args := []string{
		"--noheader", "--parsable", "-t", "seconds", "-T", tres, "cluster", "AccountUtilizationByUser",
		"start=" + since.Format(form), "end=" + until.Format(form), "format=" + strings.Join(reportColumns, ","),
	}
	if len(users) > 0 {
		args = append(args, "users="+strings.Join(users, ","))
	}
	if len(accounts) > 0 {
		args = append(args, "accounts="+strings.Join(accounts, ","))
	}
	return args
}

// ParseReport reads sreport's rows.
func ParseReport(r io.Reader) ([]ReportRow, error) {
	c := newColumns("sreport", r, "|", reportColumns)
	b := c.cells
	var rows []ReportRow
	for c.next() {
		row := ReportRow{Account: c.text(b[0]), User: c.text(b[1]), TRES: strings.ToLower(c.text(b[2])), Seconds: c.float(3, b[3])}
		if c.err != nil {
			return nil, c.err
		}
		rows = append(rows, row)
	}
	return rows, c.err
}
