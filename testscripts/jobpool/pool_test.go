package jobpool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// pool is a run of jobpool under test.
type pool struct {
	testing.TB
	dir  string   // where it is started
	args []string // of jobpool
	env  []string
	wrap []string // what starts it, such as salloc
}

// record is what a test wants to know of a line of the journal.
type record struct {
	Kind    string  `json:"k"`
	Seq     int64   `json:"seq"`
	Attempt int     `json:"attempt"`
	Node    string  `json:"node"`
	What    string  `json:"what"`
	Exit    int     `json:"exit"`
	Tasks   string  `json:"tasks"`
	Hash    string  `json:"hash"`
	Session string  `json:"session"`
	Time    float64 `json:"t"`
	Start   float64 `json:"start"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error"`
}

func (p *pool) command(more ...string) *exec.Cmd {
	argv := append(append(append([]string{}, p.wrap...), filepath.Join(harness.Bin, "jobpool")), p.args...)
	argv = append(argv, more...)
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir = p.dir
	c.Env = append(os.Environ(), p.env...)
	return c
}

// run runs jobpool to its end with the lines as input.
func (p *pool) run(lines string, more ...string) (status int, stdout, stderr string) {
	p.Helper()
	c := p.command(more...)
	var out, err bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(lines), &out, &err
	_ = c.Run()
	return c.ProcessState.ExitCode(), out.String(), err.String()
}

// journal reads the journal of the run "run". A scheduler that still writes, or was killed, may have
// written a part of its last line.
func (p *pool) journal() []record {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "run", "journal.ndjson"))
	if err != nil {
		p.Fatal(err)
	}
	var out []record
	for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			p.Fatalf("%v in %s", err, line)
		}
		out = append(out, r)
	}
	return out
}

// endsOnce fails unless each of n tasks has ended well exactly once.
func (p *pool) endsOnce(n int) {
	p.Helper()
	ends := map[int64]int{}
	for _, r := range p.journal() {
		if r.Kind == "end" {
			ends[r.Seq]++
			if r.What != "ok" {
				p.Errorf("task %d ended as %s: %s", r.Seq, r.What, r.Error)
			}
		}
	}
	var wrong []string
	for seq := int64(1); seq <= int64(n); seq++ {
		if ends[seq] != 1 {
			wrong = append(wrong, fmt.Sprintf("%d: %d", seq, ends[seq]))
		}
	}
	if wrong != nil {
		p.Errorf("%d tasks have not ended once, but so often: %v", len(wrong), wrong[:min(10, len(wrong))])
	}
}

// timesRun is how often each task ran: each time it has left a line in the file "ran".
func (p *pool) timesRun() map[int64]int {
	p.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "ran"))
	if err != nil {
		p.Fatal(err)
	}
	ran := map[int64]int{}
	for word := range strings.FieldsSeq(string(b)) {
		seq, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			p.Fatal(err)
		}
		ran[seq]++
	}
	return ran
}

// runsExplained fails if a task ran more often than the journal tells why.
func (p *pool) runsExplained() (twice int) {
	p.Helper()
	ran := p.timesRun()
	sent := map[int64]int{}
	for _, r := range p.journal() {
		if r.Kind == "send" {
			for part := range strings.SplitSeq(r.Tasks, ",") {
				low, high, isRange := strings.Cut(part, "-")
				if !isRange {
					high = low
				}
				a, _ := strconv.ParseInt(low, 10, 64)
				b, _ := strconv.ParseInt(high, 10, 64)
				for ; a <= b; a++ {
					sent[a]++
				}
			}
		}
	}
	for seq, n := range ran {
		if n > sent[seq] {
			p.Errorf("task %d ran %d times, but was handed out %d times", seq, n, sent[seq])
		}
		if n > 1 {
			twice++
		}
	}
	return twice
}

// noneLeft fails if a process of a task, a worker or a connection is still there.
func (p *pool) noneLeft() {
	p.Helper()
	var left []string
	if !harness.Wait(func() bool {
		left = nil
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
			args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
			ours := bytes.Contains(environ, []byte("JOBPOOL_RUN="+p.dir)) || bytes.Contains(args, []byte(p.dir)) || bytes.Contains(environ, []byte("JOBPOOL_TEST="+p.dir))
			if ours && dir != fmt.Sprintf("/proc/%d", os.Getpid()) && len(args) > 0 {
				left = append(left, strings.ReplaceAll(string(args), "\x00", " "))
			}
		}
		return len(left) == 0
	}) {
		p.Errorf("still there: %q", left)
	}
}

// status asks a scheduler how it stands; nil if there is none, of which the command answers from the journal.
func (p *pool) status() map[string]any {
	c := exec.Command(filepath.Join(harness.Bin, "jobpool"), "ctl", "status", "--json", "--run", "run")
	c.Dir = p.dir
	out, err := c.Output()
	if err != nil {
		return nil
	}
	var st map[string]any
	if json.Unmarshal(out, &st) != nil || st["phase"] == "ended" {
		return nil
	}
	return st
}

// eventually waits until what holds.
func (p *pool) eventually(what string, holds func() bool) {
	p.Helper()
	if !harness.Wait(holds) {
		p.Fatalf("never: %s\n%s", what, p.output())
	}
}

// touch creates a file for which tasks wait.
func (p *pool) touch(name string) {
	p.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), nil, 0o600); err != nil {
		p.Fatal(err)
	}
}

// matching returns the processes whose command line has text in it, and who have
// the pool's directory in their environment or arguments.
func (p *pool) matching(text string) []int {
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if strings.HasPrefix(strings.ReplaceAll(string(args), "\x00", " "), text) && bytes.Contains(append(environ, args...), []byte(p.dir)) {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// sshd starts an sshd on the loopback interface and returns the options that
// reach it as the hosts n1 to n9.
func sshd(t *testing.T) []string {
	t.Helper()
	option, err := startSSHD(t)
	if err != nil {
		needs.Missing(t, "an sshd: "+err.Error())
	}
	return []string{"--via", "ssh", "--ssh-opt", option}
}

// startSSHD starts an sshd that ends with the test, and returns the option of ssh
// that reaches it.
func startSSHD(t testing.TB) (string, error) {
	dir, err := os.MkdirTemp("", "jobpool-sshd")
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	start := filepath.Join(harness.Root(), "testscripts/jobpool/sshd")
	t.Cleanup(func() {
		_ = exec.Command(start, dir, "stop").Run()
		os.RemoveAll(dir)
	})
	var complaints bytes.Buffer
	c := exec.Command(start, dir, strconv.Itoa(port))
	c.Stderr = &complaints
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, &complaints)
	}
	return "-F" + strings.TrimSpace(string(out)), nil
}

// peak is the most memory a process has had, in MiB; what the system tells of a child
// that has ended would have that of its parent in it.
func peak(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kb, _ := strconv.ParseFloat(strings.Fields(rest + " 0")[0], 64)
	return kb / 1024
}

func kill(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }
