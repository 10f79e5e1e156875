package record

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestParseRun(t *testing.T) {
	for text, want := range map[string]Run{
		"":                               {},
		"\nbegun n1 7 99;\n":             {Begun: true},
		"\nbegun n1 7 9":                 {Begun: true}, // cut off
		"\nbegun n1 7 99;\n\nended 3;\n": {Begun: true, Ended: true, Code: 3, Closed: true},
		"\nbegun n1 7 99;\n\ncut 143;\n": {Begun: true, Cut: true, Code: 143, Closed: true},
		// A full disk has cut a line off, which was tried again.
		"\nbegun n1 7 99;\n\nende\nended 0;\n": {Begun: true, Ended: true, Closed: true},
		"\nbegun n1 7 99;\n\nended 1":          {Begun: true},
		"\nbegun n1 7 99;\n\nended 256;\n":     {Begun: true},
		"\nbegun n1 7 99;\n\nended -1;\n":      {Begun: true},
		// Asked to end, and begun again under the same restart count.
		"\ncut 143;\n\nbegun n2 8 1;\n": {Begun: true, Code: 143},
		// The script was killed right after the command's end.
		"\nbegun n1 7 99;\n\nexited 3;\n":                 {Begun: true, Ended: true, Code: 3},
		"\nbegun n1 7 99;\n\nexited 143;\n":               {Begun: true, Cut: true, Code: 143},
		"\nbegun n1 7 99;\n\nexited 1;\n\ncut 1;\n":       {Begun: true, Cut: true, Code: 1, Closed: true},
		"\nbegun n1 7 99;\n\nexited 143;\n\nended 143;":   {Begun: true, Cut: true, Code: 143},
		"\nbegun n1 7 99;\n\nexited 14":                   {Begun: true},
		"\nbegun node1 7\nbegun node1 7 1;\n":             {Begun: true},
		"\nbegun n 7 1;\n\nended 1\nended 143;\n":         {Begun: true, Ended: true, Code: 143, Closed: true},
		"\nended 1000;\n":                                 {},
		"\nbegun n 7 1;\n\nended 0;\n\nused 1500 4096;\n": {Begun: true, Ended: true, Closed: true, Used: Used{1500 * time.Microsecond, 4096}},
		"\nbegun n 7 1;\n\nused 1500 -1;\n\ncut 1;\n":     {Begun: true, Cut: true, Closed: true, Code: 1, Used: Used{CPU: 1500 * time.Microsecond}},
		"\nbegun n 7 1;\n\nused 99999999999999999 x;\n":   {Begun: true},
		"\nbegun n 7 1;\n\nused 15":                       {Begun: true},
		"\nnonsense 4;\n":                                 {},
	} {
		if got := ParseRun([]byte(text)); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func FuzzParseBegun(f *testing.F) {
	for _, seed := range []string{"begun n1 12 345;\n", "begun n1;\nbegun n2 7 8;\nended 0;\n", "begun", "begun n1 x -1;\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, begun := range parseBegun(b, 3) {
			if begun.Host == "" || begun.Restart != 3 || begun.PID != 0 && !bytes.Contains(b, []byte(begun.Host)) {
				t.Errorf("%q: %+v", b, begun)
			}
		}
	})
}

func FuzzParseRun(f *testing.F) {
	f.Add([]byte("\nbegun n1 7 99;\n\nended 3;\n"))
	f.Add([]byte("\nbegun n1 7 99;\n\ncut 143;\n\nbegun n2 8 1;\n"))
	f.Add([]byte("ended 00000000000000000000001;\nended +1;\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := ParseRun(b)
		if r.Code < 0 || r.Code > 255 || r.Ended && r.Cut || r.Over() && !r.Begun || r.Used.CPU < 0 || r.Used.Memory < 0 {
			t.Errorf("%q: %+v", b, r)
		}
	})
}

// The start in which the command has ended by itself counts, else the last one.
func TestReadRun(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  Run
	}{
		{"none", nil, Run{}},
		{"of another job", map[string]string{"run.71.0": "begun a 1 2;\n", "run.7": "begun a 1 2;\n", "run.7.x": "begun a 1 2;\n"}, Run{}},
		{"the last", map[string]string{"run.7.0": "cut 143;\n", "run.7.1": "begun a 1 2;\n"}, Run{Restart: 1, Begun: true}},
		{"ten comes after nine", map[string]string{"run.7.9": "cut 1;\n", "run.7.10": "cut 2;\n"}, Run{Restart: 10, Begun: true, Cut: true, Closed: true, Code: 2}},
		{"the one that ended", map[string]string{"run.7.0": "ended 0;\n", "run.7.1": "begun a 1 2;\n"}, Run{Begun: true, Ended: true, Closed: true}},
	} {
		dir := t.TempDir()
		for name, text := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := ReadRun(dir, "7"); err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
	if _, err := ReadRun(filepath.Join(t.TempDir(), "gone"), "7"); err == nil {
		t.Error("a directory that is not there has no run")
	}
}
