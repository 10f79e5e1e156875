package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// fake is a queue with the artifacts of one task, and files of which each holds its address.
type fake struct {
	artifacts map[string]string
	fetched   []string
	list      error // of Artifacts
	put       error // of PutArtifact
	file      []byte
}

func (q *fake) Artifacts(context.Context, task.ID) (list []task.Artifact, err error) {
	for path, text := range q.artifacts {
		list = append(list, task.Artifact{Path: path, Size: int64(len(text))})
	}
	return list, q.list
}

func (q *fake) GetArtifact(_ context.Context, _ task.ID, a task.Artifact, to *os.File) error {
	q.fetched = append(q.fetched, a.Path)
	text := q.artifacts[a.Path]
	if text == "cut" {
		return errors.New("the connection was closed")
	}
	_, err := to.WriteString(text)
	return err
}

func (q *fake) PutArtifact(_ context.Context, _ task.ID, a task.Artifact, from io.ReadSeeker) error {
	if q.put != nil {
		return q.put
	}
	b, err := io.ReadAll(from)
	q.artifacts[a.Path] = string(b)
	return err
}

func (q *fake) GetFile(_ context.Context, f task.File, to *os.File) error {
	q.fetched = append(q.fetched, f.Name)
	_, err := to.Write(q.file)
	return err
}

func say(string, ...any) {}

// names lists the files below a directory.
func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			name, _ := filepath.Rel(dir, path)
			list = append(list, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestFetchArtifacts(t *testing.T) {
	q := &fake{artifacts: map[string]string{"a": "1", "b/c": "22", "here": "333"}}
	s := &Store{Queue: q, Processes: t.TempDir()}
	dir := s.Artifacts("p1", "parent")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "here"), []byte("333"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, all are here
		if err := s.FetchArtifacts(t.Context(), task.Parent{ID: "parent"}, dir, say); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(q.fetched)
	if got := names(t, dir); !slices.Equal(got, []string{"a", "b/c", "here"}) || !slices.Equal(q.fetched, []string{"a", "b/c"}) {
		t.Errorf("%q, fetched %q", got, q.fetched)
	}

	// What was cut off is not there, and may be fetched again; a path that leads elsewhere is refused.
	q.artifacts = map[string]string{"d": "cut"}
	err := s.FetchArtifacts(t.Context(), task.Parent{ID: "parent"}, dir, say)
	if err == nil || errors.As(err, new(*DefectError)) || slices.Contains(names(t, dir), "d") || len(names(t, dir)) != 3 {
		t.Errorf("%v, %q", err, names(t, dir))
	}
	q.artifacts = map[string]string{"../d": "x"}
	if err := s.FetchArtifacts(t.Context(), task.Parent{ID: "parent"}, dir, say); !errors.As(err, new(*DefectError)) {
		t.Error(err)
	}
	q.list = queue.ErrGone
	if err := s.FetchArtifacts(t.Context(), task.Parent{ID: "parent"}, dir, say); !errors.Is(err, queue.ErrGone) {
		t.Error(err)
	}
}

// killed ends the process that downloads, before it can tidy up.
type killed struct{ *fake }

func (killed) GetArtifact(context.Context, task.ID, task.Artifact, *os.File) error {
	runtime.Goexit()
	return nil
}

func (killed) GetFile(context.Context, task.File, *os.File) error {
	runtime.Goexit()
	return nil
}

// What a killed download has left is removed once it is too old to be one that goes on, and nothing else is: not what a task has
// called so, nor what a link of a task leads to.
func TestKilledDownloads(t *testing.T) {
	q := &fake{artifacts: map[string]string{"b/c": "22"}}
	s := &Store{Queue: killed{q}, Processes: t.TempDir(), Dir: t.TempDir()}
	dir, elsewhere := s.Artifacts("p1", "parent"), t.TempDir()
	foreign := filepath.Join(elsewhere, downloadPrefix+rand.Text())
	if err := errors.Join(
		os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, downloadPrefix+"mine"), nil, 0o600), os.WriteFile(foreign, nil, 0o600),
		os.Symlink(elsewhere, s.Artifacts("p1", "link")),
	); err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() { _ = s.FetchArtifacts(t.Context(), task.Parent{ID: "parent"}, dir, say) })
	ended.Go(func() { _, _ = s.FetchFile(t.Context(), task.File{Name: "m.bin", URL: "https://x/m.bin"}, say) })
	ended.Wait()
	left := func() (n int) {
		for _, name := range append(names(t, s.Processes), names(t, s.Dir)...) {
			if strings.HasPrefix(filepath.Base(name), downloadPrefix) {
				n++
			}
		}
		return n
	}
	past, later := clock.Now().Add(-time.Hour), clock.Now().Add(time.Hour)
	for _, c := range []struct {
		before time.Time
		want   int
	}{{past, 3}, {later, 1}} {
		if err := s.Prune(past, c.before); err != nil || left() != c.want {
			t.Errorf("%v, %d left, want %d: %q, %q", err, left(), c.want, names(t, s.Processes), names(t, s.Dir))
		}
	}
	if _, err := os.Lstat(foreign); err != nil {
		t.Error(err)
	}
	s.Queue = q
	if err := s.FetchArtifacts(t.Context(), task.Parent{ID: "parent"}, dir, say); err != nil {
		t.Error(err)
	}
}

