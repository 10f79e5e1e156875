package worker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// write writes a file for a test.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// files returns what is below a directory, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found[strings.TrimPrefix(path, dir+"/")] = content(t, path, "")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// sameFiles compares files by name and content.
func sameFiles(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if has, ok := got[name]; !ok || has != text {
			t.Errorf("%s: %s has %q (%v), want %q", what, name, has, ok, text)
		}
	}
	for name, text := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: unexpected file %s: %q", what, name, text)
		}
	}
}

// Logs of tasks are files of theirs; those of tasks that printed nothing are gone in the end.
func TestOutputInFiles(t *testing.T) {
	run := t.TempDir()
	s := open(t, func(_ *Options, setup *wire.Setup) {
		setup.Run, setup.Output = wire.Text(run), wire.Output{Files: true}
	})
	for seq, text := range map[int64]string{1: "echo one", 2: "echo two >&2; exit 2", 3: "true", 1999: "echo $JOBPOOL_RUN"} {
		s.run(task(seq, text))
		if d := s.done(seq); len(d.Out)+len(d.Err) > 0 || d.OutSize+d.ErrSize > 0 {
			t.Errorf("task %d: what is in files is sent as well: %+v", seq, d)
		}
	}
	again := task(1, "echo once more")
	again.Attempt = 2
	s.run(again)
	s.done(1)
	captured := task(4, "echo captured; echo err >&2")
	captured.Capture = true
	s.run(captured)
	if got := s.ended(s.done(4)); got != `ok out "captured\n" err "err\n"` {
		t.Errorf("captured output: %s", got)
	}
	s.bye()
	got := files(t, run)
	for name, text := range got {
		if text == "" {
			delete(got, name) // the other stream of a task that has printed to one
		}
	}
	sameFiles(t, "logs", got, map[string]string{
		"logs/000/000001.out": "one\n", "logs/000/000001.2.out": "once more\n", "logs/000/000002.err": "two\n", "logs/001/001999.out": run + "\n",
		"logs/000/000004.out": "captured\n", "logs/000/000004.err": "err\n",
	})
	if _, err := os.Stat(filepath.Join(run, "logs/000/000003.out")); err == nil {
		t.Error("a task that printed nothing has a log")
	}
}

// The output of all tasks of a node in one file for each stream.
func TestMergedOutput(t *testing.T) {
	run := t.TempDir()
	write(t, filepath.Join(run, "placeholder"), "")
	for _, seq := range []int64{1, 2} { // the files are continued
		s := open(t, func(_ *Options, setup *wire.Setup) {
			setup.Run, setup.Output = wire.Text(run), wire.Output{Merged: true}
		})
		s.run(task(seq, "echo to $JOBPOOL_SEQ; echo err >&2"))
		if got := s.ended(s.done(seq)); got != "ok" {
			t.Errorf("task %d: %s", seq, got)
		}
		s.bye()
	}
	sameFiles(t, "logs", files(t, run), map[string]string{
		"placeholder": "", "logs/n1.out": "to 1\nto 2\n", "logs/n1.err": "err\nerr\n",
	})
}

// Of a task that has failed, the ends of both streams come with its end.
func TestTails(t *testing.T) {
	s := open(t, nil)
	const half = wire.TailSize / 2
	for i, tt := range []struct {
		out, err, status int // bytes that it writes, and its end
		want             [2]int
	}{
		{out: 10, err: 20, status: 0},
		{out: 10, err: 20, status: 1, want: [2]int{10, 20}},
		{out: 2 * half, err: 3 * half, status: 1, want: [2]int{half, half}},
		{out: 10, err: 3 * half, status: 1, want: [2]int{10, 2*half - 10}},
		{out: 3 * half, err: 10, status: 1, want: [2]int{2*half - 10, 10}},
	} {
		seq := int64(i + 1)
		s.run(task(seq, fmt.Sprintf("head -c %d /dev/zero | tr '\\0' o; head -c %d /dev/zero | tr '\\0' e >&2; exit %d", tt.out, tt.err, tt.status)))
		d := s.done(seq)
		want := [2]wire.Tail{}
		if tt.status > 0 {
			want = [2]wire.Tail{
				{Size: int64(tt.out), Text: wire.Text(strings.Repeat("o", tt.want[0]))},
				{Size: int64(tt.err), Text: wire.Text(strings.Repeat("e", tt.want[1]))},
			}
		}
		if d.Tails != want {
			t.Errorf("%+v: sizes %d and %d, with %d and %d bytes", tt, d.Tails[0].Size, d.Tails[1].Size, len(d.Tails[0].Text), len(d.Tails[1].Text))
		}
	}
}

