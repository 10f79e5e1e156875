package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

func sh(script string) Cmd { return Cmd{Name: "sh", Args: []string{"-c", script}} }

func TestRunKeepsStreamsApart(t *testing.T) {
	got, err := System.Run(t.Context(), sh("echo data; echo talk >&2"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Stdout) != "data\n" || string(got.Stderr) != "talk\n" {
		t.Errorf("stdout %q, stderr %q", got.Stdout, got.Stderr)
	}
}

// A program that was removed while it runs is run again all the same.
func TestSelfRemoved(t *testing.T) {
	const again = "COMMAND_TEST_AGAIN"
	if os.Getenv(again) == "2" {
		fmt.Println("runs again")
		return
	}
	if os.Getenv(again) == "1" {
		path, err := os.Executable()
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		self, err := Self("any")
		if err != nil {
			t.Fatal(err)
		}
		got, err := System.Run(t.Context(), Cmd{
			Name: "sh", Args: append([]string{"-c", `[ -x "$1" ] && exec "$@"`, "sh"}, append(self, "-test.run=^TestSelfRemoved$")...),
			Env: append(os.Environ(), again+"=2"),
		})
		fmt.Printf("%s%v\n", got.Stdout, err)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	removed := filepath.Join(t.TempDir(), "program")
	executable.Write(t, removed, string(b))
	got, err := System.Run(t.Context(), Cmd{Name: removed, Args: []string{"-test.run=^TestSelfRemoved$"}, Env: append(os.Environ(), again+"=1")})
	if err != nil || !strings.HasPrefix(string(got.Stdout), "runs again\n") {
		t.Errorf("%v: %s", err, got.Stdout)
	}
}

func TestRunTellsFailuresApart(t *testing.T) {
	_, err := System.Run(t.Context(), sh("echo no room >&2; exit 3"))
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 3 || err.Error() != "sh: exit status 3: no room" {
		t.Errorf("got %v", err)
	}
	_, err = System.Run(t.Context(), sh("kill -TERM $$"))
	if !errors.As(err, &exit) || exit.Signal != syscall.SIGTERM {
		t.Errorf("got %v", err)
	}
	_, err = System.Run(t.Context(), Cmd{Name: "no-such-program"})
	var missing *NotFoundError
	if !errors.As(err, &missing) || err.Error() != "no-such-program: program not found" || fault.HintOf(err) == "" {
		t.Errorf("got %v, hint %q", err, fault.HintOf(err))
	}
}

// What the program has started must not outlive the time limit, nor keep Run
// waiting by holding the pipe open.
func TestRunKillsTheGroup(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	c := sh("sleep 60 & echo $! > '" + pidFile + "'; wait")
	pid := 0
	for c.Timeout = 300 * time.Millisecond; pid == 0; c.Timeout *= 2 { // a busy machine may not have begun it by then
		_, err := System.Run(t.Context(), c)
		if late := new(TimeoutError); !errors.As(err, &late) {
			t.Fatalf("got %v; want a TimeoutError", err)
		}
		b, _ := os.ReadFile(pidFile)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d is alive", pid)
}

// A deadline of the caller is told as one of its own.
func TestRunEndsAtTheDeadlineOfTheCaller(t *testing.T) {
	for limit, want := range map[time.Duration]string{time.Second: "sh: no answer within 1s", -time.Second: "sh: no answer in time"} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := System.Run(ctx, sh("sleep 60"))
		if late := new(TimeoutError); !errors.As(err, &late) || err.Error() != want {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := System.Run(ctx, sh("sleep 60")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestStderrIsBounded(t *testing.T) {
	got, err := System.Run(t.Context(), sh("head -c 300000 /dev/zero >&2; echo end >&2"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Stderr) > maxStderr || !strings.HasSuffix(string(got.Stderr), "end\n") {
		t.Errorf("%d bytes kept", len(got.Stderr))
	}
}

// A program that others have planted in a directory of PATH is passed over: the next one of its name runs.
func TestNothingPlantedRuns(t *testing.T) {
	own, open, here := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{open, here} {
		for _, name := range []string{"squeue", "git", "only"} {
			executable.Write(t, filepath.Join(dir, name), "#!/bin/sh\necho planted\n")
		}
	}
	executable.Write(t, filepath.Join(own, "squeue"), "#!/bin/sh\necho own\n")
	executable.Write(t, filepath.Join(own, "git"), "#!/bin/sh\necho own\n")
	changed := filepath.Join(t.TempDir(), "git")
	executable.Write(t, changed, "#!/bin/sh\necho planted\n")
	for path, mode := range map[string]os.FileMode{open: 0o777 | os.ModeSticky, changed: 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(here)
	t.Setenv("PATH", strings.Join([]string{".", "", open, filepath.Dir(changed), own}, ":"))
	for _, name := range []string{"squeue", "git"} {
		result, err := System.Run(t.Context(), Cmd{Name: name})
		if err != nil || string(result.Stdout) != "own\n" {
			t.Errorf("%s: %q, %v", name, result.Stdout, err)
		}
		p, err := StartProcess(Cmd{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if said, err := io.ReadAll(p.Stdout); err != nil || string(said) != "own\n" || p.Wait() != nil {
			t.Errorf("%s: %q, %v", name, said, err)
		}
	}
	if want := filepath.Dir(changed) + ":" + own; !slices.Contains(Environ(), "PATH="+want) {
		t.Errorf("others are not looked for in %s alone", want)
	}
	_, err := System.Run(t.Context(), Cmd{Name: "only"})
	if want := filepath.Join(open, "only") + " is not run, as everyone may replace it"; fault.HintOf(err) != want || err.Error() != "only: program not found" {
		t.Errorf("%v, %q", err, fault.HintOf(err))
	}
}
