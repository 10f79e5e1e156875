package vast

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	arkindex "github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// released is the program as it is released, and where containers fetch it.
var released = sync.OnceValues(func() (url string, err error) {
	dir, err := os.MkdirTemp("", "ponos-entry-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "vast-entry")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -buildid=", "-o", path, "./lib/market/entry/vast-entry")
	cmd.Dir, cmd.Env = harness.Root(), append(harness.Outside(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(program) })) // for all tests
	sum := sha256.Sum256(program)
	return web.URL + "/vast-entry-linux " + hex.EncodeToString(sum[:]), nil
})

// entryProgram is where containers fetch vast-entry, and its sum.
func entryProgram(t *testing.T) (url, sum string) {
	t.Helper()
	both, err := released()
	if err != nil {
		t.Fatal(err)
	}
	url, sum, _ = strings.Cut(both, " ")
	return url, sum
}

// tree makes the file tree of an image: busybox by so many names, programs of this machine
// with the libraries that they load, and a script that takes the place of curl, if it is not
// empty.
func tree(t *testing.T, applets, programs []string, curl string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"bin", "usr/bin", "tmp", "dev", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	// Another program copies: where this one has a program open for writing, a process that it
	// starts meanwhile has it so as well for a moment, and it cannot be run.
	put := func(from, to string) {
		to = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "--dereference", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	// A busybox that is linked against glibc wants to be told where names are looked up.
	for name, text := range map[string]string{"dev/null": "", "etc/nsswitch.conf": "hosts: files\nservices: files\n", "etc/hosts": "127.0.0.1 localhost\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if len(applets) > 0 {
		busybox, err := exec.LookPath("busybox")
		if err != nil {
			t.Fatal(err)
		}
		put(busybox, "bin/busybox")
		for _, name := range applets {
			if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if curl != "" {
		script := filepath.Join(t.TempDir(), "curl")
		executable.Write(t, script, "#!/bin/sh\n"+curl)
		put(script, "usr/bin/curl")
	}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		with := []string{path}
		if name == "python3" {
			with = python(t, root)
			put(with[0], with[0])
			err = os.Symlink(with[0], filepath.Join(root, "usr/bin/python3"))
		} else {
			put(path, "usr/bin/"+name)
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("ldd", with...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for word := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") {
				put(word, word)
			}
		}
	}
	return root
}

// python copies what Python loads for itself into a file tree, and returns where the program is, and the modules that load libraries.
func python(t *testing.T, root string) []string {
	t.Helper()
	// What is on PATH may be a script that looks for it.
	out, err := exec.Command("python3", "-I", "-c", "import os, sys, sysconfig; print(os.path.realpath(sys.executable), sysconfig.get_path('stdlib'))").Output()
	if err != nil {
		t.Fatal(err)
	}
	program, library, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err := os.MkdirAll(filepath.Join(root, library), 0o755); err != nil {
		t.Fatal(err)
	}
	tar := `cd "$1" && tar -cf - --exclude=__pycache__ --exclude=*-packages --exclude=test --exclude=config-* . | tar -C "$2" -xf -`
	if out, err := exec.Command("sh", "-c", tar, "sh", library, filepath.Join(root, library)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all := []string{program}
	for _, module := range []string{"_ssl", "_hashlib", "zlib", "_bz2", "_lzma"} {
		found, _ := filepath.Glob(filepath.Join(library, "lib-dynload", module+".*.so"))
		all = append(all, found...)
	}
	return all
}

// busybox are all names that it has, but for curl.
func busybox(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("busybox", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return name == "busybox" })
}

// printed is what a program has printed so far.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// contain runs what an instance would run within a file tree, and returns what it
// prints; end ends it.
func (w *world) contain(i server.Instance, root string) (output *printed, end func()) {
	w.t.Helper()
	cmd := exec.Command(i.Entry, i.Args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Chroot: root}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	}
	cmd.Env = []string{"PATH=/bin:/usr/bin", fmt.Sprintf("CONTAINER_ID=%d", i.ID), "CONTAINER_API_KEY=" + i.Key, "VAST_URL=" + w.url}
	for name, value := range i.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	output = &printed{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return output, func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
}

// A task runs in images that have little, and its end is told, and the instance stopped and destroyed, from within.
// Where the program cannot be fetched, the task is not run, and another machine is tried.
func TestEntry(t *testing.T) {
	t.Parallel()
	harness.Programs(t, "busybox=busybox-static", "curl", "wget", "python3")
	small := strings.Fields("sh sleep chmod uname sha256sum wget")
	for _, c := range []struct {
		name              string
		applets, programs []string
		curl              string // a script
		extra             string // of the configuration
		deaf              bool   // stops have no effect
		waits             bool   // it is not stopped
		mute              bool   // the key may not write the label
		unarmed           bool
		unserved          bool // it gets nothing from where the program is
		silent            bool // and can only write that into its log
	}{
		{name: "busybox only", applets: small},
		{name: "stops do nothing", applets: small, extra: "  entry_grace: 1s\n", deaf: true},
		{name: "curl", applets: small[:5], programs: []string{"curl"}},
		{name: "GNU wget", applets: small[:5], programs: []string{"wget"}},
		{name: "python3", applets: small[:5], programs: []string{"python3"}},
		{name: "curl without certificates", applets: small, curl: "exit 60"},
		{name: "alpine", applets: busybox(t)},
		{name: "it waits for the agent", applets: small, extra: "  entry_grace: 1s\n", waits: true},
		{name: "its label cannot be written", applets: small, extra: "  entry_grace: 1h\n", mute: true},
		{name: "no wget", applets: small[:5], unarmed: true},
		{name: "the program is not served", applets: append(small[:5:5], "printf", "["), programs: []string{"curl"}, extra: "  entry_grace: 1s\n", unarmed: true, unserved: true},
		{name: "the program is not served to GNU wget", applets: append(small[:5:5], "printf", "["), programs: []string{"wget"}, extra: "  entry_grace: 1s\n", unarmed: true, unserved: true},
		{name: "the program is not served to python3", applets: append(small[:5:5], "["), programs: []string{"python3"}, extra: "  entry_grace: 1s\n", unarmed: true, unserved: true},
		{name: "the program is not served to busybox wget", applets: busybox(t), unarmed: true, unserved: true, silent: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			extra := c.extra
			if !c.waits && !c.mute && !c.unserved {
				extra += "  entry_end: stop\n"
			}
			w := newWorld(t, options{via: "api", fake: true, scale: 1, boot: time.Millisecond, extra: extra})
			w.offers(1)
			w.task("task", "echo hello; echo $PPID; exit 3")
			w.until("it runs", func() bool { _, ok := running(w); return ok })
			w.market.Do(func() {
				if w.market.StopOnlyKeys = c.mute; c.deaf {
					w.market.DeafStops = 1 << 30
				}
			})
			i, _ := running(w)
			if c.unserved {
				i.Env = maps.Clone(i.Env)
				i.Env["PONOS_ENTRY"] = w.url + "/nowhere"
			}
			output, end := w.contain(i, tree(t, c.applets, c.programs, c.curl))
			defer end()
			over := func(i server.Instance) bool {
				if c.unserved && !c.silent {
					return strings.HasSuffix(i.Label, ":end=unarmed") && !i.Destroyed.IsZero()
				}
				if c.unarmed {
					return strings.Contains(output.String(), "PONOS-EXIT "+i.Env["PONOS_NONCE"]+" unarmed")
				}
				gone := c.deaf || c.waits
				return strings.HasSuffix(i.Label, ":end=3") != c.mute && (gone && !i.Destroyed.IsZero() || !gone && i.Intended == "stopped")
			}
			for start := time.Now(); !over(w.market.Instances()[0]); time.Sleep(20 * time.Millisecond) {
				if time.Since(start) > harness.Patience {
					t.Fatalf("%+v\n%s", w.market.Instances()[0], output)
				}
			}
			if ran := strings.Contains(output.String(), "@0 hello\n"); ran == c.unarmed {
				t.Errorf("%s", output)
			}
			end()
			w.market.SetLog(i.ID, output.String())
			if c.unarmed {
				w.until("the machine is given up", func() bool { return len(w.market.Alive()) == 0 })
				if strings.Contains(output.String(), i.Key) {
					t.Error("the key is in the log")
				}
				if log := w.agentLog(); (!c.unserved || c.silent) && !strings.Contains(log, "the container could not fetch or start vast-entry") {
					t.Errorf("%s", log)
				}
				return
			}
			w.due()
			w.settled("task")
			if n := len(w.market.Instances()); n != 1 {
				t.Errorf("%d instances: the task has run already", n)
			}
			// Where its container has destroyed it, and the agent had not looked before, the bill tells
			// the exit code.
			if log := string(w.queue.Log("task")); w.state("task") != "failed" {
				t.Errorf("task is %s\n%s", w.state("task"), log)
			}
			if left := w.market.Alive(); len(left) > 0 {
				t.Errorf("left are %+v", left)
			}
			if stops := slices.ContainsFunc(w.market.Requests("^PUT /api/v0/instances/"), func(r server.Request) bool { return strings.Contains(r.Body, "stopped") }); c.waits && stops {
				t.Error("it was stopped before the agent could come")
			}
			if strings.Contains(output.String(), i.Key) {
				t.Error("the key is in the log")
			}
		})
	}
}

// An image that is known to have nothing that could stop the instance is refused before
// money is spent.
func TestUnarmedImages(t *testing.T) {
	t.Parallel()
	blobs := map[string]string{}
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		key := "sha256:" + hex.EncodeToString(sum[:])
		blobs["/v2/team/worker/blobs/"+key] = s
		return key
	}
	image := func(tag string, files ...string) {
		var b bytes.Buffer
		archive := tar.NewWriter(&b)
		for _, name := range files {
			if err := archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
		blobs["/v2/team/worker/manifests/"+tag] = fmt.Sprintf(`{"config":{"digest":%q},"layers":[{"digest":%q,"size":%d}]}`, hash(`{"config":{"Cmd":["x"]}}`), hash(b.String()), b.Len())
	}
	image("distroless", "app/server")
	image("busybox", "bin/sh", "bin/wget", "bin/sha256sum")
	image("slim", "bin/sh", "bin/sha256sum", "usr/bin/perl")
	image("python", "bin/sh", "usr/bin/sha256sum", "usr/local/bin/python3")
	images := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		text, ok := blobs[r.URL.Path]
		if !ok {
			rw.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(rw, text)
	}))
	t.Cleanup(images.Close)
	host := strings.TrimPrefix(images.URL, "http://")
	w := newWorld(t, options{via: "api", fake: true, extra: "  image_lookup: true\n"})
	w.offers(9)
	tags := []string{"distroless", "busybox", "slim", "python"}
	for _, tag := range tags {
		command, _ := json.Marshal([]string{"sh", "-c", "echo"})
		if err := w.queue.Add(arkindex.Spec{Tasks: []*arkindex.Task{{Slug: tag, Image: host + "/team/worker:" + tag, Command: command, RequiresGPU: true}}}); err != nil {
			t.Fatal(err)
		}
	}
	w.run(turn)
	w.run(turn)
	refused := map[string]string{"distroless": "it has no shell; use one with a shell", "slim": "it has neither curl nor wget nor python3"}
	for _, tag := range tags {
		want, isRefused := refused[tag]
		if log := string(w.queue.Log(tag)); (w.state(tag) == "error") != isRefused || !strings.Contains(log, want) {
			t.Errorf("%s is %s\n%s", tag, w.state(tag), log)
		}
	}
	if n := len(w.market.Instances()); n != len(tags)-len(refused) {
		t.Errorf("%d instances", n)
	}
}

// fetched is what containers would fetch, where they only pretend to run.
func fetched(context.Context, string) (string, error) { return "x", nil }
