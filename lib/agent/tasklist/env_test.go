package tasklist

import (
	"os"
	"path/filepath"
	"testing"
)

func FuzzReadEnv(f *testing.F) {
	f.Add("A=1\n# no\n\nexport B='x y'\nC=\"\"\n")
	f.Add("=x\nA B=1\n")
	name := filepath.Join(f.TempDir(), "env")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		env, err := ReadEnv(name)
		if _, ok := env[""]; ok && err == nil {
			t.Errorf("%q: a variable without a name", text)
		}
	})
}
