package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Programs makes sure that programs are there, and installs the Debian packages
// that have them if not. Each is written as "program" or "program=package".
//
// Where that cannot be the test is skipped, in one line that says why; with
// PONOS_TEST_SLURM=require it fails.
func Programs(t testing.TB, wanted ...string) {
	t.Helper()
	var missing, packages []string
	for _, w := range wanted {
		program, pkg, named := strings.Cut(w, "=")
		if !named {
			pkg = program
		}
		if _, err := exec.LookPath(program); err != nil {
			missing, packages = append(missing, program), append(packages, pkg)
		}
	}
	if len(missing) == 0 {
		return
	}
	why := "only root can install packages"
	if os.Geteuid() == 0 {
		out, err := installPackages(packages)
		if err == nil {
			return
		}
		why = err.Error() + "\n" + out
	}
	if os.Getenv("PONOS_TEST_SLURM") == "require" {
		t.Fatalf("no %s: %s", strings.Join(missing, ", "), why)
	}
	t.Skipf("needs %s: %s", strings.Join(missing, ", "), why)
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
