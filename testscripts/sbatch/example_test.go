package sbatch

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// TestSlurmTakesTheExample uncomments the options of sbatch in the example of a configuration: each is in the table, and sbatch takes
// those of each kind of job.
func TestSlurmTakesTheExample(t *testing.T) {
	text, err := os.ReadFile("../../lib/tool/setup/ponos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^# slurm:\n(# .*\n)+`).FindString(string(text))
	example := strings.NewReplacer("@DIR@", "/srv/ponos", "\nmode: local\n", "\nmode: slurm\n", lines, strings.ReplaceAll(lines, "# ", "")).Replace(string(text))
	c, err := assembly.ReadConfiguration(strings.NewReader(example), "ponos.yaml")
	if err != nil {
		t.Fatalf("%v:\n%s", err, example)
	}
	s := newSlurm(t)
	defer s.run("scancel", "--user=alice")
	for kind, options := range map[string]sbatch.Options{"cpu": c.Slurm.CPU, "gpu": c.Slurm.GPU, "daemon": c.Slurm.Daemon} {
		if len(options) == 0 {
			t.Errorf("slurm.%s has no options in the example", kind)
		}
		options = c.Slurm.Base.With(options...)
		for _, o := range options {
			if sbatch.Lookup(o.Name) == nil {
				t.Errorf("slurm.%s: sbatch has no option %s", kind, o.Name)
			}
		}
		if said, ok := s.run(append([]string{"sbatch", "--hold", "--output=/dev/null", "--wrap=:"}, options.Args()...)...); !ok {
			t.Errorf("slurm.%s: sbatch %s: %s", kind, options, said)
		}
	}
}
