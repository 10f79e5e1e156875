package list

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

// A record of accounting that cannot be read costs the usage of this job alone, and is named.
func TestOddRecordOfUsage(t *testing.T) {
	dir := t.TempDir()
	executable.Write(t, filepath.Join(dir, "sacct"), `#!/bin/sh
for a; do case $a in --delimiter=*) mark=${a#*=} ;; --format=*) format=${a#*=} ;; esac; done
row() {
	IFS=,
	for name in $format; do
		case $name in
		JobID | JobIDRaw) printf %s "$1" ;;
		TotalCPU) printf %s "$2" ;;
		JobName) printf ponos-x ;;
		State) printf COMPLETED ;;
		Submit | Start | End) printf 2026-11-28T10:00:00 ;;
		NNodes | ElapsedRaw) printf 1 ;;
		Timelimit) printf 01:00:00 ;;
		esac
		printf %s "$mark"
	done
	echo
}
row 7 00:05; row 7.batch 00:05; row 8 many; row 8.batch many; row 9 00:07; row 9.batch 00:07
`)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("TZ", "UTC")
	var errs bytes.Buffer
	l := &listing{c: cli.NewContext(cli.NewApp(), flag.NewFlagSet("", flag.ContinueOnError), nil), stderr: &errs}
	l.c.Context = t.Context()
	began := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	var rows []record
	for _, job := range []string{"7", "8", "9"} {
		rows = append(rows, record{Entry: queue.Entry{Job: job, Created: began, Started: began}})
	}
	if !l.used(rows) {
		t.Errorf("accounting does not answer: %s", errs.String())
	}
	for i, want := range []float64{5, -1, 7} {
		got := -1.0
		if rows[i].CPUSeconds != nil {
			got = *rows[i].CPUSeconds
		}
		if got != want {
			t.Errorf("job %s has used %v s, expected %v", rows[i].Job, got, want)
		}
	}
	const left = "ponos-list: warning: records that cannot be read or believed are left out, of totals too: sacct: "
	if strings.Count(errs.String(), "\n") != 1 || !strings.HasPrefix(errs.String(), left) || !strings.Contains(errs.String(), `"8"`) {
		t.Errorf("%s", errs.String())
	}
}
