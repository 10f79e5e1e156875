package spool

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// shown is a look, as text.
func shown(t *testing.T, s *Spool) string {
	t.Helper()
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintf(&b, "%s %q %q %s %q %d %q %d %q %v %q %v %v %v\n", r.ID, r.Slug, r.Group, r.State, r.Reason, r.ExitCode, r.Agent, r.Attempt, r.RetryOf, r.Retried, r.Waits,
			r.Created.UnixNano(), r.Started.IsZero(), r.Ended.IsZero())
	}
	return b.String()
}

// A look with an index shows what one without it shows, whatever has happened since.
func TestSummaries(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	var entries []queue.Entry
	for i := range 3 * refreshFiles {
		entries = append(entries, queue.Entry{Slug: fmt.Sprintf("n\x1b%d", i), Group: "g", Created: start.Add(time.Duration(i) * time.Second), Parameters: map[string]string{"i": fmt.Sprint(i)}})
	}
	b, err := q.AddAll("", nil, entries)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range b.IDs[:refreshFiles/2] {
		report(t, q, id, task.Failed)
	}
	report(t, q, b.IDs[refreshFiles], task.Running)
	add(t, q, "child", b.IDs[0])
	if err := os.WriteFile(q.path(doneDir, "broken.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	index := q.Dir + "/" + indexFile
	same := func(when string) {
		t.Helper()
		with := shown(t, q.Spool)
		if err := os.Remove(index); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if without := shown(t, q.Spool); with != without {
			t.Errorf("%s: with an index\n%.2000s\nwithout it\n%.2000s", when, with, without)
		}
		if info, err := os.Stat(index); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: index: %v, %v", when, info, err)
		}
	}
	if got := shown(t, q.Spool); strings.Count(got, "\n") != len(entries)+1 || !strings.Contains(got, `"n\x1b0" "g" failed "because" 3 "me" 1 "" false ""`) {
		t.Errorf("%.1000s", got)
	}
	same("at first")
	glance := func(when string) {
		t.Helper()
		states, err := q.States()
		quick, quickErr := q.Glance()
		if !slices.Equal(states, quick) || errors.Join(err, quickErr) != nil {
			t.Errorf("%s: a glance differs: %v, %v", when, err, quickErr)
		}
	}
	glance("when nothing has changed")
	add(t, q, "late", b.IDs[1])
	glance("after a task was added")
	info, err := os.Stat(index)
	if err == nil {
		err = os.Chtimes(q.path(newDir, ""), time.Time{}, info.ModTime())
	}
	all, glanceErr := q.Glance()
	if err != nil || glanceErr != nil || len(all) != len(entries)+1 { // the directory is not listed
		t.Errorf("%d tasks, %v, %v", len(all), err, glanceErr)
	}
	if err := os.Remove(q.path(newDir, "late.json")); err != nil {
		t.Fatal(err)
	}
	report(t, q, b.IDs[1+refreshFiles], task.Completed)
	report(t, q, b.IDs[refreshFiles], task.Completed)
	if err := q.RequestStop(b.IDs[3+refreshFiles]); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(q.path(doneDir, string(b.IDs[0])+".json")); err != nil {
		t.Fatal(err)
	}
	same("after some have moved on")
	text, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string][]byte{
		"cut off": text[:len(text)/2], "a changed byte": slices.Concat(text[:100], []byte{text[100] ^ 1}, text[101:]), "empty": nil,
		"of another spool": bytes.Replace(text, []byte(q.ID), []byte(strings.Repeat("x", len(q.ID))), 1),
	} {
		if err := os.WriteFile(index, other, 0o600); err != nil {
			t.Fatal(err)
		}
		if rows := q.readIndex(); rows != nil {
			t.Errorf("an index that is %s: %d rows", name, len(rows))
		}
		same(name)
	}
	if err := os.Remove(index); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(index, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, q.Spool); strings.Count(got, "\n") != len(entries) {
		t.Errorf("without an index that can be written:\n%.1000s", got)
	}
}

func FuzzIndex(f *testing.F) {
	q, err := Make(f.TempDir(), start)
	if err != nil {
		f.Fatal(err)
	}
	for i := range refreshFiles {
		if err := q.Add(queue.Entry{ID: task.ID(fmt.Sprint(i)), Slug: "x", Created: start}); err != nil {
			f.Fatal(err)
		}
	}
	if _, err := q.List(); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(q.Dir + "/" + indexFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(indexMagic + "\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		rows := parseIndex(string(b), q.ID)
		if !bytes.Equal(b, text) && len(rows) > len(b) {
			t.Errorf("%d rows of %d bytes", len(rows), len(b))
		}
		d := decoder{rest: string(b)} // beyond the checksum
		for len(d.rest) > 0 {
			before := len(d.rest)
			_, _, _ = d.text(), d.number(), d.instant()
			if len(d.rest) >= before {
				t.Fatalf("%q: nothing is read", b)
			}
		}
	})
}

