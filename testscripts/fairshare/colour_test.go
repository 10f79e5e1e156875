package fairshare

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestColours: on a terminal only, and never where they are not wanted.
func TestColours(t *testing.T) {
	for _, c := range []struct {
		name     string
		terminal bool
		env      []string
		want     bool
	}{
		{"terminal", true, nil, true},
		{"pipe", false, nil, false},
		{"NO_COLOR", true, []string{"NO_COLOR=1"}, false},
		{"empty NO_COLOR", true, []string{"NO_COLOR="}, true},
		{"dumb terminal", true, []string{"TERM=dumb"}, false},
		{"forced", false, []string{"FORCE_COLOR=1"}, true},
		{"forced and refused", true, []string{"FORCE_COLOR=1", "NO_COLOR=1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "fairshare", "holes")
			cmd.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=", "FORCE_COLOR=", "TZ=UTC", "LC_ALL=C.UTF-8",
				"RECORDED="+filepath.Join(harness.Root(), "lib/slurm/testdata/22.05.8/queue"),
				"COMMON="+filepath.Join(harness.Root(), "testscripts/fairshare/answers"), "ASKED="+filepath.Join(t.TempDir(), "asked"))
			cmd.Env = append(cmd.Env, c.env...)
			var out bytes.Buffer
			if !c.terminal {
				cmd.Stdout = &out
				if err := cmd.Run(); err != nil {
					t.Fatal(err)
				}
			} else {
				f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				timeout := time.AfterFunc(harness.Patience, func() { _ = cmd.Process.Kill() })
				defer timeout.Stop()
				_, _ = out.ReadFrom(f) // ends with an error when the other side is closed
				if err := cmd.Wait(); err != nil {
					t.Fatalf("%v: %s", err, &out)
				}
			}
			if !bytes.Contains(out.Bytes(), []byte("cpu")) {
				t.Fatalf("printed %q", &out)
			}
			if got := bytes.Contains(out.Bytes(), []byte("\x1b[")); got != c.want {
				t.Errorf("colours: %v, want %v: %q", got, c.want, &out)
			}
		})
	}
}