// An artifact that has no place in its directory is an error of the task: another try cannot help, and
// none is written outside.
func TestFetchArtifactsWithoutAPlace(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, name := range []string{"link/x", ".", "file/x", "directory", long, long + "/x", "file/../../x"} {
		q := &fake{artifacts: map[string]string{name: "1"}}
		s := &Store{Queue: q, Processes: t.TempDir()}
		dir, outside := s.Artifacts("p1", "parent"), t.TempDir()
		err := errors.Join(
			os.MkdirAll(filepath.Join(dir, "directory", "sub"), 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
			os.Symlink(outside, filepath.Join(dir, "link")))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.FetchArtifacts(t.Context(), task.Parent{ID: "parent"}, dir, say); !errors.As(err, new(*DefectError)) {
			t.Errorf("%q: %v", name, err)
		}
		if got := append(names(t, dir), names(t, outside)...); !slices.Equal(got, []string{"file"}) {
			t.Errorf("%q: %q are left", name, got)
		}
	}
}

func TestFetchFile(t *testing.T) {
	q := &fake{file: []byte("model")}
	s := &Store{Queue: q, Dir: t.TempDir()}
	var paths []string
	// The signature of the address is another one for each task.
	for _, signature := range []string{"1", "2"} {
		var err error
		if paths, err = s.FetchFile(t.Context(), task.File{Name: "m.bin", URL: "https://x/m.bin?signature=" + signature}, say); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(paths[0]); err != nil || string(b) != "model" || len(paths) != 1 || len(q.fetched) != 1 {
		t.Errorf("%q, %v; %q, fetched %q", b, err, paths, q.fetched)
	}
	if _, err := s.FetchFile(t.Context(), task.File{Name: "m.bin", URL: "https://x/m.bin", Version: "v2"}, say); err != nil || len(q.fetched) != 2 {
		t.Errorf("%v: another version was not fetched", err)
	}
	for _, bad := range []string{"", ".", "..", "a/b", "a\n", ".lock", ".unpacked", ".unpacked.new", strings.Repeat("x", 300)} {
		if _, err := s.FetchFile(t.Context(), task.File{Name: bad, URL: "https://x"}, say); !errors.As(err, new(*DefectError)) {
			t.Errorf("%q: %v", bad, err)
		}
	}

	// An archive is unpacked once. What only has such a name is a file.
	for text, want := range map[string]bool{"plain": false, string(packed(t)): true} {
		q.file = []byte(text)
		f := task.File{Name: "data.tar.zst", URL: fmt.Sprintf("https://x/%d", len(text))}
		for range 2 {
			paths, err := s.FetchFile(t.Context(), f, say)
			if err != nil || len(paths) != 1 || (filepath.Base(paths[0]) != f.Name) != want {
				t.Errorf("%q, %v", paths, err)
			}
		}
	}
}

// packed is an empty archive with a directory.
func packed(t *testing.T) []byte {
	t.Helper()
	header := make([]byte, 512)
	copy(header, "train/")
	copy(header[100:], "0000755\x000000000\x000000000\x0000000000000\x0000000000000\x00        5")
	copy(header[257:], "ustar\x0000")
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(append(header, make([]byte, 1024)...), nil)
}

func TestPublish(t *testing.T) {
	q := &fake{artifacts: map[string]string{}}
	s := &Store{Queue: q, Processes: t.TempDir()}
	if err := s.Publish(t.Context(), "p1", "t1", say); err != nil {
		t.Errorf("a task without artifacts: %v", err)
	}
	dir := s.Artifacts("p1", "t1")
	for _, name := range []string{"a", "b/c", ".download-1"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(t.Context(), "p1", "t1", say); err != nil || len(q.artifacts) != 2 || q.artifacts["a"] != "a" || q.artifacts["b/c"] != "b/c" {
		t.Errorf("%v, %q", err, q.artifacts)
	}
	// One that can never be published is reported, and the others are not kept back.
	var told []string
	tell := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
	q.put = fmt.Errorf("%w: too large", queue.ErrBroken)
	if err := s.Publish(t.Context(), "p1", "t1", tell); err != nil || len(told) != 2 || !strings.Contains(told[0], "is not published") {
		t.Errorf("%v, %q", err, told)
	}
	q.put = queue.ErrNotMine
	if err := s.Publish(t.Context(), "p1", "t1", tell); !errors.Is(err, queue.ErrNotMine) {
		t.Error(err)
	}
	q.put = errors.New("no answer")
	if err := s.Publish(t.Context(), "p1", "t1", tell); err == nil || !strings.Contains(err.Error(), "artifacts of task t1") {
		t.Error(err)
	}
}

// Whatever a task makes of its artifacts, it ends: what cannot be published is reported, not too
// often, and what links lead to is not published.
func TestPublishWhatATaskHasMadeOfIt(t *testing.T) {
	q := &fake{artifacts: map[string]string{}}
	s := &Store{Queue: q, Processes: t.TempDir()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var told []string
	publish := func(process string) []string {
		told, q.artifacts = nil, map[string]string{}
		must(s.Publish(t.Context(), process, "t1", func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }))
		return slices.Sorted(maps.Keys(q.artifacts))
	}
	write := func(path string) {
		must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)))
	}

	// Names that are not UTF-8, pipes, and trees deeper than a path can be long.
	dir := s.Artifacts("p1", "t1")
	for _, name := range []string{"f\xe9", "d\xe9/f", "a\nb"} {
		write(filepath.Join(dir, name))
	}
	must(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(os.Symlink(dir, filepath.Join(dir, "loop")))
	root, err := os.OpenRoot(dir)
	must(err)
	deep := strings.Repeat(strings.Repeat("x", 250)+"/", 20)
	must(root.MkdirAll(strings.TrimSuffix(deep, "/"), 0o700))
	must(root.WriteFile(deep+"f", nil, 0o600))
	must(root.Close())
	if got, want := publish("p1"), []string{"a\nb", "d\xe9/f", "f\xe9", deep + "f"}; !slices.Equal(got, want) || len(told) > 0 {
		t.Errorf("%q, want %q; %q", got, want, told)
	}
	q.put = queue.ErrBroken
	for i := range 100 {
		write(filepath.Join(dir, "more", strconv.Itoa(i)))
	}
	publish("p1")
	q.put = nil
	if len(told) != maxRefused+1 || told[maxRefused] != "84 more are not published" {
		t.Errorf("%d: %q", len(told), told[len(told)-1])
	}

	// The directory itself is a link, a file, or cannot be read.
	outside := t.TempDir()
	write(filepath.Join(outside, "secret"))
	must(os.MkdirAll(filepath.Dir(s.Artifacts("p2", "t1")), 0o700))
	must(os.Symlink(outside, s.Artifacts("p2", "t1")))
	write(s.Artifacts("p3", "t1"))
	for _, process := range []string{"p2", "p3"} {
		if got := publish(process); len(got) > 0 || len(told) != 1 || !strings.HasPrefix(told[0], "the directory of the artifacts is not published: ") {
			t.Errorf("%q, %q", got, told)
		}
	}
	closed := filepath.Join(t.TempDir(), "closed")
	must(os.Mkdir(closed, 0))
	if os.Getuid() == 0 { // which reads everything
		runtime.LockOSThread()
		must(syscall.Setfsuid(65534))
		defer func() { must(syscall.Setfsuid(0)) }()
	}
	must(s.PublishFrom(t.Context(), closed, "t1", func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }))
	if len(q.artifacts) > 0 || len(told) != 2 || !strings.HasSuffix(told[1], "permission denied") {
		t.Errorf("%q, %q", q.artifacts, told)
	}
}

