package packages

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// asSpack runs a package of Spack with stand-ins for what Spack provides.
const asSpack = `
import platform, shutil, sys, types
source, prefix, machine = sys.argv[2:]
said = {"depends_on": [], "conflicts": [], "version": []}
module = types.ModuleType("spack.package")
module.Package = object
module.license = lambda name: None
for word in said:
    setattr(module, word, lambda *args, word=word, **more: said[word].append((args, more)))
module.install_tree = lambda tree, to: shutil.copytree(tree, to, symlinks=True)
sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), module
platform.machine = lambda: machine
scope = {}
exec(open(sys.argv[1]).read(), scope)
import os
os.chdir(source)
scope["Ponos"]().install(None, prefix)
(number,), more = said["version"][0]
print(number, more["sha256"], scope["Ponos"].url)
`

// asEasyBuild reads an easyconfig as EasyBuild does, and prints what it is to fetch.
const asEasyBuild = `
import sys
scope = {"ARCH": sys.argv[2], "SYSTEM": {}}
exec(open(sys.argv[1]).read(), scope)
source = scope["sources"][0] % scope
print(scope["version"], scope["checksums"][0][source], scope["source_urls"][0] % scope + "/" + source)
`

var placeholder = regexp.MustCompile(`@[A-Z][A-Z0-9_]*@`)

// TestRecipes fills the recipes in for two tarballs, and does with them what the tools that they are
// for would do, as far as these are here.
func TestRecipes(t *testing.T) {
	t.Parallel()
	harness.Programs(t, "modulecmd=environment-modules", "python3")
	fill := filepath.Join(harness.Root(), "recipes/fill")
	dist, tree, out := t.TempDir(), filepath.Join(t.TempDir(), "ponos-1.2.3"), filepath.Join(t.TempDir(), "recipes")
	write := func(file, text string) {
		t.Helper()
		executable.Write(t, file, text)
	}
	for _, tool := range []string{"ponos", "jobpool", "ponos-worker", "lfind"} {
		write(tree+"/bin/"+tool, "#!/bin/sh\necho "+tool+" v1.2.3\n")
	}
	write(tree+"/share/doc/ponos/examples/README.md", "Examples\n")
	write(tree+"/share/man/man1/lfind.1.gz", "")
	machines := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	sums, urls := map[string]string{}, map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		if arch == "arm64" {
			said, err := exec.Command(fill, dist, out).CombinedOutput()
			if want := "one tarball for arm64 is needed"; err == nil || !strings.Contains(string(said), want) {
				t.Errorf("with one tarball: %v\n%s", err, said)
			}
		}
		name := "ponos-1.2.3-linux-" + arch + ".tar.gz"
		run(t, "tar", "-czf", filepath.Join(dist, name), "-C", filepath.Dir(tree), "--transform=s,^ponos-1.2.3,"+strings.TrimSuffix(name, ".tar.gz")+",", "ponos-1.2.3")
		text, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		sums[arch] = hex.EncodeToString(sum[:])
		urls[arch] = "https://github.com/ponos-tools/ponos/releases/download/v1.2.3/" + name
	}
	prefix := filepath.Join(t.TempDir(), "prefix")
	run(t, "env", "PREFIX="+prefix, fill, dist, out)
	for name, text := range readTree(t, out) {
		if place := placeholder.FindString(text); place != "" {
			t.Errorf("%s: %s is not filled in", name, place)
		}
	}

	for arch, machine := range machines {
		want := strings.Join([]string{"1.2.3", sums[arch], urls[arch]}, " ")
		to := filepath.Join(t.TempDir(), "spack")
		if got := strings.TrimSpace(run(t, "python3", "-c", asSpack, out+"/spack/ponos/package.py", tree, to, machine)); got != want {
			t.Errorf("Spack, %s: %s, want %s", machine, got, want)
		}
		if got := run(t, to+"/bin/lfind"); got != "lfind v1.2.3\n" {
			t.Errorf("Spack has installed %q", got)
		}
		if got := strings.TrimSpace(run(t, "python3", "-c", asEasyBuild, out+"/easybuild/ponos-1.2.3.eb", machine)); got != want {
			t.Errorf("EasyBuild, %s: %s, want %s", machine, got, want)
		}
	}

	var conda struct {
		Context struct{ Version string }
		Source  []struct {
			If   string
			Then struct{ URL, SHA256 string }
		}
	}
	text, err := os.ReadFile(out + "/conda/recipe.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &conda); err != nil || conda.Context.Version != "1.2.3" || len(conda.Source) != 2 {
		t.Fatalf("conda: %v, %+v", err, conda)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		if got := conda.Source[i].Then; got.SHA256 != sums[arch] || strings.ReplaceAll(got.URL, "${{ version }}", "1.2.3") != urls[arch] {
			t.Errorf("conda, %s: %+v", arch, got)
		}
	}

	// The modulefile: loaded and unloaded.
	run(t, "cp", "-R", tree, prefix)
	modules := "MODULEPATH=" + out + "/modulefiles PATH=/usr/bin:/bin MANPATH=; export MODULEPATH PATH MANPATH; "
	got := run(t, "bash", "-c", modules+`eval "$(modulecmd bash load ponos/1.2.3)"; lfind; man -w lfind; man -w ls | head -c 1; eval "$(modulecmd bash unload ponos)"; command -v lfind || echo " gone"`)
	if want := "lfind v1.2.3\n" + prefix + "/share/man/man1/lfind.1.gz\n/ gone\n"; got != want {
		t.Errorf("the module: %q, want %q", got, want)
	}
	linters(t, dist, out)
}

