package slurm

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ponos-tools/ponos/lib/fault"
)

// at is a local time as in the captures, of one day.
func at(clock string) time.Time {
	t, err := time.ParseInLocation(timeLayout, "2026-11-20T"+clock, time.Local)
	if err != nil {
		panic(err)
	}
	return t
}

func capture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/22.05.8/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestQueue(t *testing.T) {
	a := &answers{stdout: string(capture(t, "squeue-queue.txt"))}
	got, err := (&Client{Run: a}).Queue(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{ID: "5", State: "CANCELLED", Reason: "None", Submit: at("18:04:00"), Start: at("18:04:00"), Comment: "PONOS_TASK=abc-5"},
		{ID: "1", State: "COMPLETED", Reason: "None", Derived: Exit{Code: 1}, Submit: at("18:02:47"), Start: at("18:02:48"), Comment: "PONOS_TASK=abc-1"},
		{ID: "2", State: "FAILED", Reason: "NonZeroExitCode", Exit: Exit{Code: 3}, Submit: at("18:02:47"), Start: at("18:02:48"), Comment: "PONOS_TASK=abc-2"},
		{ID: "6", State: "FAILED", Reason: "JobLaunchFailure", Exit: Exit{Signal: 9}, Submit: at("18:04:00"), Start: at("18:04:00"), Comment: "ünï cödé PONOS_TASK=x with a very long text indeed that is longer than eight"},
		{ID: "4", State: "PENDING", Reason: "BeginTime", Submit: at("18:02:47"), Start: at("19:02:47")},
		{ID: "3", State: "RUNNING", Reason: "None", Submit: at("18:02:47"), Start: at("18:02:48"), Comment: "PONOS_TASK=abc-3"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	asked := strings.Join(append([]string{a.asked[0].Name}, a.asked[0].Args...), " ")
	if asked != "squeue --noheader --local --all --states=all --user=1000 --Format=JobID:20,State:20,Reason:40,exit_code:12,DerivedEC:12,RestartCnt:8,SubmitTime:24,StartTime:24,Comment:80" {
		t.Errorf("asked %s", asked)
	}
}

func TestAccount(t *testing.T) {
	got, err := ParseAccount(bytes.NewReader(capture(t, "sacct-account.txt")))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 6 {
		t.Errorf("%d jobs; want 6", len(got))
	}
	for id, want := range map[string]Record{
		"1": {ID: "1", State: "COMPLETED", Submit: at("18:02:47"), End: at("18:02:49"), Comment: "PONOS_TASK=abc-1", Name: "j1.sh", Steps: []Exit{{Code: 1}}},
		"3": {ID: "3", State: "RUNNING", Submit: at("18:02:47"), Name: "wrap"},
		"5": {ID: "5", State: "CANCELLED", By: "0", Submit: at("18:04:00"), End: at("18:04:00"), Comment: "PONOS_TASK=abc-5", Name: "wrap"},
	} {
		if diff := cmp.Diff(want, got[id]); diff != "" {
			t.Errorf("job %s: %s", id, diff)
		}
	}
	if f := got["1"].FirstFailure(); f.Status() != 1 {
		t.Errorf("the failed step of job 1 is not seen: %+v", f)
	}
	if f := got["6"].FirstFailure(); f.Status() != 137 {
		t.Errorf("the signal of job 6 is not seen: %+v", f)
	}
}

// Half an answer, or one in another language, is an error with the line, and not
// fewer jobs.
func TestOddOutputIsAnError(t *testing.T) {
	queue, account := string(capture(t, "squeue-queue.txt")), string(capture(t, "sacct-account.txt"))
	for _, tt := range []struct{ name, text, want string }{
		{"cut", queue[:len(queue)-200], "squeue: line 6 of its output: it ends after"},
		{"words", queue + "slurm_load_jobs error\n", "squeue: line 7"},
		{"html", "<html>", "squeue: line 1"},
		{"time", strings.Replace(queue, "2026-11-20T18:04:00", "yesterday          ", 1), `squeue: line 1 of its output: "yesterday" is no time`},
	} {
		if jobs, err := ParseQueue(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) || !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %d jobs, %v; want %q", tt.name, len(jobs), err, tt.want)
		}
	}
	for _, tt := range []struct{ name, text, want string }{
		{"cut", account[:len(account)-80], "fields, not 7"},
		{"step first", "1.batch" + strings.Repeat(unit, 6) + "\n", "no exit code"},
		{"no job", "1.0\x1fCOMPLETED\x1f0:0\x1f\x1f\x1f\x1f\n", "comes before its job"},
		{"words", "Slurm accounting storage is down", "it has 1 fields"},
	} {
		if jobs, err := ParseAccount(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) || !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %d jobs, %v; want %q", tt.name, len(jobs), err, tt.want)
		}
	}
}

