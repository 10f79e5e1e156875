package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "module example.org/m\n\ngo 1.26\n"

// The tests of these files are run by the real "go test".
var files = map[string]string{
	"go.mod": module,
	"good/good_test.go": `package good

import "testing"

func TestGood(t *testing.T) { t.Log("quiet") }
func TestSkipped(t *testing.T) {
	t.Run("a", func(t *testing.T) { t.Log("noise"); t.Skip("needs root, to mount") })
	t.Run("b", func(t *testing.T) { t.Skip("needs root, to mount") })
	t.Run("script", func(t *testing.T) { t.Log("WORK=x\n\n> [!root] skip 'needs root, to mount'"); t.SkipNow() })
	t.Run("c", func(t *testing.T) { t.Skip("needs git: not in PATH\nmore") })
}
`,
	"bad/bad_test.go": `package bad

import ("fmt"; "testing")

func TestBad(t *testing.T) {
	fmt.Println("printed")
	t.Run("sub", func(t *testing.T) { t.Error("why") })
	t.Run("fine", func(t *testing.T) { t.Log("quiet") })
}
func TestSkipped(t *testing.T) { t.Skip("needs root, to mount") }
`,
	"dies/dies_test.go": `package dies

import ("os"; "testing")

func TestGood(t *testing.T) { t.Log("quiet") }
func TestDies(t *testing.T) { os.Stdout.WriteString("last words\n"); os.Exit(3) }
`,
	"broken/broken_test.go": "package broken\n\nfunc f() { undefined() }\n",
}

func TestGotest(t *testing.T) {
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for name, tt := range map[string]struct {
		env    string
		args   []string
		status int
		want   string
		stderr string
	}{
		"all is well": {"", []string{"-run", "Good", "./good"}, 0, "ok  \texample.org/m/good\tN\n", ""},
		"skipped tests": {"", []string{"./good"}, 0, `ok  	example.org/m/good	N
skipped 3 tests of example.org/m/good: needs root, to mount
skipped example.org/m/good.TestSkipped/c: needs git: not in PATH
`, ""},
		"skipped where all must run": {"require", []string{"./good"}, 1, "needs root, to mount", "no test may be skipped"},
		"what fails is printed, and every run is made": {"", []string{"./bad", "--", "-run", "Good", "./good"}, 1, `printed
    bad_test.go:7: why
--- FAIL: TestBad/sub (N)
--- FAIL: TestBad (N)
FAIL
FAIL	example.org/m/bad	N
FAIL
ok  	example.org/m/good	N
skipped example.org/m/bad.TestSkipped: needs root, to mount
`, ""},
		"a test that ends its process": {"", []string{"./dies"}, 1, "last words\nFAIL\texample.org/m/dies\tN\nFAIL\n", ""},
		"a test that does not compile": {"", []string{"./broken"}, 1, "undefined: undefined\nFAIL\texample.org/m/broken [build failed]\nFAIL\n", ""},
		"each line as it comes":        {"", []string{"-v", "-run", "Good", "./good"}, 0, "=== RUN   TestGood\n    good_test.go:5: quiet\n--- PASS: TestGood (N)\nPASS\nok", ""},
		"no arguments":                 {"", nil, 2, "", "usage: gotest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PONOS_TEST_SLURM", tt.env)
			var stdout, stderr bytes.Buffer
			status := run(tt.args, &stdout, &stderr)
			got := regexp.MustCompile(`[0-9.]+s\b|\(cached\)`).ReplaceAllString(stdout.String(), "N")
			if status != tt.status || !strings.Contains(got, tt.want) || !strings.Contains(stderr.String(), tt.stderr) || tt.want == "" && got != "" {
				t.Errorf("status %d, want %d\n%s\nwant\n%s\nstderr: %s", status, tt.status, got, tt.want, &stderr)
			}
			if plain, err := exec.Command("go", append([]string{"test"}, tt.args...)...).CombinedOutput(); len(tt.args) > 0 && tt.env == "" && (err == nil) != (status == 0) {
				t.Errorf("status %d where go test ends with %v\n%s", status, err, plain)
			}
		})
	}
}
