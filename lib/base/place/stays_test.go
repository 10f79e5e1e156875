package place

import (
	"os"
	"path/filepath"
	"testing"
)

func TestStays(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(above string) error
		moved bool
	}{
		{"used", func(above string) error { return os.WriteFile(filepath.Join(above, "dir", "file"), nil, 0o600) }, false},
		{"away and back", func(above string) error {
			if err := os.Rename(above, above+".away"); err != nil {
				return err
			}
			return os.Rename(above+".away", above)
		}, true},
		{"removed and made again", func(above string) error {
			if err := os.Remove(filepath.Join(above, "dir")); err != nil {
				return err
			}
			return os.Mkdir(filepath.Join(above, "dir"), 0o700)
		}, true},
	} {
		above := filepath.Join(t.TempDir(), "above")
		dir := filepath.Join(above, "dir")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		stays := Watch(link)
		if err := c.do(above); err != nil {
			t.Fatal(err)
		}
		if moved := stays.Moved(); moved != c.moved {
			t.Errorf("%s: moved %v", c.name, moved)
		}
	}
	if Watch(filepath.Join(t.TempDir(), "missing")).Moved() {
		t.Error("a directory that is not there has moved")
	}
}