// Files that are named for a task: its streams and its number, in directories that are made for them.
func TestResultFiles(t *testing.T) {
	s := open(t, nil)
	write(t, filepath.Join(s.dir, "file"), "")
	named := func(seq int64, dir string) *wire.Run {
		r := task(seq, "echo out; echo err >&2")
		for _, name := range []string{"stdout", "stderr", "seq"} {
			r.Files = append(r.Files, wire.Text(filepath.Join(s.dir, dir, name)))
		}
		return r
	}
	s.run(named(7, "a/b"))
	if got := s.ended(s.done(7)); got != `ok out "out\n" err "err\n"` {
		t.Errorf("with the session's Output.Return: %s", got)
	}
	sameFiles(t, "results", files(t, filepath.Join(s.dir, "a")), map[string]string{"b/stdout": "out\n", "b/stderr": "err\n", "b/seq": "7"})
	s.run(named(8, "file/b"))
	if got := s.ended(s.done(8)); got != `nostart exit 125 "output: mkdir DIR/file: not a directory"` {
		t.Errorf("no directory for them: %s", got)
	}
}

// Output that is too long for the report is fetched in pieces, and removed when it is not needed any more.
func TestLongOutput(t *testing.T) {
	for _, near := range []bool{false, true} {
		s := open(t, func(_ *Options, setup *wire.Setup) { setup.Near = near })
		const size = wire.Piece + 1000
		s.run(task(1, "head -c 525288 /dev/zero | tr '\\000' x; echo err >&2"))
		d := s.done(1)
		if d.OutSize != size || d.ErrSize != 4 || len(d.Out)+len(d.Err) > 0 || (len(d.Files) == 2) != near {
			t.Fatalf("near %v: %+v", near, d)
		}
		if near {
			if got := content(t, string(d.Files[0]), ""); len(got) != size {
				t.Errorf("the file has %d bytes", len(got))
			}
		}
		get := func(stderr bool, offset int64) *wire.Data {
			s.send(&wire.Message{Get: &wire.Get{Key: d.Key, Stderr: stderr, Offset: offset}})
			return s.next("a piece", func(m *wire.Message) bool { return m.Data != nil }).Data
		}
		var all []byte
		for {
			p := get(false, int64(len(all)))
			if p.Error != "" || p.Stderr || p.Offset != int64(len(all)) {
				t.Fatalf("a piece at %d: %+v", len(all), p)
			}
			if len(p.Bytes) == 0 {
				break
			}
			all = append(all, p.Bytes...)
		}
		if !bytes.Equal(all, bytes.Repeat([]byte("x"), size)) {
			t.Errorf("%d bytes, want %d", len(all), size)
		}
		if p := get(true, 0); string(p.Bytes) != "err\n" || !p.Stderr {
			t.Errorf("standard error: %+v", p)
		}
		s.send(&wire.Message{Drop: &d.Key})
		if p := get(false, 0); p.Error != "its output is no longer kept" || p.Bytes != nil {
			t.Errorf("after it was dropped: %+v", p)
		}
		s.bye()
		left := files(t, s.temp)
		delete(left, leaseFile)
		sameFiles(t, "the worker's directory", left, nil)
	}
}

