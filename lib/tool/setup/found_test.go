package setup

import (
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/slurm"
)

func TestChoose(t *testing.T) {
	nodes := []slurm.Node{{Name: "n1", Partitions: "cpu"}, {Name: "g1", GPUs: 4, Partitions: "spot,gpu,closed"}}
	all := []slurm.Partition{
		{Name: "down", State: "DOWN", Default: true},
		{Name: "closed", State: "UP", AllowAccounts: []string{"other"}},
		{Name: "spot", State: "UP", PreemptMode: "REQUEUE", MaxTime: time.Hour},
		{Name: "gpu", State: "UP", MaxTime: 12 * time.Hour},
		{Name: "cpu", State: "UP", Default: true, MaxTime: slurm.Unlimited},
	}
	f, err := choose(all, nodes, "research")
	if want := (found{"research", "cpu", "gpu", 24 * time.Hour, 12 * time.Hour}); err != nil || f != want {
		t.Errorf("%+v, %v; want %+v", f, err, want)
	}
	text := strings.ReplaceAll(example, "@DIR@", "/tmp/x")
	for _, part := range []string{localWords, localMode, slurmSection} {
		if strings.Count(text, part) != 1 {
			t.Errorf("the example has %d times %q", strings.Count(text, part), part)
		}
	}
	if _, err := config.Parse(strings.NewReader("queue: spool:/tmp/x/spool\nmode: slurm\n"+f.section()), "x"); err != nil {
		t.Errorf("%v in\n%s", err, f.section())
	}
	if f, err = choose(all[3:4], nil, ""); err != nil || f.gpu != "" || f.cpu != "gpu" || f.cpuTime != 12*time.Hour {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err = choose(all[2:4], nodes, ""); err != nil || f.cpu != "gpu" {
		t.Errorf("without a default partition: %+v, %v", f, err)
	}
	if _, err = choose(all[:2], nodes, "research"); err == nil || err.Error() != `no partition is open to account "research"` {
		t.Errorf("%v", err)
	}
}
