package agent

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// What the configuration names, and the configuration, is refused by every tool that reads it, if others can write to it, by its mode
// or an access list, if it belongs to another user, or if another user's link leads to it. The hint mends it.
func TestOthersWrite(t *testing.T) {
	t.Parallel()
	const owner, other = 65534, 1
	dir, err := os.MkdirTemp("/tmp", "ponos-writers") // other users cannot see t.TempDir
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	root := os.Geteuid() == 0
	run := func(words ...string) (string, int) {
		t.Helper()
		if root {
			words = append([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"}, words...)
		}
		c := exec.Command(words[0], words[1:]...)
		c.Dir = dir
		c.Env = append(harness.Clock(), "PATH="+harness.Bin+":/usr/bin:/bin", "HOME="+dir, "PONOS_CONFIG="+filepath.Join(dir, "ponos.yaml"))
		b, _ := c.CombinedOutput()
		return string(b), c.ProcessState.ExitCode()
	}
	if root {
		must(os.Chown(dir, owner, owner))
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	text := "mode: local\nqueue: spool:" + file("spool") + "\ndata_dir: " + file("data") + "\npid_file: " + file("pid") +
		"\nvast_api:\n  api_key_file: " + file("key") + "\n"
	for name, content := range map[string]string{"ponos.yaml": text, "key": "k\n", "pid": ""} {
		must(os.WriteFile(file(name), []byte(content), 0o600))
		if root {
			must(os.Chown(file(name), owner, owner))
		}
	}
	if out, code := run("ponos-submit", "--name", "mine", "--", "true"); code != 0 {
		t.Fatal(out)
	}
	if out, code := run("mkdir", "-p", "-m", "700", file("data/state")); code != 0 {
		t.Fatal(out)
	}
	id, code := run("ponos-list", "--ids")
	if code != 0 {
		t.Fatal(id)
	}
	id = strings.TrimSpace(id)
	tools := [][]string{
		{"ponos-setup", "--check"}, {"ponos-poll"}, {"ponos-stop", id}, {"ponos-start", id}, {"ponos-submit", "--", "true"},
		{"ponos-list"}, {"ponos-log", "mine"}, {"ponos-cancel", "mine"}, {"ponos-retry", "mine"}, {"ponos-run", "--", "true"}, {"vast-reap"},
	}

	// Each attack returns how it is undone where the hint is for root.
	attacks := map[string]func(path string) (mend func(), done bool){
		"mode": func(path string) (func(), bool) {
			info, err := os.Stat(path)
			must(err)
			must(os.Chmod(path, info.Mode()|0o020))
			return nil, true
		},
		"access list": func(path string) (func(), bool) { return nil, grant(path, other) },
		"owner": func(path string) (func(), bool) {
			if !root {
				return nil, false
			}
			must(os.Chown(path, other, other))
			return func() { must(os.Chown(path, owner, owner)) }, true
		},
		"link": func(path string) (func(), bool) {
			if !root {
				return nil, false
			}
			must(os.Rename(path, path+".real"))
			must(os.Symlink(path+".real", path))
			must(os.Lchown(path, other, other))
			return func() { must(os.Remove(path)); must(os.Rename(path+".real", path)) }, true
		},
	}
	for _, name := range []string{"ponos.yaml", "key", "pid", "data", "data/state", "spool", "spool/new"} {
		for how, attack := range attacks {
			if name == "pid" && how == "link" {
				continue // see guard_test.go: a link of one's own is refused too
			}
			path := file(name)
			mend, done := attack(path)
			if !done {
				continue
			}
			info, err := os.Stat(path)
			must(err)
			if how == "owner" && !info.IsDir() { // else it cannot be read
				must(os.Chmod(path, 0o644))
			}
			status := 2
			if name == "spool" && how == "owner" { // it is closed to this user
				status = 3
			}
			for _, words := range tools {
				if status == 3 && words[0] == "ponos-setup" {
					continue // it says so in its table, with 2 for the configuration
				}
				out, code := run(words...)
				if code != status || !strings.Contains(out, path) || !strings.Contains(out, words[0]+": hint: ") && words[0] != "ponos-setup" {
					t.Errorf("%s by %s: %s: status %d\n%s", name, how, strings.Join(words, " "), code, out)
				}
			}
			out, _ := run("ponos-list")
			if mend == nil {
				_, hint, _ := strings.Cut(out, "ponos-list: hint: ")
				mended, code := run("sh", "-c", strings.TrimSpace(hint))
				if !strings.HasPrefix(hint, "chmod go-w ") || code != 0 {
					t.Errorf("%s by %s: hint %q: %d %s", name, how, hint, code, mended)
				}
			} else {
				mend()
			}
			if !info.IsDir() {
				must(os.Chmod(path, 0o600))
			}
			if out, code := run("ponos-list"); code != 0 || !strings.Contains(out, "mine") {
				t.Fatalf("%s by %s: it is not mended: %d\n%s", name, how, code, out)
			}
		}
	}
}

// grant has an access list let a user write to a file; false: the file system has none.
func grant(path string, uid uint32) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	entry := func(tag, perm uint16, id uint32) []byte {
		b := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, tag), perm)
		return binary.LittleEndian.AppendUint32(b, id)
	}
	const none = 1<<32 - 1
	bits := uint16(6)
	if info.IsDir() {
		bits = 7
	}
	list := slices.Concat(binary.LittleEndian.AppendUint32(nil, 2),
		entry(1, bits, none), entry(2, bits, uid), entry(4, 0, none), entry(16, bits, none), entry(32, 0, none))
	return unix.Setxattr(path, "system.posix_acl_access", list, 0) == nil
}
