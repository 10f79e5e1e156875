package launcher

import (
	"testing"

	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

func TestWrite(t *testing.T) {
	o := sbatch.Options{{Name: "nodes", Value: "1"}, {Name: "partition", Value: "a,b"}, {Name: "constraint", Value: "(x&y)|(z)"}, {Name: "exclusive"}}
	for format, want := range map[string]string{
		"args":   "--nodes=1 --partition=a,b --constraint=(x&y)|(z) --exclusive\n",
		"args0":  "--nodes=1\x00--partition=a,b\x00--constraint=(x&y)|(z)\x00--exclusive\x00",
		"lines":  "--nodes=1\n--partition=a,b\n--constraint=(x&y)|(z)\n--exclusive\n",
		"script": "#SBATCH --nodes=1\n#SBATCH --partition=a,b\n#SBATCH --constraint=(x&y)|(z)\n#SBATCH --exclusive\n",
		"env":    "export SBATCH_PARTITION=a,b\nexport SBATCH_CONSTRAINT='(x&y)|(z)'\nexport LFIND_ARGS='--nodes=1 --exclusive'\n",
	} {
		if got, err := Write(o, format); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", format, got, err, want)
		}
	}
	for _, value := range []string{"a b", "n[1-2]", "*", "a\\b", "x?"} {
		for _, format := range []string{"args", "env"} {
			if got, err := Write(sbatch.Options{{Name: "x", Value: value}}, format); err == nil {
				t.Errorf("%q is written as %q, which the shell would change", value, got)
			}
		}
	}
	if _, err := Write(o, "xml"); err == nil {
		t.Error("an unknown format is written")
	}
}
