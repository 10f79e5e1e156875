package parallel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// example is a command line of GNU parallel.
type example struct {
	parallel string
	jobpool  string // the line that jobpool needs, if that is another
	// status is jobpool's where it differs, and not that of GNU parallel.
	status, not int
	differs     bool
}

var differentStatus = regexp.MustCompile(`# status (\d+), not (\d+)$`)

// parallelExamples are the lines of testdata/examples, and those of ponos-from-parallel(7), which differ.
func parallelExamples(t *testing.T) []example {
	t.Helper()
	text, err := os.ReadFile("testdata/examples")
	if err != nil {
		t.Fatal(err)
	}
	var all []example
	for line := range strings.Lines(string(text)) {
		all = append(all, example{parallel: strings.TrimSuffix(line, "\n")})
	}
	same := len(all)
	page, err := os.ReadFile(filepath.Join(harness.Root(), "man", "ponos-from-parallel.7.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n# FROM GNU PARALLEL\n")
	section, _, _ = strings.Cut(section, "\n# ")
	for line := range strings.Lines(section) {
		line, code := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    ")
		switch m := differentStatus.FindStringSubmatch(line); {
		case !code:
		case !strings.Contains(line, "parallel"):
			all[len(all)-1].jobpool = line
		case m != nil:
			e := example{parallel: line, differs: true}
			e.status, _ = strconv.Atoi(m[1])
			e.not, _ = strconv.Atoi(m[2])
			all = append(all, e)
		default:
			all = append(all, example{parallel: line})
		}
	}
	if same < 90 || len(all)-same < 10 {
		t.Fatalf("%d examples that are the same, and %d that differ", same, len(all)-same)
	}
	return all
}

func TestMain(m *testing.M) { harness.Main(m, nil, "jobpool") }

// What ponos-from-parallel(7) says of GNU parallel's command lines is so.
func TestExamplesOfGNUParallel(t *testing.T) {
	harness.Programs(t, "parallel", "perl")
	programs := t.TempDir()
	if err := os.Symlink(filepath.Join(harness.Bin, "jobpool"), filepath.Join(programs, "parallel")); err != nil {
		t.Fatal(err)
	}
	gnu, err := exec.LookPath("parallel")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir() // where it looks for its configuration, and whether it may cite itself
	if err := os.WriteFile(filepath.Join(home, "will-cite"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var numbers strings.Builder
	for i := range 200000 {
		fmt.Fprintln(&numbers, i+1)
	}
	files := map[string]string{
		"abc": "A\nB\nC\n", "def": "D\nE\nF\n", "abc_": "A_B_C_", "abc0": "A\x00B\x00C\x00", "table.tsv": "f1\tf2\nA\tB\nC\tD\n",
		"gz.list": "a.gz\nb.tar.gz\n", "numbers": numbers.String(),
	}
	run := func(t *testing.T, path, line string) (string, int) {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		var out, errs bytes.Buffer
		c := exec.CommandContext(t.Context(), "bash", "-c", line)
		c.Dir, c.Stdout, c.Stderr, c.WaitDelay = dir, &out, &errs, time.Minute
		c.Env = append(os.Environ(), "PATH="+path, "PARALLEL_HOME="+home, "PARALLEL=", "PARALLEL_SHELL=/bin/bash", "SHELL=/bin/bash", "LC_ALL=C")
		err := c.Run()
		var status *exec.ExitError
		if err != nil && !errors.As(err, &status) {
			t.Fatalf("%s: %v", line, err)
		}
		t.Logf("%s\n%s", line, &errs)
		return strings.ReplaceAll(out.String(), dir, "DIR"), c.ProcessState.ExitCode()
	}
	path := os.Getenv("PATH")
	for i, e := range parallelExamples(t) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			t.Parallel()
			line := e.parallel
			if e.jobpool != "" {
				line = e.jobpool
			}
			want, wantStatus := run(t, filepath.Dir(gnu)+":"+path, e.parallel)
			got, status := run(t, programs+":"+harness.Bin+":"+path, line)
			if e.differs && wantStatus == e.not {
				wantStatus = e.status
			}
			if got != want || status != wantStatus {
				t.Errorf("status %d, GNU parallel's %d\n got %q\nwant %q", status, wantStatus, got, want)
			}
		})
	}
}
