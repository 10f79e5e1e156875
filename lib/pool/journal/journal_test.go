package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

func task(seq int64, text string) *pool.Task {
	return &pool.Task{Seq: seq, Text: text, Spec: &pool.Spec{}}
}

func end(j *Journal, t *pool.Task, what wire.Outcome, exit int) {
	r := &Record{Kind: End, Seq: t.Seq, Attempt: 1, What: what, Exit: exit, Hash: FormatHash(Hash(t)), Node: "n1", Start: 1700000000.5, Seconds: 1.25}
	j.Add(r)
	j.Ended(t, r)
}

func TestRunDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	j, err := Create(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, ""); !fault.Is(err, fault.Busy) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("a second scheduler: %v", err)
	}
	j.Add(&Record{Kind: Begin})
	for seq := range int64(4) {
		j.Sent("n1", 1, seq+1)
	}
	j.Sent("n2", 3, 9)
	end(j, task(1, "true"), wire.OK, 0)
	end(j, task(2, "false"), wire.Failed, 1)
	j.Add(&Record{Kind: Try, Seq: 3, Attempt: 1, What: wire.Lost})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	// The scheduler was killed while it wrote a line.
	f, _ := os.OpenFile(filepath.Join(dir, File), os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString(`{"k":"end","seq":4,"wh`)
	f.Close()

	h, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for seq, want := range map[int64]Entry{
		1: {Hash: HashText("true"), Attempt: 1, State: OK}, 2: {Hash: HashText("false"), Attempt: 1, State: Failed}, 3: {Attempt: 1}, 4: {Attempt: 1, State: Started},
		9: {Attempt: 3, State: Started}, 10: {}, 99999: {},
	} {
		got := h.Get(seq)
		if got.took = 0; got != want {
			t.Errorf("task %d: %+v; want %+v", seq, got, want)
		}
	}
	if h.Sessions != 1 || h.Losses != 2 {
		t.Errorf("%d sessions, %d losses", h.Sessions, h.Losses)
	}
	if h.Last() != 9 {
		t.Errorf("the last task is %d", h.Last())
	}

	// Another run appends behind the last whole line.
	j, err = Create(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	end(j, task(4, "x"), wire.OK, 0)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if h, err = Load(dir); err != nil || h.Get(4).State != OK {
		t.Errorf("%+v, %v", h.Get(4), err)
	}
	b, _ := os.ReadFile(filepath.Join(dir, Joblog))
	want := joblogHeader +
		"1\tn1\t1700000000.500\t     1.250\t0\t0\t0\t0\ttrue\n" +
		"2\tn1\t1700000000.500\t     1.250\t0\t0\t1\t0\tfalse\n" +
		"4\tn1\t1700000000.500\t     1.250\t0\t0\t0\t0\tx\n"
	if string(b) != want {
		t.Errorf("joblog\n%s\nwant\n%s", b, want)
	}
	if h, err = LoadJoblog(filepath.Join(dir, Joblog)); err != nil || h.Get(2).State != Failed || h.Get(4) != (Entry{Hash: HashText("x"), Attempt: 1, State: OK}) || h.HashOf(task(4, `"x"`)) != HashText("x") {
		t.Errorf("%+v, %v", h, err)
	}
}

// A run that is to run failed tasks again, and ends before it has, leaves that to the next one.
func TestRetryIsRemembered(t *testing.T) {
	ended := func(seq int64, attempt int32, what wire.Outcome) Record {
		return Record{Kind: End, Seq: seq, Attempt: attempt, What: what, Hash: FormatHash(HashText("x"))}
	}
	sent := Record{Kind: Send, Tasks: "1-2", Attempt: 2}
	before := []Record{
		{Kind: Begin}, ended(1, 1, wire.Failed), ended(2, 1, wire.Timeout), ended(3, 1, wire.Cancelled), ended(4, 3, wire.OK),
		ended(5, 1, wire.OK), {Kind: Output, Seq: 5}, {Kind: Send, Tasks: "6", Attempt: 1},
	}
	for name, tt := range map[string]struct {
		after []Record
		want  []State // of the tasks from 1 on
	}{
		"no retry":                    {[]Record{{Kind: Begin}}, []State{Failed, Failed, Cancelled, OK, Failed, Started}},
		"one by its number":           {[]Record{{Kind: Retry, Tasks: "2"}}, []State{Failed, Unknown, Cancelled, OK, Failed, Started}},
		"nothing has run again":       {[]Record{{Kind: Begin, Retry: true}}, []State{Unknown, Unknown, Unknown, OK, Unknown, Started}},
		"and another run continues":   {[]Record{{Kind: Begin, Retry: true}, {Kind: Begin}}, []State{Unknown, Unknown, Unknown, OK, Unknown, Started}},
		"one failed again, one runs":  {[]Record{{Kind: Begin, Retry: true}, sent, ended(1, 2, wire.Failed)}, []State{Failed, Started, Unknown, OK, Unknown, Started}},
		"one succeeds, one ran twice": {[]Record{{Kind: Begin, Retry: true}, sent, ended(1, 2, wire.OK), {Kind: Begin}, ended(2, 3, wire.Failed)}, []State{OK, Failed, Unknown, OK, Unknown, Started}},
	} {
		h := &History{}
		for _, r := range append(before, tt.after...) {
			if err := h.add(&r); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range tt.want {
			e := h.Get(int64(i + 1))
			if e.State != want || e.Attempt < 1 || i < 4 && e.Hash != HashText("x") {
				t.Errorf("%s: task %d is %+v, want state %d", name, i+1, e, want)
			}
		}
	}
}

// The schedulers of one call count together; those of the next call begin anew.
func TestEndsOfACall(t *testing.T) {
	h := &History{}
	for i, step := range []struct {
		Record
		done, failed int64
	}{
		{Record{Kind: Begin}, 0, 0},
		{Record{Kind: End, Seq: 1, What: wire.Failed}, 0, 1},
		{Record{Kind: Begin, Call: "a"}, 0, 0},
		{Record{Kind: End, Seq: 2, What: wire.OK}, 1, 0},
		{Record{Kind: End, Seq: 3, What: wire.OK}, 2, 0},
		{Record{Kind: Output, Seq: 3}, 1, 1},
		{Record{Kind: Try, Seq: 4}, 1, 1},
		{Record{Kind: End, Seq: 4, What: wire.Refused}, 1, 1},
		{Record{Kind: Begin, Call: "a"}, 1, 1},
		{Record{Kind: End, Seq: 4, What: wire.Timeout}, 1, 2},
		{Record{Kind: Begin, Call: "b"}, 0, 0},
		{Record{Kind: Begin}, 0, 0},
	} {
		if err := h.add(&step.Record); err != nil {
			t.Fatal(err)
		}
		if h.Done != step.done || h.Failed != step.failed {
			t.Errorf("record %d: %d done, %d failed, want %d, %d", i, h.Done, h.Failed, step.done, step.failed)
		}
	}
}

// Where files cannot be locked, the leases of a scheduler keep others away while it is
// there, and a while longer if it was killed.
func TestWithoutLocks(t *testing.T) {
	dir := t.TempDir()
	j, err := Create(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for until, busy := range map[time.Duration]bool{time.Minute: true, -time.Minute: false} {
		if err := j.Lease(clock.Now().Add(until)); err != nil {
			t.Fatal(err)
		}
		if err := heldByLease(dir); fault.Is(err, fault.Busy) != busy {
			t.Errorf("lease for %v: %v", until, err)
		}
	}
	if err := j.Lease(clock.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := heldByLease(dir); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestDamagedFiles(t *testing.T) {
	for in, want := range map[string]string{
		"x\n":                                    "1: not a record of a journal",
		"{}\n{\"k\":\"end\",\"seq\":-1}\n":       "2: task number -1 is out of range",
		"{\"k\":\"send\",\"tasks\":\"5-2\"}\n":   `1: invalid task list "5-2"`,
		"{\"k\":\"send\",\"tasks\":\"1-9e9\"}\n": `1: invalid task list "1-9e9"`,
	} {
		if _, err := Read(strings.NewReader(in)); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", in, err, want)
		}
	}
	for in, want := range map[string]string{
		"a\n":                   "1: not a job log: the first line is not its header",
		joblogHeader + "1\t2\n": "2: 2 fields, expected 9",
		joblogHeader + strings.Repeat("x\t", 8) + "x\n": `2: task number "x"`,
	} {
		if _, err := ReadJoblog(strings.NewReader(in)); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", in, err, want)
		}
	}
}

// A disk that is full for a while loses nothing.
func TestShortWrites(t *testing.T) {
	dir := t.TempDir()
	j, err := Create(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	whole := j.file.f
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	j.file.f = full
	end(j, task(1, "a"), wire.OK, 0)
	if j.Flush() == nil || j.Pending() == 0 {
		t.Error("a full disk is not noticed")
	}
	j.file.f = whole
	end(j, task(2, "b"), wire.OK, 0)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := Load(dir)
	if err != nil || h.Get(1).State != OK || h.Get(2).State != OK {
		t.Errorf("%+v, %v", h, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"k\":\"send\",\"tasks\":\"1-4,7\",\"attempt\":2}\n{\"k\":\"end\",\"seq\":3,\"what\":\"ok\"}\n"))
	f.Add([]byte("{\"k\":\"try\",\"seq\":1}\ncut"))
	f.Add([]byte("{\"k\":\"cut\",\"tasks\":\"1-4,3-7,9\",\"format\":2}\n{\"k\":\"output\",\"seq\":3}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if bytes.Contains(b, []byte("00000")) {
			return // large numbers only cost memory
		}
		h, err := Read(bytes.NewReader(b))
		if err == nil {
			h.Get(h.Last())
		}
	})
}

func FuzzReadJoblog(f *testing.F) {
	f.Add([]byte(joblogHeader + "1\tn1\t1700000000.500\t     1.250\t0\t0\t0\t0\ttrue\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !bytes.Contains(b, []byte("000000")) {
			_, _ = ReadJoblog(bytes.NewReader(b))
		}
	})
}

// How long tasks took is kept to about a tenth.
// A scheduler that dies leaves tasks without an end. How often in a row is known for each of them.
func TestDeaths(t *testing.T) {
	h, err := Read(strings.NewReader(`{"k":"begin"}
{"k":"send","node":"n","attempt":1,"tasks":"1-5"}
{"k":"begin"}
{"k":"send","node":"n","attempt":2,"tasks":"1-4"}
{"k":"end","seq":2,"attempt":2,"what":"failed"}
{"k":"try","seq":3,"attempt":2,"what":"lost"}
{"k":"send","node":"n","attempt":3,"tasks":"3"}
{"k":"try","seq":4,"attempt":2,"what":"stopped"}
{"k":"begin"}
{"k":"send","node":"n","attempt":3,"tasks":"1"}
{"k":"begin","session":"s4"}
{"k":"node","what":"up","node":"n","worker":{"session":"s4","node":"n"}}
{"k":"send","node":"n","attempt":4,"tasks":"1,6-7"}
{"k":"stop"}
{"k":"begin","session":"s5"}
{"k":"node","what":"up","node":"n","worker":{"session":"s5","node":"n"}}
{"k":"send","node":"n","attempt":2,"tasks":"5-6"}
`))
	if err != nil {
		t.Fatal(err)
	}
	// That of session 4 has not died: 1 and 7 may still run on a node that it could not reach.
	for seq, want := range []int{0, 0, 0, 1, 0, 2, 1, 0, 0} {
		if got := h.Deaths(int64(seq)); got != want {
			t.Errorf("task %d: %d, want %d", seq, got, want)
		}
	}
}

func TestSecondsOfTasks(t *testing.T) {
	var text strings.Builder
	want := []float64{0, 0.0001, 0.03, 1.5, 600, 86400, 30 * 86400}
	for i, seconds := range want[1:] {
		fmt.Fprintf(&text, `{"k":"end","t":1,"seq":%d,"attempt":1,"what":"ok","seconds":%g}`+"\n", i+1, seconds)
	}
	text.WriteString(`{"k":"end","t":1,"seq":7,"attempt":1,"what":"fail","seconds":5}` + "\n")
	h, err := Read(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	for i, seconds := range append(want, 0) {
		if got := h.Get(int64(i)).Seconds(); math.Abs(got-seconds) > 0.1*seconds {
			t.Errorf("task %d took %g s, want %g s", i, got, seconds)
		}
	}
}

// Where other hosts do not see a lock, the scheduler of another host keeps the run directory
// until its lease is over; one that finds another's name there writes nothing more.
func TestLocksThatOtherHostsDoNotSee(t *testing.T) {
	localLocks = func(string) bool { return true }
	t.Cleanup(func() { localLocks = lock.Local })
	for holder, busy := range map[string]bool{
		"process 1 on elsewhere, session 0badcafe\n": true, "process 1 on " + hostname() + ", session 0badcafe\n": false, "": false,
	} {
		for until, over := range map[time.Duration]bool{time.Minute: false, -time.Minute: true} {
			dir := t.TempDir()
			j, err := Create(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(j.Lease(clock.Now().Add(until)), j.Close(), os.WriteFile(filepath.Join(dir, "lock"), []byte(holder), 0o600)); err != nil {
				t.Fatal(err)
			}
			if Held(dir) != (busy && !over) {
				t.Errorf("%q, lease for %v: held is %v", holder, until, Held(dir))
			}
			next, err := Create(dir, "")
			if fault.Is(err, fault.Busy) != (busy && !over) {
				t.Fatalf("%q, lease for %v: %v", holder, until, err)
			}
			if held, heldErr := lock.Held(filepath.Join(dir, "lock")); heldErr != nil || held != (err == nil) {
				t.Errorf("%q, lease for %v: the lock is held: %v, %v", holder, until, held, heldErr)
			}
			if err == nil {
				if err := next.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}

	dir := t.TempDir()
	j, err := Create(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	j.Add(&Record{Kind: Begin})
	if err := errors.Join(j.Flush(), os.WriteFile(filepath.Join(dir, "lock"), []byte("process 1 on elsewhere\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(dir, File))
	leased := LeaseEnd(dir)
	j.Add(&Record{Kind: Stop})
	j.checked = j.checked.Add(-2 * time.Second)
	if err := j.Flush(); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	if err := j.Lease(clock.Now().Add(time.Hour)); !errors.Is(err, ErrTaken) || !LeaseEnd(dir).Equal(leased) {
		t.Errorf("%v, lease until %v", err, LeaseEnd(dir))
	}
	if err := j.Close(); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	after, _ := os.ReadFile(filepath.Join(dir, File))
	if holder, _ := os.ReadFile(filepath.Join(dir, "lock")); string(after) != string(before) || string(holder) != "process 1 on elsewhere\n" {
		t.Errorf("it has written %q, and the holder is %q", after[len(before):], holder)
	}
}

// A scheduler of another host that was stopped for longer than its lease may be about to write when it
// continues: the one that has taken its place does not see that.
func TestLateWriteAfterATakeover(t *testing.T) {
	localLocks = func(string) bool { return true }
	t.Cleanup(func() { localLocks = lock.Local })
	dir := t.TempDir()
	joblog := filepath.Join(t.TempDir(), "jobs")
	if err := os.Symlink(joblog, joblog+".link"); err != nil {
		t.Fatal(err)
	}
	first, err := Create(dir, joblog+".link")
	if err != nil {
		t.Fatal(err)
	}
	end(first, task(1, "true"), wire.OK, 0)
	if err := errors.Join(first.Flush(), first.Lease(clock.Now().Add(-time.Minute)), first.lock.Close()); err != nil {
		t.Fatal(err)
	}
	first.lock, first.holder = nil, "process 1 on elsewhere\n"
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte(first.holder), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := Create(dir, joblog+".link")
	if err != nil {
		t.Fatal(err)
	}
	end(first, task(2, "true"), wire.OK, 0)
	first.checked = clock.Now() // it has just looked
	if err := first.Flush(); err != nil {
		t.Fatal(err)
	}
	first.checked = first.checked.Add(-2 * time.Second)
	if err := first.Close(); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	end(next, task(3, "true"), wire.OK, 0)
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	for what, load := range map[string]func() (*History, error){
		"journal": func() (*History, error) { return Load(dir) },
		"job log": func() (*History, error) { return LoadJoblog(joblog) },
	} {
		h, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for seq, want := range map[int64]State{1: OK, 2: Unknown, 3: OK} {
			if got := h.Get(seq).State; got != want {
				t.Errorf("%s: task %d has state %d, want %d", what, seq, got, want)
			}
		}
	}
	if st, err := os.Lstat(joblog + ".link"); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link to the job log was replaced: %v, %v", st, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Two schedulers with the same process id on a host, as in containers, are told apart.
func TestHoldersDiffer(t *testing.T) {
	holders := map[string]bool{}
	for range 2 {
		j, err := Create(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		holders[j.holder] = true
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(holders) != 2 {
		t.Errorf("holders: %v", holders)
	}
}

// A scheduler that holds the lock and does not run, as its job is suspended, keeps the run until its lease is over.
func TestSuspendedHolder(t *testing.T) {
	dir := t.TempDir()
	old, err := Create(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if _, err := Create(dir, ""); !fault.Is(err, fault.Busy) || !Held(dir) {
		t.Fatalf("%v: while it runs", err)
	}
	if err := old.Lease(time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if Held(dir) {
		t.Error("it is held after its lease")
	}
	j, err := Create(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if !Held(dir) {
		t.Error("it is not held by the next one")
	}
	if _, err := Create(dir, ""); !fault.Is(err, fault.Busy) {
		t.Errorf("%v: a third one", err)
	}
	if err := old.Mine(); !errors.Is(err, ErrTaken) {
		t.Errorf("%v: the first one continues", err)
	}
	if err := j.Mine(); err != nil {
		t.Error(err)
	}
	old.Add(&Record{Kind: End, Seq: 7})
	if err := old.Flush(); !errors.Is(err, ErrTaken) {
		t.Errorf("%v: it writes", err)
	}
}
