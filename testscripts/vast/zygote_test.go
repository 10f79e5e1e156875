package vast

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// quickPython stands in for the Python that runs vastai: it has zygote.py run what it
// was asked to run.
func quickPython() {
	code, err := askZygote(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "python:", err)
		code = 1
	}
	os.Exit(code)
}

func askZygote(args []string) (int, error) {
	if err := noteArguments(); err != nil {
		return 0, err
	}
	message, err := json.Marshal(args)
	if err != nil {
		return 0, err
	}
	var conn net.Conn
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if conn, err = net.Dial("unix", os.Getenv("VASTAI_ZYGOTE")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return 0, err
		}
	}
	defer conn.Close()
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix(message, syscall.UnixRights(0, 1, 2), nil); err != nil {
		return 0, err
	}
	status := make([]byte, 1)
	if _, err := conn.Read(status); err != nil {
		return 0, err
	}
	return int(status[0]), nil
}

// noteArguments notes what every user of the machine could have read of this process.
func noteArguments() error {
	f, err := os.OpenFile(os.Getenv("VASTAI_ZYGOTE")+".argv", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%q\n", os.Args)
	return err
}

// quickClient puts a vastai on PATH that is the real one, but for the time that it
// takes to load.
func (w *world) quickClient() error {
	bin, socket := filepath.Join(w.dir, "bin"), filepath.Join(w.dir, "z")
	python, err := exec.LookPath("quick-python")
	if err == nil {
		err = os.Mkdir(bin, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(bin, "vastai"), []byte("#!"+python+"\n"), 0o755)
	}
	if err != nil {
		return err
	}
	w.env = append(w.env, "VASTAI_ZYGOTE="+socket, "PATH="+bin+":"+os.Getenv("PATH"))
	cmd := exec.Command(filepath.Join(client(w.t), "bin/python3"), filepath.Join(harness.Root(), "testscripts/vast/zygote.py"), socket)
	cmd.Env, cmd.Stderr = w.env, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return nil
}
