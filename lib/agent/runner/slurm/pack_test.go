package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/agent/runner/pack"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/answers"
)

func packing() *Runner {
	r := &Runner{options: &options{config: config.Default().Slurm}, stopWait: time.Minute}
	r.Pack(Packing{On: true, State: "s1", Dir: pack.Dir{Path: "/x/packs", Tasks: "/x/tasks"}})
	return r
}

// Which tasks are short, and what they take.
func TestShort(t *testing.T) {
	const one = " --nodes=1 --ntasks=1 "
	for given, want := range map[string]string{
		"--partition=cpu --time=5":                                     "1 CPUs, 0 GPUs, 0 MiB, 5m0s; --partition=cpu" + one + "--cpus-per-task=4 --time=1:00:00",
		"--time=0:00:30 --cpus-per-task=2 --mem=3G":                    "2 CPUs, 0 GPUs, 3072 MiB, 1m0s; --mem=6G" + one + "--cpus-per-task=4 --time=1:00:00",
		"--time=10 --mem-per-cpu=100M --nodes=1 --ntasks=1 --nice=5":   "1 CPUs, 0 GPUs, 100 MiB, 10m0s; --nice=5 --mem=400M" + one + "--cpus-per-task=4 --time=1:00:00",
		"--time=5 --gres=gpu":                                          "1 CPUs, 1 GPUs, 0 MiB, 5m0s; --gres=gpu:2" + one + "--cpus-per-task=2 --time=1:00:00",
		"--time=5 --gres=gpu:a100":                                     "1 CPUs, 1 GPUs, 0 MiB, 5m0s; --gres=gpu:a100:2" + one + "--cpus-per-task=2 --time=1:00:00",
		"--time=5 --gres=gpu:a100:2 --cpus-per-task=8 --mem=10G":       "8 CPUs, 2 GPUs, 10240 MiB, 5m0s; --mem=10G --gres=gpu:a100:2" + one + "--cpus-per-task=8 --time=1:00:00",
		"--time=5 --gpus-per-node=h100:1 --cpus-per-task=3 --mem=3000": "3 CPUs, 1 GPUs, 3000 MiB, 5m0s; --mem=6000M --gpus-per-node=h100:2" + one + "--cpus-per-task=6 --time=1:00:00",
		"--time=5 --gpus=1 --cpus-per-gpu=3 --mem-per-gpu=6G":          "3 CPUs, 1 GPUs, 6144 MiB, 5m0s; --mem=12G --gpus=2" + one + "--cpus-per-task=6 --time=1:00:00",
		"--time=5 --gpus-per-task=1 --partition=gpu":                   "1 CPUs, 1 GPUs, 0 MiB, 5m0s; --partition=gpu --gpus-per-task=2" + one + "--cpus-per-task=2 --time=1:00:00",
		"--partition=cpu":                                              "no", // nobody says that it is short
		"--time=11":                                                    "no",
		"--time=UNLIMITED":                                             "no",
		"--time=0":                                                     "no",
		"--time=5 --cpus-per-task=5":                                   "no",
		"--time=5 --nodes=2":                                           "no",
		"--time=5 --ntasks=4":                                          "no",
		"--time=5 --gres=gpu:3":                                        "no", // more than slurm.pack.gpus
		"--time=5 --gres=gpu:0":                                        "1 CPUs, 0 GPUs, 0 MiB, 5m0s; --nodes=1 --ntasks=1 --cpus-per-task=4 --time=1:00:00",
		"--time=5 --gres=gpu:1,tmp:10":                                 "no",
		"--time=5 --gres=gpu:a100:1(S:0)":                              "no",
		"--time=5 --gres=tmp:1":                                        "no",
		"--time=5 --gpus=a100":                                         "1 CPUs, 1 GPUs, 0 MiB, 5m0s; --gpus=a100:2 --nodes=1 --ntasks=1 --cpus-per-task=2 --time=1:00:00",
		"--time=5 --gpus=1 --gres=gpu:1":                               "no",
		"--time=5 --gpus-per-socket=1":                                 "no",
		"--time=5 --mem-per-cpu=500K --cpus-per-task=2":                "2 CPUs, 0 GPUs, 2 MiB, 5m0s; --mem=4M" + one + "--cpus-per-task=4 --time=1:00:00",
		"--time=5 --mem=0":                                             "no",
		"--time=5 --exclusive":                                         "no",
		"--time=5 --dependency=after:12":                               "no",
		"--time=5 --mem=many":                                          "no",
	} {
		got := "no"
		r := packing()
		r.options.config.Pack.GPUs = 2
		if tk, p, ok := r.short(opts(strings.Fields(given)...)); ok {
			got = fmt.Sprintf("%d CPUs, %d GPUs, %d MiB, %v; %s", tk.CPUs, tk.GPUs, tk.Mem>>20, tk.Limit, strings.Join(p.Options, " "))
		}
		if got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
}

// Pilots keep to the limits of slurm.limits, as all jobs do.
func TestPilotsKeepToLimits(t *testing.T) {
	r := packing()
	r.options.config.Pack.GPUs = 8
	r.options.config.Limits = config.Limits{Time: config.Duration(8 * time.Minute), GPUs: 2}
	for given, want := range map[string]string{
		"--time=7 --gres=gpu:1": "--gres=gpu:2 --nodes=1 --ntasks=1 --cpus-per-task=2 --time=0:08:00",
		"--time=8":              "", // a pilot would not begin it
	} {
		if _, p, _ := r.short(opts(strings.Fields(given)...)); strings.Join(p.Options, " ") != want {
			t.Errorf("%s: %q, want %q", given, p.Options, want)
		}
	}
}

// What follows for a packed task from its files and its pilot's job.
func TestJudgePacked(t *testing.T) {
	fact := task.Absence{Misses: 10, Since: time.Unix(1, 0), Last: time.Unix(4000, 0)}
	row := func(state string) *slurm.Job { return &slurm.Job{ID: 7, State: state, Submit: 1000} }
	waits := packedTask{mark: "m", key: "k", found: true, why: "for room"}
	taken := packedTask{mark: "m", key: "k", found: true, pilot: "7", place: pack.Place{Taken: true, Pilot: "7"}}
	bounded := packedTask{mark: "m", key: "k", found: true, pilot: "7", place: pack.Place{Taken: true, Pilot: "7", Ticket: pack.Ticket{Mem: 4}}}
	runs := packedTask{mark: "m", key: "k", found: true, pilot: "7", place: pack.Place{Taken: true, Begun: true, Pilot: "7"}}
	gone := packedTask{mark: "m", key: "k", pilot: "7"}
	nowhere := packedTask{mark: "m", key: "k"}
	begun, ended := "begun n1 1 2;\n", "begun n1 1 2;\nended 3;\n"
	for _, tt := range []struct {
		name    string
		packed  packedTask
		owner   string
		journal string
		end     string
		queue   *slurm.Job
		missing task.Absence
		books   books
		lost    bool // what its starts have recorded may be
		want    string
	}{
		{name: "waits", packed: waits, want: `pending "for room"`},
		{name: "is begun", packed: taken, queue: row("RUNNING"), want: `pending "pilot job 7 begins it"`},
		{name: "runs", packed: taken, owner: "7.1", journal: begun, queue: row("RUNNING"), want: "running"},
		{name: "has ended, and may have exceeded its memory", packed: bounded, owner: "7.1", journal: ended, queue: row("RUNNING"), want: "running"},
		{name: "has exceeded its memory", packed: gone, owner: "7.1", journal: ended, end: `{"why":"oom","used":5,"limit":4}`, queue: row("RUNNING"), want: `error 3 "the job used more memory than it requested; it used 5B of its 4B of memory" oom`},
		{name: "has ended, and its pilot was killed", packed: bounded, owner: "7.1", journal: ended, queue: row("CANCELLED"), want: `failed 3 "exit code 3"`},
		{name: "its pilot was requeued", packed: taken, owner: "7.1", journal: begun + "cut 143;\n", queue: row("PENDING"), want: `pending "its pilot job 7 waits"`},
		{name: "its pilot was requeued, and is held", packed: taken, owner: "7.1", journal: begun + "cut 143;\n", queue: &slurm.Job{ID: 7, State: "PENDING", Submit: 1000, Reason: "JobHeldAdmin"}, want: `pending "its pilot job 7 waits: ` + slurm.ExplainReason("JobHeldAdmin").Plain + ` (JobHeldAdmin)"`},
		{name: "has ended", packed: taken, owner: "7.1", journal: ended, queue: row("RUNNING"), want: `failed 3 "exit code 3"`},
		{name: "has ended with its pilot", packed: gone, owner: "7.1", journal: ended, queue: row("CANCELLED"), want: `failed 3 "exit code 3"`},
		{name: "is being ended", packed: taken, owner: "7.1", journal: begun, end: `{"why":"timeout"}`, queue: row("RUNNING"), want: "running"},
		{name: "passed its limit", packed: gone, owner: "7.1", journal: begun + "cut 143;\n", end: `{"why":"timeout"}`, queue: row("RUNNING"), want: `error 143 "the job reached its time limit" timeout`},
		{name: "was stopped", packed: gone, owner: "7.1", journal: begun + "cut 143;\n", end: `{"why":"stopped"}`, queue: row("RUNNING"), want: `error 143 "the task was stopped" cancelled`},
		{name: "could not begin", packed: gone, owner: "7.1", end: `{"why":"unbegun"}`, queue: row("RUNNING"), want: `error "its job script has ended before it began the command" not begun`},
		{name: "its pilot was cancelled", packed: taken, owner: "7.1", journal: begun, queue: row("CANCELLED"), want: `error "the task was lost with its pilot job 7: the job was cancelled, and not by this agent" lost`},
		{name: "its node failed", packed: taken, owner: "7.1", journal: begun, queue: row("NODE_FAIL"), want: `error "the task was lost with its pilot job 7: a node of the job failed" node`},
		{name: "its pilot ended well before it", packed: taken, owner: "7.1", journal: begun, queue: row("COMPLETED"), want: `error "the task was lost with its pilot job 7: it has ended" lost`},
		{name: "its pilot was requeued, and could not begin again", packed: taken, owner: "7.1", journal: begun + "cut 143;\n", missing: fact, queue: &slurm.Job{ID: 7, State: "FAILED", Submit: 1000, Exit: slurm.Exit{Signal: 53}}, want: `error "the task was lost with its pilot job 7: Slurm could not begin the job (0:53), mostly because its node cannot write to the task's directory: is data_dir on a file system that all nodes have?" lost not begun`},
		{name: "its pilot was requeued, and could not begin again, and the task may still run", packed: taken, owner: "7.1", journal: begun, missing: fact, queue: &slurm.Job{ID: 7, State: "FAILED", Submit: 1000, Exit: slurm.Exit{Signal: 53}}, want: `error "the task was lost with its pilot job 7: Slurm could not begin the job (0:53), mostly because its node cannot write to the task's directory: is data_dir on a file system that all nodes have?" lost`},
		{name: "its pilot was cancelled before it began", packed: taken, queue: row("CANCELLED"), want: `error "the task was lost with its pilot job 7: the job was cancelled, and not by this agent" lost not begun`},
		{name: "its pilot was cancelled when it had it", packed: taken, owner: "7.1", queue: row("CANCELLED"), want: `unknown "the task was lost with its pilot job 7: the job was cancelled, and not by this agent"`},
		{name: "and that is a fact", packed: taken, owner: "7.1", queue: row("CANCELLED"), missing: fact, want: `error "the task was lost with its pilot job 7: the job was cancelled, and not by this agent" lost not begun`},
		{name: "runs, and has removed its directory", packed: runs, lost: true, queue: row("RUNNING"), want: "running"},
		{name: "has removed its directory, and does not run", packed: gone, lost: true, queue: row("RUNNING"), want: `unknown "its pilot job does not run it, and what it recorded was removed"`},
		{name: "has removed its directory, and ran", packed: taken, lost: true, queue: row("RUNNING"), missing: fact, want: `error "its pilot job does not run it, and what it recorded was removed" lost`},
		{name: "has removed its directory, and its pilot was cancelled", packed: taken, lost: true, queue: row("CANCELLED"), want: `error "the task was lost with its pilot job 7: the job was cancelled, and not by this agent" lost`},
		{name: "its pilot is not seen", packed: taken, owner: "7.1", journal: begun, want: `unknown "pilot job 7: squeue does not show the job, and accounting has no record of its end"`},
		{name: "its pilot is forgotten", packed: taken, owner: "7.1", journal: begun, missing: fact, books: noBooks, want: `error "the task was lost with its pilot job 7: the job is gone without a trace" lost`},
		{name: "its ticket is gone", packed: nowhere, want: `unknown "no trace of the task in pilot jobs"`},
		{name: "its ticket is gone for good", packed: nowhere, missing: fact, want: `error "no trace of the task in pilot jobs" not begun`},
	} {
		dir := t.TempDir()
		write := func(name, text string) {
			if text != "" {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		write("run.7.1.0", strings.ReplaceAll(tt.journal, ";\n", ";\n\n"))
		write("pack-end.7.1", tt.end)
		if tt.owner != "" {
			if err := os.Symlink(tt.owner, filepath.Join(dir, record.Owner(1))); err != nil {
				t.Fatal(err)
			}
		}
		job := tt.owner
		if job == "" && (tt.end != "" || tt.lost) {
			job = "7.1"
		}
		if job == "" {
			job = "pack.k"
		}
		e := evidence{ref: runner.Ref{Task: "t", Job: job, Dir: dir, Attempt: 1, Missing: tt.missing, Lost: tt.lost}, queue: tt.queue, packed: &tt.packed, now: time.Unix(5000, 0), books: tt.books}
		e.readJournal()
		got := e.judge()
		text := string(got.State)
		if !got.Sight.Sure() {
			text = "unknown"
		}
		if got.ExitCode != 0 {
			text += fmt.Sprint(" ", got.ExitCode)
		}
		if got.Reason != "" {
			text += fmt.Sprintf(" %q", got.Reason)
		}
		if got.Sight == runner.Cancelled {
			text += " cancelled"
		}
		if got.Cause != "" {
			text += " " + got.Cause
		}
		if got.Sight == runner.Unbegun {
			text += " not begun"
		}
		if text != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.want)
		}
		if got.Cause == need.Lost && got.Sight == runner.Cancelled {
			t.Errorf("%s: what is lost is not cancelled", tt.name)
		}
	}
}

// A pilot of a state directory that was lost is known by its path, and no other agent's is.
func TestStrangePilots(t *testing.T) {
	p := packing().packs
	other := &packs{Packing{State: "s2", Dir: pack.Dir{Path: "/y/packs"}}}
	before := &packs{Packing{State: "s0", Dir: p.Dir}}
	for comment, want := range map[string]bool{before.mark() + "c": true, p.mark() + "c": false, other.mark() + "c": false, "PONOS_TASK=a": false, "": false, packMark: false} {
		if got := p.strange(&slurm.Job{State: "RUNNING", Comment: comment}); got != want {
			t.Errorf("%q: %v", comment, got)
		}
	}
	if p.strange(&slurm.Job{State: "CANCELLED", Comment: before.mark() + "c"}) {
		t.Error("one that has ended")
	}
}

// Why tickets wait names a file only if there is one.
func TestWhyWaits(t *testing.T) {
	state := t.TempDir()
	p := &packs{Packing{State: "s1", Dir: pack.Dir{Path: filepath.Join(state, "packs")}}}
	if err := p.Dir.Make("c1", pack.Pilot{}); err != nil {
		t.Fatal(err)
	}
	dir := p.Dir.Class("c1")
	check := func(want string, rows ...slurm.Job) {
		t.Helper()
		if got := p.whyWaits("c1", rows); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	pilot := slurm.Job{ID: 7, State: "RUNNING", Comment: p.mark() + "c1"}
	check("it waits for a pilot job")
	check("it waits for room in a pilot job", pilot)
	pilot.State, pilot.Reason = "PENDING", "Resources"
	check("its pilot job 7 waits: "+pendingReason(&pilot), pilot)
	suspended := slurm.Job{ID: 6, State: "SUSPENDED", Comment: pilot.Comment}
	check("its pilot job 7 waits: "+pendingReason(&pilot), suspended, pilot)
	check("its pilot job 6 waits: suspended by Slurm", suspended)
	if err := p.Dir.Note("c1", pack.Tries{Count: 2}); err != nil {
		t.Fatal(err)
	}
	check("2 pilot jobs have begun no task and written no output; see their reasons in sacct, and whether the nodes see " + dir)
	if err := os.WriteFile(filepath.Join(dir, "pilots.out"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("2 pilot jobs have begun no task; see " + filepath.Join(dir, "pilots.out"))
	if err := p.Dir.Note("c1", pack.Tries{Count: 2, Problem: "invalid account"}); err != nil {
		t.Fatal(err)
	}
	check("no pilot job could be submitted: invalid account")
}

// The processes of pilots that do not run, for Slurm, are ended wherever they are: on a node that it
// cannot reach, they would take tasks, which would be lost. What pilots leave is removed once Slurm has
// forgotten them, and their time is up.
func TestSweep(t *testing.T) {
	r := packing()
	r.client = &slurm.Client{}
	r.packs.Dir = pack.Dir{Path: filepath.Join(t.TempDir(), "packs")}
	if err := r.packs.Dir.Make("c1", pack.Pilot{Time: time.Hour, Linger: time.Minute}); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(r.packs.Dir.Class("c1"), "taken")
	for _, pilot := range []string{"7", "8", "9", "10", "11"} {
		if err := os.Mkdir(filepath.Join(taken, pilot), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if dismissed, err := r.packs.Dir.Dismiss("c1", "12"); !dismissed || err != nil {
		t.Fatal(dismissed, err)
	}
	mark := r.packs.mark() + "c1"
	rows := []slurm.Job{
		{ID: 7, State: "NODE_FAIL", Comment: mark},
		{ID: 8, State: "PENDING", Restarts: 2, Comment: mark},
		{ID: 9, State: "RUNNING", Restarts: 1, Comment: mark},
		{ID: 10, State: "PENDING", Comment: mark},
		{ID: 6, State: "CANCELLED", Comment: mark}, // it has not begun
	}
	failed := ""
	check := func(want ...string) {
		t.Helper()
		if err := r.sweep(context.Background(), "c1", rows); failed == "" && err != nil || !strings.Contains(fmt.Sprint(err), failed) {
			t.Errorf("%v, want %q", err, failed)
		}
		got := []string{}
		for _, pattern := range []string{"*", "*/*"} {
			paths, _ := filepath.Glob(filepath.Join(taken, pattern))
			for _, path := range paths {
				got = append(got, strings.TrimPrefix(path, taken+"/"))
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	const shown = "scontrol --all --oneliner --details show job "
	lines := map[string]string{
		shown + "7":  answers.Refusal + "slurm_load_jobs error: Invalid job id specified\n",
		shown + "8":  answers.Refusal + "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
		shown + "11": "JobId=11 JobName=ponos.pack JobState=RUNNING ExitCode=0:0 Comment=" + mark + " \n", // it has begun after the listing
	}
	answers.Programs(t, lines)
	check("10", "11", "7", "8", "9", "7/start.1", "8/start.2")
	check("10", "11", "7", "8", "9", "7/start.1", "8/start.2")
	rows = rows[2:]
	failed = "Unable to contact slurm controller"
	check("10", "11", "7", "8", "9", "7/start.1", "7/start.1048576", "8/start.2")
	delete(lines, shown+"7") // Slurm is asked once
	lines[shown+"8"] = "JobId=8 JobName=other JobState=RUNNING ExitCode=0:0 Comment=other \n"
	lines[shown+"11"] = answers.Refusal + "slurm_load_jobs error: Invalid job id specified\n"
	answers.Programs(t, lines)
	failed = ""
	check("10", "11", "7", "8", "9", "11/start.1048576", "7/start.1", "7/start.1048576", "8/start.1048576", "8/start.2")
	age := func(pilot string, age time.Duration) {
		t.Helper()
		at := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(taken, pilot, "start.1048576"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	age("7", time.Hour) // a pilot may wait for tasks as well
	age("8", time.Hour+2*time.Minute)
	check("10", "11", "7", "9", "11/start.1048576", "7/start.1", "7/start.1048576")
}

// A task whose class was removed gets a new ticket: no pilot has it.
func TestExistingWithoutClass(t *testing.T) {
	state := t.TempDir()
	p := &packs{Packing{On: true, State: "s1", Dir: pack.Dir{Path: filepath.Join(state, "packs"), Tasks: filepath.Join(state, "tasks")}}}
	s := runner.Submission{Task: "t", Attempt: 1, Dir: p.Dir.Task("t")}
	if err := errors.Join(os.MkdirAll(s.Dir, 0o700), p.Dir.Make("c1", pack.Pilot{})); err != nil {
		t.Fatal(err)
	}
	ticket := pack.Ticket{At: time.Unix(1790000000, 0), Key: "k1", CPUs: 1, Attempt: 1, Task: "t"}
	if err := p.Dir.Put("c1", ticket, s.Dir, "ponos-x"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if job, found, err := p.existing(s); err != nil || found != want || job.ID != "pack.k1" {
			t.Errorf("%+v, %v, %v", job, found, err)
		}
		if err := os.RemoveAll(p.Dir.Class("c1")); err != nil {
			t.Fatal(err)
		}
	}
}
