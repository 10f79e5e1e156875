package jobpool

import (
	"bufio"
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Programs that send rubbish, read nothing, hang, or are too many keep nobody else
// from being served.
func TestServeSurvivesItsClients(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	p.env = append(p.env, "JOBPOOL_TEST="+p.dir)
	p.wrap = []string{"sh", "-c", `ulimit -n 80; exec "$@"`, "sh"}
	scheduler := p.command("serve", "-q", "-j2", "--run", "run")
	if err := scheduler.Start(); err != nil {
		t.Fatal(err)
	}
	p.wrap = nil
	p.eventually("the pool is there", func() bool { return p.status() != nil })
	connect := func() net.Conn {
		c, err := net.Dial("unix", filepath.Join(p.dir, "run", "ctl.sock"))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(3 * time.Minute))
		return c
	}
	call := func() {
		t.Helper()
		if status, stdout, stderr := p.run("", "call", "--run", "run", "echo served"); status != 0 || stdout != "served\n" {
			t.Errorf("exit %d: %s%s", status, stdout, stderr)
		}
	}

	rubbish := connect()
	rubbish.Write([]byte("\x00\xff{]\n[1,2]\n{\"op\":\"run\",\"task\":{\"cmd\":5}}\n{\"op\":\"cancel\",\"seqs\":[-1,99999999999]}\n"))
	in := bufio.NewReader(rubbish)
	for range 3 {
		if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, `"error":"request cannot be read: `) {
			t.Errorf("answer %q, %v", line, err)
		}
	}
	if line, err := in.ReadString('\n'); err != nil || line != "{}\n" {
		t.Errorf("answer %q, %v", line, err)
	}

	long := connect()
	go long.Write(bytes.Repeat([]byte("x"), 9<<20))
	if line, err := bufio.NewReader(long).ReadString('\n'); err != nil || !strings.Contains(line, "request is longer than 8 MiB") {
		t.Errorf("answer %q, %v", line, err)
	}

	deaf := connect()
	go func() { // answers nobody reads
		for {
			if _, err := deaf.Write(bytes.Repeat([]byte("{\"op\":\"status\"}\n"), 1000)); err != nil {
				return
			}
		}
	}()
	half := connect()
	half.Write([]byte(`{"op":"run","task":`))
	call()

	var many []net.Conn
	for range 100 { // more than files can be open
		many = append(many, connect())
	}
	time.Sleep(300 * time.Millisecond)
	for _, c := range append(many, rubbish, long, deaf, half) {
		c.Close()
	}
	call()
	if status, _, stderr := p.run("", "ctl", "drain", "--run", "run"); status != 0 {
		t.Errorf("exit %d: %s", status, stderr)
	}
	if err := scheduler.Wait(); err != nil {
		t.Error(err)
	}
	p.noneLeft()
}
