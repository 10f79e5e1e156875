package slurm

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

var markPattern = regexp.MustCompile(`\|[a-p]{8}\b`)

// at returns a local time on the day of the capture of sacct.
func at(clock string) int64 { return on("2026-11-25", clock) }

func on(day, clock string) int64 {
	t, err := ParseTime(day + "T" + clock)
	if err != nil {
		panic(err)
	}
	return t
}

func TestQueue(t *testing.T) {
	inUTC(t)
	a := &answers{capture: "testdata/22.05.8/squeue-own.table"}
	got, err := (&Client{Run: a}).Queue(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	submit, start := on("2026-11-29", "19:24:25"), on("2026-11-29", "19:24:26")
	want := []Job{
		{ID: 7, Label: "7", State: "CANCELLED", Reason: "None", Submit: submit, Start: start, Exit: Exit{Signal: 15}, Comment: "PONOS_TASK=abc-9", WorkDir: "/tmp"},
		{ID: 1, Label: "1", State: "COMPLETED", Reason: "None", Submit: submit, Start: start, Derived: Exit{Code: 1}, Comment: "PONOS_TASK=abc-1", WorkDir: "/tmp"},
		{ID: 6, ArrayID: 6, Label: "6_1", Tasks: "1", State: "COMPLETED", Reason: "None", Submit: submit, Start: start, WorkDir: "/tmp"},
		{ID: 6, ArrayID: 6, Label: "6_2", Tasks: "2", State: "COMPLETED", Reason: "None", Submit: submit, Start: start, WorkDir: "/tmp"},
		{ID: 2, Label: "2", State: "FAILED", Reason: "NonZeroExitCode", Submit: submit, Start: start, Exit: Exit{Code: 3}, Comment: "PONOS_TASK=abc-2", WorkDir: "/var/tmp"},
		{ID: 4, ArrayID: 4, Label: "4_[1-3%2]", Tasks: "1-3", State: "PENDING", Reason: "BeginTime", Submit: submit, Start: submit + 3600, WorkDir: "/tmp"},
		{ID: 5, Label: "5", State: "PENDING", Reason: "JobHeldUser", Submit: submit, Comment: "a|b", WorkDir: "/tmp/a  b|c"},
		{ID: 3, Label: "3", State: "RUNNING", Reason: "None", Submit: submit, Start: start, Comment: "PONOS_TASK=abc-3", WorkDir: "/tmp"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	asked := markPattern.ReplaceAllString(strings.Join(append([]string{a.asked[0].Name}, a.asked[0].Args...), " "), "MARK")
	if asked != "squeue --noheader --all --local --priority --noconvert --Format=JobArrayID:MARK,State:MARK,Reason:MARK,SubmitTime:MARK,StartTime:MARK,exit_code:MARK,DerivedEC:MARK,RestartCnt:MARK,Comment:MARK,WorkDir:MARK --states=all --user=1000" {
		t.Errorf("asked %s", asked)
	}
}

func TestAccount(t *testing.T) {
	inUTC(t)
	a := &answers{capture: "testdata/22.05.8/sacct.table"}
	got, err := (&Client{Run: a}).Account(t.Context(), []string{"1", "7"})
	if err != nil || len(got) != 10 {
		t.Fatalf("%+v, %v", got, err)
	}
	for id, want := range map[string]Record{
		"1": {ID: "1", State: "COMPLETED", Submit: at("22:26:34"), End: at("22:26:35"), Comment: "PONOS_TASK=abc-1", Name: "j1", Steps: []Step{{"0", Exit{Code: 1}}}},
		"3": {ID: "3", State: "RUNNING", Submit: at("22:26:35"), Name: "j3"},
		"7": {ID: "7", State: "CANCELLED", By: "0", Submit: at("22:26:35"), End: at("22:26:36"), Comment: "PONOS_TASK=abc-9", Name: "j\n9|x", Batch: Exit{Signal: 15}},
	} {
		if diff := cmp.Diff(want, got[id]); diff != "" {
			t.Errorf("job %s: %s", id, diff)
		}
	}
	one, seven := got["1"], got["7"]
	if f := one.FirstFailure(); f.Status() != 1 {
		t.Errorf("the failed step of job 1 is not seen: %+v", f)
	}
	if f := seven.FirstFailure(); f.Status() != 143 {
		t.Errorf("the signal of job 7 is not seen: %+v", f)
	}
	asked := markPattern.ReplaceAllString(strings.Join(a.asked[0].Args, " "), "MARK")
	if asked != "--noheader --parsable --delimiter=MARK --format=JobID,State,ExitCode,Submit,End,Comment,JobName --allusers --jobs=1,7" {
		t.Errorf("asked %q", a.asked[0].Args)
	}
}

// What Slurm 22.05 prints of jobs whose node failed under a step: 13 was requeued, 17 was not.
func TestStepsLostWithTheirNode(t *testing.T) {
	inUTC(t)
	var jobs []Job
	queue := strings.ReplaceAll("13|COMPLETED|None|2026-11-23T14:51:23|2026-11-23T14:51:30|0|-2|1|(null)|\n", "|", mark)
	asked := pick(ownColumns, "JobArrayID", "State", "Reason", "SubmitTime", "StartTime", "exit_code", "DerivedEC", "RestartCnt", "Comment")
	if err := rows(strings.NewReader(queue), marked("squeue"), asked, collect(&jobs)); err != nil || len(jobs) != 1 || jobs[0].Derived != (Exit{}) || jobs[0].Restarts != 1 {
		t.Errorf("%+v, %v", jobs, err)
	}
	account := strings.ReplaceAll("17|NODE_FAIL|0:0|2026-11-23T14:54:17|2026-11-23T14:54:20||wrap|\n"+
		"17.batch|CANCELLED||2026-11-23T14:54:17|2026-11-23T14:54:20||batch|\n"+
		"17.0|CANCELLED||2026-11-23T14:54:17|2026-11-23T14:54:20||sleep|\n", "|", mark)
	got, err := parseAccount(strings.NewReader(account), marked("sacct"), pick(recordColumns, "JobID", "State", "ExitCode", "Submit", "End", "Comment", "JobName"))
	if job := got["17"]; err != nil || job.State != "NODE_FAIL" || job.FirstFailure() != (Exit{}) {
		t.Errorf("%+v, %v", job, err)
	}
}

// Incomplete output, or output in another language, is an error with the line number, never a
// shorter list of jobs.
func TestOddOutputIsAnError(t *testing.T) {
	queue, jobs := printed(t, "22.05.8/squeue-own", marked("squeue"), ownColumns)
	account, ended := printed(t, "22.05.8/sacct", marked("sacct"), endColumns)
	for _, tt := range []struct{ name, text, want string }{
		{"cut", queue[:len(queue)-20], "squeue: line 8 of its output: cut short"},
		{"words", queue + "slurm_load_jobs error\n", "squeue: line 9"},
		{"html", "<html>\n", "squeue: line 1"},
		{"time", strings.Replace(queue, "2026-11-29T19:24:25", "yesterday", 1), `squeue: line 1 of its output: "7": SubmitTime: "yesterday": expected a time`},
		{"id", strings.Replace(queue, "7"+mark, "x"+mark, 1), `JobArrayID: "x": expected a job id`},
		{"state", strings.Replace(queue, "RUNNING", "?", 1), `State: "?": expected a state`},
	} {
		var got []Job
		if err := rows(strings.NewReader(tt.text), marked("squeue"), jobs, collect(&got)); err == nil || !strings.Contains(err.Error(), tt.want) || !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %d jobs, %v; want %q", tt.name, len(got), err, tt.want)
		}
	}
	for _, tt := range []struct{ name, text, want string }{
		{"cut", account[:len(account)-80], "sacct: line"},
		{"step first", strings.ReplaceAll("1.0|COMPLETED|0:0|||||\n", "|", mark), "comes before its job"},
		{"words", "Slurm accounting storage is down\n", "cut short"},
	} {
		if jobs, err := parseAccount(strings.NewReader(tt.text), marked("sacct"), ended); err == nil || !strings.Contains(err.Error(), tt.want) || !fault.Is(err, fault.Unavailable) {
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
