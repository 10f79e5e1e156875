package docs

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestASCII holds that help and messages of every tool can be shown by every terminal.
func TestASCII(t *testing.T) {
	for _, tool := range tools {
		commands := []string{tool}
		walk(describe(t, tool), tool, func(path string, d app.Description) { commands = append(commands, path) })
		for _, words := range commands {
			for _, last := range []string{"--help", "--no-such-option"} {
				args := append(strings.Fields(words)[1:], last)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				cmd := exec.CommandContext(ctx, filepath.Join(harness.Bin, tool), args...)
				cmd.Env = append(harness.Clock(), "HOME="+t.TempDir(), "LC_ALL=C", "TERM=dumb")
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				_ = cmd.Run() // an unknown option fails
				cancel()
				if i := bytes.IndexFunc(out.Bytes(), func(r rune) bool { return r >= utf8.RuneSelf }); i >= 0 || out.Len() == 0 {
					t.Errorf("%s %s: %.40q", tool, strings.Join(args, " "), out.Bytes()[max(i, 0):])
				}
			}
		}
	}
}
