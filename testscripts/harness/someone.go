package harness

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Someone is a user of the real cluster, who runs commands in a directory of his own.
type Someone struct {
	T    *testing.T
	Name string
	Env  []string
	Dir  string // also HOME, on a file system that the nodes share
	cred *syscall.Credential
}

// As returns a user of the cluster, which is started if need be.
func As(t *testing.T, name string) *Someone {
	t.Helper()
	cluster := Cluster(t)
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	dir, err3 := os.MkdirTemp("/tmp", "ponos-"+name+"-")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	s := &Someone{T: t, Name: name, Dir: dir, cred: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	s.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "TZ=UTC", "LC_ALL=C", "USER=" + name}
	for k, v := range cluster {
		s.Env = append(s.Env, k+"="+v)
	}
	return s
}

// Command prepares a command of the user.
func (s *Someone) Command(args ...string) *exec.Cmd {
	c := exec.Command(args[0], args[1:]...)
	c.Env, c.Dir = s.Env, s.Dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return c
}

// Run runs a command and returns its output, its errors and its exit status.
func (s *Someone) Run(args ...string) (stdout, stderr string, status int) {
	s.T.Helper()
	c := s.Command(args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		status = exit.ExitCode()
	case err != nil:
		s.T.Fatalf("%v: %v", args, err)
	}
	return out.String(), errs.String(), status
}

// Must runs a command that has to succeed, and returns its output.
func (s *Someone) Must(args ...string) string {
	s.T.Helper()
	out, errs, status := s.Run(args...)
	if status != 0 {
		s.T.Fatalf("%v: status %d\n%s%s", args, status, out, errs)
	}
	return out
}

// Write puts a file into the user's directory.
func (s *Someone) Write(name, text string) {
	s.T.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(text), 0o644); err != nil {
		s.T.Fatal(err)
	}
}
