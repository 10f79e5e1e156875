package planner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
)

// A directory service is asked once for a user, who may have thousands of jobs.
func TestUsersAreAskedForOnce(t *testing.T) {
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	executable.Write(t, filepath.Join(dir, "getent"), `#!/bin/sh
echo "$3" >>"$ASKED"
[ "$3" = ada-of-the-directory ] || exit 2
echo "$3:*:4000000001:4000000001::/home:/bin/sh"
`)
	t.Setenv("ASKED", asked)
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	id := New().UID
	for range 3 {
		if n, ok := id("ada-of-the-directory"); n != 4000000001 || !ok {
			t.Errorf("the user is %d, %v", n, ok)
		}
		if n, ok := id("nobody-of-the-directory"); ok {
			t.Errorf("a user without a number is %d", n)
		}
	}
	text, err := os.ReadFile(asked)
	if got := strings.Fields(string(text)); err != nil || len(got) != 2 {
		t.Errorf("asked for %q, %v", got, err)
	}
}
