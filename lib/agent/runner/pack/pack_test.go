package pack

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func ticket(key string) Ticket {
	return Ticket{At: time.Unix(1790000000, 5), Key: key, CPUs: 2, Mem: 64 << 20, Limit: 5 * time.Minute, Attempt: 3, Task: "a-task"}
}

func TestTicketNames(t *testing.T) {
	want := ticket("k1")
	onGPUs := want
	onGPUs.GPUs = 2
	for _, want := range []Ticket{want, onGPUs} {
		if got, ok := parseTicket(want.name()); !ok || got != want {
			t.Errorf("%q: %+v, %v", want.name(), got, ok)
		}
	}
	if n, got, ok := parseTaken(taken(12, want.name())); !ok || n != 12 || got != want {
		t.Errorf("%d %+v %v", n, got, ok)
	}
	for _, bad := range []string{"", "x", ".renameio-TempFile1", "1.k.1.0.60.1", "1.k.0.0.60.1.t", "1.k.1.0.60.1.../x", "1..1.0.60.1.t", "1.k.1.0.60.-1.t", "1.k.1+0.0.60.1.t", "1.k.1+.0.60.1.t"} {
		if got, ok := parseTicket(bad); ok {
			t.Errorf("%q: %+v", bad, got)
		}
	}
	for job, want := range map[string]string{"pack.0a1b": "", "12.3": "12", "12_4.3": "12_4", "12": ""} {
		if got := PilotOf(job); got != want {
			t.Errorf("%q: pilot %q", job, got)
		}
	}
}

func FuzzTicket(f *testing.F) {
	f.Add("01790000000000000005.k1.2.67108864.300.3.a-task")
	f.Add("01790000000000000005.k1.2+1.67108864.300.3.a-task")
	f.Add("3~01790000000000000005.k1.2.0.300.1.t")
	f.Fuzz(func(t *testing.T, name string) {
		if got, ok := parseTicket(name); ok && (got.name() != name || filepath.Base(name) != name || got.CPUs < 1 || got.GPUs < 0 || got.Limit < 0) {
			t.Errorf("%q: %+v", name, got)
		}
		if n, _, ok := parseTaken(name); ok && n < 1 {
			t.Errorf("%q: number %d", name, n)
		}
	})
}

// A ticket goes from waiting to a pilot, and is cancelled in both places.
func TestTickets(t *testing.T) {
	state := t.TempDir()
	d := Dir{Path: filepath.Join(state, "packs"), Tasks: filepath.Join(state, "tasks")}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(d.Make("c1", Pilot{CPUs: 4}))
	must(d.Make("c1", Pilot{CPUs: 8}))
	if p, err := d.ReadPilot("c1"); err != nil || p.CPUs != 8 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, key := range []string{"k1", "k2"} {
		task := filepath.Join(state, key)
		must(os.Mkdir(task, 0o700))
		must(d.Put("c1", ticket(key), task, "ponos-x"))
		n, got, ok, err := ReadNote(task)
		if err != nil || !ok || n.Class != "c1" || n.Name != "ponos-x" || got != ticket(key) {
			t.Errorf("%+v %+v %v %v", n, got, ok, err)
		}
	}
	name := ticket("k2").name()
	must(os.Mkdir(filepath.Join(d.Class("c1"), takenDir, "7"), 0o700))
	path := filepath.Join(d.Class("c1"), takenDir, "7", taken(1, name))
	must(os.Rename(filepath.Join(d.Class("c1"), waitingDir, name), path))
	places, err := d.Places()
	if err != nil || len(places) != 2 || places["k1"].Taken || places["k2"].Pilot != "7" || places["k2"].Ticket != ticket("k2") {
		t.Errorf("%+v, %v", places, err)
	}
	if pilot, err := d.Holder(filepath.Join(state, "k2")); err != nil || pilot != "7" {
		t.Errorf("holder %q, %v", pilot, err)
	}
	for key, want := range map[string]bool{"k1": true, "k2": false} {
		if gone, err := d.Cancel(filepath.Join(state, key)); err != nil || gone != want || !Cancelled(filepath.Join(state, key), key) {
			t.Errorf("%s: gone %v, %v", key, gone, err)
		}
	}
	w := worker{dir: d.Class("c1"), id: "7"}
	if !w.cancelled(taken(1, name)) {
		t.Error("the pilot does not see that its ticket was cancelled")
	}
	must(places["k2"].Drop())
	must(places["k2"].Drop())
	if gone, err := d.Cancel(filepath.Join(state, "k2")); err != nil || !gone {
		t.Errorf("dropped: gone %v, %v", gone, err)
	}
	if left, err := d.Places(); err != nil || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
	// In the place of a state directory that is gone, nothing is made.
	if err := (Dir{Path: filepath.Join(state, "gone", "packs")}).Make("c1", Pilot{}); err == nil {
		t.Error("a state directory was made")
	}
}

// A class is removed once nothing of it was used for a long time, unless tickets or pilots are in it,
// or tasks are being started.
func TestRemove(t *testing.T) {
	const unused = 60 * 24 * time.Hour
	old := time.Now().Add(-unused - time.Hour)
	for name, tt := range map[string]struct {
		add  string // a path in the class
		used string // a path that was used an hour ago
		use  bool
		gone bool
	}{
		"unused":                        {gone: true},
		"with a pending ticket":         {add: "waiting/" + ticket("k1").name()},
		"with a ticket that is taken":   {add: "taken/7"},
		"a ticket was withdrawn":        {used: "waiting"},
		"a pilot has ended":             {used: "taken"},
		"a pilot was submitted":         {used: "submitted"},
		"a pilot has recorded its runs": {used: "runs"},
		"while a task is started":       {use: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := Dir{Path: filepath.Join(t.TempDir(), "packs")}
			if err := d.Make("c1", Pilot{CPUs: 4}); err != nil {
				t.Fatal(err)
			}
			dir := d.Class("c1")
			write := func(path string) {
				path = filepath.Join(dir, path)
				if err := errors.Join(mkdir(filepath.Dir(path)), os.WriteFile(path, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			write("runs/7")
			write("submitted")
			write("pilots.out")
			if tt.add != "" {
				write(tt.add)
			}
			for _, name := range []string{"waiting", "taken", "submitted", "runs"} {
				at := old
				if name == tt.used {
					at = time.Now().Add(-time.Hour)
				}
				if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
					t.Fatal(err)
				}
			}
			if tt.use {
				use, err := d.Use()
				if err != nil {
					t.Fatal(err)
				}
				defer use.Close()
			}
			gone, err := d.Remove("c1", unused)
			_, stat := os.Stat(dir)
			if err != nil || gone != tt.gone || os.IsNotExist(stat) != tt.gone {
				t.Errorf("removed %v, %v; %v", gone, err, stat)
			}
			if gone, err := d.Remove("c1", unused); tt.gone && (err != nil || !gone) {
				t.Errorf("again: %v, %v", gone, err)
			}
		})
	}
}
