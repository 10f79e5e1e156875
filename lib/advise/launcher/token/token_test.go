package token

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
)

func want(id string, count, total int) Want {
	return Want{Token: file.Token{ID: id, Count: count}, Total: total}
}

func held(t *testing.T, files []*os.File, err error) []*os.File {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestTake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tokens")
	ctx := context.Background()
	take := func(n int) ([]*os.File, error) { return Take(ctx, dir, []Want{want("gpu", n, 5)}, false) }
	two, err := take(2)
	held(t, two, err)
	one, err := take(1)
	held(t, one, err)
	if _, err := take(3); !errors.Is(err, ErrTaken) {
		t.Fatalf("3 of the 2 left: %v; want ErrTaken", err)
	}
	if _, err := take(6); err == nil || errors.Is(err, ErrTaken) {
		t.Fatalf("6 of 5: %v; want the total 5", err)
	}
	// The first two are free again, between those that are held or free.
	two[0].Close()
	more, err := take(4)
	held(t, more, err)
	if _, err := take(1); !errors.Is(err, ErrTaken) {
		t.Fatalf("none is left: %v", err)
	}
}

func TestTakeAllOrNone(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	a := held(t, must(Take(ctx, dir, []Want{want("a", 1, 1)}, false)), nil)
	if _, err := Take(ctx, dir, []Want{want("b", 1, 1), want("a", 1, 1)}, false); !errors.Is(err, ErrTaken) {
		t.Fatalf("%v; want ErrTaken", err)
	}
	held(t, must(Take(ctx, dir, []Want{want("b", 1, 1)}, false)), nil)
	a[0].Close()
}

func must(files []*os.File, err error) []*os.File {
	if err != nil {
		panic(err)
	}
	return files
}

func TestWait(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	first := held(t, must(Take(ctx, dir, []Want{want("a", 2, 2)}, true)), nil)
	done := make(chan error, 1)
	go func() {
		files, err := Take(ctx, dir, []Want{want("a", 1, 2)}, true)
		for _, f := range files {
			f.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(3 * again):
	}
	first[0].Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, again)
	defer cancel()
	second := held(t, must(Take(ctx, dir, []Want{want("a", 2, 2)}, true)), nil)
	if _, err := Take(short, dir, []Want{want("a", 1, 2)}, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v; want that the context ended", err)
	}
	second[0].Close()
}

// TestNeverMore checks that the tokens taken never exceed the total.
func TestNeverMore(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	taken, most := 0, 0
	var wait sync.WaitGroup
	for i := range 12 {
		n := 1 + i%3
		wait.Go(func() {
			files, err := Take(context.Background(), dir, []Want{want("a", n, 4)}, true)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			taken += n
			most = max(most, taken)
			mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			mu.Lock()
			taken -= n
			mu.Unlock()
			files[0].Close()
		})
	}
	wait.Wait()
	if most > 4 || most < 2 {
		t.Errorf("%d of 4 tokens were taken at once", most)
	}
}

// TestKilledHolder checks that the kernel releases the tokens of a killed process.
func TestKilledHolder(t *testing.T) {
	dir := t.TempDir()
	files := held(t, must(Take(context.Background(), dir, []Want{want("a", 1, 1)}, true)), nil)
	holder := exec.Command("sleep", "60")
	holder.ExtraFiles = files
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	files[0].Close()
	if _, err := Take(context.Background(), dir, []Want{want("a", 1, 1)}, false); !errors.Is(err, ErrTaken) {
		t.Fatalf("%v; want that the process holds it", err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	held(t, must(Take(context.Background(), dir, []Want{want("a", 1, 1)}, false)), nil)
}

func TestDirectoryOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(context.Background(), link, []Want{want("a", 1, 1)}, false); err == nil {
		t.Error("a link somebody could have put there is not refused")
	}
}
