package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// container is the process of a running instance.
type container struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// killAll ends what a container has started, as the kernel does: those that have this process's group as their own, and those
// that its first process and they have started.
func killAll(first int) {
	all := []int{first}
	for n := 0; n < len(all); n++ {
		files, _ := filepath.Glob("/proc/" + strconv.Itoa(all[n]) + "/task/*/children")
		for _, name := range files {
			b, _ := os.ReadFile(name)
			for _, word := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(word); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	_ = syscall.Kill(-first, syscall.SIGKILL)
	for _, pid := range all[1:] {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (c *container) kill() {
	killAll(c.cmd.Process.Pid)
	<-c.done
}

// run starts an instance's container. The lock must be held.
func (s *Server) run(i *Instance) {
	if i.proc != nil || !i.Destroyed.IsZero() || s.closed {
		return
	}
	i.Actual, i.Message, i.runSince = "running", "success, running "+i.Image, s.now()
	i.Runs++
	if s.opt.Dir == "" {
		return
	}
	dir := filepath.Join(s.opt.Dir, strconv.FormatInt(i.ID, 10))
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o755); err != nil {
		i.Message = err.Error()
		return
	}
	out, err := os.OpenFile(filepath.Join(dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		i.Message = err.Error()
		return
	}
	// Bounded, should the tests be killed.
	cmd := exec.Command("timeout", append([]string{"--foreground", "-s", "KILL", "300", i.Entry}, i.Args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append([]string{
		"CONTAINER_ID=" + strconv.FormatInt(i.ID, 10), "CONTAINER_API_KEY=" + i.Key, "VAST_CONTAINERLABEL=C." + strconv.FormatInt(i.ID, 10),
		fmt.Sprintf("GPU_COUNT=%v", s.row(i)["num_gpus"]), "HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"),
	}, s.opt.Env...)
	if m := s.machines[int64(num(i.Offer["machine_id"]))]; m != nil && m.Path != "" {
		for _, variable := range s.opt.Env {
			if path, ok := strings.CutPrefix(variable, "PATH="); ok {
				cmd.Env = append(cmd.Env, "PATH="+m.Path+":"+path)
			}
		}
	}
	for name, value := range i.Env {
		// In a container this is a place of its own.
		if value == "/data" || strings.HasPrefix(value, "/data/") {
			value = filepath.Join(dir, value)
		}
		if name == "VAST_URL" {
			value = s.opt.URL
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if _, ok := i.Env["VAST_URL"]; !ok {
		cmd.Env = append(cmd.Env, "VAST_URL="+s.opt.URL)
	}
	if err := cmd.Start(); err != nil {
		_ = out.Close()
		i.Actual, i.Message, i.runSince = "created", "Error response from daemon: OCI runtime create failed: "+strings.ReplaceAll(err.Error(), "\n", " "), time.Time{}
		return
	}
	_ = out.Close()
	c := &container{cmd, make(chan struct{})}
	i.proc = c
	gen := i.gen
	go func() {
		_ = cmd.Wait()
		killAll(cmd.Process.Pid) // a container ends with its first process
		close(c.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		if i.gen != gen || i.proc != c {
			return
		}
		i.proc, i.Actual = nil, "exited"
		i.GPUTime += s.now().Sub(i.runSince)
		i.runSince = time.Time{}
		// A container that ends is started again until its instance is stopped.
		time.AfterFunc(s.opt.Restart, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if i.gen == gen && i.Intended == "running" {
				s.run(i)
			}
		})
	}()
}

// halt ends an instance's container. The lock must be held.
func (s *Server) halt(i *Instance, actual, intended string) {
	i.gen++
	if i.proc != nil {
		killAll(i.proc.cmd.Process.Pid)
		i.proc = nil
	}
	if !i.runSince.IsZero() {
		i.GPUTime += s.now().Sub(i.runSince)
		i.runSince = time.Time{}
	}
	i.Actual, i.Intended = actual, intended
}

// Crash ends the first process of an instance's container, as the host does.
func (s *Server) Crash(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(id); i != nil && i.proc != nil {
		s.due(i)
		killAll(i.proc.cmd.Process.Pid)
	}
}
