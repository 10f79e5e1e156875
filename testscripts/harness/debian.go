package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/needs"
)

// Programs makes sure that programs are there, and installs the Debian packages
// that have them if not, as root and without PONOS_TEST_SLURM=no. Each is written as "program" or
// "program=package".
//
// Where that cannot be the test is skipped, in one line that says why.
func Programs(t testing.TB, wanted ...string) {
	t.Helper()
	var missing, packages []string
	for _, w := range wanted {
		program, pkg, named := strings.Cut(w, "=")
		if !named {
			pkg = program
		}
		if !onCallersPath(program) {
			missing, packages = append(missing, program), append(packages, pkg)
		}
	}
	if len(missing) == 0 {
		return
	}
	if os.Geteuid() == 0 && os.Getenv("PONOS_TEST_SLURM") != "no" {
		out, err := installPackages(packages)
		if err == nil {
			return
		}
		t.Log(out)
	}
	needs.Missing(t, ""+strings.Join(missing, ", "))
}

// onCallersPath reports whether the machine has a program, whatever the tests have put before it in PATH.
func onCallersPath(program string) bool {
	return slices.ContainsFunc(filepath.SplitList(callersPath), func(dir string) bool {
		path, err := exec.LookPath(filepath.Join(dir, program))
		return err == nil && filepath.IsAbs(path)
	})
}

func installPackages(packages []string) (string, error) {
	// One at a time, by the lock of testscripts/cluster/up; no daemon is started.
	script := `set -e
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
	trap 'rm -f $policy' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends install "$@"`
	install := exec.Command("flock", append([]string{filepath.Join(Root(), "testscripts/cluster/up"), "sh", "-c", script, "sh"}, packages...)...)
	out, err := install.CombinedOutput()
	return string(out), err
}