// With every number of files that the process may still open, either all artifacts are published, or
// the error says that it must be tried again: none is given up for a shortage of a moment.
func TestPublishWithoutFileDescriptors(t *testing.T) {
	q := &fake{}
	s := &Store{Queue: q, Processes: t.TempDir()}
	dir := s.Artifacts("p1", "t1")
	want := []string{"a", "b/c/d", "e"}
	for _, name := range want {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	short := 0
	for open := uint64(3); ; open++ {
		if open == 1000 {
			t.Fatal("it is never published")
		}
		var told []string
		q.artifacts = map[string]string{}
		err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: open, Max: limit.Max})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Publish(t.Context(), "p1", "t1", func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) })
		if restoreErr := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); restoreErr != nil {
			t.Fatal(restoreErr)
		}
		if got := slices.Sorted(maps.Keys(q.artifacts)); len(told) > 0 || err == nil && !slices.Equal(got, want) {
			t.Errorf("%d files: %q are published, %q, %v", open, got, told, err)
		}
		if err == nil {
			break
		}
		if short++; !errors.Is(err, syscall.EMFILE) {
			t.Errorf("%d files: %v", open, err)
		}
	}
	if short == 0 {
		t.Error("there were always enough")
	}
}

// What a file system says in trouble is retried. What is wrong with a file is not: it stays so.
func TestLasting(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.Symlink("/", "out"); err != nil {
		t.Fatal(err)
	}
	_, escapes := root.Open("out/etc")
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{syscall.ESTALE, false}, {syscall.EIO, false}, {syscall.EMFILE, false}, {syscall.ENFILE, false},
		{syscall.ENOMEM, false}, {syscall.ETIMEDOUT, false}, {syscall.ENOTCONN, false}, {syscall.EINTR, false},
		{syscall.EACCES, true}, {syscall.EPERM, true}, {syscall.ELOOP, true}, {syscall.ENXIO, true},
		{syscall.ENOTDIR, true}, {syscall.ENAMETOOLONG, true}, {escapes, true}, {errNotDirectory, true},
	} {
		if err := error(&os.PathError{Op: "openat", Path: "a", Err: tt.err}); Lasting(err) != tt.want {
			t.Errorf("%v: %v", tt.err, !tt.want)
		}
	}
}

func TestPruneKeepsFilesInUse(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	old := time.Now().Add(-48 * time.Hour)
	for _, name := range []string{"unused", "used", "locked"} {
		dir := filepath.Join(s.Dir, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "model"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := lock.Try(filesLock(dir))
		if err != nil {
			t.Fatal(err)
		}
		if name == "locked" {
			defer l.Close()
		} else if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if name != "used" {
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Prune(clock.Now().Add(-24*time.Hour), clock.Now().Add(-24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(s.Dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(s.Dir, "locked"), filepath.Join(s.Dir, "used")}; !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
}
