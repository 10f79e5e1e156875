package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool/wire"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// setup is the task that sets the node up.
func setup(seq int64, text string) *wire.Run {
	r := task(seq, text)
	r.Prepare = true
	return r
}

// A node is set up once, however many workers a run has there, and again after a failure.
func TestSetupOfTheNode(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	run, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	worker := func() *session {
		return open(t, func(_ *Options, setup *wire.Setup) { setup.Run = wire.Text(run) })
	}
	text := "echo begin >> " + log + "; exit $(cat " + log + " | wc -l | sed 's/1/4/; s/2/0/')"
	first, second := worker(), worker()
	first.run(setup(1, text))
	if got := first.ended(first.done(1)); got != "exit 4" {
		t.Errorf("a setup that fails: %s", got)
	}
	first.run(setup(2, text))
	if got := first.ended(first.done(2)); got != "ok" {
		t.Errorf("a setup after one that has failed: %s", got)
	}
	second.run(setup(1, text))
	if got := second.ended(second.done(1)); got != "ok" {
		t.Errorf("a setup that was done: %s", got)
	}
	first.run(setup(3, text))
	if got := first.ended(first.done(3)); got != "ok" {
		t.Errorf("a setup that this worker has done: %s", got)
	}
	if got := content(t, log, ""); got != "begin\nbegin\n" {
		t.Errorf("it has run %d times, want 2", strings.Count(got, "begin"))
	}
	other := open(t, func(_ *Options, setup *wire.Setup) { setup.Run, setup.Node = wire.Text(run), "n2" })
	other.run(setup(1, text+" || exit 6"))
	other.done(1)
	if got := strings.Count(content(t, log, ""), "begin"); got != 3 {
		t.Errorf("the setup of another node: it has run %d times, want 3", got)
	}

	// The next run of that directory sets the node up again, when the last worker of this one has left.
	again := func(s *session, want int) {
		t.Helper()
		s.run(setup(4, text+" || exit 6"))
		s.done(4)
		if got := strings.Count(content(t, log, ""), "begin"); got != want {
			t.Errorf("it has run %d times, want %d", got, want)
		}
	}
	first.bye()
	third := worker()
	again(third, 3)
	second.bye()
	third.lose() // the run may go on
	third.rest()
	last := worker()
	again(last, 3)
	last.bye()
	again(worker(), 4)
}

// Jobs of a run share the setup of a node while one of them is there. The next one sets it up again, as
// what a job has prepared may have gone with it.
func TestSetupForSeveralJobs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	run, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	worker := func(label string) *session {
		_, job, _ := strings.Cut(label, "@")
		job, _, _ = strings.Cut(job, ".")
		s := open(t, func(o *Options, setup *wire.Setup) {
			setup.Run, setup.Node, o.Environ = wire.Text(run), label, append(o.Environ, "SLURM_JOB_ID="+job)
		})
		s.run(setup(1, "echo $JOBPOOL_NODE >>"+log))
		if got := s.ended(s.done(1)); got != "ok" {
			t.Errorf("%s: %s", label, got)
		}
		return s
	}
	check := func(want string) {
		t.Helper()
		if got := strings.Join(strings.Fields(content(t, log, "")), " "); got != want {
			t.Errorf("set up by %q, want %q", got, want)
		}
	}
	leave := func(s *session) { // the run goes on
		s.lose()
		s.rest()
	}
	first, second, other := worker("n1@7"), worker("n1@8"), worker("n2@8")
	check("n1@7 n2@8")
	leave(first)
	third := worker("n1@9.1")
	leave(second)
	leave(third)
	check("n1@7 n2@8")
	leave(worker("n1@7"))
	leave(other)
	check("n1@7 n2@8")
	leave(worker("n1@8"))
	check("n1@7 n2@8 n1@8")
	leave(worker("n1@8.1"))
	check("n1@7 n2@8 n1@8 n1@8.1")
}

