package harness

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

func matches(ts *testscript.TestScript, pattern, text string) bool {
	re, err := regexp.Compile("(?m)" + pattern)
	ts.Check(err)
	return re.MatchString(text)
}

var signals = map[string]syscall.Signal{
	"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1, "HUP": syscall.SIGHUP,
	"STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
}

func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal NAME pidfile")
	}
	sig, ok := signals[args[0]]
	if !ok {
		ts.Fatalf("unknown signal %q", args[0])
	}
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[1])))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, sig))
}

func jsonLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: json file")
	}
	text := ts.ReadFile(args[0])
	if json.Valid([]byte(text)) {
		return
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			ts.Fatalf("not JSON: %s", line)
		}
	}
}

// runs sees the processes of its own script alone, which have its directory in their
// environment: another suite may run the same commands on this machine.
func runs(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: runs pattern")
	}
	var found []string
	dirs, err := filepath.Glob("/proc/[0-9]*")
	ts.Check(err)
	for _, dir := range dirs {
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		words := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		if bytes.Contains(environ, []byte("WORK="+ts.Getenv("WORK")+"\x00")) && matches(ts, args[0], words) {
			found = append(found, filepath.Base(dir)+" "+words)
		}
	}
	switch {
	case neg && len(found) > 0:
		ts.Fatalf("still runs: %s", strings.Join(found, "\n"))
	case !neg && len(found) == 0:
		ts.Fatalf("no process matches %q", args[0])
	}
}

// ended PIDFILE waits until the processes whose ids are in a file have ended. One that nobody has reaped yet has
// ended; one that was killed may still have to be scheduled for it.
func ended(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ended pidfile")
	}
	ids := strings.Fields(ts.ReadFile(args[0]))
	if len(ids) == 0 {
		ts.Fatalf("%s names no process", args[0])
	}
	for _, id := range ids {
		if !Wait(func() bool {
			stat, err := os.ReadFile("/proc/" + id + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		}) {
			ts.Fatalf("process %s of %s still runs", id, args[0])
		}
	}
}
