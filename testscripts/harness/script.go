package harness

import (
	"encoding/json"
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