// While one worker sets the node up, others wait.
func TestSetupIsAwaited(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	run := t.TempDir()
	worker := func() *session {
		return open(t, func(_ *Options, setup *wire.Setup) { setup.Run = wire.Text(run) })
	}
	first, second := worker(), worker()
	first.run(setup(1, "read line < go"))
	fifo := filepath.Join(first.dir, "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	first.runs(1)
	second.run(setup(1, "echo second"))
	ticks(second)
	write(t, fifo, "on\n")
	if got := first.ended(first.done(1)); got != "ok" {
		t.Errorf("the first: %s", got)
	}
	if got := second.ended(second.done(1)); got != "ok" {
		t.Errorf("the second, which has nothing to do: %s", got)
	}
}

// A file of another kind where the setup is noted.
func TestSetupCannotBeNoted(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	run := t.TempDir()
	path := newPrepared(run, "", "n1").path
	if err := os.Symlink("/nowhere", path); err != nil {
		t.Fatal(err)
	}
	s := open(t, func(_ *Options, setup *wire.Setup) { setup.Run = wire.Text(run) })
	s.run(setup(1, "echo run"))
	want := fmt.Sprintf("nostart exit 125 %q", "setup of the node: open "+path+": too many levels of symbolic links")
	if got := s.ended(s.done(1)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What a task of several nodes finds at the first of them.
func TestTaskOfSeveralNodes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reach wire.Reach
		jobs  [2]string
		has   []string // in its environment
		not   []string // beginnings of what is not
	}{
		{"nodes of one job", wire.Reach{Kind: "srun"}, [2]string{"7", "7"},
			[]string{"SLURM_JOB_NODELIST=h1,h2", "SLURM_NTASKS=6", "SLURM_TASKS_PER_NODE=3(x2)", "SLURM_OTHER=1"}, []string{"SLURM_MEM_PER_CPU=", "SLURM_STEP_ID=", "OMPI_MCA_ras="}},
		{"nodes of two jobs", wire.Reach{Kind: "srun"}, [2]string{"7", "8"}, []string{"OMPI_MCA_ras=^slurm", "SLURM_JOB_ID=" + severalJobs}, []string{"SLURM_JOB_NODELIST=", "SLURM_STEP_ID=", "SLURM_OTHER="}},
		{"nodes without a job", wire.Reach{Kind: "ssh"}, [2]string{}, []string{"OMPI_MCA_ras=^slurm"}, []string{"SLURM_"}},
	} {
		s := open(t, func(o *Options, setup *wire.Setup) {
			setup.Reach = tt.reach
			o.Environ = append(o.Environ, "SLURM_MEM_PER_CPU=5", "SLURM_STEP_ID=0", "SLURM_OTHER=1")
		})
		r := task(1, `env; echo; for f in "$JOBPOOL_NODEFILE" "$JOBPOOL_HOSTFILE" "$HYDRA_HOST_FILE" "$(dirname "$JOBPOOL_NODEFILE")/tasks"; do echo $(cat "$f"); done; tail -n 1 "$JOBPOOL_RSH"`)
		r.Need.CPUs = 3
		r.Nodes = []wire.Node{{Node: "n1", Host: "h1", Job: tt.jobs[0], Group: -1}, {Node: "n2", Host: "h2", Job: tt.jobs[1], Group: -1}}
		s.run(r)
		d := s.done(1)
		env, rest, _ := strings.Cut(string(d.Out), "\n\n")
		vars := strings.Split(env, "\n")
		dir := filepath.Join(s.temp, "task-1.1")
		for _, want := range append(tt.has, "JOBPOOL_NNODES=2", "JOBPOOL_NODELIST=h1,h2", "OMP_NUM_THREADS=1", "OMPI_MCA_plm_rsh_agent="+dir+"/rsh", "HYDRA_LAUNCHER_EXEC="+dir+"/rsh") {
			if !slices.Contains(vars, want) {
				t.Errorf("%s: no %s in\n%s", tt.name, want, env)
			}
		}
		for _, not := range tt.not {
			if i := slices.IndexFunc(vars, func(v string) bool { return strings.HasPrefix(v, not) }); i >= 0 {
				t.Errorf("%s: unexpected %s", tt.name, vars[i])
			}
		}
		want := "h1 h2\nh1 slots=3 h2 slots=3\nh1:3 h2:3\nh1 h1 h1 h2 h2 h2\nexec "
		if !strings.HasPrefix(rest, want) || !strings.HasSuffix(rest, " reach "+dir+"/reach \"$@\"\n") {
			t.Errorf("%s: files\n%s", tt.name, rest)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: its directory is left", tt.name)
		}
	}
}

// What a task of several nodes has started here is ended when its command has ended elsewhere.
func TestSweep(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s := open(t, func(_ *Options, setup *wire.Setup) { setup.Keep = keep })
		s.run(task(1, "exec sleep 1000"))
		s.run(task(2, "exec sleep 1000"))
		pid, other := s.runs(1), s.runs(2)
		began := time.Now()
		s.send(&wire.Message{Sweep: &wire.Key{Seq: 1, Attempt: 1}})
		if m := s.next("the answer", func(m *wire.Message) bool { return m.Swept != nil }); m.Swept.Seq != 1 || m.Swept.Attempt != 1 {
			t.Errorf("%+v", m.Swept)
		}
		if keep {
			if gone(pid) {
				t.Error("what is to be kept is ended")
			}
			continue
		}
		if d := time.Since(began); !gone(pid) || d < parting/2 {
			t.Errorf("gone: %v, after %v", gone(pid), d)
		}
		if got := s.ended(s.done(1)); got != "signal 9" || gone(other) {
			t.Errorf("the task: %s; the other one is gone: %v", got, gone(other))
		}
	}
}