// linters checks the recipes by the real programs that they are for, and then with a fault in each that
// one of them has to find.
func linters(t *testing.T, dist, recipes string) {
	t.Helper()
	venv := harness.Venv(t, harness.Packages{Name: "recipes"})
	check := func(recipes, venv string, env ...string) (string, error) {
		c := exec.Command(filepath.Join(harness.Root(), "recipes/check"), dist, recipes, venv)
		c.Env = append(append(harness.Outside(), "TMPDIR="+t.TempDir()), env...)
		said, err := c.CombinedOutput()
		if c.ProcessState != nil {
			t.Logf("recipes/check took %v of CPU", c.ProcessState.UserTime()+c.ProcessState.SystemTime())
		}
		return string(said), err
	}
	said, err := check(recipes, harness.Bare(t, "python3"), "PIP_NO_INDEX=1", "PIP_FIND_LINKS=", "PATH=/usr/bin:/bin")
	if err != nil || strings.Count(said, "recipes/check: without ") != 3 {
		t.Errorf("recipes/check where no linter can be had: %v\n%s", err, said)
	}
	said, err = check(recipes, venv)
	if err != nil {
		t.Fatalf("recipes/check: %v\n%s", err, said)
	}
	for _, l := range []struct{ name, file, text, fault, want string }{
		{"hadolint", "container/Dockerfile", "debian:bookworm-slim", "debian", "DL3006"},
		{"rattler-build: ", "conda/recipe.yaml", "\nbuild:", "\nbuilt:", "built"},
		{"eb: ", "easybuild/ponos-1.2.3.eb", "\nversion = ", "\nversion   = ", "E221"},
	} {
		t.Run(strings.TrimSuffix(l.name, ": "), func(t *testing.T) {
			if !strings.Contains("\n"+said, "\n"+l.name) {
				if !strings.Contains(said, "recipes/check: without "+l.name) {
					t.Fatalf("%s has not run:\n%s", l.name, said)
				}
				needs.Missing(t, l.name+", which pip could not install")
			}
			wrong := filepath.Join(t.TempDir(), "wrong")
			run(t, "cp", "-R", recipes, wrong)
			text, err := os.ReadFile(filepath.Join(wrong, l.file))
			if err != nil || !strings.Contains(string(text), l.text) {
				t.Fatalf("%s: %v\n%s", l.file, err, text)
			}
			if err := os.WriteFile(filepath.Join(wrong, l.file), []byte(strings.Replace(string(text), l.text, l.fault, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			if said, err := check(wrong, venv); err == nil || !strings.Contains(said, l.want) {
				t.Errorf("%s finds no %s: %v\n%s", l.name, l.want, err, said)
			}
		})
	}
}

// readTree returns the contents of the files below a directory.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found[path] = string(text)
		return err
	})
	if err != nil || len(found) != 6 {
		t.Fatalf("%v, %d recipes", err, len(found))
	}
	return found
}
