package planner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/testscripts/answers"
)

func kept(t *testing.T, cluster string) *Kept {
	t.Helper()
	k, err := LoadKept(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// What is saved is read again, the last forecasts in the order in which they were made; damaged lines
// and names of clusters that are no file names do no harm.
func TestKept(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	k := kept(t, "../a/b")
	if len(k.All) != 0 {
		t.Errorf("%+v", k.All)
	}
	for i := range keptForecasts + 5 {
		k.All = append(k.All, Told{Job: fmt.Sprint(i), Made: int64(keptForecasts - i), Median: 60, RawMedian: 50, Slurm: -1})
	}
	if err := k.Save(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(state, "ponos/forecasts/*"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != ".._a_b.jsonl" {
		t.Fatalf("%v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	const old = `{"job":"7","submit":1,"made":9000,"median":30,"low":1,"high":90,"limits":-1,"slurm":-1}`
	if err := os.WriteFile(files[0], append(text, "damaged\n{}\n"+old+"\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	k = kept(t, "../a/b")
	if n := len(k.All); n != keptForecasts+1 || k.All[0].Made != -4+5 || k.All[n-2].Made != keptForecasts || k.All[0].RawMedian != 50 {
		t.Errorf("%d: %+v ... %+v", n, k.All[0], k.All[n-1])
	}
	if last := k.All[len(k.All)-1]; last.Job != "7" || last.RawMedian != 30 {
		t.Errorf("without raw values: %+v", last)
	}
}

// The outcome of a forecast is known by the queue, or by accounting, and only of the same job: ids are
// used again.
func TestSettle(t *testing.T) {
	const submit, made = 1_000_000, 1_000_100
	stamp := func(unix int64) string { return time.Unix(unix, 0).Local().Format("2006-01-02T15:04:05") }
	now := time.Unix(made+2*forgotten, 0)
	row := func(id string, submit, start, end int64) string {
		text := []string{id, stamp(submit), "Unknown", "Unknown"}
		if start > 0 {
			text[2] = stamp(start)
		}
		if end > 0 {
			text[3] = stamp(end)
		}
		return strings.Join(text, answers.Mark) + answers.Mark + "\n"
	}
	told := []Told{
		{Job: "1", Submit: submit, Made: made},                  // runs
		{Job: "2", Submit: submit, Made: made},                  // waits
		{Job: "3", Submit: submit, Made: made},                  // has run
		{Job: "4", Submit: submit, Made: made},                  // was cancelled
		{Job: "5", Submit: submit, Made: made},                  // another job has its id
		{Job: "6", Submit: submit, Made: made},                  // is forgotten
		{Job: "7", Submit: submit, Made: now.Unix() - 60},       // may come later
		{Job: "8", Submit: submit, Made: made, Start: made + 9}, // is known
		{Job: "3", Submit: submit, Made: made + 50},             // told twice
	}
	seen := map[string]int64{"1": made + 30, "2": 0}
	asked := answers.Programs(t, map[string]string{
		"sacct --noheader --parsable --delimiter=" + answers.Mark + " --format=JobIDRaw,Submit,Start,End --allocations --duplicates --allusers --jobs=3,4,5,6,7": row("3", submit, made+60, made+90) +
			row("4", submit, 0, made+20) + row("5", submit+5, made+70, 0),
	})
	for _, accounting := range []bool{true, false} {
		k := &Kept{All: append([]Told(nil), told...)}
		changed, err := k.Settle(context.Background(), &Asker{Now: func() time.Time { return now }}, accounting, seen)
		want := []int64{made + 30, 0, made + 60, -1, -1, -1, 0, made + 9, made + 60}
		if !accounting {
			want = []int64{made + 30, 0, -1, -1, -1, -1, -1, made + 9, -1}
		}
		if err != nil || !changed {
			t.Errorf("changed %v, %v", changed, err)
		}
		for i, told := range k.All {
			if told.Start != want[i] {
				t.Errorf("accounting %v: job %s started %d, want %d", accounting, told.Job, told.Start, want[i])
			}
		}
		changed, err = k.Settle(context.Background(), &Asker{Now: func() time.Time { return now }}, false, map[string]int64{"2": 0, "7": 0})
		if err != nil || changed {
			t.Errorf("settled again: changed %v, %v", changed, err)
		}
	}
	if lines := asked(); len(lines) != 1 {
		t.Errorf("asked %q", lines)
	}
}

// Forecasts with an outcome come in the order of the outcomes, and those of waiting jobs last.
func TestScored(t *testing.T) {
	k := &Kept{All: []Told{
		{Job: "1", Made: 100, Median: 10, Start: 400},
		{Job: "2", Made: 110, Median: 20},
		{Job: "3", Made: 120, Median: 30, Start: -1},
		{Job: "4", Made: 130, Median: 40, Start: 200},
	}}
	show := func(list []forecast.Scored) (text string) {
		for _, s := range list {
			text += fmt.Sprintf("%v:%v:%v ", s.Median, s.Actual, s.Open)
		}
		return text
	}
	if got, want := show(k.Scored(0)), "40:70:false 10:300:false "; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if got, want := show(k.Scored(150)), "40:70:false 10:300:false 20:40:true "; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// A file of the site counts beside the user's own, and one that others can write is refused. Where few forecasts are known, those of
// past jobs teach; a job that found the cluster empty does not.
func TestTaught(t *testing.T) {
	was := siteForecasts
	siteForecasts = t.TempDir()
	defer func() { siteForecasts = was }()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	file := filepath.Join(siteForecasts, "c.jsonl")
	const told = `{"job":"7","submit":1,"made":9000,"median":30,"low":1,"high":90,"limits":-1,"slurm":-1,"start":9040}`
	if err := os.WriteFile(file, []byte(strings.Repeat(told+"\n", 40)), 0o644); err != nil {
		t.Fatal(err)
	}
	never := func() bool { return false }
	k := kept(t, "c")
	if got := k.Taught(never, 10_000, nil); len(got) != 40 || got[0].Actual != 40 || len(k.All) != 0 {
		t.Errorf("%d of the site: %+v; own: %d", len(got), got, len(k.All))
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKept("c"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file that others can write: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	var runs []forecast.Past // one CPU, on which each job of 100 s waits for the one before it
	for i := range int64(100) {
		runs = append(runs, forecast.Past{
			User: "alice", Partition: "cpu", Submit: 1000 + 99*i, Start: 1000 + 100*i, End: 1100 + 100*i, Limit: 600, Nodes: 1, Need: forecast.Resources{CPUs: 1},
		})
	}
	k = kept(t, "c")
	taught := k.Taught(never, 20_000, runs)
	if len(taught) < 70 {
		t.Errorf("only %d forecasts of past jobs", len(taught))
	}
	for _, s := range taught {
		if s.Actual == 0 && s.RawMedian == 0 {
			t.Errorf("%+v", s)
		}
	}
	if got := k.Taught(func() bool { return true }, 20_000, runs); len(got) != 0 {
		t.Errorf("%d forecasts in no time", len(got))
	}
}