// The directory of a worker that was killed with its supervisor is removed by the next one.
func TestTemporaryDirectories(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	own, err := makeTemp()
	if err != nil {
		t.Fatal(err)
	}
	start, _ := proc.Started(os.Getpid())
	mark := fmt.Sprintf("%d.%d-", os.Getpid(), start)
	if !strings.Contains(own, mark) {
		t.Fatalf("%s does not name the process %s", own, mark)
	}
	dead := strings.Replace(own, mark, fmt.Sprintf("%d.%d-", os.Getpid(), start+1), 1)
	odd := filepath.Join(temp, strings.SplitAfter(filepath.Base(own), "-")[0]+strings.SplitAfter(filepath.Base(own), "-")[1]+"odd")
	elsewhere := filepath.Join(temp, "jobpool-00000000-1.1-x")
	for _, dir := range []string{dead, odd, elsewhere} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dead, "file"), "")
	again, err := makeTemp()
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{own: true, again: true, odd: true, elsewhere: true, dead: false} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s exists: %v", dir, err == nil)
		}
	}
}

// A second name for a file of the user, in the place of the file of a node, does not have that emptied.
func TestSetupBesideALink(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	mine := filepath.Join(t.TempDir(), "precious")
	err := errors.Join(os.WriteFile(mine, []byte("precious"), 0o600), os.Link(mine, newPrepared("/run", "7", "n1").path))
	if err != nil {
		t.Fatal(err)
	}
	p := newPrepared("/run", "7", "n1")
	if run, ready, err := p.begin(); err != nil || !run || !ready {
		t.Errorf("%v, %v, %v", run, ready, err)
	}
	p.path = strings.TrimSuffix(p.path, ".1") // as if it were put there in between
	p.file = nil
	if _, _, err := p.begin(); err == nil {
		t.Error("the link is used")
	}
	if b, err := os.ReadFile(mine); string(b) != "precious" {
		t.Errorf("the file of the user is now %q, %v", b, err)
	}
}

// Where another user has made the file of a node, whose name anybody can compute, the node is set up all the same.
func TestSetupBesideAFileOfAnother(t *testing.T) {
	needs.Root(t, "a file of another user")
	t.Setenv("TMPDIR", t.TempDir())
	taken := newPrepared("/run", "7", "n1")
	if err := os.Mkdir(taken.path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(taken.path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	p := newPrepared("/run", "7", "n1")
	if run, ready, err := p.begin(); err != nil || !run || !ready {
		t.Fatalf("%v, %v, %v", run, ready, err)
	}
	if err := p.end(true); err != nil {
		t.Fatal(err)
	}
	other := newPrepared("/run", "7", "n1")
	if run, ready, err := other.begin(); err != nil || run || !ready {
		t.Errorf("another worker of the job: %v, %v, %v", run, ready, err)
	}
}
