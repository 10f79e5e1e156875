package spank

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil, "lfind", "ponos-start", "ponos-submit", "ponos-task") }

// TestPlugin runs the scripts, each with a slurm.conf and a plugstack.conf of its
// own, so that each can give the plugin another lfind. The nodes have the plugin
// from the cluster's own plugstack.conf.
func TestPlugin(t *testing.T) {
	harness.Programs(t, "valgrind", "make")
	cluster := harness.Cluster(t)
	plugin := filepath.Join(harness.Bin, "ponos.so")
	build := exec.Command("make", "-s", "--no-print-directory", "-C", harness.Root(), "spank")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make spank: %v\n%s", err, out)
	} else if len(out) > 0 {
		t.Errorf("make spank has something to say:\n%s", out)
	}
	built, err := os.ReadFile(filepath.Join(harness.Root(), "bin/spank/ponos.so"))
	if err == nil {
		err = os.WriteFile(plugin, built, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	conf := cluster["SLURM_CONF"]
	line := shipped(t, plugin)
	if err := os.WriteFile(filepath.Join(filepath.Dir(conf), "plugstack.conf.d/ponos.conf"), []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	hooks(t, conf, string(text))
	t.Run("scripts", func(t *testing.T) {
		harness.Run(t, harness.Options{
			Setup: func(env *testscript.Env) error {
				for name, value := range cluster {
					env.Setenv(name, value)
				}
				stack := filepath.Join(env.WorkDir, "plugstack.conf")
				own := strings.Replace(string(text), filepath.Join(filepath.Dir(conf), "plugstack.conf"), stack, 1)
				own = strings.ReplaceAll(own, "include ", "include "+filepath.Dir(conf)+"/")
				env.Setenv("SLURM_CONF", filepath.Join(env.WorkDir, "slurm.conf"))
				env.Setenv("NOTES", filepath.Join(filepath.Dir(conf), "notes"))
				env.Setenv("PLUGIN", plugin)
				env.Setenv("LFIND", filepath.Join(harness.Bin, "lfind"))
				if err := os.WriteFile(filepath.Join(env.WorkDir, "slurm.conf"), []byte(own), 0o644); err != nil {
					return err
				}
				for _, file := range []string{"gres.conf"} {
					data, err := os.ReadFile(filepath.Join(filepath.Dir(conf), file))
					if err != nil {
						return err
					}
					if err := os.WriteFile(filepath.Join(env.WorkDir, file), data, 0o644); err != nil {
						return err
					}
				}
				if err := os.WriteFile(stack, []byte(line), 0o644); err != nil {
					return err
				}
				// A root of the file system that the user sees has to be open to the jobs.
				return os.Chmod(env.WorkDir, 0o755)
			},
		})
	})
}

// shipped is the plugstack.conf of the package, with the paths of the tests, and with time for a busy machine.
func shipped(t *testing.T, plugin string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(), "lib/spank/plugstack.conf"))
	if err != nil {
		t.Fatal(err)
	}
	line := string(text)
	for old, now := range map[string]string{
		" /usr/lib/ponos/ponos.so ": " " + plugin + " ", "lfind=/usr/bin/lfind ": "lfind=" + filepath.Join(harness.Bin, "lfind") + " ", "timeout=10\n": "timeout=600\n",
	} {
		if strings.Count(line, old) != 1 {
			t.Fatalf("lib/spank/plugstack.conf has no %q:\n%s", old, text)
		}
		line = strings.Replace(line, old, now, 1)
	}
	return line
}

// hooks gives the cluster a prolog and an epilog that note how tasks are.
func hooks(t *testing.T, conf, text string) {
	t.Helper()
	dir := filepath.Dir(conf)
	for _, hook := range []struct{ name, key, state string }{{"prolog", "Prolog", "running"}, {"epilog", "Epilog", "completed"}} {
		script := fmt.Sprintf("#!/bin/sh\n%s/ponos-task note --file %s/notes %s %s || true\n", harness.Bin, dir, hook.state, hook.name)
		path := filepath.Join(dir, hook.name)
		executable.Write(t, path, script)
		text += fmt.Sprintf("%s=%s\n", hook.key, path)
	}
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	reconfigure := exec.Command("scontrol", "reconfigure")
	reconfigure.Env = append(os.Environ(), "SLURM_CONF="+conf)
	if out, err := reconfigure.CombinedOutput(); err != nil {
		t.Fatalf("scontrol reconfigure: %v\n%s", err, out)
	}
}
