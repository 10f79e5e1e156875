package arkindex

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, map[string]func(){
		"arkindex-server": func() {
			if err := server.Main(os.Args[1:], os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, "arkindex-server:", err)
				os.Exit(1)
			}
		},
		"turn": turn,
	}, "ponos-setup", "ponos-poll", "ponos-start", "ponos-stop")
}

// turn is one turn of the agent, and then prints the tasks as the server sees them.
func turn() {
	pipeline := exec.Command("sh", "-c", "ponos-poll | ponos-stop | ponos-start >&2")
	pipeline.Stderr = os.Stderr
	if err := pipeline.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "turn:", err)
	}
	if err := server.Main([]string{"get", "tasks"}, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "turn:", err)
		os.Exit(1)
	}
}

// TestScripts runs the agent against the server. Beyond the commands of the
// harness, a script has
//
//	arkindex up [-moved] [-log-type TYPE] …   starts its server, or again at the same place
//	arkindex down                             ends it; what it knows stays
//	arkindex add FILE                         adds tasks and more to it, with $VARIABLES replaced
//
// and the program turn. COMMIT and REPOSITORY are those of the real worker. The
// configuration is in PONOS_CONFIG once the server is up.
func TestScripts(t *testing.T) {
	w := serveWorker(t)
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		w.scripts(t, ".", nil)
	})
	// The agent in Slurm mode.
	t.Run("slurm", func(t *testing.T) {
		t.Parallel()
		w.scripts(t, "slurm", harness.Cluster(t))
	})
}

func (w worker) scripts(t *testing.T, dir string, cluster map[string]string) {
	t.Helper()
	harness.Run(t, harness.Options{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			i := &instance{file: filepath.Join(env.WorkDir, "arkindex.url"), slurm: cluster != nil}
			for name, value := range cluster {
				env.Setenv(name, value)
			}
			env.Values[instanceKey{}] = i
			env.Defer(i.down)
			env.Setenv("ARKINDEX_SERVER", i.file)
			env.Setenv("COMMIT", w.commit)
			env.Setenv("REPOSITORY", w.url)
			// Environments can be shared by agents, and are here: each takes seconds.
			data := filepath.Join(env.WorkDir, "data")
			if err := os.Mkdir(data, 0o700); err != nil {
				return err
			}
			if err := os.Symlink(w.environments, filepath.Join(data, "environments")); err != nil {
				return err
			}
			env.Setenv("DOLLAR", "$")
			env.Setenv("PONOS_CONFIG", filepath.Join(env.WorkDir, "ponos.yaml"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"arkindex": arkindexCmd},
	})
}

// worker is the repository of the real worker, served for all scripts.
type worker struct{ url, commit, environments string }

func serveWorker(t *testing.T) worker {
	t.Helper()
	dir := t.TempDir()
	w := worker{commit: repository(t, filepath.Join(dir, "worker.git")), environments: filepath.Join(dir, "environments")}
	if err := os.Mkdir(w.environments, 0o700); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(web.Close)
	w.url = web.URL + "/worker.git"
	return w
}

type instanceKey struct{}

// instance is the server of one script.
type instance struct {
	file    string
	slurm   bool
	mu      sync.Mutex
	handler *server.Server
	address string
	web     *http.Server
}

func (i *instance) up(args []string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.handler == nil {
		var err error
		if i.handler, err = server.NewFromFlags(args); err != nil {
			return err
		}
		i.address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", i.address)
	if err != nil {
		return err
	}
	i.address = listener.Addr().String()
	i.web = &http.Server{Handler: i.handler, ReadHeaderTimeout: time.Minute}
	go func(web *http.Server) {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}(i.web)
	return server.Announce(i.file, listener.Addr())
}

func (i *instance) down() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.web != nil {
		_ = i.web.Close()
		i.web = nil
	}
}

func arkindexCmd(ts *testscript.TestScript, neg bool, args []string) {
	i := ts.Value(instanceKey{}).(*instance)
	switch {
	case neg || len(args) == 0:
		ts.Fatalf("usage: arkindex up [flags] | down | add file")
	case args[0] == "up":
		ts.Check(i.up(args[1:]))
		ts.Check(os.WriteFile(ts.Getenv("PONOS_CONFIG"), []byte(i.configuration(ts.Getenv("WORK"))), 0o600))
	case args[0] == "down":
		i.down()
	case args[0] == "add" && len(args) == 2:
		var spec server.Spec
		ts.Check(json.Unmarshal([]byte(os.Expand(ts.ReadFile(args[1]), ts.Getenv)), &spec))
		ts.Check(i.handler.Add(spec))
	default:
		ts.Fatalf("unknown command %q", args[0])
	}
}

func (i *instance) configuration(work string) string {
	mode := "mode: local\n"
	if i.slurm {
		mode = "slurm: {base: {time: 10}, cpu: {partition: cpu}, gpu: {partition: gpu, gres: 'gpu:1'}}\n"
	}
	return fmt.Sprintf("url: http://%s/\nfarm_id: %s\nseed: %s\ndata_dir: %s/data\npid_file: %s/ponos.pid\n",
		i.address, server.FarmID, server.Seed, work, work) + mode
}
