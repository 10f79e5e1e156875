package docs

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// One login serves what examples/login does on another host, whose status and results arrive.
func TestLogin(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "login") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	server := filepath.Join(harness.Root(), "testscripts/jobpool/sshd")
	t.Cleanup(func() {
		_ = exec.Command(server, dir, "stop").Run()
		os.RemoveAll(dir)
	})
	home, project, bin := filepath.Join(dir, "home"), filepath.Join(dir, "my project"), filepath.Join(dir, "bin")
	for _, d := range []string{home, project, bin} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(server, dir, strconv.Itoa(port), "HOME="+home, "PATH="+harness.Bin+":/usr/local/bin:/usr/bin:/bin").CombinedOutput(); err != nil {
		needs.Missing(t, "an sshd: "+err.Error()+": "+string(out))
	}
	reached, err := os.ReadFile(filepath.Join(dir, "ssh_config"))
	if err != nil {
		t.Fatal(err)
	}
	config := strings.ReplaceAll(read(t, "examples/login/config"), "~/.ssh", dir)
	config = strings.ReplaceAll(config, "	HostName login.example.org\n", "") + strings.ReplaceAll(string(reached), "Host n*", "Host *")
	files := map[string]string{
		filepath.Join(dir, "config"):       config,
		filepath.Join(bin, "ssh"):          "#!/bin/sh\nexec /usr/bin/ssh -F '" + dir + "/config' \"$@\"\n",
		filepath.Join(project, "train.sh"): "echo \"it is $1\" >'the result'\nexit $2\n",
	}
	for name, text := range files {
		executable.Write(t, name, text)
	}
	content := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	before := strings.Count(content(filepath.Join(dir, "sshd.log")), "Accepted publickey")
	for code, word := range []string{"o'clock; exit $", "again"} {
		c := exec.Command("bash", filepath.Join(harness.Root(), "examples/login/run.sh"), "cluster", "sh", "train.sh", word, strconv.Itoa(code))
		c.Dir, c.Env = project, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, _ := c.CombinedOutput()
		if got := c.ProcessState.ExitCode(); got != code {
			t.Errorf("status %d, want %d\n%s", got, code, out)
		}
		kept, _ := filepath.Glob(filepath.Join(project, "results/*/*/the result"))
		var results strings.Builder
		for _, name := range kept {
			results.WriteString(content(name))
		}
		if len(kept) != code+1 || !strings.Contains(results.String(), "it is "+word+"\n") {
			t.Errorf("results: %q in %q\n%s", &results, kept, out)
		}
	}
	if out, err := exec.Command(filepath.Join(bin, "ssh"), "-O", "exit", "cluster").CombinedOutput(); err != nil {
		t.Errorf("no connection stayed: %v: %s", err, out)
	}
	if n := strings.Count(content(filepath.Join(dir, "sshd.log")), "Accepted publickey") - before; n != 1 {
		t.Errorf("%d logins, want 1", n)
	}
}
