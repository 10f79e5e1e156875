package entry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// A container that is started again has the program, whether it is served or not. Without it, what the loader says of the
// command stays true: it is written down before it is told.
func TestLoader(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "curl", "sha256sum", "dash", "bash")
	const program = "#!/bin/sh\n[ \"$1\" = try ] || echo it is there\n"
	sum := sha256.Sum256([]byte(program))
	var served, begun atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet && strings.HasPrefix(q.URL.Path, "/api/v0/instances/7/") && begun.Load() {
			fmt.Fprint(w, `{"instances": {"label": "L:end=begun"}}`)
			return
		}
		if !served.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, program)
	}))
	defer web.Close()
	tools := t.TempDir()
	for _, name := range []string{"sleep", "wget", "python3"} {
		executable.Write(t, filepath.Join(tools, name), "#!/bin/sh\n[ ${0##*/} = sleep ]\n")
	}
	for _, shell := range []string{"dash", "bash --posix"} {
		dir := t.TempDir()
		load := func(to string) string {
			argv := append(strings.Fields(shell), "-c", Loader)
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Env = []string{
				"PATH=" + tools + ":" + os.Getenv("PATH"), "TMPDIR=" + to, "VAST_URL=" + web.URL, "CONTAINER_ID=7", "CONTAINER_API_KEY=hush",
				NonceEnv + "=n1", URLEnv + "=" + web.URL + "/entry", SumsEnv + "=x " + hex.EncodeToString(sum[:]), LabelEnv + "=L", GraceEnv + "=1",
			}
			out, _ := cmd.Output()
			return strings.TrimSpace(string(out))
		}
		record := filepath.Join(dir, ".ponos-n1")
		write := func(text string) {
			if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		served.Store(false)
		if said, b := load(dir), read(record); said != "PONOS-EXIT n1 unarmed" || b != "unarmed\n" {
			t.Errorf("%s: %q, and %q is recorded", shell, said, b)
		}
		for text, want := range map[string]string{"": "lost", "7\n": "7", "unarmed\n": "unarmed"} {
			write(text)
			if said, b := load(dir), read(record); said != "PONOS-EXIT n1 "+want || b != text {
				t.Errorf("%s: %q is recorded, and %q told; then %q", shell, text, said, b)
			}
		}
		begun.Store(true)
		if said := load(t.TempDir()); said != "PONOS-EXIT n1 lost" {
			t.Errorf("%s: the label has the beginning: %q", shell, said)
		}
		begun.Store(false)
		if said := load(filepath.Join(dir, "none")); said != "PONOS-EXIT n1 nowhere" {
			t.Errorf("%s: no directory: %q", shell, said)
		}
		served.Store(true)
		for range 2 {
			if said := load(dir); said != "it is there" {
				t.Errorf("%s: %q", shell, said)
			}
			served.Store(false)
		}
	}
}

func read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}
