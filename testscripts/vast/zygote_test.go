package vast

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/testscripts/executable"
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
	conn, err := dial(os.Getenv("VASTAI_ZYGOTE"))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix(append(message, '\n'), syscall.UnixRights(0, 1, 2), nil); err != nil {
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
	if err != nil {
		return err
	}
	executable.Write(w.t, filepath.Join(bin, "vastai"), "#!"+python+"\n")
	w.env = append(w.env, "VASTAI_ZYGOTE="+socket, "PATH="+bin+":"+os.Getenv("PATH"))
	venv := client(w.t) // which may skip the test
	base.once.Do(func() { base.err = startBase(venv) })
	if base.err != nil {
		return base.err
	}
	conn, err := dial(base.socket)
	if err != nil {
		return err
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	env := map[string]string{}
	for _, variable := range w.env {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	if err := json.NewEncoder(conn).Encode(map[string]any{"env": env, "socket": socket}); err != nil {
		return err
	}
	// It loads the program now, which is not to count as time that an answer takes.
	for deadline := time.Now().Add(harness.Patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// base has loaded all that the vastai program needs.
var base struct {
	once   sync.Once
	err    error
	socket string
	stdin  io.WriteCloser // it ends when this does
}

func startBase(venv string) error {
	dir, err := os.MkdirTemp("", "ponos-vast-")
	if err != nil {
		return err
	}
	base.socket = filepath.Join(dir, "z")
	cmd := exec.Command(filepath.Join(venv, "bin/python3"), filepath.Join(harness.Root(), "testscripts/vast/zygote.py"), base.socket)
	cmd.Stderr = os.Stderr
	if base.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	return cmd.Start()
}

func dial(socket string) (conn net.Conn, err error) {
	for deadline := time.Now().Add(harness.Patience); ; time.Sleep(20 * time.Millisecond) {
		if conn, err = net.Dial("unix", socket); err == nil || time.Now().After(deadline) {
			return conn, err
		}
	}
}
