package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/outage"
)

// code is what tasks with code need, each with faults of its own: a git host, a package index and a store of objects.
type code struct {
	git, index, store *outage.Server

	mu      sync.Mutex
	nowhere bool // the name of the store does not resolve
	pushed  int
}

// nowhere is a host that no resolver asks for, as a part of its name is too long.
var nowhere = strings.Repeat("x", 64) + ".example"

// commit is one of the repository.
type commit struct {
	hash     string
	number   int
	packages bool // it has requirements
}

const (
	aPackage = "greeting" // of the index
	aModel   = "models/model.bin"
	inModel  = "what a model is made of"
)

// startCode starts the hosts of code. The store is one of Arkindex's server.
func (w *world) startCode() {
	pip := glob(filepath.Join(harness.Venv(w.t, harness.Packages{Name: "pip"}), "lib/python3*/site-packages/pip"))
	if len(pip) != 1 {
		w.t.Fatalf("pip of the virtual environment: %q", pip)
	}
	w.must(os.Symlink(filepath.Dir(pip[0]), w.file("packages")))
	serve := func(handler http.Handler, err error) *outage.Server {
		w.must(err)
		s, err := outage.Serve(handler)
		w.must(err)
		w.t.Cleanup(func() { _ = s.Close() })
		return s
	}
	w.code.git = serve(outage.Git(w.file("hosted")))
	w.code.index = serve(outage.Index(map[string][]string{aPackage: {"1.0"}}))
	w.code.store = serve(w.arkindex, nil)
	w.must(w.arkindex.Add(server.Spec{Storage: map[string]string{aModel: inModel}}))
	w.env = append(w.env, "GIT_CONFIG_NOSYSTEM=1", "PIP_CONFIG_FILE=/dev/null", "PIP_INDEX_URL=http://"+w.code.index.Address+"/simple",
		"PIP_RETRIES=1", "PIP_TIMEOUT=5")
	w.git("init", "-q", "--bare", "-b", "main", w.file("hosted/r.git"))
	w.git("init", "-q", "-b", "main", w.file("work"))
}

func (w *world) git(args ...string) string {
	w.t.Helper()
	c := exec.Command("git", args...)
	c.Env = []string{
		"PATH=" + realPath, "HOME=" + w.dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org",
	}
	out, err := c.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *world) repository() string { return "http://" + w.code.git.Address + "/r.git" }

// storeHost is where the server of Arkindex says that objects are.
func (w *world) storeHost() string {
	w.code.mu.Lock()
	defer w.code.mu.Unlock()
	if w.code.nowhere {
		return nowhere
	}
	return w.code.store.Address
}

// push makes a commit, one in three with requirements.
func (w *world) push(random *rand.Rand) *commit {
	w.code.pushed++
	c := &commit{number: w.code.pushed, packages: random.IntN(3) == 0}
	w.must(os.WriteFile(w.file("work/number"), fmt.Append(nil, c.number), 0o600))
	_ = os.Remove(w.file("work/requirements.txt"))
	if c.packages {
		w.must(os.WriteFile(w.file("work/requirements.txt"), []byte(aPackage+"==1.0\n"), 0o600))
	}
	w.git("-C", w.file("work"), "add", "-A")
	w.git("-C", w.file("work"), "commit", "-qm", "x")
	w.git("-C", w.file("work"), "push", "-q", w.file("hosted/r.git"), "main")
	c.hash = w.git("-C", w.file("work"), "rev-parse", "HEAD")
	return c
}

// What the command of a task looks for, as its last argument: the number of its commit, "package" and "model".
func (i *item) wants() string {
	var all []string
	if i.commit != nil {
		all = append(all, fmt.Sprint(i.commit.number))
		if i.commit.packages {
			all = append(all, "package")
		}
	}
	if i.model {
		all = append(all, "model")
	}
	return strings.Join(all, ",")
}

// lacks returns what of that the command does not have.
func lacks(wants string) (all []string) {
	for want := range strings.SplitSeq(wants, ",") {
		have := true
		switch want {
		case "":
		case "package":
			have = len(glob(filepath.Join(os.Getenv("VIRTUAL_ENV"), "lib/python3*/site-packages", aPackage+".py"))) == 1
		case "model":
			b, err := os.ReadFile(filepath.Join(os.Getenv("PONOS_DATA"), "extra_files", filepath.Base(aModel)))
			have = err == nil && string(b) == inModel
		default:
			b, err := os.ReadFile("number")
			have = err == nil && string(b) == want
		}
		if !have {
			all = append(all, want)
		}
	}
	return all
}

// python is python3, whose virtual environments have the pip of the tests: to install one takes seconds of a processor.
func python(dir string) int {
	args, python := os.Args[1:], actual("python3").Path
	if len(args) != 4 || !slices.Equal(args[:3], []string{"-I", "-m", "venv"}) {
		// By its path: without one, Python takes the first of its name in PATH for itself.
		fmt.Fprintln(os.Stderr, "python3:", syscall.Exec(python, append([]string{python}, args...), os.Environ()))
		return 126
	}
	c := exec.Command(python, "-I", "-m", "venv", "--without-pip", args[3])
	c.Stdout, c.Stderr, c.SysProcAttr = os.Stdout, os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Run(); err != nil {
		return status(err)
	}
	for _, packages := range glob(filepath.Join(args[3], "lib/python3*/site-packages")) {
		if err := os.WriteFile(filepath.Join(packages, "pip.pth"), []byte(filepath.Join(dir, "packages")+"\n"), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "python3:", err)
			return 1
		}
	}
	return 0
}

// ofCode are the faults of the hosts of code.
func ofCode(add func(name, lane string, do func(*world, *rand.Rand) (string, bool))) {
	for lane, faults := range map[string][]outage.Fault{
		"git":   {outage.Refused, outage.Hangs, outage.Cut, outage.Page, "401", "404", "500", "503"},
		"index": {outage.Refused, outage.Hangs, outage.Cut, outage.Page, "401", "404", "502", "503"},
		"store": {outage.Refused, outage.Hangs, outage.Cut, outage.Page, "403", "500", "503"},
	} {
		for _, f := range faults {
			add(fmt.Sprintf("%s-%s", lane, f), lane, func(w *world, r *rand.Rand) (string, bool) {
				s := map[string]*outage.Server{"git": w.code.git, "index": w.code.index, "store": w.code.store}[lane]
				asked := s.Asked()
				if err := s.Break(f); err != nil {
					w.problem("%s: %v", lane, err)
				}
				time.Sleep(seconds(r, 2, 8))
				if err := s.Break(""); err != nil {
					w.problem("%s: %v", lane, err)
				}
				return fmt.Sprintf("%d requests", s.Asked()-asked), true
			})
		}
	}
	add("git-name", "git", func(w *world, r *rand.Rand) (string, bool) {
		text := fmt.Sprintf("[url \"http://%s/\"]\n\tinsteadOf = http://%s/\n", nowhere, w.code.git.Address)
		if os.WriteFile(w.file("home/.gitconfig"), []byte(text), 0o600) != nil {
			return "", false
		}
		time.Sleep(seconds(r, 2, 8))
		return "", os.Remove(w.file("home/.gitconfig")) == nil
	})
	add("store-name", "store", func(w *world, r *rand.Rand) (string, bool) {
		set := func(nowhere bool) {
			w.code.mu.Lock()
			defer w.code.mu.Unlock()
			w.code.nowhere = nowhere
		}
		set(true)
		defer set(false)
		time.Sleep(seconds(r, 2, 8))
		return "", true
	})
}