// What running tasks print is sent at once, as far as the scheduler takes it, and not again.
func TestLiveOutput(t *testing.T) {
	s := open(t, func(_ *Options, setup *wire.Setup) { setup.Output.Live = true })
	gate := func(n int) string { return filepath.Join(s.dir, fmt.Sprint("go", n)) }
	for n := range 3 {
		if err := syscall.Mkfifo(gate(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const extra = 1000
	s.run(task(1, fmt.Sprintf("echo one; read x < go0; printf two >&2; read x < go1; head -c %d /dev/zero; read x < go2; echo three", wire.LiveCredit+extra)))
	var had [2][]byte
	piece := func() {
		t.Helper()
		d := s.next("live output", func(m *wire.Message) bool { return m.Data != nil }).Data
		i := stream(d.Stderr)
		if !d.Live || d.Offset != int64(len(had[i])) || d.Error != "" {
			t.Fatalf("stream %d, of which %d bytes were sent: %d bytes at %d, live: %v, %s", i, len(had[i]), len(d.Bytes), d.Offset, d.Live, d.Error)
		}
		had[i] = append(had[i], d.Bytes...)
	}
	piece()
	write(t, gate(0), "\n")
	piece()
	if string(had[0]) != "one\n" || string(had[1]) != "two" {
		t.Fatalf("sent: %.20q and %.20q", had[0], had[1])
	}
	write(t, gate(1), "\n")
	for len(had[0])+len(had[1]) < wire.LiveCredit {
		piece()
	}
	if n := len(had[0]) + len(had[1]); n != wire.LiveCredit {
		t.Errorf("%d bytes are sent, %d may be", n, wire.LiveCredit)
	}
	s.send(&wire.Message{Credit: 100})
	piece()
	if n := len(had[0]) + len(had[1]); n != wire.LiveCredit+100 {
		t.Errorf("%d bytes are sent, 100 more may be", n)
	}
	write(t, gate(2), "\n")
	d := s.done(1)
	want := "one\n" + strings.Repeat("\x00", wire.LiveCredit+extra) + "three\n"
	if string(had[0])+string(d.Out) != want || string(had[1]) != "two" || len(d.Err) > 0 {
		t.Errorf("%d bytes live, %d and %d in the report", len(had[0]), len(d.Out), len(d.Err))
	}
}

// What cannot be written is reported: by the program, or by the worker if it is its own file.
func TestOutputOnAFullDisk(t *testing.T) {
	run := t.TempDir()
	if err := os.Mkdir(filepath.Join(run, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(run, "logs/n1.out")); err != nil {
		t.Fatal(err)
	}
	s := open(t, func(_ *Options, setup *wire.Setup) {
		setup.Run, setup.Output = wire.Text(run), wire.Output{Merged: true}
	})
	for seq, want := range map[int64]string{1: `ok lost "log: write ` + run + `/logs/n1.out: no space left on device"`, 2: "ok"} {
		s.run(task(seq, map[int64]string{1: "echo out", 2: "echo err >&2"}[seq]))
		if got := s.ended(s.done(seq)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	s.bye()
	if got := content(t, run, "logs/n1.err"); got != "err\n" {
		t.Errorf("the other file has %q", got)
	}

	s = open(t, nil)
	r := task(1, "LC_ALL=C /bin/echo out || exit 9")
	r.Files = []wire.Text{"/dev/full", wire.Text(s.dir + "/err"), wire.Text(s.dir + "/seq")}
	s.run(r)
	if d := s.done(1); d.Exit != 9 || !strings.Contains(content(t, s.dir, "err"), "No space left on device") {
		t.Errorf("%s: %q", s.ended(d), content(t, s.dir, "err"))
	}
}

// A task whose log cannot be created does not start.
func TestNoPlaceForOutput(t *testing.T) {
	run := t.TempDir()
	s := open(t, func(_ *Options, setup *wire.Setup) {
		setup.Run, setup.Output = wire.Text(run), wire.Output{Files: true}
	})
	if err := os.MkdirAll(filepath.Join(run, "logs/001/001000.err"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(run, "logs/000"), "")
	for seq, want := range map[int64]string{
		1:    `nostart exit 125 "output: mkdir RUN/logs/000: not a directory"`,
		1000: `nostart exit 125 "output: open a file in \"RUN/logs/001\": is a directory"`,
		2000: "ok",
	} {
		s.run(task(seq, "echo out"))
		if got := strings.ReplaceAll(s.ended(s.done(seq)), run, "RUN"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