func TestRetry(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	q.Now = func() time.Time { return start }
	if err := q.Add(queue.Entry{ID: "a", Env: map[string]string{"TOKEN": "secret", "A": "1"}, Created: start}); err != nil {
		t.Fatal(err)
	}
	report(t, q, "a", task.Failed)
	e, err := q.Find("a")
	if err != nil || len(e.Env) > 0 || !slices.Equal(e.Variables, []string{"A", "TOKEN"}) {
		t.Fatalf("%+v, %v", e, err)
	}
	again := []queue.Entry{{RetryOf: "a", Attempt: 2, Slug: "again", Created: start.Add(1)}}
	first, err := q.Retry(again)
	if err != nil || first.New != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := q.Retry(again)
	if err != nil || second.New != 0 || second.IDs[0] != first.IDs[0] {
		t.Errorf("retried twice: %+v, %v; first %+v", second, err, first)
	}
	if got := wishes(t, q); got != "+"+string(first.IDs[0]) {
		t.Errorf("the agent is offered %s", got)
	}
	if got := shown(t, q.Spool); !strings.Contains(got, `a "" "" failed "because" 3 "me" 1 "" true`) || !strings.Contains(got, `"again" "" pending "no agent runs" 0 "" 2 "a" false`) {
		t.Error(got)
	}
	if err := q.Tidy(0); err != nil {
		t.Fatal(err)
	}
	if got := files(t, q.Spool); got != "done/a.json new/"+string(first.IDs[0])+".json retried/a" {
		t.Errorf("files: %s", got)
	}
}

// Of several that retry a task at the same time, and are killed at any step, one wins.
func TestRetryOnItsWay(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	stage := func(id task.ID) {
		dir := q.path(tmpDir, "batch-"+string(id))
		err := q.commit(dir, "r"+string(id), manifest{}, func() error {
			return q.writeNew(dir+"/"+string(id)+".json", queue.Entry{ID: id, State: task.Pending, RetryOf: "a", Attempt: 2})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	stage("one")
	stage("two")
	if err := q.claimRetry(queue.Entry{ID: "two", RetryOf: "a"}); err != nil { // and was killed
		t.Fatal(err)
	}
	if got := wishes(t, q); got != "+two" {
		t.Errorf("the agent is offered %s", got)
	}
	b, err := q.Retry([]queue.Entry{{RetryOf: "a"}})
	if err != nil || b.New != 0 || b.IDs[0] != "two" {
		t.Errorf("%+v, %v", b, err)
	}
	if got := files(t, q.Spool); got != "new/two.json retried/a" {
		t.Errorf("files: %s", got)
	}
	if err := os.WriteFile(q.path(retriedDir, "b"), []byte("../x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Retry([]queue.Entry{{RetryOf: "b"}}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestCancel(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	for _, id := range []task.ID{"new", "running", "over"} {
		add(t, q, id)
	}
	report(t, q, "running", task.Running)
	report(t, q, "over", task.Completed)
	all, err := q.List()
	if err != nil {
		t.Fatal(err)
	}
	if errs := q.Cancel(append(all, queue.Summary{ID: "nobody", State: task.Pending})); errors.Join(errs[:3]...) != nil || !errors.Is(errs[3], queue.ErrGone) {
		t.Errorf("%v", errs)
	}
	if got := wishes(t, q); got != "-running" {
		t.Errorf("the agent is offered %s", got)
	}
	if got := shown(t, q.Spool); strings.Count(got, " stopped ") != 1 || strings.Count(got, " completed ") != 1 {
		t.Error(got)
	}
}

// The tools of a pipeline begin at the same time: one that says who the agent is does not
// take back that another has taken a turn.
func TestRememberKeepsTheTurn(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		poll, stop := open(t, dir, "me"), open(t, dir, "me")
		poll.Beat, stop.Beat = queue.Beat{Agent: "me", Data: "d"}, queue.Beat{Agent: "me", Data: "d"}
		ended := make(chan error)
		go func() { ended <- stop.Remember() }()
		if err := poll.Alive(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if b, err := stop.Spool.Agent("me"); err != nil || b.Late(start) || b.Seen.IsZero() {
			t.Fatalf("%+v, %v", b, err)
		}
	}
}
