package slurm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

func packing() *Runner {
	r := &Runner{options: &options{config: config.Default().Slurm}, stopWait: time.Minute, Tasks: "/x/tasks"}
	r.Pack(Packing{On: true, State: "s1", Dir: "/x/pools", Former: "/x/packs"})
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
	waits := packedTask{mark: "m", note: note{Key: "k"}, found: true, why: "for room"}
	taken := packedTask{mark: "m", note: note{Key: "k"}, found: true, pilot: "7"}
	again := packedTask{mark: "m", note: note{Key: "k"}, found: true, pilot: "7", restarts: 1}
	bounded := packedTask{mark: "m", note: note{Key: "k", Mem: 4}, found: true, pilot: "7"}
	lost := packedTask{mark: "m", pilot: "7", gone: true}
	nowhere := packedTask{mark: "m", note: note{Key: "k"}}
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
		{name: "has ended, and may have exceeded its memory", packed: bounded, owner: "7.1", journal: "begun n1 1 2;\nended 137;\n", queue: row("RUNNING"), want: "running"},
		{name: "has exceeded its memory", packed: bounded, owner: "7.1", journal: ended, end: `{"why":"oom","used":5,"limit":4}`, queue: row("RUNNING"), want: `error 3 "the job used more memory than it requested; it used 5B of its 4B of memory" oom`},
		{name: "has ended, and its pilot was killed", packed: bounded, owner: "7.1", journal: ended, queue: row("CANCELLED"), want: `failed 3 "exit code 3"`},
		{name: "its pilot was requeued", packed: taken, owner: "7.1", journal: begun + "cut 143;\n", queue: row("PENDING"), want: `pending "its pilot job 7 waits"`},
		{name: "its pilot was requeued once more, and is held", packed: taken, owner: "7.1", journal: begun + "cut 143;\n", queue: &slurm.Job{ID: 7, State: "PENDING", Submit: 1000, Reason: "JobHeldAdmin"}, want: `pending "its pilot job 7 waits: ` + slurm.ExplainReason("JobHeldAdmin").Plain + ` (JobHeldAdmin)"`},
		{name: "has ended", packed: taken, owner: "7.1", journal: ended, queue: row("RUNNING"), want: `failed 3 "exit code 3"`},
		{name: "has ended with its pilot", packed: taken, owner: "7.1", journal: ended, queue: row("CANCELLED"), want: `failed 3 "exit code 3"`},
		{name: "its pilot was requeued", packed: taken, owner: "7.1", journal: begun, queue: &slurm.Job{ID: 7, State: "PENDING", Submit: 1000, Restarts: 1}, want: `error "its pilot job 7 was requeued" not begun`},
		{
			name: "its pilot has begun again, and has ended", packed: taken, owner: "7.1", journal: begun + "cut 143;\n",
			queue: &slurm.Job{ID: 7, State: "COMPLETED", Submit: 1000, Restarts: 1}, want: `error "its pilot job 7 was requeued" not begun`,
		},
		{
			name: "and Slurm has forgotten it", packed: again, owner: "7.1", journal: begun + "cut 143;\n",
			want: `error "its pilot job 7 was requeued" not begun`,
		},
		{name: "its pilot has begun again", packed: taken, owner: "7.1", journal: begun, end: `{"why":"killed"}`, queue: &slurm.Job{ID: 7, State: "RUNNING", Submit: 1000, Restarts: 1}, want: `error "its pilot job 7 was requeued" not begun`},
		{name: "its pilot is suspended, and the pool has given it up", packed: taken, owner: "7.1", journal: begun, end: `{"why":"killed"}`, queue: &slurm.Job{ID: 7, State: "SUSPENDED", Submit: 1000, Start: 1500}, want: `running "its pilot job 7 is suspended by Slurm"`},
		{name: "its job script was killed", packed: taken, owner: "7.1", journal: begun, end: `{"why":"killed"}`, queue: row("RUNNING"), want: `unknown "the job was killed while its command ran"`},
		{name: "and is", packed: taken, owner: "7.1", journal: begun, end: `{"why":"killed"}`, missing: fact, queue: row("RUNNING"), want: `error "the job was killed while its command ran" lost`},
		{name: "is being stopped", packed: taken, owner: "7.1", journal: begun + "cut 143;\n", queue: row("RUNNING"), want: "running"},
		{name: "was stopped before it began", packed: waits, owner: "pack.k", want: `error "the task was stopped before it began" cancelled`},
		{name: "passed its limit", packed: taken, owner: "7.1", journal: begun + "cut 143;\n", end: `{"why":"timeout"}`, queue: row("RUNNING"), want: `error 143 "the job reached its time limit" timeout`},
		{name: "was stopped", packed: taken, owner: "7.1", journal: begun + "cut 143;\n", end: `{"why":"stopped"}`, queue: row("RUNNING"), want: `error 143 "the task was stopped" cancelled`},
		{name: "could not begin", packed: taken, owner: "7.1", end: `{"why":"unbegun"}`, queue: row("RUNNING"), want: `error "its job script has ended before it began the command" not begun`},
		{name: "its pilot was cancelled", packed: taken, owner: "7.1", journal: begun, queue: row("CANCELLED"), want: `error "the task was lost with its pilot job 7: the job was cancelled, and not by this agent" lost`},
		{name: "its node failed", packed: taken, owner: "7.1", journal: begun, queue: row("NODE_FAIL"), want: `error "the task was lost with its pilot job 7: a node of the job failed" node`},
		{name: "its pilot ended well before it", packed: taken, owner: "7.1", journal: begun, queue: row("COMPLETED"), want: `error "the task was lost with its pilot job 7: it has ended" lost`},
		{name: "its pilot was requeued, and could not begin again", packed: taken, owner: "7.1", journal: begun + "cut 143;\n", missing: fact, queue: &slurm.Job{ID: 7, State: "FAILED", Submit: 1000, Exit: slurm.Exit{Signal: 53}}, want: `error "the task was lost with its pilot job 7: Slurm could not begin the job (0:53), mostly because its node cannot write to the task's directory: is data_dir on a file system that all nodes have?" lost not begun`},
		{name: "its pilot was requeued, and could not begin again, and the task may still run", packed: taken, owner: "7.1", journal: begun, missing: fact, queue: &slurm.Job{ID: 7, State: "FAILED", Submit: 1000, Exit: slurm.Exit{Signal: 53}}, want: `error "the task was lost with its pilot job 7: Slurm could not begin the job (0:53), mostly because its node cannot write to the task's directory: is data_dir on a file system that all nodes have?" lost`},
		{name: "its pilot was cancelled before it began", packed: taken, queue: row("CANCELLED"), want: `error "the task was lost with its pilot job 7: the job was cancelled, and not by this agent" lost not begun`},
		{name: "its pilot was cancelled when it had it", packed: taken, owner: "7.1", queue: row("CANCELLED"), want: `unknown "the task was lost with its pilot job 7: the job was cancelled, and not by this agent"`},
		{name: "and that is a fact", packed: taken, owner: "7.1", queue: row("CANCELLED"), missing: fact, want: `error "the task was lost with its pilot job 7: the job was cancelled, and not by this agent" lost not begun`},
		{name: "runs, and has removed its directory", packed: taken, lost: true, queue: row("RUNNING"), want: "running"},
		{name: "has removed its directory, and does not run", packed: lost, lost: true, queue: row("RUNNING"), want: `unknown "its pilot job does not run it, and what it recorded was removed"`},
		{name: "has removed its directory, and ran", packed: lost, lost: true, queue: row("RUNNING"), missing: fact, want: `error "its pilot job does not run it, and what it recorded was removed" lost`},
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
		tt.packed.end = readEnd(dir, job)
		e := evidence{ref: runner.Ref{Task: "t", Job: job, Dir: dir, Attempt: 1, Missing: tt.missing, Lost: tt.lost}, queue: tt.queue, packed: &tt.packed, now: time.Unix(5000, 0), books: tt.books}
		e.readJournal()
		got := e.judge()
		text := string(got.Shows())
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
	other := &packs{Packing{State: "s2", Former: "/y/packs"}, ""}
	before := &packs{Packing{State: "s0", Former: p.Former}, ""}
	for comment, want := range map[string]bool{before.mark() + "c": true, p.mark() + "c": false, other.mark() + "c": false, "PONOS_TASK=a": false, "": false, packMark: false} {
		if got := p.strange(&slurm.Job{State: "RUNNING", Comment: comment}); got != want {
			t.Errorf("%q: %v", comment, got)
		}
	}
	if p.strange(&slurm.Job{State: "CANCELLED", Comment: before.mark() + "c"}) {
		t.Error("one that has ended")
	}
}

