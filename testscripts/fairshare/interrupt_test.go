package fairshare

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestInterrupt types ^C at a terminal while a hundred thousand jobs are asked for, and while they are planned: the command ends by the
// signal, prints no half answer, and leaves neither a file nor a program that it has started.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	env, job := deepQueue(t, dir), strconv.Itoa(1_000_000+benchJobs/2)
	for name, k := range map[string]struct {
		args  []string
		asked string // what has been asked then
		quiet bool   // and answered
	}{
		"when, queue":   {[]string{"when", "--budget=10m", job}, "squeue", false},
		"when, details": {[]string{"when", "--budget=10m", job}, "show job", false},
		"when, replays": {[]string{"when", "--budget=10m", job}, "show job", true},
		"jobs, queue":   {[]string{"jobs", "--budget=10m", job}, "squeue", false},
		"jobs, details": {[]string{"jobs", "--budget=10m", job}, "show job", false},
		"jobs, list":    {[]string{"jobs", "--budget=10m"}, "show job", false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := filepath.Join(t.TempDir(), "asked")
			cmd := exec.Command("fairshare", k.args...)
			cmd.Env = append(env[:len(env):len(env)], "ASKED="+asked, "TERM=dumb")
			terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
			if err != nil {
				t.Fatal(err)
			}
			defer terminal.Close()
			kill := time.AfterFunc(harness.Patience, func() { _ = cmd.Process.Kill() })
			defer kill.Stop()
			var out bytes.Buffer
			read := make(chan struct{})
			go func() {
				_, _ = out.ReadFrom(terminal) // ends with an error when the other side is closed
				close(read)
			}()
			for range 20_000 {
				text, _ := os.ReadFile(asked)
				if strings.Contains(string(text), k.asked) && (!k.quiet || len(children(cmd.Process.Pid)) == 0) {
					break
				}
				time.Sleep(3 * time.Millisecond)
			}
			if _, err := terminal.WriteString("\x03"); err != nil {
				t.Fatal(err)
			}
			err = cmd.Wait()
			<-read
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 130 {
				t.Errorf("it ended with %v: %s", err, &out)
			}
			if strings.Contains(out.String(), "job "+job) || strings.Contains(out.String(), "RANK") {
				t.Errorf("half an answer: %s", &out)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "state", "*", "*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if !harness.Wait(func() bool { return len(programs("ASKED="+asked)) == 0 }) {
				t.Errorf("programs are left: %v", programs("ASKED="+asked))
			}
		})
	}
}

// children are the programs that a process has started, and that have not ended.
func children(pid int) []string {
	var all []string
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		all = append(all, strings.Fields(string(text))...)
	}
	return all
}

// programs are the processes that have a variable of the environment.
func programs(variable string) []string {
	var all []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		if text, _ := os.ReadFile(file); bytes.Contains(append([]byte{0}, text...), []byte("\x00"+variable+"\x00")) {
			all = append(all, filepath.Base(filepath.Dir(file)))
		}
	}
	return all
}
