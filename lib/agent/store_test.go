package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func testStore(t *testing.T) *Store {
	t.Helper()
	s, err := OpenStore(t.TempDir(), time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A task that removes its directory as soon as it runs is still started; a state directory that is gone is an error.
func TestJobIsNotedOfATaskWithoutDirectory(t *testing.T) {
	s := testStore(t)
	d, err := s.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	record := Record{Tracked: Tracked{Ref: runner.Ref{Task: "a", Label: "x", Attempt: 1}}}
	if err := d.Write(record); err != nil {
		t.Fatal(err)
	}
	record.Job = "7"
	if err := s.noteJob(d, record); err != nil {
		t.Error(err)
	}
	if got, err := d.Read(); err != nil || got.Job != "7" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, removed := range []string{d.file(recordFile), d.Path} {
		if err := os.RemoveAll(removed); err != nil {
			t.Fatal(err)
		}
		if err := s.noteJob(d, record); err != nil {
			t.Errorf("without %s: %v", removed, err)
		}
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	if err := s.noteJob(d, record); err == nil {
		t.Error("a state directory that is gone is not reported")
	}
}

// The last whole line of a record counts, and one that was cut off does not.
func TestRecordSurvivesACut(t *testing.T) {
	d, err := testStore(t).Create("a")
	if err != nil {
		t.Fatal(err)
	}
	record := Record{Tracked: Tracked{Ref: runner.Ref{Task: "a", Label: "x", Attempt: 1}}}
	if err := d.Write(record); err != nil {
		t.Fatal(err)
	}
	record.Job = "7"
	if err := d.Note(record); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Read(); err != nil || got.Job != "7" {
		t.Errorf("%+v, %v", got, err)
	}
	b, err := os.ReadFile(d.file(recordFile))
	if err != nil {
		t.Fatal(err)
	}
	whole := strings.IndexByte(string(b), '\n') + 1
	for cut := whole; cut < len(b); cut++ {
		if err := os.WriteFile(d.file(recordFile), b[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Read(); err != nil || got.Job != "" || got.Label != "x" {
			t.Fatalf("cut after %d bytes: %+v, %v", cut, got, err)
		}
	}
	for _, damaged := range []string{"", "{", "{}\n", "x\n", `{"id":"b"}` + "\n"} {
		if err := os.WriteFile(d.file(recordFile), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Read(); err == nil {
			t.Errorf("%q is read as %+v", damaged, got)
		}
	}
}

// What the agent knows can be read while it takes a turn and works on the task.
func TestTheViewNeedsNoLock(t *testing.T) {
	s := testStore(t)
	d, err := s.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: "a", Label: "name", Attempt: 1, Job: "7"}}}); err != nil {
		t.Fatal(err)
	}
	turn, err := s.TryTurn()
	if err != nil {
		t.Fatal(err)
	}
	defer turn.Close()
	held, err := d.TryLock()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	v, err := ReadView(s.Dir)
	if err != nil || len(v.Tasks) != 1 || v.Tasks[0].Slug != "name" || v.Tasks[0].Job != "7" {
		t.Errorf("%+v, %v", v, err)
	}
}

// What a turn knows of a task comes back as it was written, from the cache as from the record.
func TestTrackedComesBack(t *testing.T) {
	at := time.Date(2026, 11, 20, 18, 0, 0, 123, time.UTC)
	for _, k := range []Tracked{
		{Ref: runner.Ref{Task: "a", Job: "7", Attempt: 1}},
		{
			Ref: runner.Ref{
				Task: "b", Label: `quo"te\n`, Job: "8", Attempt: 2, Before: "6,7_1", Submitted: at, Rules: "oom: mem*2",
				Missing: task.Absence{}.Again(at), Lost: true,
			},
			Process: "p", Since: at.Add(time.Hour), Reported: task.Running, LogSize: 5, Output: 4, Restarts: 1, Reassigned: true,
		},
	} {
		for from, write := range map[string]func(s *Store, d Dir) error{
			"cache":  func(s *Store, _ Dir) error { return s.saveTracked(cache{}, []*Tracked{&k}, []Tracked{k}) },
			"record": func(_ *Store, d Dir) error { return d.Write(Record{Tracked: k}) },
		} {
			s := testStore(t)
			d, err := s.Create(k.Task)
			if err = errors.Join(err, write(s, d)); err != nil {
				t.Fatal(err)
			}
			known, index, _, err := s.loadTracked()
			if err != nil || len(known) != 1 || index[k.Task] != 0 {
				t.Fatalf("%+v, %v, %v", known, index, err)
			}
			want := k
			want.Dir, want.cached = d.Path, from == "cache"
			if known[0] != want {
				t.Errorf("from the %s: %+v; want %+v", from, known[0], want)
			}
		}
	}
}

// What the last version has left is read as it was meant, and what a later one leaves stays as it is.
func TestRecordsOfOtherVersions(t *testing.T) {
	s := testStore(t)
	d, err := s.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]string{
		d.file(recordFile): `{"id":"a","slug":"x","process":"p","attempt":2,"rules":"exit=75: 2","runner":"slurm","intent":"2026-11-20T18:00:00Z",` +
			`"job":"9","submitted":"2026-11-20T18:00:01Z","before":["7","8_1"],"lost":true,"reassigned":true}` + "\n",
		filepath.Join(s.Dir, trackedFile): `{"id":"a","slug":"x","job":"9","attempt":2,"before":"7,8_1","submitted":"2026-11-20T18:00:01Z","lost":true,` +
			`"rules":"exit=75: 2","process":"p","since":"2026-11-20T18:05:00Z","reported":"running","log_size":5,"output":4,"reassigned":true}` + "\n",
	}
	for path, text := range last {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Date(2026, 11, 20, 18, 0, 1, 0, time.UTC)
	want := Tracked{
		Ref: runner.Ref{
			Task: "a", Label: "x", Job: "9", Attempt: 2, Before: "7,8_1", Submitted: at, Lost: true, Rules: "exit=75: 2", Dir: d.Path,
		},
		Process: "p", Reassigned: true,
	}
	if r, err := d.Read(); err != nil || r.Tracked != want {
		t.Errorf("the record is read as %+v, %v; want %+v", r, err, want)
	}
	want.Since, want.Reported, want.LogSize, want.Output, want.cached = at.Add(299*time.Second), task.Running, 5, 4, true
	if known, _, _, err := s.loadTracked(); err != nil || len(known) != 1 || known[0] != want {
		t.Errorf("the cache is read as %+v, %v; want %+v", known, err, want)
	}
	later := `{"id":"a","attempt":1,"version":2,"job":{"slurm":"9"}}` + "\n"
	for _, text := range []string{later, last[d.file(recordFile)] + "\n" + later} {
		if err := os.WriteFile(d.file(recordFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := d.Read(); err == nil || !strings.HasSuffix(err.Error(), "/tasks/a/task.json: it is of a later version of ponos, and left alone") {
			t.Errorf("%s is read as %+v, %v", text, r, err)
		}
	}
}

// While another process works on a task, as ponos-stop does, a turn does not write its record, and decides again in the next one.
func TestOneWriterOfARecord(t *testing.T) {
	a := &Agent{Store: testStore(t)}
	d, err := a.Store.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	was := newRecord("a")
	was.take("7", time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC))
	was.Dir = d.Path
	now := was.Tracked
	now.take("8", time.Time{})
	held, err := d.TryLock()
	if err = errors.Join(err, d.Write(was)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"7", "8", "8"} { // the last time, the record has changed since the turn began
		k, err := a.keepTracked(d, was.Tracked, now)
		r, readErr := d.Read()
		if err = errors.Join(err, readErr); err != nil || k.Job != want || r.Job != want || *k != r.Tracked {
			t.Errorf("%+v is recorded as %+v, %v; want job %s", k, r, err, want)
		}
		if want == "7" {
			if err := held.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if want == "8" {
			now.take("9", time.Time{})
		}
	}
}

// A cache with damage in it is read as far as it is whole, and made anew.
func TestDamagedCache(t *testing.T) {
	s := testStore(t)
	for _, id := range []task.ID{"a", "b"} {
		d, err := s.Create(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: id, Job: "7" + string(id), Attempt: 2, Before: "5,6"}}}); err != nil {
			t.Fatal(err)
		}
	}
	text := `{"id":"a","job":"7a","attempt":1,"reported":"running"}` + "\n" + `{"id":"b","job":"7b","att`
	if err := os.WriteFile(s.Dir+"/"+trackedFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	known, _, c, err := s.loadTracked()
	if err != nil || len(known) != 2 || !c.damaged || known[0].Reported != task.Running || known[1].Job != "7b" || !known[1].Before.Has("6") || known[1].Before.Has("7b") {
		t.Fatalf("%+v, %+v, %v", known, c, err)
	}
	if err := s.saveTracked(c, []*Tracked{&known[0], &known[1]}, nil); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(s.Dir + "/" + trackedFile); err != nil || strings.Count(string(b), "\n") != 2 {
		t.Errorf("%q, %v", b, err)
	}
}

func FuzzParseTracked(f *testing.F) {
	f.Add(`{"id":"a","slug":"x","job":"7","attempt":1,"submitted":"2026-11-20T18:00:00.5Z","reported":"running","log_size":5,"reassigned":true}` + "\n")
	f.Add(`{"id":"a","job":"` + "\\u0041" + `"}` + "\n")
	f.Add("{}\n")
	f.Fuzz(func(t *testing.T, line string) {
		k, ok := parseTracked(line)
		if ok && !strings.HasSuffix(line, "\n") {
			t.Errorf("%q: a line that was cut off is read as %+v", line, k)
		}
	})
}

// A record that is staged is none before it is kept: what is not on disk yet is not relied on.
func TestStage(t *testing.T) {
	store, err := OpenStore(t.TempDir(), clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	d, err := store.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	keep, err := d.Stage(Record{Tracked: Tracked{Ref: runner.Ref{Task: "a", Attempt: 1}}, Intent: clock.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := d.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before: %+v, %v", r, err)
	}
	if err := keep(); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Read(); err != nil || r.Intent.IsZero() {
		t.Errorf("after: %+v, %v", r, err)
	}
	if left, err := filepath.Glob(d.file(".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A task that has ended leaves no secrets behind, also if a tool was killed while it wrote them.
func TestFinishRemovesSecrets(t *testing.T) {
	s := testStore(t)
	d, err := s.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: "a", Attempt: 1}}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{envFile, "." + envFile + "4931849289850581427", "." + configurationFile + ".new", "work.new", scriptFile} {
		if err := os.WriteFile(d.file(name), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time there is nothing to move, and what was moved stays
		if left, err := s.Finish("a"); left != nil || err != nil {
			t.Fatal(left, err)
		}
		var names []string
		entries, err := os.ReadDir(s.done("a").Path)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got, want := strings.Join(names, " "), scriptFile+" "+recordFile; err != nil || got != want {
			t.Errorf("%q, want %q, %v", got, want, err)
		}
	}
}

// What a task leaves may be in directories without write permission, as Go's module cache has them,
// or belong to others. The task ends in any case.
func TestFinishWithWhatATaskHasLeft(t *testing.T) {
	s := testStore(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func() Dir {
		d, err := s.Create("a")
		must(err)
		locked := filepath.Join(d.file(workDir), "a", "b")
		must(os.MkdirAll(locked, 0o700))
		must(os.WriteFile(filepath.Join(locked, "f"), nil, 0o400))
		must(os.WriteFile(d.file(envFile), []byte("secret"), 0o600))
		return d
	}
	const nobody = 65534
	unprivileged := func() { // root removes everything
		if os.Getuid() != 0 {
			return
		}
		must(os.Chown(filepath.Dir(s.Dir), nobody, nobody))
		must(filepath.WalkDir(s.Dir, func(path string, _ fs.DirEntry, _ error) error { return os.Chown(path, nobody, nobody) }))
		must(syscall.Setfsuid(nobody))
	}
	runtime.LockOSThread() // the thread ends with the goroutine of the test
	d := create()
	must(os.Chmod(filepath.Join(d.file(workDir), "a", "b"), 0o500))
	must(os.Chmod(filepath.Join(d.file(workDir), "a"), 0))
	unprivileged()
	left, err := s.Finish("a")
	if names, readErr := os.ReadDir(s.done("a").Path); left != nil || err != nil || readErr != nil || len(names) > 0 {
		t.Errorf("left: %v, %v, %v, %v", names, left, err, readErr)
	}
	needs.Root(t, "to leave files of others")
	for range 2 { // the second time, what is left of the first is in the way
		must(syscall.Setfsuid(0))
		d := create()
		must(os.Chown(d.Path, nobody, nobody))
		must(os.Chown(d.file(workDir), nobody, nobody))
		must(syscall.Setfsuid(nobody))
		left, err = s.Finish("a")
		must(err)
		if !errors.Is(left, fs.ErrPermission) {
			t.Errorf("left: %v", left)
		}
		if _, err := os.Lstat(filepath.Join(s.done("a").file(workDir), "a")); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(s.done("a").file(envFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a secret is left: %v", err)
		}
	}
	// It is reported from time to time, until it can be removed.
	later := clock.Now().Add(time.Minute)
	if err := s.Prune(later); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("pruned: %v", err)
	}
	must(syscall.Setfsuid(0))
	must(s.Prune(later))
	if left, err := os.ReadDir(filepath.Join(s.Dir, "done")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A task ends although something is still mounted in its working directory. What is mounted stays.
func TestFinishWithAMount(t *testing.T) {
	s := testStore(t)
	d, err := s.Create("a")
	mount := filepath.Join(d.file(workDir), "mount")
	if err = errors.Join(err, os.MkdirAll(mount, 0o700)); err != nil {
		t.Fatal(err)
	}
	needs.Mount(t, mount, "tmpfs", 0, "")
	now := filepath.Join(s.done("a").file(workDir), "mount")
	defer syscall.Unmount(now, syscall.MNT_DETACH)
	if err := os.WriteFile(filepath.Join(mount, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left, err := s.Finish("a")
	if err != nil || left == nil || !strings.HasSuffix(left.Error(), "/tasks/a/work/mount: a file system is mounted there") {
		t.Errorf("%v, %v", left, err)
	}
	later := clock.Now().Add(time.Minute)
	if err := s.Prune(later); err == nil || !strings.HasSuffix(err.Error(), "/done/a/work/mount: a file system is mounted there") {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(now, "file")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(syscall.Unmount(now, 0), s.Prune(later)); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(s.Dir, "done")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// That a task was submitted is known until it has ended, whatever becomes of its directory.
func TestSubmitted(t *testing.T) {
	s := testStore(t)
	d, err := s.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, want int) {
		t.Helper()
		if got := s.Submitted("a"); got != want {
			t.Errorf("%s: attempt %d, want %d", what, got, want)
		}
	}
	check("before", 0)
	for _, attempt := range []int{1, 1, 2} {
		if err := s.markSubmitted("a", attempt); err != nil {
			t.Fatal(err)
		}
		check("submitted", attempt)
	}
	if err := errors.Join(os.RemoveAll(d.Path), s.Prune(clock.Now().Add(-time.Hour))); err != nil {
		t.Fatal(err)
	}
	check("its directory is removed", 2)
	if _, err = s.Create("a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Prune(clock.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	check("its directory was made again", 2)
	if _, err := s.Finish("a"); err != nil {
		t.Fatal(err)
	}
	check("it has ended", 0)
	if err := errors.Join(s.markSubmitted("b", 1), s.Prune(clock.Now().Add(time.Hour))); err != nil || s.Submitted("b") != 0 {
		t.Errorf("a tool was killed when it ended: %v, attempt %d", err, s.Submitted("b"))
	}
}

// A line that a full disk has cut off does not spoil the one after it.
func TestNoteAfterAPartOfOne(t *testing.T) {
	s, err := OpenStore(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Create("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: "one", Attempt: 1}}}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(d.file(recordFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"id":"one","att`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Read(); err != nil || r.Attempt != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := d.Note(Record{Tracked: Tracked{Ref: runner.Ref{Task: "one", Attempt: 2}}}); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Read(); err != nil || r.Attempt != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}
