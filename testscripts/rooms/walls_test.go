//go:build lint

package rooms

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// In a project with the same rooms, in which each imports all that are above it, or all that are
// below it and every module, the linter with our configuration reports exactly what is not allowed.
func TestWalls(t *testing.T) {
	linter, err := filepath.Abs(filepath.Join(root, "bin/dev/golangci-lint"))
	if err != nil {
		t.Fatal(err)
	}
	rooms := list(t)
	var modules []string
	for _, module := range requirements(t) {
		modules = append(modules, module)
	}
	for name, imports := range map[string]func(i int) []string{
		"upwards": func(i int) (paths []string) {
			for _, r := range rooms[:i] {
				paths = append(paths, r.name)
			}
			return paths
		},
		"downwards": func(i int) []string {
			paths := append([]string{"os", "os/exec", "io", "net", "sync", "context"}, modules...)
			for _, r := range rooms[i+1:] {
				paths = append(paths, r.name)
			}
			return paths
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			module := "module " + strings.TrimSuffix(project, "/") + "\n\ngo 1.26.0\n"
			for _, other := range modules {
				version := "v0.0.0"
				if last := filepath.Base(other); len(last) == 2 && last[0] == 'v' {
					version = last + ".0.0"
				}
				module += fmt.Sprintf("require %s %s\nreplace %s => ./modules/%s\n", other, version, other, other)
				write(t, filepath.Join(dir, "modules", other, "go.mod"), "module "+other+"\n\ngo 1.26.0\n")
				write(t, filepath.Join(dir, "modules", other, "stub.go"), "package stub\n")
			}
			write(t, filepath.Join(dir, "go.mod"), module)
			write(t, filepath.Join(dir, ".golangci.yml"), read(t, ".golangci.yml"))
			want := map[string]bool{}
			for i, r := range rooms {
				var file strings.Builder
				file.WriteString("package stub\n\n")
				for _, imported := range imports(i) {
					standard := !strings.Contains(imported, ".") && !strings.HasPrefix(imported, "lib/") && !strings.HasPrefix(imported, "cmd/")
					allowed := r.allows(imported)
					if standard {
						allowed = !r.pure && (imported != "os/exec" || r.name == "lib/command")
					}
					if strings.HasPrefix(imported, "lib/") || strings.HasPrefix(imported, "cmd/") {
						imported = project + imported
					}
					fmt.Fprintf(&file, "import _ %q\n", imported)
					if !allowed {
						want[r.name+" imports "+imported] = true
					}
				}
				write(t, filepath.Join(dir, r.name, "stub.go"), file.String())
			}
			if len(want) < 500 {
				t.Fatalf("only %d imports that are not allowed were thought of", len(want))
			}
			report := filepath.Join(dir, "report.json")
			lint := exec.Command(linter, "run", "--allow-parallel-runners", "--enable-only", "depguard",
				"--issues-exit-code", "0", "--output.text.path", os.DevNull, "--output.json.path", report, "./cmd/...", "./lib/...")
			lint.Dir = dir
			if out, err := lint.CombinedOutput(); err != nil {
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
				parts := strings.Split(issue.Text, "'")
				if len(parts) < 3 {
					t.Fatalf("the linter says: %s", issue.Text)
				}
				key := filepath.Dir(issue.Pos.Filename) + " imports " + parts[1]
				if _, expected := want[key]; !expected {
					t.Errorf("reported, but allowed: %s: %s", key, issue.Text)
				}
				want[key] = false
			}
			denied := 0
			for key, missed := range want {
				if missed {
					t.Errorf("not reported: %s", key)
				} else {
					denied++
				}
			}
			t.Logf("%d imports denied", denied)
		})
	}
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