func TestAccountWithoutAccounting(t *testing.T) {
	_, err := (&Client{Run: &answers{code: 1, stderr: "Slurm accounting storage is disabled\n"}}).Account(t.Context(), []string{"1"})
	if !errors.Is(err, ErrNoAccounting) {
		t.Errorf("got %v", err)
	}
	a := &answers{}
	if got, err := (&Client{Run: a}).Account(t.Context(), nil); err != nil || got != nil || len(a.asked) != 0 {
		t.Errorf("asked for nothing: %v, %v, %v", got, err, a.asked)
	}
}

func TestSubmit(t *testing.T) {
	a := &answers{stdout: "Your project has used 40% of its hours\n42;cluster\n"}
	id, err := (&Client{Run: a}).Submit(t.Context(), Batch{Options: []string{"--time=1"}, Script: "/x/job.sh", Args: []string{"a b"}, Env: []string{"PATH=/bin"}})
	if err != nil || id != "42" {
		t.Errorf("%q, %v", id, err)
	}
	if got := a.asked[0].Args; !slices.Equal(got, []string{"--parsable", "--time=1", "/x/job.sh", "a b"}) || !slices.Equal(a.asked[0].Env, []string{"PATH=/bin"}) {
		t.Errorf("asked %q with %q", got, a.asked[0].Env)
	}
	for _, odd := range []string{"", "Submitted batch job 7", "-3", "7\nor not"} {
		if id, err := (&Client{Run: &answers{stdout: odd}}).Submit(t.Context(), Batch{Script: "x"}); err == nil {
			t.Errorf("%q is taken for job %q", odd, id)
		}
	}
}

func TestCancelOfAnEndedJobIsSuccess(t *testing.T) {
	for _, words := range []string{
		"scancel: error: Kill job error on job id 7: Invalid job id specified\n",
		"scancel: error: Kill job error on job id 7: Job/step already completing or completed\n",
	} {
		if err := (&Client{Run: &answers{code: 1, stderr: words}}).Cancel(t.Context(), "7"); err != nil {
			t.Errorf("%q: %v", words, err)
		}
	}
	if err := (&Client{Run: &answers{code: 1, stderr: "scancel: error: Kill job error on job id 7: Access/permission denied\n"}}).Cancel(t.Context(), "7"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
}

func FuzzParseQueue(f *testing.F) {
	b, err := os.ReadFile("testdata/22.05.8/squeue-queue.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := ParseQueue(strings.NewReader(text))
		if err == nil && len(jobs) > strings.Count(text, "\n")+1 {
			t.Errorf("%d jobs", len(jobs))
		}
	})
}

func FuzzParseAccount(f *testing.F) {
	b, err := os.ReadFile("testdata/22.05.8/sacct-account.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Add("0\x1f+\x1f0\x1f\x1f\x1f\x1f0")
	f.Fuzz(func(t *testing.T, text string) {
		records, err := ParseAccount(strings.NewReader(text))
		for id, r := range records {
			if err == nil && (r.ID != id || r.State == "") {
				t.Errorf("%q: %+v", id, r)
			}
		}
	})
}
