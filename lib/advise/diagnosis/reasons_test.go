package diagnosis

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// TestEveryReason replays every reason that Slurm 20.11, 22.05, 24.11 and 26.05 have in their libraries, with what is to be said where
// nothing but the reason is known: the cause, and "never" only of a request or a dependency that waiting does not change. TestReasonsOfSlurm
// makes those that can be made on a cluster.
func TestEveryReason(t *testing.T) {
	table, err := os.ReadFile("testdata/reasons.txt")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`^(|scontrol release 7|scontrol update job=7_\[2-5\] [a-z]+=.*)$`)
	known := 0
	for row := range strings.Lines(string(table)) {
		var code, cause, kind string
		if f := strings.Fields(row); len(f) == 3 {
			code, cause, kind = f[0], f[1], f[2]
		}
		known++
		for _, reason := range []string{code, strings.ReplaceAll(code, "_", " "), code + ", with details"} {
			j := slurm.Job{ID: 7, ArrayID: 7, Label: "7_[2-5%1]", Tasks: "2-5%1", Partition: "cpu", State: "PENDING", Reason: reason, Dependency: "afterok:3"}
			facts := Facts{}
			d := facts.Of(&j)
			if string(d.Cause) != cause || string(d.Kind) != kind {
				t.Errorf("%s: cause %s, starts %s; want %s, %s", reason, d.Cause, d.Kind, cause, kind)
			}
			said := d.Text + "\n" + d.Action.Text + "\n" + j.Brief()
			if d.Text == "" || d.Action.Text == "" || strings.Contains(said, code) && code != "Reservation" || regexp.MustCompile(`\bID\b|ARRAY|JOB REASON|%|more a | nodes on a node`).MatchString(said) {
				t.Errorf("%s: %q", reason, said)
			}
			if got := strings.Join(d.Action.Command, " "); !command.MatchString(got) {
				t.Errorf("%s: command %q", reason, got)
			}
			if d.Kind == Never && d.Cause != Request && d.Cause != Dependency {
				t.Errorf("%s: never, because of %s", reason, d.Cause)
			}
			if (d.Cause == Held) != j.Held() && code != "ReservationDeleted" {
				t.Errorf("%s: cause %s, held %v", reason, d.Cause, j.Held())
			}
		}
	}
	if known < 220 {
		t.Errorf("only %d reasons", known)
	}
}
