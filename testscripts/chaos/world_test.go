package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// world is a cluster, two queues and the agents, in one directory:
//
//	bin/       Slurm's commands with faults, and the tasks' command
//	slurm/     the cluster
//	fs/NAME/   a small file system for the spool and for each agent's data_dir
//	effects/   what the tasks' commands did
//	faults/    what the stand-ins are to do next
//	log/       what the agents say
//	hosted/    the repository of tasks with code
type world struct {
	t      testing.TB
	dir    string
	port   int
	env    []string // of the tools
	record *record
	agents []*agent
	mounts []*mount
	lock   *os.File

	cluster *harness.Held

	arkindex *server.Server
	web      *http.Server
	url      string
	doubles  atomic.Int32 // requests that are to be delivered twice
	tasks    *tasks
	code     code

	mu       sync.Mutex
	problems []string // what was seen to be wrong on the way
}

func (w *world) file(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// problem notes something that is wrong whatever becomes of the tasks.
func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// firstPort and ports are where the clusters of the seeds listen.
const (
	firstPort = 31300
	ports     = 20
	clusters  = 60
)

// newWorld makes the world of a seed. It ends with the test; after a failure its
// directory stays.
func newWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	if os.Geteuid() != 0 || os.Getenv("PONOS_TEST_SLURM") == "no" {
		needs.Missing(t, "a real Slurm, which takes root, and PONOS_TEST_SLURM other than \"no\"")
	}
	w := &world{t: t, dir: fmt.Sprintf("/tmp/ponos-chaos-%d", seed), port: firstPort + int(seed%clusters)*ports}
	w.holdPlace()
	t.Cleanup(w.end)
	for _, dir := range []string{"", "bin", "effects", "faults", "log", "fs", "tmp", "home", "hosted"} {
		w.must(os.MkdirAll(w.file(dir), 0o755))
	}
	w.record = &record{dir: w.dir}
	w.installPrograms()
	for _, name := range []string{"spool", "a", "b", "c", "d"} {
		w.mounts = append(w.mounts, w.mount(name))
	}
	w.startCluster()
	w.env = []string{
		"PATH=" + w.file("bin") + ":" + harness.Bin + ":" + realPath, "HOME=" + w.file("home"), "USER=root", "LOGNAME=root",
		"TZ=UTC", "LC_ALL=C", "TMPDIR=" + w.file("tmp"), mark + "=" + w.dir,
	}
	w.startArkindex()
	w.startCode()
	w.tasks = newTasks(w)
	return w
}

// mark is in the environment of all processes of the tools.
const mark = "PONOS_CHAOS"

// holdPlace takes the directory for this run, and removes what one that was killed
// has left there.
func (w *world) holdPlace() {
	var err error
	w.lock, err = os.OpenFile(w.dir+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	w.must(err)
	if err := syscall.Flock(int(w.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		w.t.Fatalf("another run has seed and directory %s", w.dir)
	}
	w.unmount()
	w.must(os.RemoveAll(w.dir))
}

func (w *world) unmount() {
	b, err := os.ReadFile("/proc/self/mountinfo")
	w.must(err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], w.dir+"/fs/") {
			w.must(unix.Unmount(f[4], unix.MNT_DETACH))
		}
	}
}

// end takes the world down.
func (w *world) end() {
	if w.web != nil {
		_ = w.web.Close()
	}
	for _, pid := range w.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if w.t.Failed() {
		// The file systems are in memory, and the cluster's logs end with it: they are kept
		// for who looks.
		_ = exec.Command("cp", "-a", w.file("fs"), w.file("kept")).Run()
		_ = exec.Command("cp", "-a", filepath.Join(w.slurmDir(), "log"), w.file("kept", "slurm")).Run()
	}
	if w.cluster != nil {
		if err := w.cluster.Close(); err != nil {
			w.t.Error(err)
		}
	}
	w.unmount()
	if !w.t.Failed() {
		_ = os.RemoveAll(w.dir)
		_ = os.Remove(w.dir + ".lock")
	}
	_ = w.lock.Close()
}

// processes are the processes of the tools that are alive.
func (w *world) processes() (pids []int) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		b, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte{0}, b...), []byte("\x00"+mark+"="+w.dir+"\x00")) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// installPrograms puts this test binary in place of Slurm's commands. Each name is
// a link of its own, by which the program finds its world.
func (w *world) installPrograms() {
	self, err := os.Executable()
	w.must(err)
	from, err := os.Open(self)
	w.must(err)
	defer from.Close()
	first := ""
	for name := range standIns {
		path := w.file("bin", name)
		if first != "" {
			w.must(os.Link(first, path))
			continue
		}
		to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
		w.must(err)
		_, err = io.Copy(to, from)
		w.must(errors.Join(err, to.Close()))
		first = path
	}
}

// startArkindex serves the Arkindex of the tests, with requests that come twice.
func (w *world) startArkindex() {
	var err error
	w.arkindex, err = server.New(server.Options{AnyHost: true, Store: w.storeHost})
	w.must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	w.url = "http://" + listener.Addr().String() + "/"
	w.web = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && w.doubles.Load() > 0 && w.doubles.Add(-1) >= 0 {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				began := time.Now()
				again := r.Clone(context.Background())
				again.Body = io.NopCloser(bytes.NewReader(body))
				w.arkindex.ServeHTTP(httptest.NewRecorder(), again)
				w.record.add(event{Kind: "net-doubled", Began: began, Ended: time.Now(), Detail: r.Method + " " + r.URL.Path, Fault: true})
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		w.arkindex.ServeHTTP(out, r)
	})}
	go func() { _ = w.web.Serve(listener) }()
}

// mount is a small file system that can be full, read-only, or lack a directory.
type mount struct {
	sync.Mutex // one fault at a time
	name, path string
	sub        string // the directory in it that is used
}

const (
	mountSize   = "size=128m"
	mountInodes = "nr_inodes=60000"
)

func (w *world) mount(name string) *mount {
	m := &mount{name: name, path: w.file("fs", name)}
	w.must(os.MkdirAll(m.path, 0o755))
	w.must(unix.Mount("ponos-chaos", m.path, "tmpfs", 0, mountSize+","+mountInodes+",mode=755"))
	m.sub = filepath.Join(m.path, "data")
	if name == "spool" {
		m.sub = filepath.Join(m.path, "spool")
	}
	return m
}

// limit gives the file system as much as it has in use, and a little.
func (m *mount) limit(blocks, inodes int) error {
	var s unix.Statfs_t
	if err := unix.Statfs(m.path, &s); err != nil {
		return err
	}
	data := fmt.Sprintf("size=%d", (int64(s.Blocks-s.Bfree)+int64(blocks))*s.Bsize)
	if inodes >= 0 {
		data = fmt.Sprintf("nr_inodes=%d", int(s.Files-s.Ffree)+inodes)
	}
	return unix.Mount("ponos-chaos", m.path, "", unix.MS_REMOUNT, data)
}

func (m *mount) unlimit() error {
	return unix.Mount("ponos-chaos", m.path, "", unix.MS_REMOUNT, mountSize+","+mountInodes)
}

// readOnly makes the file system read-only for the agents; the jobs' nodes have
// mounts of their own.
func (m *mount) readOnly(on bool) error {
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND)
	if on {
		flags |= unix.MS_RDONLY
	}
	err := unix.EBUSY
	for range 200 {
		if e := unix.Mount("", m.path, "", flags, ""); e == nil || !errors.Is(e, unix.EBUSY) {
			return e
		}
		time.Sleep(5 * time.Millisecond) // somebody writes
	}
	return err
}
