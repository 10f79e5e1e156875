package slurm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

func newArrayRunner(c *cluster) *Runner {
	r := newRunner(c)
	r.arrays.most = maxElements
	return r
}

// equalTasks are n tasks in a state directory of their own.
func equalTasks(t *testing.T, n int) []runner.Submission {
	t.Helper()
	state := t.TempDir()
	all := make([]runner.Submission, n)
	for i := range all {
		id := task.ID(fmt.Sprintf("t%d", i))
		dir := filepath.Join(state, "tasks", string(id))
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(filepath.Join(state, "arrays"), 0o700)); err != nil {
			t.Fatal(err)
		}
		all[i] = runner.Submission{Task: id, Label: fmt.Sprintf("lr-%d", i), Dir: dir, Script: filepath.Join(dir, "job.sh"), Attempt: 1, Shared: &runner.Shared{
			Like: "x", Links: filepath.Join(state, "arrays"), Alone: func() error { return os.WriteFile(filepath.Join(dir, "job.sh"), nil, 0o600) },
			Script: func(ids []task.ID) []byte { return []byte(fmt.Sprint(ids)) },
		}}
	}
	return all
}

func links(t *testing.T, s runner.Submission) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.Shared.Links, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestEqualTasksAreOneArray(t *testing.T) {
	c := &cluster{rows: []string{row("7", "PENDING", "PONOS_TASK=t1")}}
	r := newArrayRunner(c)
	all := equalTasks(t, 4)
	started := r.StartAll(t.Context(), all)
	var got []string
	for i, s := range started {
		got = append(got, s.Job.ID)
		if s.Err != nil || (s.Job.Claim == runner.Found) != (i == 1) || s.Job.Shows() != task.Pending {
			t.Errorf("%+v", s)
		}
	}
	if want := []string{"201_0", "7", "201_1", "201_2"}; !slices.Equal(got, want) {
		t.Errorf("jobs %q, want %q", got, want)
	}
	if last := c.rows[len(c.rows)-1]; !strings.HasPrefix(last, "201_[0-2]|") || !strings.Contains(last, "|PONOS_TASK=t0,t2,t3|") || c.texts[0] != "[t0 t2 t3]" {
		t.Errorf("%q, %q", last, c.texts)
	}
	for _, name := range links(t, all[0]) {
		index := name[strings.LastIndexByte(name, '.')+1:]
		if to, err := os.Readlink(name); err != nil || to != "../tasks/"+string(all[map[string]int{"0": 0, "1": 2, "2": 3}[index]].Task) {
			t.Errorf("%s -> %s, %v", name, to, err)
		}
	}
	// Each of them is seen as a job by itself; and is adopted when it is started once more.
	jobs, err := r.Jobs(t.Context(), known(runner.Ref{Task: "t2", Job: "201_1"}))
	if err != nil || len(jobs) != 4 || jobs[0].ID != "201_1" || jobs[0].Shows() != task.Pending {
		t.Fatalf("%+v, %v", jobs, err)
	}
	all[3].Again = true
	if again, err := r.Start(t.Context(), all[3]); err != nil || again.Claim != runner.Found || again.ID != "201_2" {
		t.Errorf("%+v, %v", again, err)
	}
}

// sbatch is killed before it prints the id of an array: all its elements are found.
func TestArrayOfUnknownFate(t *testing.T) {
	c := &cluster{lost: true}
	all := equalTasks(t, 3)
	for i, s := range newArrayRunner(c).StartAll(t.Context(), all) {
		if s.Err != nil || s.Job.Claim != runner.Found || s.Job.ID != fmt.Sprintf("201_%d", i) {
			t.Errorf("%+v", s)
		}
	}
	if c.asked["sbatch"] != 1 || len(links(t, all[0])) != 3 {
		t.Errorf("asked %v, links %q", c.asked, links(t, all[0]))
	}
}

// Where Slurm does not take an array, each task is a job; what it then refuses to one of them,
// it is not asked for the others.
func TestRefusedArray(t *testing.T) {
	c := &cluster{most: 2}
	all := equalTasks(t, 3)
	for i, s := range newArrayRunner(c).StartAll(t.Context(), all) {
		if s.Err != nil || s.Job.ID != fmt.Sprint(202+i) {
			t.Errorf("%+v", s)
		}
		if _, err := os.Stat(all[i].Script); err != nil {
			t.Error(err)
		}
	}
	if n := links(t, all[0]); len(n) != 0 {
		t.Errorf("links %q are left", n)
	}
	c = &cluster{most: 2, words: "sbatch: error: QOSMaxSubmitJobPerUserLimit"}
	for _, s := range newArrayRunner(c).StartAll(t.Context(), equalTasks(t, 3)) {
		if !errors.Is(s.Err, runner.ErrFull) {
			t.Errorf("%+v", s)
		}
	}
	if c.asked["sbatch"] != 2 {
		t.Errorf("asked %v", c.asked)
	}
}

