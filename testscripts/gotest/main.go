// Gotest runs "go test" one or several times, and reports at the end which tests were skipped and why.
//
//	go run ./testscripts/gotest ARG... [-- ARG...]...
//
// Each list of arguments is one run of "go test"; all runs are made, whichever fails. The output is that
// of "go test". Gotest leaves -race out where no C compiler works. With PONOS_TEST_SLURM=require a skipped
// test, and a missing race detector, is a failure.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(stderr, "usage: gotest ARG... [-- ARG...]...")
		return 2
	}
	r := &report{out: stdout}
	status := 0
	for {
		end := slices.Index(args, "--")
		list := args
		if end >= 0 {
			list = args[:end]
		}
		if slices.Contains(list, "-race") && !raceWorks() {
			list = slices.DeleteFunc(slices.Clone(list), func(arg string) bool { return arg == "-race" })
			r.skip("", "the race detector", "needs a C compiler")
		}
		r.verbose = slices.Contains(list, "-v")
		status = max(status, goTest(r, list, stderr))
		if end < 0 {
			break
		}
		args = args[end+1:]
	}
	r.summary()
	if len(r.skipped) > 0 && os.Getenv("PONOS_TEST_SLURM") == "require" {
		fmt.Fprintln(stderr, "gotest: PONOS_TEST_SLURM=require: no test may be skipped")
		status = max(status, 1)
	}
	return status
}

// raceWorks compiles what the race detector is linked with: a compiler without the headers of a libc does not serve.
func raceWorks() bool {
	cmd := exec.Command("go", "build", "-race", "runtime/cgo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	return cmd.Run() == nil
}

// goTest runs "go test" once and returns its exit status.
func goTest(r *report, args []string, stderr io.Writer) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = stderr
	if slices.Contains(args, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	out, err := cmd.StdoutPipe()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return 1
	}
	// What ends this program ends all that it has started.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() {
		if s, ok := (<-signals).(syscall.Signal); ok {
			_ = syscall.Kill(-cmd.Process.Pid, s)
			time.Sleep(2 * time.Second)
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			os.Exit(128 + int(s))
		}
	}()
	if err := r.read(out); err != nil {
		fmt.Fprintln(stderr, "gotest: output of go test:", err)
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		return 1
	}
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		fmt.Fprintln(r.out, "FAIL")
		return max(1, exit.ExitCode())
	} else if err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return 1
	}
	return 0
}
