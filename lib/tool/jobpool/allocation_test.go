package jobpool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
)

// withSlurm gives a test an empty directory, the Slurm of the tests and a stand-in lfind, which records
// its arguments in "asked-lfind". With --soonest it answers with the file "soonest", or fails.
func withSlurm(t *testing.T) {
	t.Helper()
	fakes, err := filepath.Abs("../../../testscripts/fakeslurm")
	if err != nil {
		t.Fatal(err)
	}
	alone(t)
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("bin", 0o700); err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(dir, "bin", "lfind"), `#!/bin/sh
cd "`+dir+`" || exit
echo "$*" >>asked-lfind
case $* in
*--soonest*)
	[ -e soonest ] && exec cat soonest
	echo "lfind: sbatch --test-only: Access denied" >&2
	exit 3
	;;
*) printf '%s\0' --partition=cpu --time=60 ;;
esac
`)
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+fakes+":"+os.Getenv("PATH"))
	t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
}

// Of several matches, jobs get the one that starts first; without a plan, the first one.
func TestAllocTakesTheSoonest(t *testing.T) {
	soonest := `{"hostname":"","args":["--partition=gpu","--time=30"],"start":"2026-11-25T12:00:00Z","wait_seconds":%,"start_by":"limits"}`
	for name, tt := range map[string]struct {
		soonest string // answer of lfind --soonest; empty: it fails
		options string // of sbatch
		says    string
		asked   int
	}{
		"now":     {strings.Replace(soonest, "%", "0", 1), "--partition=gpu --time=30", "jobpool: options: --partition=gpu --time=30: expected start: now, if jobs run to their time limits\n", 1},
		"later":   {strings.Replace(soonest, "%", "300", 1), "--partition=gpu --time=30", "expected start: in 5min, at 2026-11-25T", 1},
		"no plan": {"", "--partition=cpu --time=60", "jobpool: options: --partition=cpu --time=60: expected start not known: sbatch --test-only: Access denied\n", 2},
		"elsewhere": {
			`{"hostname":"far","args":["--partition=x"],"start":"2026-11-25T12:00:00Z","wait_seconds":0,"start_by":"limits"}`,
			"--partition=cpu --time=60", "expected start not known: the first to start is on far\n", 2,
		},
		"an older lfind": {"--partition=cpu", "--partition=cpu --time=60", "expected start not known: lfind --json: ", 2},
	} {
		t.Run(name, func(t *testing.T) {
			withSlurm(t)
			if tt.soonest != "" {
				if err := os.WriteFile("soonest", []byte(tt.soonest), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, stdout, stderr := runTool(t, "true\n", "--alloc", "cpu(cores=1) | cuda()", "--run", "run")
			if code != 0 || stdout != "101\n" || !strings.Contains(stderr, tt.says) || strings.Count(stderr, "expected start") != 1 {
				t.Errorf("status %d, %q, %q", code, stdout, stderr)
			}
			asked, _ := os.ReadFile("asked-lfind")
			want := "--soonest --kind slurm --json -- cpu(cores=1) | cuda()\n--format args0 -- cpu(cores=1) | cuda()\n"
			if lines := strings.Count(string(asked), "\n"); lines != tt.asked || !strings.HasPrefix(want, string(asked)) {
				t.Errorf("lfind was called with %q", asked)
			}
			if slurm, _ := os.ReadFile("asked"); !strings.Contains(string(slurm), "\nsbatch --parsable "+tt.options+" ") {
				t.Errorf("Slurm was called with %s", slurm)
			}
		})
	}
}
