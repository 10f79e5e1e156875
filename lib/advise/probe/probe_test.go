package probe

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
)

const date = "date 2026-11-26T05:00:00Z\n"

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []Device
		installed  []string
		disk       int64
	}{
		{"all fields", "nvidia NVIDIA L4, 23034, Disabled, 8.9\ndisk 100\n", []Device{{gpu.NVIDIA, "NVIDIA L4", "", 23034 << 20, 89}}, nil, 100 << 20},
		{"an old driver", "nvidia Tesla K80, 11441\ninstalled Tesla K80\n", []Device{{gpu.NVIDIA, "Tesla K80", "", 11441 << 20, 0}}, []string{"Tesla K80"}, 0},
		{
			"slices beside a whole GPU", "nvidia A, 40960, Enabled, 8.0\nnvidia B, 24576, Disabled, 8.6\nof A\nslice 1g.5gb\nslice 2g.10gb\n",
			[]Device{{gpu.NVIDIA, "A", "1g.5gb", 0, 0}, {gpu.NVIDIA, "A", "2g.10gb", 0, 0}, {gpu.NVIDIA, "B", "", 24576 << 20, 86}}, nil, 0,
		},
		{"slices of an old driver", "nvidia A, 40960\nof A\nslice 1g.5gb\n", []Device{{gpu.NVIDIA, "A", "1g.5gb", 0, 0}}, nil, 0},
		{"a long line", "amd X, N/A\n" + strings.Repeat("x", 70<<10), []Device{{gpu.AMD, "X", "", 0, 0}}, nil, 0},
		{"no memory", "amd X, N/A\nintel Y, 1024\nwhat is this\n", []Device{{gpu.AMD, "X", "", 0, 0}, {gpu.Intel, "Y", "", 1 << 30, 0}}, nil, 0},
	} {
		f, err := Parse(strings.NewReader(date + c.text))
		if err != nil || !reflect.DeepEqual(f.Devices, c.want) || !reflect.DeepEqual(f.Installed, c.installed) || f.Disk != c.disk {
			t.Errorf("%s: %+v, %v", c.name, f, err)
		}
	}
	for _, text := range []string{"", "nvidia A, 1\n", date, "date yesterday\nnvidia A, 1\n", date + "nvidia , , , \n"} {
		if f, err := Parse(strings.NewReader(text)); err == nil {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(date + "nvidia A, 40960, Enabled, 8.0\nof A\nslice 1g.5gb\ninstalled A\ndisk 9\n")
	f.Fuzz(func(t *testing.T, text string) {
		facts, err := Parse(strings.NewReader(text))
		if err == nil && (facts.Time.IsZero() || facts.Disk < 0 || !facts.Like(&facts)) {
			t.Errorf("%+v", facts)
		}
	})
}

// The newest facts of a node count, and those of other clusters, of other users and of no file do not.
func TestLoad(t *testing.T) {
	user, site := t.TempDir(), t.TempDir()
	write := func(dir, name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(user, "n1@c", date+"nvidia old, 1024\n", 0o644)
	write(site, "n1@c", "date 2026-11-27T05:00:00Z\nnvidia new, 1024\n", 0o644)
	write(user, "n1@other", date+"nvidia other, 1024\n", 0o644)
	write(user, ".n3@c.123", date+"nvidia part, 1024\n", 0o644)
	write(site, "n2@c", date+"nvidia forged, 1024\n", 0o666)
	if err := os.Symlink(filepath.Join(user, "n1@c"), filepath.Join(user, "n4@c")); err != nil {
		t.Fatal(err)
	}
	facts, problems := Load([]string{user, site, filepath.Join(user, "none")}, "c")
	if len(facts) != 1 || facts["n1"].Devices[0].Name != "new" || facts["n1"].Node != "n1" || len(problems) != 2 {
		t.Errorf("%+v, %q", facts, problems)
	}
	if at := Recorded(user, "n1", "c"); !at.Equal(time.Date(2026, 11, 26, 5, 0, 0, 0, time.UTC)) {
		t.Error(at)
	}
	if at := Recorded(user, "n9", "c"); !at.IsZero() {
		t.Error(at)
	}
}

// TestOlder holds that facts of no time, and of a time that is still to come, do not count as fresh for ever.
func TestOlder(t *testing.T) {
	now := time.Date(2026, 11, 26, 5, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]bool{
		{}: true, now.Add(-Fresh - 1): true, now.Add(-Fresh): false, now: false, now.Add(time.Hour): false, now.Add(Fresh): true,
	} {
		if Older(at, now, Fresh) != want {
			t.Errorf("%v", at)
		}
	}
}
