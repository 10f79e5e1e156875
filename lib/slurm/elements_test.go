package slurm

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestElements(t *testing.T) {
	for id, want := range map[string]string{
		"12": "12", "12_3": "12_3", "12_[0-2,5]": "12_0 12_1 12_2 12_5", "12_[1-7:3%2]": "12_1 12_4 12_7", "12+1": "12+1",
		"12_[]": "", "12_[0-2,...": "", "12_[3-1]": "", "12_[0-99999999]": "",
	} {
		if got := strings.Join(Elements(id), " "); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	for id, want := range map[string]elements{
		"12": {id: 12}, "12+1": {id: 12}, "12_3": {12, 12, "3"}, "12_[0-2,5%4]": {12, 12, "0-2,5"}, "12_[0,2,4,6": {12, 12, ""},
	} {
		if got, ok := parseElements(id); got != want || !ok {
			t.Errorf("%s: %+v, %v", id, got, ok)
		}
	}
	for _, id := range []string{"", "x", "_3", "x_[3]"} {
		if e, ok := parseElements(id); ok {
			t.Errorf("%s: %+v", id, e)
		}
	}
	if got := arraysOf([]string{"7", "12_3", "8", "12_4", "9_0"}); !slices.Equal(got, []string{"7", "12", "8", "9"}) {
		t.Errorf("%q", got)
	}
}

// TestArrays parses the captured output about three arrays: t has an element of each kind
// (element 4 was requeued); element 2 of h was cancelled while pending, and so was all of b.
func TestArrays(t *testing.T) {
	inUTC(t)
	for _, version := range []string{"21.08.8-2", "22.05.8", "23.11.10", "25.11.7", "26.05.5"} {
		t.Run(version, func(t *testing.T) {
			seen := map[string]string{}
			for _, j := range parsed(t, version+"/squeue-arrays", marked("squeue"), ownColumns) {
				name, _, _ := strings.Cut(strings.TrimPrefix(j.Comment, "PONOS_TASK="), "-")
				if fmt.Sprint(j.ID) != strings.Split(j.Label, "_")[0] || j.ID != j.ArrayID || j.Submit == 0 {
					t.Errorf("%+v", j)
				}
				seen[name+" "+j.Tasks] = fmt.Sprintf("%s %d", j.State, j.Restarts)
			}
			want := map[string]string{
				"t 0": "COMPLETED 0", "t 1": "FAILED 0", "t 2": "RUNNING 0", "t 3": "CANCELLED 0", "t 4": "PENDING 1", "t 5": "RUNNING 0",
				"h 0-1,3": "PENDING 0", "b 0-2": "CANCELLED 0",
			}
			if !maps.Equal(seen, want) {
				t.Errorf("squeue: %v", seen)
			}

			ended, asked := printed(t, version+"/sacct-arrays", marked("sacct"), partColumns)
			account, err := parseAccount(strings.NewReader(ended), marked("sacct"), asked)
			if err != nil {
				t.Fatal(err)
			}
			seen = map[string]string{}
			for id, r := range account {
				_, index, _ := strings.Cut(id, "_")
				if seen[r.Name+" "+index] = r.State; r.Name == "ponos-t" == r.Listed {
					t.Errorf("%s: %+v", id, r)
				}
			}
			delete(seen, "ponos-h 2") // some versions show it as waiting
			want = map[string]string{
				"ponos-t 0": "COMPLETED", "ponos-t 1": "FAILED", "ponos-t 2": "RUNNING", "ponos-t 3": "CANCELLED", "ponos-t 4": "PENDING", "ponos-t 5": "RUNNING",
				"ponos-h 0": "PENDING", "ponos-h 1": "PENDING", "ponos-h 3": "PENDING", "ponos-b 0": "CANCELLED", "ponos-b 1": "CANCELLED", "ponos-b 2": "CANCELLED",
			}
			if !maps.Equal(seen, want) {
				t.Errorf("sacct: %v", seen)
			}

			past := parsed(t, version+"/sacct-past", marked("sacct"), lineColumns)
			if len(past) < 6 {
				t.Fatalf("%d records", len(past))
			}
			for _, r := range past {
				if !strings.HasPrefix(r.SubmitLine, "sbatch --parsable") || !strings.Contains(r.SubmitLine, " --comment=PONOS_TASK=") || r.WorkDir != "/tmp" {
					t.Errorf("%+v", r)
				}
			}

			details, err := ParseJobDetails(openTestdata(t, filepath.Join(version, "job-array.txt")))
			if err != nil || len(details) != 2 {
				t.Fatalf("%d records, %v", len(details), err)
			}
			var numbers []string
			for _, d := range details {
				for _, number := range d.Numbers() {
					_, index, _ := strings.Cut(number, "_")
					numbers = append(numbers, index)
				}
			}
			if got := strings.Join(numbers, " "); !strings.HasSuffix(got, "2") || !strings.Contains(got, "1 ") {
				t.Errorf("elements %s", got)
			}
		})
	}
}
