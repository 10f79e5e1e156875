package entry

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/executable"
)

// TestMain is the program itself in a container.
func TestMain(m *testing.M) {
	if os.Getenv(NonceEnv) != "" || len(os.Args) == 3 && os.Args[1] == "run" {
		os.Exit(Main(os.Args, os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// container is one, and the market that its program asks.
type container struct {
	*testing.T
	job   Job
	key   string // of the instance: no other container of this machine has it
	dir   string
	env   []string
	mu    sync.Mutex
	asked []string
	row   string                // what the market says of the instance; "": nothing
	fails func(ask string) bool // requests that are not answered
	log   bytes.Buffer
}

func newContainer(t *testing.T, command ...string) *container {
	t.Parallel()
	c := &container{T: t, key: rand.Text(), dir: t.TempDir(), row: `{"instances":{"label":"L","intended_status":"running"}}`, fails: func(string) bool { return false }}
	c.job = Job{Command: command, Label: "L", Runtime: time.Hour, Patience: time.Minute, Grace: time.Second, Interval: time.Hour}
	return c
}

func (c *container) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

// live runs the program until the instance is destroyed, and returns the log, without its end, and the end.
func (c *container) live() (log []byte, end string) {
	c.Helper()
	gone := make(chan struct{})
	var once sync.Once
	market := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		ask := q.Method + " " + string(b)
		c.mu.Lock()
		defer c.mu.Unlock()
		if q.Header.Get("Authorization") != "Bearer "+c.key || c.fails(ask) {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		c.asked = append(c.asked, ask)
		if fmt.Fprint(w, c.row); q.Method == http.MethodDelete {
			once.Do(func() { close(gone) })
		}
	}))
	defer market.Close()
	packed, err := c.job.Pack()
	if err != nil {
		c.Fatal(err)
	}
	cmd := exec.CommandContext(c.Context(), os.Args[0])
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + c.dir, "HOME=" + c.dir, "VAST_URL=" + market.URL, "CONTAINER_ID=7", "CONTAINER_API_KEY=" + c.key, "GPU_COUNT=1",
		NonceEnv + "=n1", URLEnv + "=u", SumsEnv + "=s", GraceEnv + "=1", "PONOS_TASK=t1",
	}, c.env...)
	for name, value := range packed {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdout, cmd.Stderr = c, c
	if os.Geteuid() == 0 { // so that it has no more rights than another user
		if err := os.Chmod(c.dir, 0o777); err != nil {
			c.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		self := filepath.Join(c.dir, "program")
		if out, err := exec.CommandContext(c.Context(), "cp", os.Args[0], self).CombinedOutput(); err != nil {
			c.Fatalf("%v: %s", err, out)
		}
		for dir := c.dir; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
			_ = os.Chmod(dir, 0o777)
		}
		cmd.Path, cmd.Args[0] = self, self
	}
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	select {
	case <-gone:
	case <-time.After(3 * time.Minute):
		c.Error("it does not end")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.log.Bytes()
	at := bytes.LastIndex(text, []byte(Marker+" n1 "))
	if at < 0 {
		c.Fatalf("no end: %q", text)
	}
	return text[:at], strings.TrimSpace(strings.TrimPrefix(string(text[at:]), Marker+" n1 "))
}

func (c *container) has(ask string) bool { return slices.Contains(c.asked, ask) }

// The command runs with what the task was given, and its end is told.
func TestRun(t *testing.T) {
	c := newContainer(t, "sh", "-c", `echo "$LONG" | wc -c; echo $SHORT; env | grep -c "^PONOS_[NEJG]\|CONTAINER"; printf half; exit 3`)
	c.job.Env = map[string]string{"LONG": strings.Repeat("parent ", 10_000)}
	c.env = []string{"SHORT=s"}
	log, end := c.live()
	if out := output(t, log); string(out) != "70001\ns\n0\nhalf" || end != "3 14" {
		t.Errorf("%q, %s", out, end)
	}
	if !c.has(`PUT {"label":"L:end=3"}`) || c.has(`PUT {"state":"stopped"}`) || c.asked[0] != "GET " || c.asked[1] != `PUT {"label":"L:end=begun"}` {
		t.Errorf("%q", c.asked)
	}
}

// Nothing that the task may read shows the key of the instance.
func TestKeyIsHidden(t *testing.T) {
	c := newContainer(t)
	c.job.Command = []string{"sh", "-c", `cat /proc/[0-9]*/environ 2>/dev/null | grep -c "$0"; cat /proc/$PPID/mem 2>&1 | tail -c 18; ls /proc/$PPID/fd 2>/dev/null | wc -l; cat ~/.vast_api_key 2>&1 | grep -c "$0"`, c.key}
	if err := os.WriteFile(filepath.Join(c.dir, ".vast_api_key"), []byte(c.key+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	log, _ := c.live()
	if out := string(output(t, log)); out != "0\nPermission denied\n0\n0\n" {
		t.Errorf("%q", out)
	}
}

// What speaks against the command keeps it from beginning.
func TestNeverBegun(t *testing.T) {
	for name, n := range map[string]struct {
		change  func(*container)
		end     string
		destroy bool // at once
	}{
		"gone":          {func(c *container) { c.row = `{"instances":null}` }, Unwanted, true},
		"stopped":       {func(c *container) { c.row = `{"instances":{"label":"L","intended_status":"stopped"}}` }, Unwanted, true},
		"another label": {func(c *container) { c.row = `{"instances":{"label":"L.2"}}` }, Unwanted, true},
		"no answer": {func(c *container) {
			c.job.Patience = time.Second
			c.fails = func(ask string) bool { return ask == "GET " }
		}, Unasked, true},
		"ended before":   {func(c *container) { c.row = `{"instances":{"label":"L:end=4"}}` }, "4 " + Elsewhere, false},
		"two GPUs":       {func(c *container) { c.job.Machine = Machine{GPUs: 2} }, "unfit it has 1 GPUs instead of 2", false},
		"broken driver":  {func(c *container) { c.smi("echo no devices; exit 9") }, "unfit the driver of its GPUs does not work: nvidia-smi: exit code 9: no devices", false},
		"another GPU":    {func(c *container) { c.smi("echo NVIDIA T4, 15360, 1") }, "unfit its GPU is a NVIDIA T4 instead of a RTX 4090", false},
		"no command":     {func(c *container) { c.job.Command = []string{"no-such-command"} }, "127 27", false},
		"lost":           {func(c *container) { c.record("") }, Lost, false},
		"lost, new disk": {func(c *container) { c.row = `{"instances":{"label":"L:end=begun"}}` }, "lost " + Elsewhere, false},
		"lost, new disk and broken": {func(c *container) {
			c.row = `{"instances":{"label":"L:end=begun"}}`
			c.smi("exit 9")
		}, "lost " + Elsewhere, false},
		"ended, restarts": {func(c *container) { c.record("7\n") }, "7", false},
		// Another machine may run the command by now.
		"not asked, restarts":   {func(c *container) { c.record("unasked\n") }, Unasked, true},
		"not fetched, restarts": {func(c *container) { c.record("unarmed\n") }, Unarmed, false},
		"not writable":          {func(c *container) { c.env = append(c.env, "TMPDIR="+c.dir+"/none") }, "nowhere open none/.ponos-n1: no such file or directory", false},
		"too large":             {func(c *container) { c.job.Env = map[string]string{"LONG": strings.Repeat("parent ", 30_000)} }, "unarmed program: argument list too long", false},
		"checkpoints": {func(c *container) {
			c.job.Load, c.job.Save = "exit 1", "true"
			c.env = append(c.env, CheckpointsEnv+"="+c.dir+"/c")
		}, "unloaded 0", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t, "sh", "-c", "echo it runs")
			n.change(c)
			log, end := c.live()
			// Where root runs it as nobody, the program is a copy.
			if strings.NewReplacer(c.dir+"/", "", os.Args[0], "program").Replace(end) != n.end || bytes.Contains(log, []byte("it runs")) {
				t.Errorf("%s\n%s", end, log)
			}
			if told := slices.ContainsFunc(c.asked, func(ask string) bool { return strings.Contains(ask, ":end=") }); told == n.destroy {
				t.Errorf("%q", c.asked)
			}
			if kept := strings.TrimSpace(read(filepath.Join(c.dir, ".ponos-n1"))); !strings.HasPrefix(end, kept) || kept == "" && end != Lost && name != "not writable" {
				t.Errorf("%q is told, and %q recorded", end, kept)
			}
		})
	}
}

// smi is a driver's program.
func (c *container) smi(script string) {
	c.job.Machine = Machine{GPUs: 1, GPU: "RTX 4090"}
	executable.Write(c.T, filepath.Join(c.dir, "nvidia-smi"), "#!/bin/sh\n"+script+"\n")
	c.env = append(c.env, "PATH="+c.dir+":"+os.Getenv("PATH"))
}

func (c *container) record(text string) {
	if err := os.WriteFile(filepath.Join(c.dir, ".ponos-n1"), []byte(text), 0o666); err != nil {
		c.Fatal(err)
	}
}

// A market that answers late, a command that takes too long, checkpoints, and a label that cannot be written.
func TestEnds(t *testing.T) {
	t.Run("late", func(t *testing.T) {
		c := newContainer(t, "sh", "-c", "trap 'echo asked; exit 0' TERM; echo on; while :; do sleep 0.1; done")
		c.job.Runtime = time.Second
		if log, end := c.live(); !strings.HasPrefix(end, "late ") || !bytes.HasPrefix(output(t, log), []byte("on\n")) || !bytes.HasSuffix(output(t, log), []byte("asked\n")) {
			t.Errorf("%s %q", end, log)
		}
	})
	t.Run("checkpoints", func(t *testing.T) {
		c := newContainer(t, "sh", "-c", "cat $PONOS_CHECKPOINT_DIR/x")
		c.env = append(c.env, CheckpointsEnv+"="+c.dir+"/c")
		c.job.Load, c.job.Save = "echo loaded > $PONOS_CHECKPOINT_DIR/x", "echo saved; exit 1"
		if log, _ := c.live(); string(output(t, log)) != "loaded\nsaved\n[the checkpoints could not be saved]\n" {
			t.Errorf("%q", log)
		}
	})
	t.Run("mute", func(t *testing.T) {
		c := newContainer(t, "true")
		c.fails = func(ask string) bool { return strings.Contains(ask, "label") }
		if _, end := c.live(); end != "0 0" || !c.has(`PUT {"state":"stopped"}`) || !c.has("DELETE {}") {
			t.Errorf("%s %q", end, c.asked)
		}
	})
	t.Run("what it leaves", func(t *testing.T) {
		c := newContainer(t, "sh", "-c", "(setsid sh -c 'while :; do echo left; sleep 0.2; done' &) ; echo done")
		if log, end := c.live(); !strings.HasPrefix(end, "0 ") || !bytes.Contains(output(t, log), []byte("done\n")) {
			t.Errorf("%s %q", end, log)
		}
	})
}

// All of what a command writes at full speed arrives.
func TestFast(t *testing.T) {
	c := newContainer(t, "sh", "-c", "seq 1 300000")
	log, end := c.live()
	var want strings.Builder
	for n := range 300_000 {
		fmt.Fprintln(&want, n+1)
	}
	if out := output(t, log); string(out) != want.String() || end != fmt.Sprint("0 ", want.Len()) {
		t.Errorf("%d bytes of %d, %s", len(out), want.Len(), end)
	}
}
