package setup

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// What a directory may be called into which --init writes, and that nothing is left where it may not.
func TestInitialize(t *testing.T) {
	for name, ok := range map[string]bool{
		"plain": true, "with space": true, "#1: {é}": true, "'": true, "- x": true,
		"a\nb": false, `a"b`: false, `a\b`: false, "100%": false, "a\tb": false, "a\rb": false, "a\x01b": false, "a\u0085b": false,
		"a\u2028b": false, "a\xffb": false, "\ufeff": false,
	} {
		dir := filepath.Join(t.TempDir(), name)
		var stdout, stderr bytes.Buffer
		err := initialize(t.Context(), dir, "local", &stdout, &stderr)
		path := filepath.Join(dir, "ponos.yaml")
		if !ok {
			if _, there := os.Lstat(dir); !fault.Is(err, fault.Usage) || there == nil {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		c, loaded := assembly.Configuration(path)
		if err != nil || loaded != nil || c.DataDir != filepath.Join(dir, "data") || c.SpoolDir() != filepath.Join(dir, "spool") || c.PIDFile != filepath.Join(dir, "ponos.pid") {
			t.Errorf("%q: %v, %v: %s, %s, %s", name, err, loaded, c.DataDir, c.SpoolDir(), c.PIDFile)
		}
		if err := initialize(t.Context(), dir, "local", &stdout, &stderr); !fault.Is(err, fault.Usage) || !strings.Contains(fault.HintOf(err), "another directory") {
			t.Errorf("%q, again: %v", name, err)
		}
	}
}

// Every directory that --init accepts has a configuration that means it.
func FuzzInit(f *testing.F) {
	f.Add("/home/alice/ponos")
	f.Add("/tmp/a b/#1: {x}'é~\u200d")
	f.Fuzz(func(t *testing.T, dir string) {
		if dir = filepath.Clean("/" + dir); !plain(dir) {
			return
		}
		text, _, err := configuration(t.Context(), dir, "local", name, nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := assembly.ReadConfiguration(strings.NewReader(text), "x")
		if err != nil || c.DataDir != filepath.Join(dir, "data") || c.SpoolDir() != filepath.Join(dir, "spool") {
			t.Errorf("%q: %v: %q, %q", dir, err, c.DataDir, c.SpoolDir())
		}
	})
}

func TestAbsent(t *testing.T) {
	refusal := func(text string) error {
		return slurm.Refusal("scontrol", &command.ExitError{Name: "scontrol", Stderr: text})
	}
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{refusal("scontrol: error: fetch_config: DNS SRV lookup failed\nscontrol: fatal: Could not establish a configuration source"), true},
		{&slurm.Error{Command: "scontrol", Failure: slurm.NotInstalled}, true},
		{refusal("slurm_load_partitions: Unable to contact slurm controller"), false},
		{&slurm.Error{Command: "scontrol", Failure: slurm.NoAnswer}, false},
	} {
		if got := Absent(tt.err); got != tt.want {
			t.Errorf("%v: %t", tt.err, got)
		}
	}
}
