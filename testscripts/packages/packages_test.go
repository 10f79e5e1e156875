package packages

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// dist makes the packages of a version from a directory with the source.
func dist(t *testing.T, source, version string, more ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), version)
	args := []string{
		"make", "-s", "-C", source, "dist", "VERSION=" + version, "ARCHS=amd64", "OUT=" + out,
		"TOOLDIR=" + filepath.Join(harness.Root(), "bin/dev"),
	}
	said := run(t, append([]string{"env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "OUT=" + out, "ARCHS=amd64", "SOURCE_DATE_EPOCH=1700000000"}, append(more, args...)...)...)
	if said != "" {
		t.Errorf("make dist has something to say:\n%s", said)
	}
	return out
}

// only returns the one file that matches a pattern.
func only(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}

// TestInstall installs from a tree whose tools are built, and takes it away again.
func TestInstall(t *testing.T) {
	t.Parallel()
	source, root := t.TempDir(), t.TempDir()
	for _, part := range []string{"man", "completions", "examples", "Makefile"} {
		run(t, "cp", "-R", filepath.Join(harness.Root(), part), source)
	}
	tools, err := os.ReadDir(filepath.Join(harness.Root(), "cmd"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"share/man/man1/ponos-submit.1", "share/man/man7/ponos-faq.7", "share/bash-completion/completions/lfind", "share/doc/ponos/examples/README.md",
		"share/doc/ponos/examples/mpi/pi.c", "share/doc/ponos/examples/checkpoints/train.sh",
	}
	for _, tool := range tools {
		run(t, "install", "-D", "/bin/true", filepath.Join(source, "bin", tool.Name()))
		run(t, "mkdir", "-p", filepath.Join(source, "cmd", tool.Name()))
		want = append(want, "bin/"+tool.Name())
	}
	for _, program := range []string{"ponos-worker", "jobpool"} {
		run(t, "install", "-D", "/bin/true", filepath.Join(source, "bin/libexec/vax", program))
		want = append(want, filepath.Join("libexec/ponos/vax", program))
	}
	do := func(target string) {
		t.Helper()
		run(t, "env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "-s", "-C", source, "-o", "build", target, "DESTDIR="+root, "PREFIX=/usr", "MACHINES=vax=vax")
	}
	do("install")
	for _, name := range want {
		if info, err := os.Stat(filepath.Join(root, "usr", name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	machines := run(t, "env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "-s", "-C", source, `--eval=machines: ; @echo "$$(uname -m)= $(MACHINES)"`, "machines")
	for _, machine := range []string{"x86_64=", "aarch64="} { // the one that builds, and the other
		if strings.Count(machines, machine) != 1 {
			t.Errorf("%s is in the machines %q %d times", machine, machines, strings.Count(machines, machine))
		}
	}
	do("uninstall")
	if left := run(t, "find", root, "-type", "f", "-o", "-type", "l", "-o", "-path", "*doc/ponos*"); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

func packaging(t *testing.T) {
	t.Helper()
	harness.Programs(t, "make", "dpkg-deb=dpkg", "rpm", "busybox=busybox-static", "zsh")
	nfpm(t)
	needs.Root(t, "to install packages")
}

// nfpm makes the program that makes packages: doing so has things to say, which "make dist" has not.
func nfpm(t *testing.T) {
	t.Helper()
	if said, err := build(); err != nil {
		t.Logf("%s", said)
		needs.Missing(t, "nfpm, which Go fetches")
	}
}

var build = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("make", "-s", "-C", harness.Root(), filepath.Join(harness.Root(), "bin/dev/nfpm")).CombinedOutput()
})

// root makes a directory that packages can be installed in: a shell is all it has.
func root(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"bin", "etc", "tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	run(t, "cp", busybox, filepath.Join(dir, "bin/busybox"))
	for _, applet := range []string{"sh", "rm", "cat"} {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available"} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// slurm makes an empty package that stands for a version of Slurm.
func slurm(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	config := "name: slurm\narch: amd64\nmaintainer: nobody\ndescription: none\nversion_schema: none\nversion: " + version + "\n"
	if err := os.WriteFile(filepath.Join(dir, "slurm.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, filepath.Join(harness.Root(), "bin/dev/nfpm"), "package", "--config", dir+"/slurm.yaml", "--packager", "rpm", "--target", dir)
	return only(t, dir+"/slurm-*.rpm")
}

// next is the version of Slurm that a plugin for the given one is too old for.
func next(t *testing.T, version string) string {
	t.Helper()
	var year, month int
	if _, err := fmt.Sscanf(version, "%d.%d", &year, &month); err != nil {
		t.Fatalf("%q: %v", version, err)
	}
	return fmt.Sprintf("%d.%02d", year, month+1)
}

func exists(t *testing.T, root string, want bool, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Lstat(filepath.Join(root, path)); (err == nil) != want {
			t.Errorf("%s: there is %v, want %v", path, err == nil, want)
		}
	}
}

// version runs a tool of the root.
func version(t *testing.T, root, tool, want string) {
	t.Helper()
	if got := strings.TrimSpace(run(t, "chroot", root, "/usr/bin/"+tool, "--version")); got != tool+" "+want {
		t.Errorf("%s --version: %q, want %q", tool, got, want)
	}
}

// sizes holds the limits of the size of a package and of what it installs.
func sizes(t *testing.T, deb, root string) {
	t.Helper()
	const mostPacked, mostInstalled = 15_000_000, 37_000_000
	info, err := os.Stat(deb)
	if err != nil || info.Size() > mostPacked {
		t.Errorf("%s: %v bytes, more than %d; %v", deb, info.Size(), mostPacked, err)
	}
	installed := int64(0)
	err = filepath.WalkDir(filepath.Join(root, "usr"), func(_ string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			installed += info.Size()
		}
		return err
	})
	if err != nil || installed > mostInstalled || installed < mostInstalled/10 {
		t.Errorf("%d bytes are installed, at most %d are wanted; %v", installed, mostInstalled, err)
	}
	// What is copied to nodes.
	for tool, most := range map[string]int64{"jobpool": 10_000_000, "ponos-worker": 7_000_000} {
		if info, err := os.Stat(filepath.Join(root, "usr/bin", tool)); err != nil || !info.Mode().IsRegular() || info.Size() > most {
			t.Errorf("%s: %v, %v", tool, info, err)
		}
	}
}

// names calls the program of all tools in all the ways there are.
func names(t *testing.T, root string, tools []os.DirEntry) {
	t.Helper()
	for _, e := range tools {
		tool := e.Name()
		want := tool + " v1.0.0"
		if tool != "ponos" {
			if got := strings.TrimSpace(run(t, "chroot", root, "/usr/bin/ponos", tool, "--version")); got != want {
				t.Errorf("ponos %s --version: %q", tool, got)
			}
		}
		// Neither a link from elsewhere nor a copy depends on what is beside it.
		for _, make := range [][]string{{"ln", "-s", "/usr/bin/ponos"}, {"cp", root + "/usr/bin/ponos"}} {
			at := filepath.Join("/tmp", make[0], tool)
			run(t, "mkdir", "-p", filepath.Join(root, "tmp", make[0]))
			run(t, append(make, root+at)...)
			if got := strings.TrimSpace(run(t, "chroot", root, at, "--version")); got != want {
				t.Errorf("%s of ponos, %s --version: %q", make[0], at, got)
			}
			if err := os.Remove(root + at); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := strings.TrimSpace(run(t, "chroot", root, "/usr/bin/ponos", "list", "--version")); got != "ponos-list v1.0.0" {
		t.Errorf("ponos list --version: %q", got)
	}
	run(t, "cp", root+"/usr/bin/ponos", root+"/tmp/ponos-lst")
	for _, c := range []struct{ words, want string }{
		{"/usr/bin/ponos ponos-lst --version", "ponos: unknown tool \"ponos-lst\"\nponos: hint: did you mean \"ponos-list\"?\n"},
		{"/usr/bin/ponos subm", "ponos: unknown tool \"subm\"\nponos: hint: did you mean \"ponos-submit\"?\n"},
		{"/tmp/ponos-lst --version", "ponos: unknown tool \"ponos-lst\"\nponos: hint: did you mean \"ponos-list\"?\n"},
		{"/usr/bin/ponos", "ponos: expected the name of a tool\nponos: hint: see \"ponos --help\"\n"},
		{"/usr/bin/ponos --lfind", "ponos: unknown option --lfind\nponos: hint: see \"ponos --help\"\n"},
	} {
		out, err := exec.Command("chroot", append([]string{root}, strings.Fields(c.words)...)...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || string(out) != c.want {
			t.Errorf("%s: %v\n%s", c.words, err, out)
		}
	}
	// All of jobpool from a file that is nothing but ponos: its worker is that file too.
	if got := run(t, root+"/tmp/ponos-lst", "jobpool", "-q", "--run", root+"/tmp/run", "echo", "did {}", ":::", "it"); got != "did it\n" {
		t.Errorf("ponos jobpool: %q", got)
	}
}

// zsh looks for the completions in the place that Debian's zsh has for packages.
func zsh(t *testing.T, root string) {
	t.Helper()
	place := "/usr/share/zsh/vendor-completions"
	script := `[[ $fpath == *"$1"* ]] || exit 9; fpath=(${fpath/#$1/$2$1}); autoload -U compinit; compinit -u -D; print -r -- $_comps[jobpool] $_comps[ponos] $_comps[ponos-list]`
	if got := strings.TrimSpace(run(t, "zsh", "-f", "-c", script, "zsh", place, root)); got != "_jobpool _ponos _ponos-list" {
		t.Errorf("zsh has the completions %q", got)
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)\)`)

// links follows the links of the installed documents to other files.
func links(t *testing.T, root string) {
	t.Helper()
	found := 0
	for _, name := range []string{"README.md", "CHANGELOG.md", "examples/README.md"} {
		file := filepath.Join(root, "usr/share/doc/ponos", name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			found++
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s links %s: %v", name, m[1], err)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d links were found", found)
	}
}

// field holds a field of the control file of a package to a pattern.
func field(t *testing.T, deb, name, want string) {
	t.Helper()
	if got := strings.TrimSpace(run(t, "dpkg-deb", "--field", deb, name)); !regexp.MustCompile("^" + want + "$").MatchString(got) {
		t.Errorf("%s of %s: %q, want %q", name, filepath.Base(deb), got, want)
	}
}

var some = []string{
	"usr/bin/ponos-task", "usr/share/man/man1/ponos-task.1.gz", "usr/share/bash-completion/completions/ponos-task", "usr/share/doc/ponos/examples/mpi/pi.c",
	"usr/share/fish/vendor_completions.d/ponos-task.fish",
	"usr/lib/systemd/system/ponos@.service", "usr/lib/systemd/system/ponos-poll@.service", "usr/lib/systemd/system/ponos-poll@.timer",
	"usr/lib/systemd/system/vast-reap@.service", "usr/lib/systemd/system/vast-reap@.timer",
	"usr/lib/sysusers.d/ponos.conf", "usr/lib/tmpfiles.d/ponos.conf", "usr/share/man/man7/ponos.7.gz", "usr/share/man/man5/ponos.yaml.5.gz", "usr/share/licenses/ponos/LICENSE",
}

func TestPackages(t *testing.T) {
	packaging(t)
	entries, err := os.ReadDir(filepath.Join(harness.Root(), "cmd"))
	if err != nil {
		t.Fatal(err)
	}
	whole := dist(t, harness.Root(), "v1.0.0", "KINDS=deb")
	later := dist(t, harness.Root(), "v1.0.1", "ONLY=ponos-task")

	t.Run("systemd", func(t *testing.T) { live(t, whole) })

	t.Run("deb", func(t *testing.T) {
		root := root(t)
		dpkg := func(args ...string) {
			t.Helper()
			run(t, append([]string{"env", "DPKG_MAINTSCRIPT_DEBUG=", "dpkg", "--root=" + root, "--force-not-root", "--force-depends", "--force-bad-path"}, args...)...)
		}
		deb := only(t, whole+"/ponos_1.0.0_amd64.deb")
		dpkg("--install", deb)
		sizes(t, deb, root)
		for _, e := range entries {
			version(t, root, e.Name(), "v1.0.0")
			f, err := elf.Open(filepath.Join(root, "usr/bin", e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
				t.Errorf("%s is not static", e.Name())
			}
			f.Close()
		}
		names(t, root, entries)
		exists(t, root, true, some...)
		exists(t, root, true, "usr/share/zsh/vendor-completions/_ponos-task")
		exists(t, root, false, "usr/share/zsh/site-functions", "usr/share/doc/ponos/man/pictures/components.svg") // what the README shows is installed, held by links
		zsh(t, root)
		links(t, root)
		exists(t, root, true, "etc/ponos", "etc/cron.d/ponos", "etc/logrotate.d/ponos")
		exists(t, root, false, "usr/lib/ponos/ponos.so")
		spank := only(t, whole+"/ponos-spank_1.0.0*_amd64.deb")
		dpkg("--install", spank)
		exists(t, root, true, "usr/lib/ponos/ponos.so", "usr/share/man/man8/spank_ponos.8.gz")
		run(t, "cmp", filepath.Join(root, "usr/share/doc/ponos-spank/plugstack.conf"), filepath.Join(harness.Root(), "lib/spank/plugstack.conf")) // which testscripts/spank loads

		// What is static needs nothing to be installed, but more to be useful; the plugin needs its release of Slurm.
		field(t, deb, "Depends", "")
		field(t, deb, "Recommends", "git, python3, python3-venv")
		field(t, deb, "Suggests", "slurm-client")
		field(t, spank, "Depends", `ponos, slurm-client \(>= \d\d\.\d\d\), slurm-client \(<< \d\d\.\d\d\), libc6 \(>= 2\.\d+\)`)

		// What the administrator has changed survives an upgrade, and a removal.
		cron := filepath.Join(root, "etc/cron.d/ponos")
		if err := os.WriteFile(cron, []byte("mine\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		dpkg("--force-confold", "--install", only(t, later+"/ponos_1.0.1_amd64.deb"))
		version(t, root, "ponos-task", "v1.0.1")
		if b, err := os.ReadFile(cron); string(b) != "mine\n" {
			t.Errorf("etc/cron.d/ponos: %q, %v", b, err)
		}
		dpkg("--remove", "ponos-spank", "ponos")
		exists(t, root, false, some...)
		exists(t, root, false, "usr/lib/ponos", "usr/share/doc/ponos")
		exists(t, root, true, "etc/cron.d/ponos")
		dpkg("--purge", "ponos")
		exists(t, root, false, "etc/cron.d/ponos", "etc/logrotate.d/ponos", "etc/ponos")
	})

	t.Run("rpm", func(t *testing.T) {
		root := root(t)
		first := dist(t, harness.Root(), "v1.0.0", "ONLY=ponos-task", "KINDS=rpm")
		rpm := func(args ...string) string {
			t.Helper()
			return run(t, append([]string{"rpm", "--root=" + root}, args...)...)
		}
		rpm("--initdb")
		rpm("--install", only(t, first+"/ponos-1.0.0-1.x86_64.rpm"))

		// The plugin is for one version of Slurm: neither without, nor for another.
		spank := only(t, first+"/ponos-spank-1.0.0*.x86_64.rpm")
		found := regexp.MustCompile(`(?m)^slurm >= (.*)$`).FindStringSubmatch(run(t, "rpm", "--query", "--requires", "--package", spank))
		if found == nil {
			t.Fatal("the plugin needs no Slurm")
		}
		refused := func(why string) {
			t.Helper()
			out, err := exec.Command("rpm", "--root="+root, "--install", "--test", spank).CombinedOutput()
			if err == nil || !strings.Contains(string(out), why+" is needed by ponos-spank") {
				t.Errorf("want it refused, as %s: %v\n%s", why, err, out)
			}
		}
		refused("slurm >= " + found[1])
		rpm("--install", slurm(t, "99.05.1"))
		refused("slurm < " + next(t, found[1]))
		rpm("--upgrade", "--oldpackage", slurm(t, found[1]+".8"))
		rpm("--install", spank)
		version(t, root, "ponos-task", "v1.0.0")
		exists(t, root, true, append([]string{"usr/share/zsh/site-functions/_ponos-task"}, some...)...)
		exists(t, root, true, "usr/lib/ponos/ponos.so")
		cron := filepath.Join(root, "etc/cron.d/ponos")
		if err := os.WriteFile(cron, []byte("mine\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		rpm("--upgrade", only(t, later+"/ponos-1.0.1-1.x86_64.rpm"))
		version(t, root, "ponos-task", "v1.0.1")
		if b, err := os.ReadFile(cron); string(b) != "mine\n" {
			t.Errorf("etc/cron.d/ponos: %q, %v", b, err)
		}
		rpm("--erase", "ponos-spank", "ponos", "slurm")
		exists(t, root, false, some...)
		exists(t, root, false, "usr/lib/ponos/ponos.so")
		if said := rpm("--query", "--all"); said != "" {
			t.Errorf("still installed: %s", said)
		}
	})

	t.Run("tarball", func(t *testing.T) {
		dir := t.TempDir()
		run(t, "tar", "-xzf", only(t, later+"/ponos-1.0.1-linux-amd64.tar.gz"), "-C", dir)
		if got := run(t, filepath.Join(dir, "ponos-1.0.1-linux-amd64/bin/ponos-task"), "--version"); got != "ponos-task v1.0.1\n" {
			t.Errorf("%q", got)
		}
		licenses := run(t, "cat", filepath.Join(dir, "ponos-1.0.1-linux-amd64/share/licenses/ponos/THIRD-PARTY"))
		for _, want := range []string{"\n==== github.com/urfave/cli/v2 v2.", "The Go Authors", "MIT License"} {
			if !strings.Contains(licenses, want) {
				t.Errorf("no %q in the licenses", want)
			}
		}
		c := exec.Command("sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS")
		c.Dir = later
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("SHA256SUMS: %v\n%s", err, out)
		}
		text, err := os.ReadFile(only(t, later+"/*.cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		var bom struct {
			BOMFormat  string
			Components []struct{ Name, Version, PURL string }
		}
		if err := json.Unmarshal(text, &bom); err != nil || bom.BOMFormat != "CycloneDX" {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, want := range []string{"std", "github.com/urfave/cli/v2"} {
			if i := slices.IndexFunc(bom.Components, func(c struct{ Name, Version, PURL string }) bool { return c.Name == want }); i < 0 {
				t.Errorf("the SBOM lacks %s", want)
			} else if c := bom.Components[i]; c.Version == "" || c.PURL != "pkg:golang/"+want+"@"+c.Version {
				t.Errorf("%+v", c)
			}
		}
	})

	// The same version from another directory: the same bytes.
	t.Run("reproducible", func(t *testing.T) {
		copied := filepath.Join(t.TempDir(), "elsewhere")
		if err := os.Mkdir(copied, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"cmd", "lib", "man", "completions", "examples", "go.mod", "go.sum", "Makefile", "LICENSE", "README.md", "CHANGELOG.md"} {
			run(t, "cp", "-R", filepath.Join(harness.Root(), part), copied)
		}
		again := dist(t, copied, "v1.0.1", "ONLY=ponos-task")
		one, err1 := os.ReadFile(filepath.Join(later, "SHA256SUMS"))
		two, err2 := os.ReadFile(filepath.Join(again, "SHA256SUMS"))
		if err1 != nil || err2 != nil || !bytes.Equal(one, two) || len(one) == 0 {
			t.Errorf("%v %v\n%s---\n%s", err1, err2, one, two)
		}
	})
}
