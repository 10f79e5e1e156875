package pack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/cgrouptest"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// pilot is a class of one pilot and its tasks.
type pilot struct {
	*testing.T
	dir   Dir
	class string // to which tasks are added
	n     int
	ends  func() time.Time // when Slurm ends the job; nil: it does not know
}

func (p *pilot) end(_ context.Context, job string) (time.Time, error) {
	if p.ends == nil || job != "7" {
		return time.Time{}, nil
	}
	return p.ends(), nil
}

func newPilot(t *testing.T, p Pilot) *pilot {
	t.Helper()
	state := t.TempDir()
	d := Dir{Path: filepath.Join(state, "packs"), Tasks: filepath.Join(state, "tasks")}
	p.Tasks, p.Time, p.Grace, p.CPUs = d.Tasks, time.Hour, time.Second, max(p.CPUs, len(machine.Affinity())+1)
	if err := os.Mkdir(d.Tasks, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Make("c", p); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_JOB_ID", "7")
	t.Setenv(childVar, strconv.Itoa(os.Getppid()))
	return &pilot{T: t, dir: d, class: "c"}
}

// add adds a task, whose job script journals what it does as those of the agent do.
func (p *pilot) add(id task.ID, t Ticket, script string) {
	p.Helper()
	p.n++
	t.At, t.Key, t.Attempt, t.Task, t.CPUs = time.Unix(int64(p.n), 0), "k"+strconv.Itoa(p.n), 1, id, 1
	t.Limit = cmp.Or(t.Limit, time.Minute)
	dir := p.dir.Task(id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		p.Fatal(err)
	}
	text := "printf 'begun n1 1 2;\\n\\n' >>run.$PONOS_JOB.0\nln -sfn $PONOS_JOB owner.1\n(" + script + ")\nprintf 'ended %d;\\n\\n' $? >>run.$PONOS_JOB.0\n"
	if err := os.WriteFile(filepath.Join(dir, "job.sh"), []byte(text), 0o600); err != nil {
		p.Fatal(err)
	}
	if err := p.dir.Put(p.class, t, dir, "ponos-"+string(id)); err != nil {
		p.Fatal(err)
	}
}

// run runs the pilot until no task is left.
func (p *pilot) run() (log string, err error) {
	p.Helper()
	ctx, stop := context.WithTimeout(p.Context(), 5*time.Minute)
	defer stop()
	var out bytes.Buffer
	err = work(ctx, p.dir.Class("c"), &out, p.end, 50*time.Millisecond)
	return out.String(), err
}

func (p *pilot) output(id task.ID) string {
	p.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir.Task(id), runner.Output))
	if err != nil {
		p.Error(err)
	}
	return string(b)
}

// Each task gets GPUs of its own of those that the job has, and nothing names the others.
func TestGPUsOfTasks(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "4,7")
	t.Setenv("GPU_DEVICE_ORDINAL", "4,7")
	p := newPilot(t, Pilot{GPUs: 2})
	say := `echo "$CUDA_VISIBLE_DEVICES,$SLURM_GPUS_ON_NODE,$GPU_DEVICE_ORDINAL"; touch ../$$; until [ "$(ls .. | grep -c '^[0-9]*$')" -ge 2 ]; do sleep 0.05; done`
	p.add("a", Ticket{GPUs: 1}, say)
	p.add("b", Ticket{GPUs: 1}, say)
	p.add("both", Ticket{GPUs: 2}, "echo $CUDA_VISIBLE_DEVICES,$SLURM_GPUS_ON_NODE")
	if log, err := p.run(); err != nil {
		t.Fatal(err, log)
	}
	two := []string{p.output("a"), p.output("b")}
	slices.Sort(two)
	if got := strings.Join(append(two, p.output("both")), ""); got != "4,1,\n7,1,\n4,7,2\n" {
		t.Errorf("%q", got)
	}
}

// A pilot that does not know which GPUs are its own begins no task.
func TestUnknownGPUs(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "4")
	p := newPilot(t, Pilot{GPUs: 2})
	p.add("a", Ticket{GPUs: 1}, "true")
	if _, err := p.run(); err == nil || err.Error() != "the job has requested 2 GPUs, and its environment names 1" {
		t.Error(err)
	}
	if places, err := p.dir.Places(); err != nil || places["k1"].Taken {
		t.Errorf("%+v, %v", places, err)
	}
}

