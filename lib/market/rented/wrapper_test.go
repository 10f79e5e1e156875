package rented

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func lines(s string) [][]byte { return slices.Collect(bytes.Lines([]byte(s))) }

func TestMerge(t *testing.T) {
	for _, c := range []struct {
		known, shown, want string
		joined             bool
	}{
		{"", "a\nb\n", "a\nb\n", false},
		{"a\nb\n", "a\nb\nc\n", "c\n", true},
		{"a\nb\nc\n", "b\nc\nd\n", "d\n", true},
		{"a\nb\nc\n", "a\nb\n", "", true}, // an older snapshot
		{"a\nb\nc\n", "a\nb\nc\n", "", true},
		{"a\nlong line\nc\n", "ne\nc\nd\n", "d\n", true}, // its first line is cut
		{"a\nb\n", "x\ny\n", "x\ny\n", false},
		{"x\na\nb\na\n", "a\nb\na\nb\na\nc\n", "b\na\nc\n", true},
		{"a\na\na\n", "a\na\nb\n", "b\n", true},
		{"a\n", "", "", true},
	} {
		more, joined := merge(lines(c.known), lines(c.shown))
		if got := string(bytes.Join(more, nil)); got != c.want || joined != c.joined {
			t.Errorf("merge(%q, %q) = %q, %v; want %q", c.known, c.shown, got, joined, c.want)
		}
	}
}

func TestSplit(t *testing.T) {
	text := "one\nPONOS-EXIT other 0\n\nPONOS-EXIT n1 3\n"
	got, said := split([]byte(text), "n1")
	if string(bytes.Join(got, nil)) != "one\nPONOS-EXIT other 0\n" || said == nil || said.Code != 3 {
		t.Errorf("%q, %+v", got, said)
	}
	if _, said := split([]byte("PONOS-EXIT n1 lost\n"), "n1"); said == nil || !strings.Contains(said.Reason, "restarted in the middle") {
		t.Errorf("%+v", said)
	}
	for _, bad := range []string{"PONOS-EXIT n1 999\n", "PONOS-EXIT n1 \n", "x PONOS-EXIT n1 0\n", "PONOS-EXIT  0\n"} {
		if _, said := split([]byte(bad), "n1"); said != nil {
			t.Errorf("%q: %+v", bad, said)
		}
	}
}

func TestWrapperLeavesRoomForACommand(t *testing.T) {
	if len(wrapper) > vastai.MaxArgs-1500 {
		t.Errorf("the wrapper has %d bytes of %d", len(wrapper), vastai.MaxArgs)
	}
}

func TestParseLabel(t *testing.T) {
	r := &Runner{Agent: "a1"}
	for _, number := range []int{1, 2, 13} {
		for _, end := range []string{"", "0", "255", "late", "lost", "nowhere", "unarmed", "unloaded"} {
			label := r.label("t-1", 4, number)
			if end != "" {
				label += endMark + end
			}
			if l, ok := ParseLabel(label); !ok || l != (Label{"a1", "t-1", 4, number, end}) {
				t.Errorf("%s: %+v, %v", label, l, ok)
			}
			if i := (vastai.Instance{Label: label}); !bears(i, r.label("t-1", 4, number)) || bears(i, r.label("t-1", 4, number+1)) {
				t.Errorf("%s: whose is it?", label)
			}
		}
	}
	for _, bad := range []string{"", "x", "ponos:a:b", "ponos::t:1", "ponos:a:../x:1", "ponos:a:t:0", "ponos:a:t:1.0", "ponos:a:t:1:2", "other:a:t:1", "ponos:a:t:1:end=", "ponos:a:t:1:end=256", "ponos:a:t:1:end=-1", "ponos:a:t:1:end=07", "ponos:a:t:1:end=0:end=0", ":end=0"} {
		if _, ok := ParseLabel(bad); ok {
			t.Errorf("%q is no label", bad)
		}
	}
}

func contains(all, part [][]byte) bool { _, whole := overlap(all, part); return whole }

func FuzzMerge(f *testing.F) {
	f.Add("a\nb\n", "b\nc\n")
	f.Fuzz(func(t *testing.T, known, shown string) {
		k, s := lines(known), lines(shown)
		more, joined := merge(k, s)
		if len(s) > 0 && len(k) > 0 && !strings.HasSuffix(string(bytes.Join(append(slices.Clone(k), more...), nil)), string(s[len(s)-1])) && !contains(k, s[min(1, len(s)):]) && !contains(k, s) {
			t.Errorf("%q and %q: %q", known, shown, more)
		}
		if again, _ := merge(append(slices.Clone(k), more...), s); joined && len(more) > 0 && len(again) > 0 && contains(append(slices.Clone(k), more...), s) {
			t.Errorf("read twice, %q is added", again)
		}
	})
}

