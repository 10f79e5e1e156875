package tasklist

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ponos-tools/ponos/lib/task"
)

func FuzzReadEnv(f *testing.F) {
	f.Add("A=1\n# no\n\nexport B='x y'\nC=\"\"\n")
	f.Add("=x\nA B=1\nA-B=2\n1=3\n")
	name := filepath.Join(f.TempDir(), "env")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		env, _ := ReadEnv(name)
		for variable := range env {
			if !task.IsVariable(variable) {
				t.Errorf("%q: a variable %q", text, variable)
			}
		}
	})
}