// When a pilot is submitted for a task that waits. Whatever has closed the run, the next pilot works there, also one that is pending.
func TestFill(t *testing.T) {
	for states, want := range map[string]int{
		"": 1, "RUNNING": 0, "PENDING": 0, "SUSPENDED": 1, "SUSPENDED SUSPENDED": 0,
		// A node may need minutes to end a job, which takes no more tasks then.
		"COMPLETING": 1, "COMPLETING COMPLETING": 1, "COMPLETING PENDING": 0,
	} {
		c := &cluster{}
		r := newRunner(c)
		r.Pack(Packing{On: true, State: "s1", Dir: t.TempDir(), Former: t.TempDir()})
		for i, state := range strings.Fields(states) {
			c.rows = append(c.rows, row(fmt.Sprint(i+7), state, r.packs.mark()+"c1"))
		}
		run := r.packs.run("c1")
		options := []string{"--nodes=1", "--ntasks=1", "--cpus-per-task=4", "--time=1:00:00"}
		p := &pilot.Pool{ID: "c1", Name: pilotName, Mark: r.packs.mark() + "c1", Options: options, MaxJobs: 1}
		err := errors.Join(pilot.Save(run, p), pilot.SetClosed(run, "drained"), pilot.SetOver(run, 2))
		if err != nil {
			t.Fatal(err)
		}
		rows, err := r.client.Queue(t.Context(), os.Getuid())
		if err == nil {
			err = r.fill(t.Context(), "c1", []note{{Limit: time.Minute, CPUs: 1}}, rows)
		}
		_, over := pilot.Over(run)
		closed, err2 := pilot.Closed(run, new(string))
		if got := len(c.rows) - len(rows); err != nil || err2 != nil || got != want || over != (states == "RUNNING") || closed != over {
			t.Errorf("%s: %d submitted, over %v, closed %v, %v, %v", states, got, over, closed, err, err2)
		}
	}
}

// Why tasks wait for pilots.
func TestWhyWaits(t *testing.T) {
	r := packing()
	p := r.packs
	p.Dir = t.TempDir()
	dir := filepath.Join(p.Dir, "c1", "pilots")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
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
	check("it waits for a pilot job", slurm.Job{ID: 5, State: "COMPLETING", Comment: pilot.Comment})
	note := func(n tries) {
		t.Helper()
		if err := writeJSON(dir, triesFile, n); err != nil {
			t.Fatal(err)
		}
	}
	note(tries{Count: 2})
	check("2 pilot jobs have not begun; see " + dir + ", their reasons in sacct, and whether the nodes see that directory")
	note(tries{Count: 2, Problem: "invalid account"})
	check("no pilot job could be submitted: invalid account")
	later := time.Now().Add(time.Second)
	lock := filepath.Join(p.Dir, "c1", "lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(lock, later, later); err != nil {
		t.Fatal(err)
	}
	check("it waits for a pilot job") // a scheduler has begun since
}
