package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

func TestTidy(t *testing.T) {
	base := t.TempDir()
	const (
		done = `{"k":"begin","t":1}` + "\n" + `{"k":"stop","t":2,"counts":{"done":3,"failed":0,"left":0,"lost":0}}` + "\n"
		left = `{"k":"begin","t":1}` + "\n" + `{"k":"stop","t":2,"counts":{"done":3,"failed":0,"left":2,"lost":0}}` + "\n"
		bad  = `{"k":"stop","t":2,"counts":{"done":3,"failed":1,"left":0,"lost":0}}` + "\n"
		open = `{"k":"begin","t":1}` + "\n"
	)
	const day = 24 * time.Hour
	add := func(name, text string, age time.Duration, more ...string) {
		dir := filepath.Join(base, name)
		for _, d := range append(more, ".") {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if text == "" {
			return
		}
		file := filepath.Join(dir, File)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age) // of the file system
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	add("done-old", done, 31*day)
	add("done-output", done, 31*day, "logs/000")
	add("current", done, 31*day)
	add("left", left, 31*day)
	add("left-old", left, 181*day)
	add("failed", bad, 31*day)
	add("failed-old", bad, 181*day)
	add("killed", open, 31*day)
	add("killed-old", open, 181*day)
	add("other", "", 0)
	running, err := Create(filepath.Join(base, "running"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	for _, name := range []string{"running", "leased"} {
		add(name, open, 181*day)
	}
	if err := os.WriteFile(filepath.Join(base, "leased", leaseFile), fmt.Appendf(nil, "%d\n", clock.Now().Unix()+100), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range KeepRuns + 3 {
		add(fmt.Sprintf("many%02d", i), done, time.Duration(i)*time.Hour)
	}
	Tidy(base, "current")
	var got []string
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := []string{"current", "done-output", "failed", "killed", "leased", "left", "other", "running"}
	for i := range KeepRuns {
		want = append(want, fmt.Sprintf("many%02d", i))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("there are %q;\nwant %q", got, want)
	}
}
