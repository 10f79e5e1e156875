package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestRelease releases a copy of the source, once tag, changelog and packages agree.
func TestRelease(t *testing.T) {
	t.Parallel()
	harness.Programs(t, "git")
	nfpm(t)
	source, out := t.TempDir(), filepath.Join(t.TempDir(), "dist")
	for _, part := range []string{"cmd", "lib", "man", "completions", "examples", "go.mod", "go.sum", "Makefile", "LICENSE", "README.md", "CHANGELOG.md", ".gitignore"} {
		run(t, "cp", "-R", filepath.Join(harness.Root(), part), source)
	}
	git := func(args ...string) {
		run(t, append([]string{"git", "-C", source, "-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)...)
	}
	archived := run(t, "env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "GIT_CEILING_DIRECTORIES="+filepath.Dir(source),
		"make", "-s", "-C", source, "--eval=version: ; @echo $(VERSION)", "version")
	changelog := filepath.Join(source, "CHANGELOG.md")
	text, err := os.ReadFile(changelog)
	if err != nil {
		t.Fatal(err)
	}
	if newest := "## [" + strings.TrimPrefix(strings.TrimSpace(archived), "v") + "] - "; !strings.Contains(string(text), newest) {
		t.Errorf("an archive of the source has the version %q, and the changelog no %q", archived, newest)
	}
	if newest, page := newestPage(t); releaseDate(t, string(text)) < newest {
		t.Errorf("the newest release in CHANGELOG.md is of %s, and man/%s of %s", releaseDate(t, string(text)), page, newest)
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "x")
	tools := t.TempDir()
	checker := filepath.Join(tools, "govulncheck")
	executable.Write(t, checker, "#!/bin/sh\nexit 0\n")
	if err := os.Symlink(filepath.Join(harness.Root(), "bin/dev/nfpm"), filepath.Join(tools, "nfpm")); err != nil {
		t.Fatal(err)
	}
	release := func(with ...string) (string, error) {
		cmd := exec.Command("make", append([]string{"-s", "-C", source, "release", "OUT=" + out, "TOOLDIR=" + tools}, with...)...)
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "MAKE") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, "ARCHS=amd64", "KINDS=tar", "ONLY=ponos-task")
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	refused := func(want string) {
		t.Helper()
		if said, err := release(); err == nil || !strings.Contains(said, want) {
			t.Errorf("%v\n%s\nwant %q", err, said, want)
		}
	}
	refused("release: the commit has no tag v*\n")
	git("tag", "v7.8.9")
	refused("release: the tag is v7.8.9, and the newest release in CHANGELOG.md is ")
	change := func(heading string) {
		t.Helper()
		if err := os.WriteFile(changelog, []byte("# Changelog\n\n"+heading+"\n\nX.\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	change("## [Unreleased]")
	refused("release: uncommitted changes\n")
	git("commit", "-qam", "y")
	git("tag", "-f", "v7.8.9")
	refused(`release: CHANGELOG.md: expected "## [VERSION] - YYYY-MM-DD", not "## [Unreleased]"`)
	change("## [7.8.9] - 2026-11-22")
	git("commit", "-qam", "z")
	git("tag", "-f", "v7.8.9")
	refused("release: README.md says that this was tested with Slurm 20.11, and this commit was not: make test-debian RELEASE=bullseye\n")
	// What has failed, and what was changed meanwhile, was not tested.
	tested := func(version, command string) {
		dir := t.TempDir()
		executable.Write(t, filepath.Join(dir, "sbatch"), "#!/bin/sh\nexit 1\n") // as without a cluster
		executable.Write(t, filepath.Join(dir, "slurmctld"), "#!/bin/sh\necho slurm-wlm "+version+".4\n")
		cmd := exec.Command("lib/packaging/tested", "env", "PATH="+dir+":"+os.Getenv("PATH"), "--", "sh", "-c", command)
		cmd.Dir = source
		_ = cmd.Run()
	}
	tested("20.11", "exit 1")
	tested("20.11", "echo >>README.md")
	git("checkout", "-q", "README.md")
	refused("tested with Slurm 20.11, and")
	for _, version := range []string{"20.11", "22.05", "24.11"} {
		tested(version, "true")
	}
	refused("tested with Slurm 26.05, and this commit was not: make test-debian RELEASE=sid\n")
	tested("26.05", "true")
	vulnerabilities := "release: there are known vulnerabilities, or their database cannot be reached: VULNERABILITIES=accepted releases nevertheless\n"
	executable.Write(t, checker, "#!/bin/sh\necho fetching vulnerabilities: no such host >&2\nexit 1\n")
	refused(vulnerabilities)
	executable.Write(t, checker, "#!/bin/sh\n[ \"$*\" = ./... ] || exit 1\necho Vulnerability 1: GO-1\nexit 3\n")
	refused(vulnerabilities)
	if said, err := release("VULNERABILITIES=accepted"); err != nil || !strings.Contains(said, "is release 7.8.9\n") {
		t.Errorf("%v\n%s", err, said)
	}
	only(t, out+"/ponos-7.8.9-linux-amd64.tar.gz")
}

// releaseDate returns the date of the newest release in a changelog, such as 2026-11-25.
func releaseDate(t *testing.T, changelog string) string {
	t.Helper()
	heading := regexp.MustCompile(`(?m)^## \[[0-9][^]]*\] - (\d{4}-\d{2}-\d{2})$`).FindStringSubmatch(changelog)
	if heading == nil {
		t.Fatal("CHANGELOG.md has no release with a date")
	}
	return heading[1]
}

// newestPage returns the latest date in the first lines of the man pages, and a page that has it.
func newestPage(t *testing.T) (date, name string) {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(harness.Root(), "man/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		first := regexp.MustCompile(`^% \S+ \d "(\d{4}-\d{2}-\d{2})" `).FindStringSubmatch(string(text))
		if first == nil {
			t.Fatalf("%s: the first line has no date", page)
		}
		if first[1] > date {
			date, name = first[1], filepath.Base(page)
		}
	}
	return date, name
}