// If the time limit of a pilot is changed, it begins the tasks that still fit, and no others.
func TestChangedTimeLimit(t *testing.T) {
	for name, c := range map[string]struct {
		first, then time.Duration // from now to the end of the job
		want        string        // tasks that ran
	}{
		"lowered": {time.Hour, 10 * time.Minute, "a"},
		"raised":  {10 * time.Minute, time.Hour, "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CUDA_VISIBLE_DEVICES", "4")
			p := newPilot(t, Pilot{GPUs: 1})
			// One after the other: the first ends when the pilot has the new limit.
			p.add("a", Ticket{GPUs: 1}, "until [ -e ../moved ]; do sleep 0.05; done; printf a >>../ran")
			p.add("b", Ticket{GPUs: 1, Limit: 30 * time.Minute}, "printf b >>../ran")
			began := clock.Now()
			t.Setenv("SLURM_JOB_END_TIME", strconv.FormatInt(began.Add(c.first).Unix(), 10))
			asked := 0
			p.ends = func() time.Time {
				if asked++; asked == 2 { // it has received the first answer
					if err := os.WriteFile(filepath.Join(p.dir.Tasks, "moved"), nil, 0o600); err != nil {
						t.Error(err)
					}
				}
				return began.Add(c.then)
			}
			log, err := p.run()
			if err != nil || !strings.Contains(log, "pilot 7: Slurm now ends the job at ") {
				t.Error(err, log)
			}
			if ran, err := os.ReadFile(filepath.Join(p.dir.Tasks, "ran")); err != nil || string(ran) != c.want {
				t.Errorf("%q, want %q, %v", ran, c.want, err)
			}
			if late := strings.Contains(log, "too soon for tasks that wait"); late != (c.want == "a") {
				t.Error(log)
			}
		})
	}
}

// Jobs of tasks differ, also after the pilot was requeued: a job of the same name has ended, and its
// task would not run again.
func TestNumbersAfterRequeue(t *testing.T) {
	p := newPilot(t, Pilot{})
	p.add("a", Ticket{}, "echo $PONOS_JOB")
	for _, restart := range []string{"", "1", "2"} {
		t.Setenv("SLURM_RESTART_COUNT", restart)
		if restart != "" {
			p.add(task.ID("b"+restart), Ticket{}, "echo $PONOS_JOB")
			p.add(task.ID("c"+restart), Ticket{}, "echo $PONOS_JOB")
		}
		if log, err := p.run(); err != nil {
			t.Fatal(err, log)
		}
	}
	seen := map[string]bool{}
	for _, id := range []task.ID{"a", "b1", "c1", "b2", "c2"} {
		job := strings.TrimSpace(p.output(id))
		if seen[job] || PilotOf(job) != "7" {
			t.Errorf("task %s: job %q", id, job)
		}
		seen[job] = true
	}
}

