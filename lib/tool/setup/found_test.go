package setup

import (
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
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
	if _, err := assembly.ReadConfiguration(strings.NewReader("queue: spool:/tmp/x/spool\nmode: slurm\n"+f.section()), "x"); err != nil {
		t.Errorf("%v in\n%s", err, f.section())
	}
	bare := found{cpu: "cpu", cpuTime: time.Hour}.section()
	want := "slurm:\n#  base: {account: \"research\"}\n  cpu: {time: \"01:00:00\", partition: \"cpu\", cpus-per-task: \"1\"}\n"
	if !strings.Contains(bare, want) {
		t.Errorf("without account:\n%s", bare)
	}
	if _, err := assembly.ReadConfiguration(strings.NewReader("queue: spool:/tmp/x/spool\nmode: slurm\n"+strings.ReplaceAll(bare, "#  ", "  ")), "x"); err != nil {
		t.Errorf("%v in\n%s, uncommented", err, bare)
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

// Which partitions a user's tasks could go to.
func TestOpen(t *testing.T) {
	with := func(change func(*slurm.Partition)) []slurm.Partition {
		p := slurm.Partition{Name: "first", State: "UP"}
		change(&p)
		return []slurm.Partition{p, {Name: "second", State: "UP", MaxTime: time.Hour}}
	}
	for _, tt := range []struct {
		name       string
		partitions []slurm.Partition
		want       string // of tasks without a GPU, and with one
	}{
		{"the first", with(func(*slurm.Partition) {}), "first first"},
		{"draining", with(func(p *slurm.Partition) { p.State = "DRAIN" }), "second "},
		{"hidden", with(func(p *slurm.Partition) { p.Hidden = true }), "second "},
		{"of root", with(func(p *slurm.Partition) { p.RootOnly = true }), "second "},
		{"of reservations", with(func(p *slurm.Partition) { p.NeedsResv = true }), "second "},
		{"denied", with(func(p *slurm.Partition) { p.DenyAccounts = []string{"x", "research"} }), "second "},
		{"of another account", with(func(p *slurm.Partition) { p.AllowAccounts = []string{"x"} }), "second "},
		{"of no account", with(func(p *slurm.Partition) { p.AllowAccounts = []string{} }), "second "},
		{"of this account", with(func(p *slurm.Partition) { p.AllowAccounts = []string{"x", "research"} }), "first first"},
		{"preemptible: neither first choice nor for GPUs", with(func(p *slurm.Partition) { p.PreemptMode = "CANCEL" }), "second "},
		{"preemptible, and the default", with(func(p *slurm.Partition) { p.PreemptMode, p.Default = "CANCEL", true }), "first "},
		{"the default, though down", with(func(p *slurm.Partition) { p.State, p.Default = "DOWN", true }), "second "},
		{"nothing", nil, "error no partition is open to account \"research\""},
	} {
		before := len(tt.partitions)
		f, err := choose(tt.partitions, []slurm.Node{{GPUs: 1, Partitions: "first"}, {Partitions: "second"}}, "research")
		got := f.cpu + " " + f.gpu
		if err != nil {
			got = "error " + err.Error()
		}
		if got != tt.want || len(tt.partitions) != before || before > 0 && tt.partitions[0].Name != "first" {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
	for limited, want := range map[time.Duration]time.Duration{
		0: 24 * time.Hour, slurm.Unlimited: 24 * time.Hour, time.Hour: time.Hour, 24 * time.Hour: 24 * time.Hour, 48 * time.Hour: 24 * time.Hour,
	} {
		if got := limit(slurm.Partition{MaxTime: limited}); got != want {
			t.Errorf("of a partition with %v: %v", limited, got)
		}
	}
}

// The names of a cluster cannot change what a configuration says.
func TestSection(t *testing.T) {
	for _, f := range []found{
		{cpu: "cpu"}, {account: "research", cpu: "cpu", gpu: "gpu", gpuTime: time.Hour}, {account: "0755", cpu: "yes", gpu: "1e3"},
		{account: `a", cpus-per-task: "9`, cpu: "#x", gpu: "{a: b}"}, {account: "é", cpu: "*"},
	} {
		f.cpuTime = 24 * time.Hour
		c, err := assembly.ReadConfiguration(strings.NewReader("queue: spool:/tmp/x/spool\nmode: slurm\n"+f.section()), "x")
		if err != nil {
			t.Errorf("%+v: %v", f, err)
			continue
		}
		got := strings.Join([]string{c.Slurm.Base.String(), c.Slurm.CPU.String(), c.Slurm.GPU.String()}, " | ")
		for _, name := range []string{f.account, f.cpu, f.gpu} {
			if !strings.Contains(got, name) {
				t.Errorf("%+v: %s", f, got)
			}
		}
		if strings.Contains(got, "cpus-per-task=9") || (len(c.Slurm.GPU) > 0) != (f.gpu != "") || (len(c.Slurm.Base) > 0) != (f.account != "") || len(c.Slurm.Daemon) > 0 {
			t.Errorf("%+v: %s", f, got)
		}
	}
}
