package chaos

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// standIns are the programs that this test binary is, under their names in the
// world's directory bin/: Slurm's commands with faults on demand, the command
// of the tasks, and python3.
var standIns = map[string]func(dir string) int{
	"sbatch": sbatch, "squeue": squeue, "sacct": sacct, "scancel": scancel, "work": work, "python3": python,
}

// realPath is where Slurm's own commands are.
const realPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// actual is the command itself, as its own process would run it.
func actual(name string) *exec.Cmd {
	for dir := range strings.SplitSeq(realPath, ":") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			c := exec.Command(path, os.Args[1:]...)
			c.Stdin = os.Stdin
			return c
		}
	}
	fmt.Fprintln(os.Stderr, name+": not found")
	os.Exit(127)
	return nil
}

// become replaces this process by the command.
func become(name string) int {
	c := actual(name)
	err := syscall.Exec(c.Path, append([]string{name}, os.Args[1:]...), os.Environ())
	fmt.Fprintln(os.Stderr, name+":", err)
	return 126
}

// take takes the next fault that is laid out for a program, if there is one.
func take(dir, program string) string {
	names, _ := filepath.Glob(filepath.Join(dir, "faults", program+".*"))
	for _, name := range names {
		taken := filepath.Join(dir, "faults", fmt.Sprintf("taken.%s.%d", filepath.Base(name), os.Getpid()))
		if os.Rename(name, taken) != nil {
			continue
		}
		kind, _ := os.ReadFile(taken)
		os.Remove(taken)
		return string(kind)
	}
	return ""
}

// happened notes a fault of a stand-in.
func happened(dir, kind string, began time.Time, detail string) {
	note(dir, event{Kind: kind, Began: began, Ended: time.Now(), Detail: detail, Fault: true})
}

func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func status(err error) int {
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return exit.ExitCode()
	}
	return 1
}

// commentOf is the task that an sbatch is for, or those.
func commentOf() string {
	for _, arg := range os.Args {
		comment, ok := strings.CutPrefix(arg, "--comment=")
		if !ok {
			continue
		}
		var ids []string
		for _, id := range task.Marked(comment) {
			ids = append(ids, string(id))
		}
		return cmp.Or(strings.Join(ids, ","), "-")
	}
	return "-"
}

