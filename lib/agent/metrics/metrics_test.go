package metrics

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	long := strings.Repeat(`{"step":1,"pad":"`+strings.Repeat("x", 1000)+`"}`+"\n", 1100)
	for _, c := range []struct {
		name, object, lines string
		want                Values
		wrong               string // in the error
	}{
		{"none", "", "", Values{}, ""},
		{"numbers alone", `{"loss": 0.25, "step": 300, "note": "good", "ok": true, "list": [1], "none": null}`, "", Values{"loss": 0.25, "step": 300}, ""},
		{"objects within", `{"val": {"loss": 1, "top": {"5": 0.9}}}`, "", Values{"val.loss": 1, "val.top.5": 0.9}, ""},
		{"the last of each", "", `{"loss": 3, "lr": 0.1}` + "\n\n" + `{"loss": 2}` + "\n", Values{"loss": 2, "lr": 0.1}, ""},
		{"a line that is being written", "", `{"loss": 3}` + "\n" + `{"loss": 2}`, Values{"loss": 3}, ""},
		{"a broken line costs itself", "", `{"loss": 3}` + "\nepoch 2\n" + `{"acc": 2}` + "\n", Values{"loss": 3, "acc": 2}, "metrics.jsonl: line 2: not a JSON object"},
		{"both", `{"loss": 1, "params": 5}`, `{"loss": 3}` + "\n", Values{"loss": 3, "params": 5}, ""},
		{"as Python writes it", `{"a": Infinity, "b": -Infinity, "says": "NaN, \"NaN"}`, "", Values{"a": math.Inf(1), "b": math.Inf(-1)}, ""},
		{"broken", `{"loss": `, "", Values{}, "metrics.json: not a JSON object"},
		{"an array", `[1]`, "", Values{}, "not a JSON object"},
		{"the end of a long file", "", long + `{"loss": 7}` + "\n", Values{"loss": 7, "step": 1}, ""},
		{"too long", `{"pad": "` + strings.Repeat("x", maxSize) + `"}`, "", Values{}, "it has more than 1048576 bytes"},
		{"names for a table", `{"a\tb": 1, "": 2, "` + strings.Repeat("n", 65) + `": 3, "c d": 4}`, "", Values{"c d": 4}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"metrics.json": c.object, "metrics.jsonl": c.lines} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Read(filepath.Join(dir, "nowhere"), dir)
			if !maps.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("error %v, want %q", err, c.wrong)
			}
		})
	}
}

// What a task puts in the place of the file neither holds up its reader nor leads him elsewhere.
func TestInPlaceOfTheFile(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":      func(path string) error { return os.Symlink("/proc/self/status", path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, "metrics.json")); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(dir); len(got) != 0 || err == nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestNumbers(t *testing.T) {
	text, err := json.Marshal(Values{"a": 1e-7, "b": math.NaN(), "c": math.Inf(1)})
	if err != nil || string(text) != `{"a":1e-7,"b":null,"c":null}` {
		t.Errorf("%s, %v", text, err)
	}
	for value, want := range map[float64][2]string{
		0.123456789: {"0.123456789", "0.1235"}, 300: {"300", "300"}, 1234567: {"1234567", "1234567"}, 1e-7: {"1e-07", "1e-07"}, 2.5e15: {"2.5e+15", "2.5e+15"},
	} {
		if Exact(value) != want[0] || Short(value) != want[1] {
			t.Errorf("%v: %s, %s, want %s", value, Exact(value), Short(value), want)
		}
	}
}

func FuzzObject(f *testing.F) {
	for _, seed := range []string{`{"loss": 0.5, "val": {"acc": NaN}}`, `{"a": "\"NaN", "b": -Infinity}`, "{}\n{\"x\":1}", `{"a\n":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, parse := range []func([]byte, bool) (Values, error){parseObject, parseLines} {
			values, err := parse(text, true)
			if _, failed := json.Marshal(values); failed != nil {
				t.Errorf("%v: %v", values, failed)
			}
			for name := range values {
				if strings.ContainsAny(name, "\t\n\r") || name == "" {
					t.Errorf("the name %q, %v", name, err)
				}
			}
		}
	})
}
