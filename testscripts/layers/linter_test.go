//go:build lint

package layers

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const project = "github.com/ponos-tools/ponos/"

// The layers, lowest first: a package of each component.
var layers = [][]string{
	{"lib/base/lock"}, {"lib/slurm", "lib/executor/cgroup"}, {"lib/task"}, {"lib/advise/usage", "lib/pool"},
	{"lib/market/rented"}, {"lib/agent"}, {"lib/tool/list"},
}

// planted is an import that a package of its own in a directory makes.
type planted struct{ dir, imported string }

// up returns each import of a component above another, or beside it.
func up() (all []planted) {
	for i, row := range layers {
		for _, from := range row {
			for _, to := range slices.Concat(layers[i:]...) {
				if to != from {
					all = append(all, planted{from + "/planted", project + to})
				}
			}
		}
	}
	return all
}

// What the linter refuses besides: what is not the face of a component, and what passes by a limit.
var refused = []planted{
	{"lib/agent/planted", project + "lib/pool/core"},
	{"lib/agent/planted", project + "lib/advise/forecast"},
	{"lib/market/planted", project + "lib/advise/launcher"},
	{"lib/tool/list/planted", project + "lib/pool"},
	{"cmd/planted", project + "lib/agent"},
	{"lib/agent/planted", project + "testscripts/harness"},
	{"lib/agent/planted", "os/exec"},
	{"lib/agent/planted", "net"},
	{"lib/agent/planted", "net/http"},
	{"lib/pool/core", "os"},
	{"lib/pool/core", "sync"},
	{"lib/pool/core", "context"},
	{"lib/pool/core", project + "lib/base/lock"},
	{"lib/spank/planted", project + "lib/agent"},
}

// What has the same form, and is right.
var allowed = []planted{
	{"lib/slurm/planted", project + "lib/base/lock"},
	{"lib/task/planted", project + "lib/slurm"},
	{"lib/advise/planted", project + "lib/task"},
	{"lib/pool/planted", project + "lib/executor/cgroup"},
	{"lib/market/planted", project + "lib/advise/launcher/request"},
	{"lib/agent/planted", project + "lib/market/rented"},
	{"lib/agent/planted", project + "lib/advise/launcher/request"},
	{"lib/agent/planted", project + "lib/pool"},
	{"lib/tool/list/planted", project + "lib/agent"},
	{"lib/tool/jobpool", project + "lib/pool/core"},
	{"cmd/planted", project + "lib/tool/list"},
	{"lib/base/command", "os/exec"},
	{"lib/agent/queue/arkindex", "net/http"},
	{"lib/agent/planted", "net/url"},
	{"lib/pool/core", "time"},
	{"lib/pool/core", project + "lib/pool/wire"},
}

// In a project of such packages, the linter with our configuration refuses exactly these imports, and
// the clock of the day.
func TestTheLinterHoldsTheLayers(t *testing.T) {
	dir, wrong := t.TempDir(), append(up(), refused...)
	configuration, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".golangci.yml"), string(configuration))
	write(t, filepath.Join(dir, "go.mod"), "module "+strings.TrimSuffix(project, "/")+"\n\ngo 1.26.0\n")
	for n, p := range slices.Concat(wrong, allowed) {
		write(t, filepath.Join(dir, p.dir, fmt.Sprintf("planted%d.go", n)), fmt.Sprintf("package stub\n\nimport _ %q\n", p.imported))
		if inside, found := strings.CutPrefix(p.imported, project); found {
			write(t, filepath.Join(dir, inside, "stub.go"), "package stub\n")
		}
	}
	want := map[string]bool{}
	for _, p := range wrong {
		want[p.dir+": import '"+p.imported+"'"] = true
	}
	write(t, filepath.Join(dir, "lib/agent/planted/clock.go"), "package stub\n\nimport \"time\"\n\nvar At = time.Now()\n")
	want["lib/agent/planted: use of `time.Now`"] = true
	for _, said := range lint(t, dir) {
		if !want[said] {
			t.Errorf("refused: %s", said)
		}
		delete(want, said)
	}
	for missed := range want {
		t.Errorf("not refused: %s", missed)
	}
}

// lint returns what depguard and forbidigo report in a project: a directory, and the beginning of the message.
func lint(t *testing.T, dir string) (all []string) {
	t.Helper()
	linter, err := filepath.Abs(filepath.Join(root, "bin/dev/golangci-lint"))
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(dir, "report.json")
	run := exec.Command(linter, "run", "--allow-parallel-runners", "--enable-only", "depguard,forbidigo",
		"--issues-exit-code", "0", "--output.text.path", os.DevNull, "--output.json.path", report, "./...")
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var said struct {
		Issues []struct {
			Text string
			Pos  struct{ Filename string }
		}
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	for _, issue := range said.Issues {
		what, _, _ := strings.Cut(issue.Text, " is not allowed")
		what, _, _ = strings.Cut(what, " forbidden")
		all = append(all, filepath.Dir(issue.Pos.Filename)+": "+what)
	}
	return all
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