func TestAlike(t *testing.T) {
	c := &cluster{}
	r := newArrayRunner(c)
	all := equalTasks(t, 2)
	for size, want := range map[string]int{"44": 44, "1001": 100, "1": 1, "0": 1} {
		if _, most := newArrayRunner(&cluster{size: size}).Alike(t.Context(), all[0]); most != want {
			t.Errorf("MaxArraySize=%s: %d; want %d", size, most, want)
		}
	}
	key, most := r.Alike(t.Context(), all[0])
	if other, _ := r.Alike(t.Context(), all[1]); key == "" || other != key || most != 100 {
		t.Errorf("%q and %q, %d", key, other, most)
	}
	for id, want := range map[string]int{
		"019ab6c5-4d2e-7c61-9f0a-000000000001": 44, "019AB6C5-4d2e-7c61-9f0a-000000000001": 27, strings.Repeat("x", 64): 15,
	} {
		long := all[0]
		long.Task = task.ID(id)
		_, most := r.Alike(t.Context(), long)
		if n := len(task.Marks(slices.Repeat([]task.ID{long.Task}, most)...)); most != want || n > 1024 {
			t.Errorf("%d ids such as %s in a comment of %d bytes, want %d", most, id, n, want)
		}
	}
	for what, change := range map[string]func(*runner.Submission){
		"another script": func(s *runner.Submission) { s.Shared = &runner.Shared{Like: "y"} },
		"other options":  func(s *runner.Submission) { s.Request.Sbatch = []string{"mem=2G"} },
		"another try":    func(s *runner.Submission) { s.Again = true },
		"a change":       func(s *runner.Submission) { s.Changed = []string{"time=5"} },
		"an array":       func(s *runner.Submission) { s.Request.Sbatch = []string{"array=0-3"} },
	} {
		s := all[0]
		change(&s)
		if other, _ := r.Alike(t.Context(), s); other == key {
			t.Errorf("%s: %q", what, other)
		}
	}
	off := New(&slurm.Client{Run: c}, config.Slurm{}, nil)
	if key, most := off.Alike(t.Context(), all[0]); key != "" || most != 1 {
		t.Errorf("without arrays: %q, %d", key, most)
	}
}

// Whichever elements of the largest array wait, Slurm does not shorten their list: where three
// dots take the place of its end, the last three of slurm.ListLength are of them.
func TestElementsAreShownWhole(t *testing.T) {
	for _, waits := range []func(i int) bool{
		func(i int) bool { return i%3 > 0 }, func(i int) bool { return i%3 < 2 }, func(i int) bool { return i%2 == 0 }, func(i int) bool { return i%4 > 0 },
	} {
		var parts []string
		for i := 0; i < maxElements; i++ {
			first := i
			for i < maxElements && waits(i) {
				i++
			}
			if i-first > 1 {
				parts = append(parts, fmt.Sprintf("%d-%d", first, i-1))
			} else if i > first {
				parts = append(parts, fmt.Sprint(first))
			}
		}
		if list := strings.Join(parts, ","); len(list) > slurm.ListLength-4 {
			t.Errorf("%d characters: %s", len(list), list)
		}
	}
}

// An array of the user's own is none of the agent's, whatever squeue shows of it; one that is
// marked with a task is the task's job.
func TestArraysOfTheUsersOwn(t *testing.T) {
	c := &cluster{rows: []string{row("5_[0,2,4,6,8,10", "PENDING", ""), row("6_[0-9,...]", "PENDING", "PONOS"), row("7_[1-3%2]", "PENDING", "PONOS_TASK=a"), row("7_0", "RUNNING", "PONOS_TASK=a")}}
	r := newArrayRunner(c)
	jobs, err := r.Jobs(t.Context(), known(runner.Ref{Task: "a", Job: "7"}))
	if err != nil || len(jobs) != 1 || jobs[0].ID != "7" || jobs[0].Shows() != task.Pending {
		t.Errorf("%+v, %v", jobs, err)
	}
	// One of tasks that cannot be read is no empty one.
	c.rows = append(c.rows, row("8_[0,2,4,6,8,10", "PENDING", "PONOS_TASK=a,b,c"))
	if jobs, err := r.Jobs(t.Context(), known()); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("%+v, %v", jobs, err)
	}
}

