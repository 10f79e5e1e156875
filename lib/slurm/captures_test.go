package slurm

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/captures"
)

// capturedMark is the end of squeue's rows in the tests.
const capturedMark = "0123456789abcdef"

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
		return []string{squeueFormat(names, capturedMark)}
	}
	return []string{"--parsable", "--delimiter=" + string(form.separator), "--format=" + strings.Join(names, ",")}
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
	{"squeue", jobsLayout(capturedMark), columnNames(jobColumns)},
	{"squeue-own", jobsLayout(capturedMark), columnNames(ownColumns)},
	{"sacct", endLayout, columnNames(endColumns)},
	{"sacct-past", endLayout, columnNames(lineColumns)},
	{"sacct-runs", barLayout("sacct"), columnNames(runColumns)},
	{"sacct-consumed", endLayout, columnNames(consumedColumns)},
	{"queue/sacct-usage", barLayout("sacct"), columnNames(usageColumns)},
	{"queue/sreport", barLayout("sreport"), columnNames(reportColumns)},
	{"sshare", barLayout("sshare"), columnNames(shareColumns)},
	{"associations-carol", barLayout("sacctmgr show associations"), columnNames(associationColumns)},
	{"qos", barLayout("sacctmgr show qos"), columnNames(qosColumns)},
	{"user", barLayout("sacctmgr show user"), columnNames(userColumns)},
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