// A pilot that Slurm has requeued because it cannot reach its node may still run there. It ends once
// the job has begun again, and the tasks that it has, also those that it took after that, run in the
// later start.
func TestRequeuedElsewhere(t *testing.T) {
	p := newPilot(t, Pilot{})
	await := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	starts := func(id task.ID) int {
		b, _ := os.ReadFile(filepath.Join(p.dir.Task(id), "starts"))
		return len(b)
	}
	type end struct {
		log string
		err error
	}
	begin := func() <-chan end {
		ended := make(chan end, 1)
		go func() {
			log, err := p.run()
			ended <- end{log, err}
		}()
		return ended
	}
	script := "printf x >>starts; until [ -e ../go ]; do sleep 0.05; done; echo ran"
	p.add("a", Ticket{}, script)
	earlier := begin()
	await("the task begins", func() bool { return starts("a") == 1 })
	t.Setenv("SLURM_RESTART_COUNT", "1")
	later := begin()
	select {
	case e := <-earlier:
		if e.err == nil || e.err.Error() != "the job has ended or was requeued, although this process still ran" {
			t.Errorf("the earlier start: %v, %s", e.err, e.log)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("the earlier start goes on")
	}
	await("the task begins again", func() bool { return starts("a") == 2 })
	p.class = "other"
	if err := p.dir.Make(p.class, Pilot{}); err != nil {
		t.Fatal(err)
	}
	p.add("b", Ticket{}, script)
	waiting, err := p.dir.Waiting("other")
	if err != nil || len(waiting) != 1 {
		t.Fatal(waiting, err)
	}
	name := waiting[0].name()
	if err := os.Rename(filepath.Join(p.dir.Class("other"), waitingDir, name), filepath.Join(p.dir.Class("c"), takenDir, "7", taken(2, name))); err != nil {
		t.Fatal(err)
	}
	await("the other task begins", func() bool { return starts("b") == 1 })
	if err := os.WriteFile(filepath.Join(p.dir.Tasks, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := <-later; e.err != nil {
		t.Errorf("the later start: %v, %s", e.err, e.log)
	}
	if got := p.output("a") + p.output("b"); got != "ran\nran\n" || starts("a") != 2 || starts("b") != 1 {
		t.Errorf("%q, %d and %d starts", got, starts("a"), starts("b"))
	}
	// What it leaves keeps neither the class nor the job from being cleaned up.
	p.dir.Forget("c", "7")
	if left, err := p.dir.Pilots("c"); err != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// A task may end in a pilot that has not yet seen that its job was requeued, as on a node that Slurm cannot
// reach. The ticket, the mark and the end of the task are those of the later start, which runs it by now.
func TestEndInAnEarlierStart(t *testing.T) {
	for name, c := range map[string]struct {
		limit time.Duration
		end   string
	}{
		"its job script is killed": {time.Minute, "kill -9 $$"},
		"it ends":                  {time.Minute, "exit 0"},
		"it reaches its limit":     {time.Nanosecond, "sleep 600"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPilot(t, Pilot{})
			p.add("a", Ticket{Limit: c.limit}, "printf 'begun n2 1 2;\\n\\n' >run.$PONOS_JOB.1; : >../../packs/c/taken/7/start.1; "+c.end)
			if log, err := p.run(); err == nil {
				t.Errorf("the earlier start has ended without an error: %s", log)
			}
			all, err := p.dir.Taken("c", "7")
			if err != nil || len(all) != 1 || !all[0].Begun {
				t.Errorf("%+v, %v; want the ticket, with a mark that its task runs", all, err)
			}
			if e := ReadEnd(p.dir.Task("a"), "7.1"); e != (End{}) {
				t.Errorf("%+v is recorded for a task that runs", e)
			}
		})
	}
}

// A pilot that Slurm has forgotten ends. The pilot of a later job with its id does not, although its
// directory shows that the earlier one is to end.
func TestForgottenPilot(t *testing.T) {
	const superseded = "the job has ended or was requeued, although this process still ran"
	for name, c := range map[string]struct {
		marked time.Duration // ago
		begun  string        // the start of the job
		want   string
	}{
		"forgotten":              {0, strconv.FormatInt(clock.Now().Add(-time.Minute).Unix(), 10), superseded},
		"of an earlier job":      {time.Hour, strconv.FormatInt(clock.Now().Add(-time.Minute).Unix(), 10), ""},
		"the start is not known": {time.Hour, "", superseded},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPilot(t, Pilot{})
			p.add("a", Ticket{}, "touch ../ran")
			t.Setenv("SLURM_JOB_START_TIME", c.begun)
			if err := mkdir(filepath.Join(p.dir.Class("c"), takenDir, "7")); err != nil {
				t.Fatal(err)
			}
			if marked, err := p.dir.Supersede("c", "7", AllStarts); !marked || err != nil {
				t.Fatal(marked, err)
			}
			mark := filepath.Join(p.dir.Class("c"), takenDir, "7", startFile+strconv.Itoa(AllStarts))
			at := time.Now().Add(-c.marked)
			if err := os.Chtimes(mark, at, at); err != nil {
				t.Fatal(err)
			}
			log, err := p.run()
			if got := fmt.Sprint(err); got != cmp.Or(c.want, "<nil>") {
				t.Errorf("%s, want %q, %s", got, c.want, log)
			}
			if _, err := os.Stat(filepath.Join(p.dir.Tasks, "ran")); (err == nil) != (c.want == "") {
				t.Errorf("the task has run: %v", err == nil)
			}
			if left, _ := names(filepath.Dir(mark)); len(left) != 1 { // an earlier one may still have to see it
				t.Errorf("left: %q", left)
			}
		})
	}
}

// A pilot that was requeued and cannot yet end an earlier start, as on a full disk, begins no task
// beside it.
func TestRequeuedOnAFullDisk(t *testing.T) {
	p := newPilot(t, Pilot{Linger: time.Minute})
	p.add("a", Ticket{}, "ls ../room; ls ../../packs/c/taken/7; touch ../ran")
	t.Setenv("SLURM_RESTART_COUNT", "1")
	own := filepath.Join(p.dir.Class("c"), takenDir, "7")
	occupied := filepath.Join(own, startFile+"1") // nothing can be written there
	begun := filepath.Join(own, begunFile+"5")    // of a task of the earlier start
	if err := errors.Join(os.MkdirAll(occupied, 0o700), os.WriteFile(begun, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	asked := 0
	p.ends = func() time.Time {
		if asked++; asked == 5 {
			if _, err := os.Stat(begun); err != nil {
				t.Error(err)
			}
			if err := errors.Join(os.WriteFile(filepath.Join(p.dir.Tasks, "room"), nil, 0o600), os.Remove(occupied)); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(filepath.Join(p.dir.Tasks, "ran")); err == nil {
			stop()
		}
		return clock.Now().Add(time.Hour)
	}
	var out bytes.Buffer
	if err := work(ctx, p.dir.Class("c"), &out, p.end, 50*time.Millisecond); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got, want := p.output("a"), "../room\n1000001~"; !strings.HasPrefix(got, want) || !strings.Contains(got, "\nstart.1\n") || strings.Contains(got, begunFile+"5") {
		t.Errorf("%q, want %q", got, want)
	}
	if want := "pilot 7: no task begins while an earlier start may still run: "; strings.Count(out.String(), want) != 1 {
		t.Errorf("want one %q: %s", want, out.String())
	}
}

// What an earlier start of a task has put in the place of its output keeps its pilot from nothing.
func TestOutputThatIsNoFile(t *testing.T) {
	p := newPilot(t, Pilot{})
	output := func(id task.ID) string { return filepath.Join(p.dir.Task(id), runner.Output) }
	for _, id := range []task.ID{"pipe", "directory", "link"} {
		p.add(id, Ticket{}, "grep -c 'flags:.*[4-7]...$' /proc/self/fdinfo/1; echo ran")
	}
	outside := filepath.Join(t.TempDir(), "outside")
	err := errors.Join(syscall.Mkfifo(output("pipe"), 0o600), os.MkdirAll(filepath.Join(output("directory"), "x"), 0o700), os.Symlink(outside, output("link")))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() {
		log, err := p.run()
		ended <- fmt.Sprint(err, log)
	}()
	select {
	case said := <-ended:
		if !strings.HasSuffix(said, "pilot 7: ended after 3 tasks\n") {
			t.Error(said)
		}
	case <-time.After(time.Minute):
		t.Fatal("the pilot does not end")
	}
	for _, id := range []task.ID{"pipe", "directory", "link"} {
		if got := p.output(id); got != "0\nran\n" { // that writes may block
			t.Errorf("%s: %q", id, got)
		}
	}
	if _, err := os.Lstat(outside); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// A task of an earlier start that needs much is not passed by for ever: while it waits for room, none
// is taken that came later.
func TestInheritedTaskThatNeedsMuch(t *testing.T) {
	p := newPilot(t, Pilot{GPUs: 2})
	t.Setenv("CUDA_VISIBLE_DEVICES", "0,1")
	p.add("small", Ticket{GPUs: 1}, "echo small >>../order; until [ -e ../asked ]; do sleep 0.05; done")
	p.add("large", Ticket{GPUs: 2}, "echo large >>../order")
	own := filepath.Join(p.dir.Class("c"), takenDir, "7")
	waiting, err := p.dir.Waiting("c")
	if err = errors.Join(err, os.MkdirAll(own, 0o700)); err != nil || len(waiting) != 2 {
		t.Fatal(waiting, err)
	}
	for i, ticket := range waiting {
		if err := os.Rename(filepath.Join(p.dir.Class("c"), waitingDir, ticket.name()), filepath.Join(own, taken(i+1, ticket.name()))); err != nil {
			t.Fatal(err)
		}
	}
	p.add("later", Ticket{GPUs: 1}, "echo later >>../order")
	t.Setenv("SLURM_RESTART_COUNT", "1")
	asked := 0
	p.ends = func() time.Time {
		if asked++; asked == 10 {
			if err := os.WriteFile(filepath.Join(p.dir.Tasks, "asked"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}
		return clock.Now().Add(time.Hour)
	}
	if log, err := p.run(); err != nil {
		t.Fatal(err, log)
	}
	if got, err := os.ReadFile(filepath.Join(p.dir.Tasks, "order")); err != nil || string(got) != "small\nlarge\nlater\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// What keeps a task from beginning is reported when it changes, and not at each try.
func TestFailedStartsAreReportedOnce(t *testing.T) {
	p := newPilot(t, Pilot{Linger: time.Minute})
	p.add("a", Ticket{}, "touch ../ran")
	note := filepath.Join(p.dir.Task("a"), ticketFile)
	if err := errors.Join(os.Rename(note, note+".kept"), os.Mkdir(note, 0o700)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	asked := 0
	p.ends = func() time.Time {
		switch asked++; asked {
		case 40:
			if err := os.Remove(note); err != nil {
				t.Error(err)
			}
		case 80:
			if err := os.Rename(note+".kept", note); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(filepath.Join(p.dir.Tasks, "ran")); err == nil {
			stop()
		}
		return clock.Now().Add(time.Hour)
	}
	var out bytes.Buffer
	if err := work(ctx, p.dir.Class("c"), &out, p.end, 50*time.Millisecond); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := strings.Count(out.String(), "pilot 7: task a: "); got != 2 {
		t.Errorf("%d reports, want 2: %s", got, out.String())
	}
}

// When the process that watches a pilot is gone, Slurm is about to kill the pilot: it does not wait for
// its tasks to end by themselves.
func TestAbandoned(t *testing.T) {
	p := newPilot(t, Pilot{})
	p.add("a", Ticket{}, "trap 'echo asked' TERM; touch begun; until [ -e ../go ]; do sleep 0.05; done")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx, p.dir.Class("c"), io.Discard, p.end, time.Hour) }()
	for begun := filepath.Join(p.dir.Task("a"), "begun"); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(begun); err == nil {
			break
		}
	}
	t.Setenv(childVar, "0")
	stop()
	if err := <-ended; err == nil || err.Error() != "the process that watches the pilot is gone" {
		t.Error(err)
	}
	if got := p.output("a"); got != "" {
		t.Errorf("%q", got)
	}
}

// A pilot that ends while tasks wait that need more time than it has reports that.
func TestTooLate(t *testing.T) {
	p := newPilot(t, Pilot{})
	p.add("a", Ticket{}, "true")
	t.Setenv("SLURM_JOB_END_TIME", strconv.FormatInt(clock.Now().Add(80*time.Second).Unix(), 10))
	log, err := p.run()
	if err != nil || !strings.Contains(log, "too soon for tasks that wait\n") || !strings.HasSuffix(log, "pilot 7: ended after 0 tasks\n") {
		t.Errorf("%v: %s", err, log)
	}
	if places, err := p.dir.Places(); err != nil || places["k1"].Taken {
		t.Errorf("%+v, %v", places, err)
	}
}

// Nothing is learned from damaged records, and those beside them count.
func TestDamagedRuns(t *testing.T) {
	p := newPilot(t, Pilot{})
	dir := filepath.Join(p.dir.Class("c"), runsDir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	good := `{"name":"ponos-x","state":"COMPLETED","start":100,"end":160,"elapsed":60000000000,"limit":300000000000,"cpus":1,"cpu_time":5,"peak":1048576}`
	for i, text := range []string{
		"\x00\x00\x00\n" + good + "\n" + strings.Replace(good, "60000000000", "9000000000000000000", 1) + "\n",
		strings.Replace(good, "60000000000", "-5", 1) + "\n" + strings.Replace(good, "1048576", "9000000000000000000", 1) + "\n" + good + "\n" + good[:40],
		strings.Replace(good, `"cpus":1`, `"cpus":-1`, 1) + "\n" + strings.Repeat("x", 4<<20) + "\n" + good + "\n",
		good + "\n" + strings.Replace(good, `"start":100,"end":160`, `"start":160,"end":100`, 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "9"), 0o700); err != nil { // a file that cannot be read
		t.Fatal(err)
	}
	runs, err := p.dir.Runs(time.Unix(0, 0))
	if len(runs) != 3 || err == nil {
		t.Errorf("%d: %+v, %v", len(runs), runs, err)
	}
	for _, r := range runs {
		if r.Elapsed != time.Minute || r.Peak != 1<<20 {
			t.Errorf("%+v", r)
		}
	}
}

// What ended tasks used is recorded by the names of their jobs.
func TestRuns(t *testing.T) {
	p := newPilot(t, Pilot{})
	p.add("fine", Ticket{}, "sleep 1.2")
	p.add("broken", Ticket{}, "exit 3")
	log, err := p.run()
	if err != nil {
		t.Fatal(err, log)
	}
	runs, err := p.dir.Runs(clock.Now().Add(-time.Hour))
	if err != nil || len(runs) != 2 {
		t.Fatalf("%+v, %v\n%s", runs, err, log)
	}
	slices.SortFunc(runs, func(a, b Ran) int { return strings.Compare(a.Name, b.Name) })
	if r := runs[1]; r.Name != "ponos-fine" || r.State != "COMPLETED" || r.Elapsed < time.Second || r.Elapsed > time.Minute || r.End < r.Start || r.Limit != time.Minute || r.CPUs != 1 || r.Peak < 1<<19 {
		t.Errorf("%+v", r)
	}
	if r := runs[0]; r.Name != "ponos-broken" || r.State != "FAILED" {
		t.Errorf("%+v", r)
	}
	if old, err := p.dir.Runs(clock.Now().Add(time.Hour)); err != nil || len(old) != 0 {
		t.Errorf("%+v, %v", old, err)
	}
	// Of many pilots, the newest are remembered; a damaged line costs no other.
	dir := filepath.Join(p.dir.Class("c"), runsDir)
	for i := range keptRuns + 5 {
		name := filepath.Join(dir, strconv.Itoa(100+i))
		text := `{"name":"ponos-x","start":1,"end":` + strconv.Itoa(1<<40) + `,"limit":1,"cpus":1}` + "\n{\"na"
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i+1) * time.Minute)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.dir.Prune("c"); err != nil {
		t.Fatal(err)
	}
	if left, err := names(dir); err != nil || len(left) != keptRuns || left[0] != "105" {
		t.Errorf("%q, %v", left, err)
	}
	if runs, err := p.dir.Runs(time.Unix(0, 0)); err != nil || len(runs) != keptRuns {
		t.Errorf("%d, %v", len(runs), err)
	}
}

// In a cgroup that is delegated to the pilot, the kernel ends what uses more memory than a task has
// requested, also between two measurements.
func TestMemoryIsLimitedByTheKernel(t *testing.T) {
	needs.Root(t, "to make a cgroup")
	parent, _, why := cgrouptest.Subtree(t)
	if parent == "" {
		needs.Missing(t, "a cgroup that can be divided: "+why)
	}
	p := newPilot(t, Pilot{Mem: 256 << 20})
	p.add("more", Ticket{Mem: 64 << 20}, "grep -c ponos-7.1 /proc/self/cgroup; head -c 300M /dev/zero | tail | wc -c; exit ${PIPESTATUS[1]}")
	p.add("enough", Ticket{Mem: 64 << 20}, "grep -c ponos-7.2 /proc/self/cgroup; head -c 1M /dev/zero | tail | wc -c")
	if log, err := p.run(); err != nil {
		t.Fatal(err, log)
	}
	if e := ReadEnd(p.dir.Task("more"), "7.1"); e.Why != OOM || e.Limit != 64<<20 || e.Used < 60<<20 {
		t.Errorf("%+v; output %s", e, p.output("more"))
	}
	if e := ReadEnd(p.dir.Task("enough"), "7.2"); e != (End{}) || p.output("enough") != "1\n1048576\n" {
		t.Errorf("%+v; output %s", e, p.output("enough"))
	}
	if out := p.output("more"); !strings.HasPrefix(out, "1\n") {
		t.Errorf("output %s", out)
	}
	if left, err := filepath.Glob(filepath.Join(parent, "ponos-*")); err != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	runs, err := p.dir.Runs(time.Unix(0, 0))
	if err != nil || len(runs) != 2 || !slices.ContainsFunc(runs, func(r Ran) bool { return r.Name == "ponos-more" && r.State == "OUT_OF_MEMORY" }) {
		t.Errorf("%+v, %v", runs, err)
	}
}
