package nss

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
)

// directory puts a getent into PATH that knows a user whom /etc/passwd does not have, as a directory service does.
func directory(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	executable.Write(t, filepath.Join(dir, "getent"), `#!/bin/sh
case "$*" in
"-- passwd 4000000001" | "-- passwd ada") echo "ada:*:4000000001:4000000002:Ada:/home/ada:/bin/bash" ;;
"-- group 4000000002") echo "lovelace:*:4000000002:ada" ;;
"-- passwd 4000000003") echo "half:*" ;;
*) exit 2 ;;
esac
`)
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

func TestUsersOfADirectoryService(t *testing.T) {
	directory(t)
	t.Setenv("USER", "mallory")
	if name, err := UserName(4000000001); name != "ada" || err != nil {
		t.Errorf("4000000001 is %q, %v", name, err)
	}
	if id, err := UserID("ada"); id != 4000000001 || err != nil {
		t.Errorf("ada is %d, %v", id, err)
	}
	if id, err := UserID("4000000001"); err == nil {
		t.Errorf("a number is the name of user %d", id)
	}
	if name, err := groupName("4000000002"); name != "lovelace" || err != nil {
		t.Errorf("4000000002 is %q, %v", name, err)
	}
	for uid, want := range map[int]string{
		4000000009: `user 4000000009 has no name here: getent passwd: no entry "4000000009"`,
		4000000003: `getent passwd 4000000003 printed "half:*"`,
	} {
		if name, err := UserName(uid); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d is %q, %v, want %s", uid, name, err, want)
		}
	}
}

func TestUsersOfFiles(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // without getent
	if name, err := UserName(0); name != "root" || err != nil {
		t.Errorf("0 is %q, %v", name, err)
	}
	if id, err := UserID("root"); id != 0 || err != nil {
		t.Errorf("root is %d, %v", id, err)
	}
	if _, err := UserID("nobody-of-this-name"); err == nil || !strings.Contains(err.Error(), "getent") {
		t.Errorf("no getent: %v", err)
	}
}
