package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// A spool has one owner, for whom its agent submits jobs. Others, root among them, are told
// whose it is before a task is accepted that this agent could not read.
func TestSpoolOfAnotherUser(t *testing.T) {
	t.Parallel()
	needs.Root(t, "to be another user")
	dir, err := os.MkdirTemp("/tmp", "ponos-owner") // other users cannot see t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	own, config := filepath.Join(dir, "own"), filepath.Join(dir, "ponos.yaml")
	for _, d := range []string{own, filepath.Join(dir, "tmp")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	as := func(uid string, words ...string) (out string, code int) {
		t.Helper()
		if uid != "" {
			words = append([]string{"setpriv", "--reuid=" + uid, "--regid=" + uid, "--clear-groups", "--"}, words...)
		}
		c := exec.Command(words[0], words[1:]...)
		c.Env = append(harness.Clock(), "PATH="+harness.Bin+":/usr/bin:/bin", "HOME="+filepath.Join(dir, "home"+uid), "PONOS_CONFIG="+config)
		b, _ := c.CombinedOutput()
		return string(b), c.ProcessState.ExitCode()
	}
	must := func(uid string, words ...string) string {
		t.Helper()
		out, code := as(uid, words...)
		if code != 0 {
			t.Fatalf("%s: %d\n%s", strings.Join(words, " "), code, out)
		}
		return out
	}
	if err := os.WriteFile(config, []byte("queue: spool:"+own+"/spool\ndata_dir: "+own+"/data\npid_file: "+own+"/pid\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	must("", "chown", "65534:65534", own)
	must("", "chmod", "755", dir)
	must("65534", "ponos-setup")
	must("65534", "ponos-submit", "--name", "mine", "--", "true")
	must("65534", "ponos-cancel", "mine")
	user := strings.TrimSpace(must("65534", "id", "-un"))

	refused := func(uid string, status int, want string, words ...string) {
		t.Helper()
		if out, code := as(uid, words...); code != status || !strings.Contains(out, want) || !strings.Contains(out, words[0]+": hint: ") {
			t.Errorf("user %q: %s: status %d, want %d and %q\n%s", uid, strings.Join(words, " "), code, status, want, out)
		}
	}
	hidden := `permission denied: "` + own + `" belongs to user ` + user
	refused("1", 3, hidden, "ponos-submit", "--", "true")
	refused("1", 3, hidden, "ponos-list")
	refused("1", 3, hidden, "ponos-cancel", "mine")
	refused("1", 2, "data_dir", "ponos-poll")
	refused("1", 2, hidden, "ponos-setup", "--check")

	// Root may look. A task of root's would never start, and other files of root's are
	// such as the agent of the owner cannot read.
	theirs := `spool "` + own + `/spool" belongs to user ` + user + `, and this is user root`
	refused("", 3, theirs, "ponos-submit", "--", "true")
	refused("", 3, theirs, "ponos-submit", ":::", "n=1", "n=2", "--", "true", "{n}")
	refused("", 3, theirs, "ponos-retry", "mine")
	refused("", 2, `data_dir: "`+own+`/data" belongs to user `+user, "ponos-poll")
	refused("", 2, theirs, "ponos-setup", "--check")
	must("65534", "ponos-submit", "--name", "waits", "--", "true")
	refused("", 3, theirs, "ponos-cancel", "waits")
	if out := must("", "ponos-list", "--state", "pending"); !strings.Contains(out, "waits") {
		t.Errorf("root sees\n%s", out)
	}
	if out := must("", "find", own, "!", "-user", user); out != "" {
		t.Errorf("not of the owner:\n%s", out)
	}
	must("65534", "ponos-cancel", "waits")
	must("65534", "ponos-poll")
	if out := must("65534", "ponos-list", "--state", "stopped", "--names"); out != "mine\nwaits\n" {
		t.Errorf("stopped:\n%s", out)
	}

	// Where everybody may write, the owner still counts, and nobody, root among them, uses what everybody may have written.
	must("", "chmod", "-R", "a+rwX", own)
	refused("1", 2, `data" belongs to user `+user, "ponos-submit", "--", "true")
	for _, uid := range []string{"", "65534"} {
		refused(uid, 2, `others can write to "`+own, "ponos-list")
	}
	for _, words := range [][]string{
		{"ponos-submit", "--", "true"}, {"ponos-poll"}, {"ponos-cancel", "mine"}, {"ponos-retry", "mine"}, {"ponos-log", "mine"},
		{"ponos-setup", "--check"},
	} {
		refused("65534", 2, `others can write to "`+own, words...)
	}
	must("65534", "chmod", "-R", "go-w", own)
	must("65534", "ponos-list")

	must("", "chmod", "600", config)
	refused("1", 2, "permission denied", "ponos-list")
}
