package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// step is a command of an example and what it prints.
type step struct {
	line    int
	command string
	want    []string
}

// steps are the commands of all blocks of a source that are marked as console.
func steps(source string) []step {
	var all []step
	inside := false
	for i, line := range strings.Split(source, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case strings.HasPrefix(line, "$ "):
			all = append(all, step{line: i + 1, command: line[2:]})
		case len(all) == 0:
		case strings.HasPrefix(line, "> ") && len(all[len(all)-1].want) == 0:
			all[len(all)-1].command += "\n" + line[2:]
		default:
			all[len(all)-1].want = append(all[len(all)-1].want, line)
		}
	}
	return all
}

func TestExamples(t *testing.T) {
	sources, err := filepath.Glob(filepath.Join(harness.Root(), "man/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range append(sources, filepath.Join(harness.Root(), "README.md")) {
		t.Run(filepath.Base(source), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			if all := steps(string(text)); len(all) > 0 {
				check(t, source, all)
			}
		})
	}
}

// patience bounds how long the examples of a source may take.
const patience = 10 * time.Minute

// check runs commands in a home directory of their own, and compares what they
// print.
func check(t *testing.T, source string, all []step) {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for i, s := range all {
		fmt.Fprintf(&script, "{\n%s\n} >%s/%d 2>&1\n", s.command, dir, i)
	}
	// Jobs that still run would write into a directory that is being removed.
	script.WriteString("for _ in $(seq 3000); do compgen -G \"$HOME/*/data/state/local/[wt]a*/*\" >/dev/null || break; sleep 0.1; done; sleep 0.2\n")
	path := filepath.Join(dir, "script")
	if err := os.WriteFile(path, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", path)
	cmd.Dir = home
	cmd.Env = append(harness.Clock(), "HOME="+home, "PATH="+os.Getenv("PATH"), "TZ="+harness.Zone(), "LC_ALL=C.UTF-8", "USER=root", "LOGNAME=root")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what an example has left in the background
	if ctx.Err() != nil {
		t.Errorf("the examples took more than %v: %v", patience, err)
	}
	for i, s := range all {
		out, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatalf("%s:%d: it was not run: %v", filepath.Base(source), s.line, err)
		}
		got := strings.Split(strings.ReplaceAll(strings.TrimRight(string(out), "\n"), home, "/home/alice"), "\n")
		if !same(s.want, got) {
			t.Errorf("%s:%d: $ %s\ngot:\n%s\nwant:\n%s", filepath.Base(source), s.line, s.command, strings.Join(got, "\n"), strings.Join(s.want, "\n"))
		}
	}
}

// forms are parts of a line that differ from run to run.
var forms = []struct {
	pattern *regexp.Regexp
	as      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}\b`), "JOB"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?Z?`), "TIME"},
	{regexp.MustCompile(`^[0-9a-f]{8} `), "SHORT "},
	{regexp.MustCompile(`\b(\d+[dhm])*\d+s\b`), "SPAN"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\S*`), "VERSION"},
	{regexp.MustCompile(`\s+`), " "},
	// What is stopped at once may have begun, or not.
	{regexp.MustCompile(`\bSPAN (SPAN|-) stopped at the request of the queue`), "SPAN - stopped at the request of the queue"},
}

func form(line string) string {
	for _, f := range forms {
		line = f.pattern.ReplaceAllString(line, f.as)
	}
	return strings.TrimSpace(line)
}

// same compares lines. "..." alone stands for any number of them.
func same(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0 || len(got) == 1 && got[0] == ""
	}
	if want[0] == "..." {
		for i := range len(got) + 1 {
			if len(want) == 1 || same(want[1:], got[i:]) {
				return true
			}
		}
		return false
	}
	if len(got) == 0 {
		return false
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(form(want[0])), `\.\.\.`, ".*")
	return regexp.MustCompile("^"+pattern+"$").MatchString(form(got[0])) && same(want[1:], got[1:])
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"a\n...\nz", "a\nb\nc\nz", true},
		{"a\n...", "a", true},
		{"a\nb", "a", false},
		{"a", "a\nb", false},
		{"x ... y", "x   1 2 y", true},
		{"at 2026-11-20 18:35:05", "at 2031-01-02 03:04:05", true},
	} {
		if got := same(strings.Split(c.want, "\n"), strings.Split(c.got, "\n")); got != c.same {
			t.Errorf("%q, %q: %v", c.want, c.got, got)
		}
	}
}
