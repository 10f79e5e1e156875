package reap

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/rented"
	"github.com/ponos-tools/ponos/lib/task"
)

// What cannot be meant is refused before anything is read or asked.
func TestRefused(t *testing.T) {
	const together = "--account, --agent and --bill cannot be combined, nor can --bill and --destroy"
	for args, want := range map[string]string{
		"--account --agent x":      together,
		"--account --bill":         together,
		"--agent x --bill":         together,
		"--destroy --bill":         together,
		"--max -1":                 "--max must be at least 1, not -1",
		"--bill --since yesterday": `--since: invalid duration "yesterday": expected a number and `,
		"--older 10":               `--older: invalid duration "10": `,
		"--older=-1h":              "--older: ",
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"vast-reap"}, strings.Fields(args)...), strings.NewReader(""), &stdout, &stderr)
		if code != 2 || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "vast-reap: "+want) {
			t.Errorf("%s: %d, %s%s", args, code, &stdout, &stderr)
		}
	}
}

// orphans are instances of these numbers; one with a "?" may be another agent's.
func orphans(words string) (found []rented.Unwanted) {
	for _, w := range strings.Fields(words) {
		number, untracked := strings.CutSuffix(w, "?")
		u := rented.Unwanted{Untracked: untracked, Reason: "why", Age: time.Minute}
		if _, err := fmt.Sscan(number, &u.Instance.ID); err != nil {
			panic(err)
		}
		u.Instance.Label, u.Instance.Actual, u.Instance.Price = "ponos:a:x:1", "running", 0.25
		found = append(found, u)
	}
	return found
}

// What is destroyed, and how that ends.
func TestDestroy(t *testing.T) {
	for _, tt := range []struct {
		found     string
		most      int
		failed    map[int64]error
		destroyed string
		err       string
	}{
		{"", 10, nil, "", ""},
		{"1 2 3", 10, nil, "1 2 3", ""},
		{"1 2 3", 3, nil, "1 2 3", ""},
		{"1 2 3", 2, nil, "1 2", "2 of 3 instances were destroyed, as --max says"},
		{"1? 2 3", 10, nil, "2 3", "1 of 3 instances were not ordered from this data_dir, and are not touched: another agent may have the same name"},
		{"1? 2 3", 2, nil, "2 3", "1 of 3 instances were not ordered from this data_dir, and are not touched: another agent may have the same name"},
		{"1? 2?", 10, nil, "", "2 of 2 instances were not ordered from this data_dir, and are not touched: another agent may have the same name"},
		{"1 2 3", 10, map[int64]error{2: errors.New("instance 2: refused")}, "1 3", "instance 2: refused"},
		{"1? 2 3 4", 2, map[int64]error{3: errors.New("b"), 2: errors.New("a")}, "", "a\nb"},
		// One request may have ended several.
		{"1 2 3", 10, map[int64]error{1: errors.New("no answer"), 3: errors.New("no answer")}, "2", "no answer"},
	} {
		found := orphans(tt.found)
		chosen := choose(found, tt.most)
		if i := slices.IndexFunc(chosen, func(u rented.Unwanted) bool { return u.Untracked }); i >= 0 {
			t.Errorf("%s: another agent's instance %d is chosen", tt.found, chosen[i].Instance.ID)
		}
		rows := rowsOf(found, chosen, tt.failed)
		var destroyed []string
		for _, r := range rows {
			if r.Destroyed {
				destroyed = append(destroyed, fmt.Sprint(r.Instance))
			}
		}
		got := ""
		if err := outcome(found, chosen, tt.failed, "a"); err != nil {
			got = err.Error()
			if hint := fault.HintOf(err); strings.Contains(got, "data_dir") != strings.Contains(hint, `"vast-reap --agent a --destroy"`) {
				t.Errorf("%s: hint %q", tt.found, hint)
			}
		}
		if got != tt.err || strings.Join(destroyed, " ") != tt.destroyed || len(rows) != len(found) {
			t.Errorf("%+v: %s; %s", tt, destroyed, got)
		}
	}
	for n, want := range []int{0, 1, 1} {
		if code, silent := fault.Code(left(n)); code != want || n > 0 && !silent {
			t.Errorf("%d left: status %d, silent: %t", n, code, silent)
		}
	}
}

func TestShow(t *testing.T) {
	odd := orphans("3")[0]
	odd.Instance.Actual, odd.Reason, odd.Age = "run\x1b[2Jning", "", 0
	for _, tt := range []struct {
		name   string
		rows   []row
		asJSON bool
		want   string
	}{
		{"none", rowsOf(nil, nil, nil), false, ""},
		{"none for programs", rowsOf(nil, nil, nil), true, "[]"},
		{"all are destroyed", rowsOf(orphans("1"), orphans("1"), nil), false, "INSTANCE STATUS $/HOUR AGE DESTROYED WHY LABEL|1 running 0.2500 1m0s yes why ponos:a:x:1"},
		{"some are left", rowsOf(orphans("1 2 4"), orphans("1"), nil), false,
			"INSTANCE STATUS $/HOUR AGE DESTROYED WHY LABEL|1 running 0.2500 1m0s yes why ponos:a:x:1|" +
				"2 running 0.2500 1m0s no why ponos:a:x:1|4 running 0.2500 1m0s no why ponos:a:x:1||2 left, at $0.5000 an hour."},
		{"what the market says is not printed as it is", rowsOf([]rented.Unwanted{odd}, nil, nil), false,
			"INSTANCE STATUS $/HOUR AGE DESTROYED WHY LABEL|3 run?[2Jning 0.2500 ? no ponos:a:x:1||1 left, at $0.2500 an hour."},
	} {
		var out strings.Builder
		if err := show(tt.rows, tt.asJSON, &out); err != nil {
			t.Fatal(err)
		}
		if got := words(out.String()); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

// words are the words of lines.
func words(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "|")
}

func TestShowBills(t *testing.T) {
	dollars, ended := 0.5, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	list := []rented.Bill{
		{Task: "a", Slug: "train", Attempt: 1, State: task.Completed, Instances: []int64{1, 2}, Estimated: 0.25, Billed: &dollars, Ended: ended},
		{Task: "b", Attempt: 2, Instances: []int64{3}, Estimated: 7},
	}
	for _, tt := range []struct {
		name   string
		list   []rented.Bill
		asJSON bool
		want   string
	}{
		{"none", nil, false, ""},
		{"none for programs", nil, true, "[]"},
		// What is not billed yet is not in the sum of estimates either.
		{"one of two is billed", list, false, "TASK NAME GROUP ATTEMPT STATE INSTANCES ESTIMATED $ BILLED $|a train sweep 1 completed 2 0.2500 0.5000|" +
			"b - - 2 running 1 7.0000 -||Billed $0.5000 for what was estimated as $0.2500.|Not billed yet: 1."},
		{"all are billed", list[:1], false, "TASK NAME GROUP ATTEMPT STATE INSTANCES ESTIMATED $ BILLED $|a train sweep 1 completed 2 0.2500 0.5000||" +
			"Billed $0.5000 for what was estimated as $0.2500."},
		{"for programs", list[1:], true, `[|{|"task": "b",|"slug": "",|"attempt": 2,|"machine": 0,|"gpu": "",|"state": "running",|"instances": [|3|],|` +
			`"estimated_dollars": 7,|"billed_dollars": null,|"ended": null|}|]`},
	} {
		var out strings.Builder
		if err := showBills(tt.list, map[task.ID]string{"a": "sweep"}, tt.asJSON, &out); err != nil {
			t.Fatal(err)
		}
		if got := words(out.String()); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

func TestAge(t *testing.T) {
	for seconds, want := range map[float64]string{
		-1: "?", 0: "?", 0.5: "0s", 59.9: "59s", 60: "1m0s", 3599: "59m59s", 3600: "1h0m", 86399: "23h59m", 86400: "1d0h", 1e9: "11574d1h",
	} {
		if got := age(seconds); got != want {
			t.Errorf("%v: %s; want %s", seconds, got, want)
		}
	}
}