// Slurm keeps nothing of an element that was cancelled while it waited. Only where others of
// the array are seen, that is why it is gone.
func TestAnElementCancelledWhileItWaited(t *testing.T) {
	sacct := "9_[0,2]|PENDING|0:0|2026-11-20T18:02:47|Unknown||ponos-t||\n"
	for _, tt := range []struct {
		name, sacct string
		rows        []string
		want        string
	}{
		{"others wait", sacct, []string{row("9_[0,2]", "PENDING", "PONOS_TASK=a,b,c")}, "error, the job was cancelled, and not by this agent, while it waited"},
		{"accounting lags", "", []string{row("9_[0,2]", "PENDING", "PONOS_TASK=a,b,c")}, "error not begun, Slurm has forgotten the job before it began"},
		{"another array has its id", sacct, []string{row("9_[0,2]", "PENDING", "PONOS_TASK=x,y,z")}, "error not begun, Slurm has forgotten the job before it began"},
		{"the array is forgotten", sacct, nil, "error not begun, Slurm has forgotten the job before it began"},
	} {
		dir := t.TempDir()
		absence := task.Absence{Since: now.Add(-11 * time.Minute), Last: now, Misses: 10}
		ref := runner.Ref{Task: "b", Job: "9_1", Dir: dir, Attempt: 1, Submitted: now, Missing: absence, Unaccounted: absence}
		jobs, err := newArrayRunner(&cluster{sacct: tt.sacct, rows: tt.rows}).Jobs(t.Context(), known(ref))
		if err != nil {
			t.Fatal(err)
		}
		got := string(jobs[0].Shows())
		if jobs[0].Sight == runner.Unbegun {
			got += " not begun"
		}
		if got += ", " + jobs[0].Reason; got != tt.want || (jobs[0].Sight == runner.Cancelled) == (jobs[0].Sight == runner.Unbegun) {
			t.Errorf("%s: %s, %+v", tt.name, got, jobs[0])
		}
	}
}

// Slurm, restarted after a crash, gives the id of an array to another one, and stores no comments.
func TestAccountOfAnotherArrayWithTheSameID(t *testing.T) {
	sacct := func(comment string) string {
		return "9_1|COMPLETED|0:0|2026-11-20T18:02:47|2026-11-20T18:03:47||ponos-t|sbatch --parsable --comment=" + comment + " --array=0-2|\n"
	}
	for comment, want := range map[string]task.State{"PONOS_TASK=a,b,c": task.Completed, "PONOS_TASK=x,y,z": ""} {
		ref := runner.Ref{Task: "b", Job: "9_1", Label: "t-1", Attempt: 1, Submitted: now}
		jobs, err := newArrayRunner(&cluster{sacct: sacct(comment)}).Jobs(t.Context(), known(ref))
		if err != nil || jobs[0].Shows() != want || !jobs[0].Sight.Sure() != (want == "") {
			t.Errorf("%s: %+v, %v", comment, jobs, err)
		}
	}
}

// The state directory is lost, and the cluster stores no comments.
func TestPastArrays(t *testing.T) {
	line := func(id, state, dir, command string) string {
		return strings.Join([]string{id, state, "2026-11-20T18:00:00", "", dir, command, ""}, "|") + "\n"
	}
	command := "sbatch --parsable --comment=PONOS_TASK=a,b,c --array=0-2"
	c := &cluster{sacct: line("9_1", "COMPLETED", "/s/tasks", command) + line("9_[2]", "CANCELLED by 0", "/s/tasks", command) +
		line("8_0", "COMPLETED", "/elsewhere", command) + line("7", "FAILED", "/s/tasks/d", "sbatch job.sh") + line("6", "FAILED", "/s/tasks", "sbatch")}
	jobs, err := newArrayRunner(c).Past(t.Context(), now, func(id task.ID) string { return filepath.Join("/s/tasks", string(id)) })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range jobs {
		got = append(got, string(j.Task)+"="+j.ID)
	}
	if text := strings.Join(got, " "); text != "b=9_1 c=9_2 d=7" {
		t.Error(text)
	}
}