// A container that could not write its label for a grace tries again before it destroys the
// instance: the log goes with it.
func TestLastWord(t *testing.T) {
	needs.OneOf(t, "curl", "python3")
	var mu sync.Mutex
	var asked []string
	stops, over := 0, make(chan struct{})
	market := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(string(b), "stopped") {
			stops++
		}
		switch {
		case q.Method == http.MethodGet:
		case stops < 3 || strings.Contains(string(b), "stopped"):
			w.WriteHeader(http.StatusBadGateway)
		default:
			if asked = append(asked, q.Method+" "+string(b)); len(asked) == 2 {
				close(over)
			}
		}
	}))
	defer market.Close()
	dir := t.TempDir()
	sleep := "#!/bin/sh\ncase $1 in 60) exec /bin/sleep 60; esac\nexec /bin/sleep 0.05\n"
	executable.Write(t, filepath.Join(dir, "sleep"), sleep)
	c := exec.CommandContext(t.Context(), "/bin/sh", arguments([]string{"sh", "-c", "exit 3"})...)
	c.Env = append(c.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TMPDIR="+dir, "VAST_URL="+market.URL, "no_proxy=*", "CONTAINER_ID=7", "CONTAINER_API_KEY=k",
		nonceEnv+"=n1", labelEnv+"=L", graceEnv+"=5", limitEnv+"=60", endEnv+"=destroy")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-over:
	case <-time.After(5 * time.Minute):
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(asked) < 2 || asked[0] != `PUT {"label":"L:end=3"}` || asked[1] != "DELETE {}" {
		t.Errorf("%q", asked)
	}
}

// The market, or who answers in its place, sends each request elsewhere: the key of the instance stays. Nor do modules of the
// directory in which the task runs see the key.
func TestKeyStays(t *testing.T) {
	for _, program := range []string{"curl", "python3"} {
		t.Run(program, func(t *testing.T) {
			path, err := exec.LookPath(program)
			if program == "python3" && err == nil { // and not what chooses one of several
				var out []byte
				out, err = exec.Command(path, "-I", "-c", "import sys; print(sys.executable)").Output()
				path = strings.TrimSpace(string(out))
			}
			if err != nil {
				needs.Missing(t, program)
			}
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				t.Errorf("another host gets %s with %q", q.Method, q.Header.Get("Authorization"))
			}))
			defer other.Close()
			var mu sync.Mutex
			asked, told := map[string]bool{}, make(chan struct{})
			market := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				asked[q.Method] = asked[q.Method] || q.Header.Get("Authorization") == "Bearer k"
				if q.Method == http.MethodDelete && told != nil {
					close(told)
					told = nil
				}
				status := map[string]int{http.MethodGet: http.StatusFound, http.MethodPut: http.StatusTemporaryRedirect}[q.Method]
				http.Redirect(w, q, other.URL+q.URL.Path, cmp.Or(status, http.StatusPermanentRedirect))
			}))
			defer market.Close()
			dir, over := t.TempDir(), told
			executable.Write(t, filepath.Join(dir, "sleep"), "#!/bin/sh\ncase $1 in 60) exec /bin/sleep 60; esac\nexec /bin/sleep 0.05\n")
			executable.Write(t, filepath.Join(dir, program), "#!/bin/sh\nexec "+path+" \"$@\"\n")
			if err := os.Symlink("/bin/cat", filepath.Join(dir, "cat")); err != nil {
				t.Fatal(err)
			}
			here := t.TempDir()
			for _, module := range []string{"os.py", "types.py", "urllib.py", "sitecustomize.py"} {
				if err := os.WriteFile(filepath.Join(here, module), []byte("open('stolen', 'w').write('x')\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := exec.CommandContext(t.Context(), "/bin/sh", arguments([]string{"/bin/sh", "-c", "exit 3"})...)
			c.Dir = here
			c.Env = []string{
				"PATH=" + dir, "TMPDIR=" + dir, "VAST_URL=" + market.URL, "no_proxy=*", "CONTAINER_ID=7", "CONTAINER_API_KEY=k", "PYTHONPATH=" + here,
				nonceEnv + "=n1", labelEnv + "=L", graceEnv + "=5", limitEnv + "=60", endEnv + "=destroy",
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-over:
			case <-time.After(5 * time.Minute):
			}
			_ = c.Process.Kill()
			_ = c.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !asked[http.MethodGet] || !asked[http.MethodPut] || !asked[http.MethodDelete] {
				t.Errorf("asked with the key: %v", asked)
			}
			if _, err := os.Stat(filepath.Join(here, "stolen")); err == nil {
				t.Error("a module of the task's directory ran")
			}
		})
	}
}