func sbatch(dir string) int {
	began := time.Now()
	if slices.Contains(os.Args, "--test-only") {
		return become("sbatch")
	}
	kind := take(dir, "sbatch")
	if kind == "sbatch-killed-before" {
		happened(dir, kind, began, commentOf())
		killSelf()
	}
	if kind == "sbatch-refused-connection" {
		happened(dir, kind, began, commentOf())
		fmt.Fprintln(os.Stderr, "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)")
		return 1
	}
	if kind == "sbatch-slow" {
		time.Sleep(4 * time.Second)
		happened(dir, kind, began, commentOf())
	}
	c := actual("sbatch")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	err := c.Run()
	id := strings.TrimSpace(out.String())
	note(dir, event{Kind: "submitted", Began: began, Ended: time.Now(), Detail: fmt.Sprintf("task %s job %s status %d", commentOf(), id, status(err))})
	switch kind {
	case "sbatch-killed-after":
		happened(dir, kind, began, commentOf()+" job "+id)
		killSelf()
	case "sbatch-lies":
		happened(dir, kind, began, commentOf()+" job "+id)
		fmt.Fprintln(os.Stderr, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
		return 1
	case "sbatch-id-and-failure":
		happened(dir, kind, began, commentOf()+" job "+id)
		fmt.Print(out.String())
		return 1
	}
	fmt.Print(out.String())
	return status(err)
}

// cut is what is left of an answer, by the kind of its fault.
func cut(kind string, answer []byte) []byte {
	lines := bytes.SplitAfter(answer, []byte("\n"))
	switch {
	case strings.HasSuffix(kind, "-empty"):
		return nil
	case strings.HasSuffix(kind, "-cut"):
		return answer[:len(answer)/2]
	case strings.HasSuffix(kind, "-rows-missing"):
		lines = slices.DeleteFunc(lines, func([]byte) bool { return rand.IntN(3) == 0 })
		return bytes.Join(lines, nil)
	}
	return answer
}

func squeue(dir string) int {
	return listing(dir, "squeue", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
}

func sacct(dir string) int {
	return listing(dir, "sacct", "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:127.0.0.1:6819: Connection refused\nsacct: error: Problem talking to the database: Connection refused")
}

// listing is a command that lists, with a fault.
func listing(dir, program, failure string) int {
	began := time.Now()
	kind := take(dir, program)
	if kind == "" {
		return become(program)
	}
	if strings.HasSuffix(kind, "-fails") {
		happened(dir, kind, began, "")
		fmt.Fprintln(os.Stderr, failure)
		return 1
	}
	if strings.HasSuffix(kind, "-slow") {
		time.Sleep(5 * time.Second)
	}
	c := actual(program)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	err := c.Run()
	left := cut(kind, out.Bytes())
	if strings.HasSuffix(kind, "-old") {
		// What was there some seconds ago.
		time.Sleep(3 * time.Second)
	}
	happened(dir, kind, began, fmt.Sprintf("%d of %d bytes", len(left), out.Len()))
	_, _ = os.Stdout.Write(left)
	return status(err)
}

func scancel(dir string) int {
	began := time.Now()
	switch kind := take(dir, "scancel"); kind {
	case "scancel-killed":
		happened(dir, kind, began, strings.Join(os.Args[1:], " "))
		killSelf()
	case "scancel-fails":
		happened(dir, kind, began, strings.Join(os.Args[1:], " "))
		fmt.Fprintln(os.Stderr, "scancel: error: Kill job error on job id: Unable to contact slurm controller (connect failure)")
		return 1
	}
	return become("scancel")
}

// work is the command of a task: work NUMBER LINES MILLISECONDS CODE WANTS. It writes
// down what becomes of it, where no fault reaches:
//
//	S JOB RESTART RAW  it began; RAW is the id by which slurmstepd calls the job
//	E CODE           it ends with that code
//	T                it was asked to end
//	L                its output could not be written
//	O                another one of this task was at work
//	W WHAT           it does not have this of its code and data
func work(dir string) int {
	if len(os.Args) != 6 {
		return 2
	}
	number, _ := strconv.Atoi(os.Args[1])
	lines, _ := strconv.Atoi(os.Args[2])
	pause, _ := strconv.Atoi(os.Args[3])
	code, _ := strconv.Atoi(os.Args[4])
	base := filepath.Join(dir, "effects", os.Getenv("PONOS_TASK"))
	f, err := os.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 3
	}
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(f, "%s "+format+"\n", append([]any{time.Now().UTC().Format(time.RFC3339Nano)}, args...)...)
	}
	alone, err := os.OpenFile(base+".alone", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil || syscall.Flock(int(alone.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		say("O")
	}
	job, restart := os.Getenv("PONOS_JOB"), os.Getenv("SLURM_RESTART_COUNT")
	if restart == "" {
		restart = "0"
	}
	pilot, _, _ := strings.Cut(job, ".") // of a packed task, which has no job of its own
	say("S %s %s %s", job, restart, cmp.Or(os.Getenv("SLURM_JOB_ID"), pilot))
	if without := lacks(os.Args[5]); len(without) > 0 {
		say("W %s", strings.Join(without, " "))
	}
	for try := 0; ; try++ {
		err := os.WriteFile(filepath.Join(os.Getenv("PONOS_DATA"), "current/result"), []byte(result(number)), 0o600)
		if errors.Is(err, syscall.ENOSPC) && try < 100 { // the disk is full for some seconds
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err != nil {
			say("W %v", err)
		}
		break
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	lost := false
	for i := range lines {
		if _, err := fmt.Printf("line %d/%d of %d run %s.%s\n", i+1, lines, number, job, restart); err != nil && !lost {
			lost = true
			say("L")
		}
		select {
		case <-end:
			say("T")
			return 143
		case <-time.After(time.Duration(pause/lines) * time.Millisecond):
		}
	}
	say("E %d", code)
	return code
}

// result is the artifact of a task.
func result(number int) string { return fmt.Sprintf("the result of %d\n", number) }
