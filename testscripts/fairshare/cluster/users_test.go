package cluster

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// cluster is the real Slurm, and the users of it.
type cluster struct {
	t   *testing.T
	dir string
	env []string
}

func newCluster(t *testing.T) cluster {
	env := harness.Cluster(t)
	c := cluster{t: t, dir: env["PONOS_CLUSTER"], env: []string{"PATH=" + os.Getenv("PATH") + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "TZ=UTC", "LC_ALL=C", "HOME=/nonexistent"}}
	for name, value := range env {
		c.env = append(c.env, name+"="+value)
	}
	if c.dir == "" {
		c.dir = filepath.Dir(filepath.Dir(env["SLURM_CONF"]))
	}
	return c
}

// as runs a program as a user, in that user's directory.
func (c cluster) as(user string, args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	if user != "root" {
		cmd = exec.Command("/usr/sbin/runuser", append([]string{"-u", user, "--"}, args...)...)
		if _, err := os.Stat(cmd.Path); err != nil {
			cmd.Path = "/sbin/runuser"
		}
		cmd.Dir = filepath.Join(c.dir, "work", user)
	}
	cmd.Env = c.env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		c.t.Fatal(err)
	}
	harness.Worded(c.t, out.String()+errs.String())
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a program that has to succeed.
func (c cluster) must(user string, args ...string) string {
	c.t.Helper()
	out, errs, code := c.as(user, args...)
	if code != 0 {
		c.t.Fatalf("%s as %s: exit status %d: %s", strings.Join(args, " "), user, code, errs)
	}
	return out
}

// submit submits a job that sleeps.
func (c cluster) submit(user string, args ...string) string {
	c.t.Helper()
	out := c.must(user, append(append([]string{"sbatch", "--parsable"}, args...), "--output=/dev/null", "--wrap=sleep 7200")...)
	return strings.TrimSpace(out)
}

func (c cluster) state(job string) string {
	return strings.TrimSpace(c.must("root", "squeue", "--noheader", "--all", "--jobs="+job, "--format=%T"))
}

// until waits for something, on a machine that is busy.
func (c cluster) until(what string, done func() bool) {
	c.t.Helper()
	if !harness.Wait(done) {
		c.t.Fatalf("waited in vain for %s\n%s", what, c.picture())
	}
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}
