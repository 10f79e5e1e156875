package slurm

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/captures"
)

// mark follows each cell in the tests.
const mark = "|aaaabbbb"

// marked and barred are layouts of commands in the tests.
func marked(command string) layout { return layout{command: command, mark: mark} }
func barred(command string) layout { return layout{command: command, mark: "|"} }

// printed returns what the command of a layout printed of a capture in testdata, and the columns: the requested
// ones that were captured.
func printed[R any](t testing.TB, name string, form layout, asked []column[R]) (string, []column[R]) {
	t.Helper()
	file := filepath.Join("testdata", name+captures.Extension)
	names, err := captures.Captured(file)
	if err != nil {
		t.Fatal(err)
	}
	have := slices.DeleteFunc(slices.Clone(asked), func(c column[R]) bool { return !slices.Contains(names, c.name) })
	return replay(t, file, form.command, formatArgs(form, columnNames(have))...), have
}

// parsed returns the records of a capture in testdata.
func parsed[R any](t testing.TB, name string, form layout, asked []column[R]) []R {
	t.Helper()
	text, have := printed(t, name, form, asked)
	var all []R
	if err := rows(strings.NewReader(text), form, have, collect(&all)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return all
}

func formatArgs(form layout, names []string) []string {
	if form.command == "squeue" {
		return []string{squeueFormat(names, form.mark)}
	}
	return form.parsable(names)
}

func replay(t testing.TB, file, command string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := captures.Replay(&out, file, command, args...); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// capturedQueries are the queries for columns, by their captures.
var capturedQueries = []struct {
	capture string // in a directory below testdata
	layout
	columns []string
}{
	{"squeue", marked("squeue"), columnNames(jobColumns)},
	{"squeue-own", marked("squeue"), columnNames(ownColumns)},
	{"sacct", marked("sacct"), columnNames(endColumns)},
	{"sacct-past", marked("sacct"), columnNames(lineColumns)},
	{"sacct-runs", barred("sacct"), columnNames(runColumns)},
	{"sacct-consumed", marked("sacct"), columnNames(consumedColumns)},
	{"queue/sacct-usage", barred("sacct"), columnNames(usageColumns)},
	{"queue/sacct-waits", marked("sacct"), columnNames(waitColumns)},
	{"queue/sreport", barred("sreport"), columnNames(reportColumns)},
	{"sshare", barred("sshare"), columnNames(shareColumns)},
	{"associations-carol", barred("sacctmgr show associations"), columnNames(associationColumns)},
	{"qos", barred("sacctmgr show qos"), columnNames(qosColumns)},
	{"user", barred("sacctmgr show user"), columnNames(userColumns)},
}

// TestColumnsAreCaptured: each column of a query is in what a real cluster printed, of one version at least.
func TestColumnsAreCaptured(t *testing.T) {
	for _, q := range capturedQueries {
		files, err := filepath.Glob("testdata/*/" + q.capture + captures.Extension)
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no capture, %v", q.capture, err)
		}
		var all []string
		for _, file := range files {
			names, err := captures.Captured(file)
			if err != nil {
				t.Error(err)
			}
			all = append(all, names...)
		}
		for _, name := range q.columns {
			if !slices.Contains(all, name) {
				t.Errorf("no capture has the column %s of %s. Capture it: go run ./testscripts/captures/record lib/slurm/testdata/VERSION/%s%s",
					name, q.command, q.capture, captures.Extension)
			}
		}
	}
}
