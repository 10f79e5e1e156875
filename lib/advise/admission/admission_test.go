package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// TestCheck holds each rule by itself; testscripts/admission holds all of them
// against Slurm.
func TestCheck(t *testing.T) {
	job := Job{Partition: "p", Time: time.Hour, Nodes: 2, CPUsPerTask: 4, MemMB: 4000, GPUs: 2}
	lab := slurm.Association{Account: "lab", User: "alice", QOS: []string{"normal", "long"}, DefaultQOS: "normal"}
	for _, c := range []struct {
		name   string
		change func(*Cluster, *slurm.Partition, *Job)
		want   string // verdict, code, whose, and whether it waits
	}{
		{"nothing", func(*Cluster, *slurm.Partition, *Job) {}, "yes"},
		{"no such partition", func(_ *Cluster, _ *slurm.Partition, j *Job) { j.Partition = "q" }, "no partition partition q"},
		{"a partition that is drained", func(_ *Cluster, p *slurm.Partition, _ *Job) { p.State = "DRAIN" }, "no partition_state partition p"},
		{"a partition that is down", func(_ *Cluster, p *slurm.Partition, _ *Job) { p.State = "DOWN" }, "no partition_state partition p waits"},
		{"a reservation", func(_ *Cluster, p *slurm.Partition, _ *Job) { p.NeedsResv = true }, "no partition_state partition p"},
		{"another group", func(_ *Cluster, p *slurm.Partition, _ *Job) { p.AllowGroups = []string{"staff"} }, "no group partition p"},
		{"groups that are not known", func(c *Cluster, p *slurm.Partition, _ *Job) { p.AllowGroups, c.Known.Groups = []string{"staff"}, false }, "unknown group partition p"},
		{"another host", func(c *Cluster, p *slurm.Partition, _ *Job) { p.AllocNodes, c.Host = "login[1-2]", "node7" }, "no host partition p"},
		{"the right host", func(c *Cluster, p *slurm.Partition, _ *Job) {
			p.AllocNodes, c.Host = "login[1-2]", "login2.example.org"
		}, "yes"},
		{"no association", func(c *Cluster, _ *slurm.Partition, _ *Job) { c.Associations = nil }, "no account user alice"},
		{"no association, and none is needed", func(c *Cluster, _ *slurm.Partition, _ *Job) {
			c.Associations, c.Config["AccountingStorageEnforce"] = nil, "none"
		}, "yes"},
		{"another account", func(_ *Cluster, p *slurm.Partition, _ *Job) { p.AllowAccounts = []string{"rich"} }, "no account partition p"},
		{"an account above, before 23.02", func(c *Cluster, p *slurm.Partition, _ *Job) { p.AllowAccounts = []string{"root"} }, "no account partition p"},
		{"an account above, since then", func(c *Cluster, p *slurm.Partition, _ *Job) {
			p.AllowAccounts, c.Config["SLURM_VERSION"] = []string{"root"}, "23.02.1"
		}, "yes"},
		{"an account above that is denied", func(c *Cluster, p *slurm.Partition, _ *Job) {
			p.DenyAccounts, c.Config["SLURM_VERSION"] = []string{"root"}, "23.02.1"
		}, "no account partition p"},
		{"accounts above that are not known", func(c *Cluster, p *slurm.Partition, _ *Job) {
			p.AllowAccounts, c.Accounts, c.Config["SLURM_VERSION"] = []string{"root"}, nil, "23.02.1"
		}, "unknown account partition p"},
		{"a QoS of others", func(_ *Cluster, _ *slurm.Partition, j *Job) { j.QOS = "deny" }, "no qos account lab"},
		{"the default QoS of an account above", func(c *Cluster, p *slurm.Partition, _ *Job) {
			p.AllowQOS, c.Associations[0].DefaultQOS, c.Accounts[0].DefaultQOS = []string{"long"}, "", "long"
		}, "yes"},
		{"the only QoS of the association", func(c *Cluster, p *slurm.Partition, _ *Job) {
			p.AllowQOS, c.Associations[0].QOS = []string{"long"}, []string{"long"}
		}, "yes"},
		{"too long", func(_ *Cluster, p *slurm.Partition, _ *Job) { p.MaxTime = time.Minute }, "no duration partition p"},
		{"too long, and not enforced", func(c *Cluster, p *slurm.Partition, _ *Job) {
			p.MaxTime, c.Config["EnforcePartLimits"] = time.Minute, "NO"
		}, "no duration partition p waits"},
		{"a default that is too long", func(_ *Cluster, p *slurm.Partition, j *Job) {
			j.Time, p.MaxTime, p.DefaultTime = 0, time.Minute, time.Hour
		}, "no duration partition p"},
		{"no time, and the QoS allows more than the partition", func(c *Cluster, p *slurm.Partition, j *Job) {
			j.Time, p.MaxTime, c.QOS[0].MaxWall = 0, time.Minute, slurm.AtMost(time.Hour)
		}, "no duration partition p"},
		{"no time, and the account allows more than the partition", func(c *Cluster, p *slurm.Partition, j *Job) {
			j.Time, p.MaxTime, c.Associations[0].MaxWall = 0, time.Minute, slurm.AtMost(time.Hour)
		}, "no duration partition p"},
		{"no time, and the QoS allows less", func(c *Cluster, p *slurm.Partition, j *Job) {
			j.Time, p.MaxTime, c.QOS[0].MaxWall = 0, time.Hour, slurm.AtMost(time.Minute)
		}, "yes"},
		{"a default that the QoS does not allow", func(c *Cluster, p *slurm.Partition, j *Job) {
			j.Time, p.DefaultTime, c.QOS[0].MaxWall = 0, time.Hour, slurm.AtMost(time.Minute)
		}, "no duration QoS normal waits"},
		{"a GPU of a type beyond the QoS", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.GPUTypes, c.QOS[0].MaxTRESPerJob = map[string]int64{"a100": 2}, slurm.TRES{"gres/gpu:a100": 3}
		}, "no qos_limit QoS normal waits"},
		{"GPUs that may be of a type beyond the QoS", func(c *Cluster, _ *slurm.Partition, _ *Job) {
			c.QOS[0].MaxTRESPerJob = slurm.TRES{"gres/gpu:a100": 3}
		}, "unknown qos_limit QoS normal"},
		{"memory that comes with the GPUs", func(c *Cluster, p *slurm.Partition, _ *Job) {
			p.DefMemPerGPU, c.QOS[0].MaxTRESPerJob = slurm.AtMost(int64(9000)), slurm.TRES{"mem": 20000}
		}, "unknown qos_limit QoS normal"},
		{"too many nodes", func(_ *Cluster, p *slurm.Partition, _ *Job) { p.MaxNodes = slurm.AtMost(int64(1)) }, "no nodes partition p"},
		{"too few nodes", func(_ *Cluster, p *slurm.Partition, _ *Job) { p.MinNodes = 3 }, "no nodes partition p"},
		{"too many CPUs on a node", func(_ *Cluster, p *slurm.Partition, _ *Job) { p.MaxCPUsPerNode = slurm.AtMost(int64(3)) }, "no cores partition p"},
		{"too much memory on a node", func(_ *Cluster, p *slurm.Partition, _ *Job) { p.MaxMemPerNode = slurm.AtMost(int64(3000)) }, "no memory partition p"},
		{"a default for each CPU that is too much", func(_ *Cluster, p *slurm.Partition, j *Job) {
			j.MemMB, p.DefMemPerCPU, p.MaxMemPerNode = 0, slurm.AtMost(int64(3000)), slurm.AtMost(int64(4000))
		}, "no memory partition p"},
		{"CPUs of the account", func(c *Cluster, _ *slurm.Partition, _ *Job) { c.Associations[0].MaxTRESPerJob = slurm.TRES{"cpu": 7} }, "no account_limit account lab waits"},
		{"CPUs of whole cores", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.CPUsPerTask, c.Nodes[0].ThreadsPerCore, c.Associations[0].MaxTRESPerJob = 3, 2, slurm.TRES{"cpu": 6}
		}, "no account_limit account lab waits"},
		{"CPUs of whole cores, of which some have one thread", func(c *Cluster, _ *slurm.Partition, j *Job) {
			c.Nodes = append(c.Nodes, c.Nodes[0])
			j.CPUsPerTask, c.Nodes[0].ThreadsPerCore, c.Associations[0].MaxTRESPerJob = 3, 2, slurm.TRES{"cpu": 6}
		}, "unknown account_limit account lab"},
		{"CPUs of whole cores within the limit", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.CPUsPerTask, c.Nodes[0].ThreadsPerCore, c.Associations[0].MaxTRESPerJob = 3, 2, slurm.TRES{"cpu": 8}
		}, "yes"},
		{"GPUs of whole nodes", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, j.GPUs, c.Associations[0].MaxTRESPerJob = true, 0, slurm.TRES{"gres/gpu": 7}
		}, "no account_limit account lab waits"},
		{"the same, which no submission is denied for", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, c.QOS[0].MaxTRESPerJob, c.QOS[0].Flags = true, slurm.TRES{"gres/gpu": 7}, "DenyOnLimit"
		}, "no qos_limit QoS normal waits"},
		{"GPUs of whole nodes within the limit", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, j.GPUs, c.Associations[0].MaxTRESPerJob = true, 0, slurm.TRES{"gres/gpu": 8}
		}, "yes"},
		{"GPUs of one whole node of two", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, c.QOS[0].MaxTRESPerNode = true, slurm.TRES{"gres/gpu": 3}
		}, "no qos_limit QoS normal waits"},
		{"GPUs of a type of whole nodes", func(c *Cluster, p *slurm.Partition, j *Job) {
			j.GPUs, p.Exclusive, c.Associations[0].MaxTRESPerJob = 0, true, slurm.TRES{"gres/gpu:a100": 3}
		}, "no account_limit account lab waits"},
		{"GPUs of whole nodes of which some have fewer", func(c *Cluster, p *slurm.Partition, j *Job) {
			j.Exclusive, j.GPUs, c.Associations[0].MaxTRESPerJob = true, 0, slurm.TRES{"gres/gpu": 7}
			c.Nodes = append(c.Nodes, slurm.Node{Partitions: "p", CPUs: 64, MemMB: 512000, GPUs: 2, GRES: "gpu:a100:2"})
		}, "unknown account_limit account lab"},
		{"the same, where those cannot hold the job", func(c *Cluster, p *slurm.Partition, j *Job) {
			j.Exclusive, j.GPUs, c.Associations[0].MaxTRESPerJob = true, 3, slurm.TRES{"gres/gpu": 7}
			c.Nodes = append(c.Nodes, slurm.Node{Partitions: "p", CPUs: 64, MemMB: 512000, GPUs: 2, GRES: "gpu:a100:2"})
		}, "no account_limit account lab waits"},
		{"GPUs of whole nodes that have none", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, j.GPUs, c.Nodes[0].GPUs, c.Nodes[0].GRES = true, 0, 0, ""
			c.Associations[0].MaxTRESPerJob = slurm.TRES{"gres/gpu": 3}
		}, "yes"},
		{"CPUs of whole nodes", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, c.Associations[0].MaxTRESPerJob = true, slurm.TRES{"cpu": 127}
		}, "no account_limit account lab waits"},
		{"all memory of whole nodes", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, j.MemMB, c.Associations[0].MaxTRESPerJob = true, 0, slurm.TRES{"mem": 9000}
		}, "no account_limit account lab waits"},
		{"memory for each CPU of whole nodes", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, j.MemMB, j.MemPerCPU, c.Associations[0].MaxTRESPerJob = true, 0, 100, slurm.TRES{"mem": 12799}
		}, "no account_limit account lab waits"},
		{"memory for each GPU of whole nodes", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, j.MemMB, j.MemPerGPU, c.Associations[0].MaxTRESPerJob = true, 0, 100, slurm.TRES{"mem": 799}
		}, "no account_limit account lab waits"},
		{"memory of whole nodes that is requested", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, c.Associations[0].MaxTRESPerJob = true, slurm.TRES{"mem": 9000}
		}, "yes"},
		{"all memory of the nodes, beyond a limit that denies", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.AllMemory, j.MemMB, c.QOS[0].MaxTRESPerJob, c.QOS[0].Flags = true, 0, slurm.TRES{"mem": 9000}, "DenyOnLimit"
		}, "no qos_limit QoS normal"},
		{"all memory of the nodes, which may be enough for the QoS", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.AllMemory, j.MemMB, c.QOS[0].MinTRESPerJob = true, 0, slurm.TRES{"mem": 9000}
		}, "unknown qos_limit QoS normal"},
		{"licenses of whole nodes", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, j.Licenses, c.Licenses = true, map[string]int64{"matlab": 3}, []slurm.License{{Name: "matlab", Total: 9}}
			c.Associations[0].MaxTRESPerJob = slurm.TRES{"license/matlab": 2}
		}, "no account_limit account lab waits"},
		{"minutes of the GPUs of whole nodes", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, c.Associations[0].MaxTRESMinsPerJob = true, slurm.TRES{"gres/gpu": 479}
		}, "no account_limit account lab waits"},
		{"a group limit above", func(c *Cluster, _ *slurm.Partition, _ *Job) { c.Accounts[1].Grp.TRES = slurm.TRES{"gres/gpu": 3} }, "no account_limit account root waits"},
		{"no jobs of the account", func(c *Cluster, _ *slurm.Partition, _ *Job) { c.Associations[0].MaxSubmit = slurm.AtMost(int64(0)) }, "no account_limit account lab"},
		{"GPUs of the QoS", func(c *Cluster, _ *slurm.Partition, _ *Job) { c.QOS[0].MaxTRESPerUser = slurm.TRES{"gres/gpu": 3} }, "no qos_limit QoS normal waits"},
		{"the same, denied", func(c *Cluster, _ *slurm.Partition, _ *Job) {
			c.QOS[0].MaxTRESPerUser, c.QOS[0].Flags = slurm.TRES{"gres/gpu": 3}, "DenyOnLimit"
		}, "no qos_limit QoS normal"},
		{"too few GPUs for the QoS", func(c *Cluster, _ *slurm.Partition, _ *Job) { c.QOS[0].MinTRESPerJob = slurm.TRES{"gres/gpu": 8} }, "no min_gpu QoS normal waits"},
		{"whole nodes, which may have enough GPUs for the QoS", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Exclusive, c.QOS[0].MinTRESPerJob = true, slurm.TRES{"gres/gpu": 8}
		}, "unknown min_gpu QoS normal"},
		{"a limit of the QoS comes before that of the account", func(c *Cluster, _ *slurm.Partition, _ *Job) {
			c.QOS[0].MaxWall, c.Associations[0].MaxWall = slurm.AtMost(2*time.Hour), slurm.AtMost(time.Minute)
		}, "yes"},
		{"no such license", func(_ *Cluster, _ *slurm.Partition, j *Job) { j.Licenses = map[string]int64{"matlab": 1} }, "no license license matlab"},
		{"no such reservation", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation = "r2"
		}, "no reservation reservation r2"},
		{"a reservation for the user", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Users = "r", []string{"bob", "alice"}
		}, "yes"},
		{"a reservation for others", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Users = "r", []string{"bob"}
		}, "no reservation reservation r"},
		{"a reservation for all others", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Users = "r", []string{"-alice"}
		}, "no reservation reservation r"},
		{"a reservation for all but another", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Users = "r", []string{"-bob"}
		}, "yes"},
		{"a reservation for an account above", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Accounts = "r", []string{"root"}
		}, "yes"},
		{"the same, where no association is needed", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Accounts, c.Config["AccountingStorageEnforce"] = "r", []string{"root"}, "none"
		}, "no reservation reservation r"},
		{"a reservation for an account, when what is above is not known", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Accounts, c.Accounts = "r", []string{"root"}, nil
		}, "unknown reservation reservation r"},
		{"a reservation for all but the account", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Accounts = "r", []string{"-lab"}
		}, "no reservation reservation r"},
		{"a reservation for the user with another account", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Users, c.Reservations[0].Accounts = "r", []string{"alice"}, []string{"rich"}
		}, "no reservation reservation r"},
		{"a reservation for the user with an account above", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Users, c.Reservations[0].Accounts = "r", []string{"alice"}, []string{"root"}
		}, "no reservation reservation r"},
		{"a reservation for the account but not the user", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Users, c.Reservations[0].Accounts = "r", []string{"-alice"}, []string{"lab"}
		}, "no reservation reservation r"},
		{"a reservation for a group", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Groups = "r", []string{"alice"}
		}, "yes"},
		{"a reservation for a group, when groups are not known", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Groups, c.Known.Groups = "r", []string{"staff"}, false
		}, "unknown reservation reservation r"},
		{"a reservation whose start moves on", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Users, c.Reservations[0].Flags = "r", []string{"alice"}, "TIME_FLOAT"
		}, "no reservation reservation r"},
		{"two reservations, one of others", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Reservations[0].Users = "r,r2", []string{"alice"}
		}, "no reservation reservation r2"},
		{"reservations that are not known", func(c *Cluster, _ *slurm.Partition, j *Job) {
			j.Reservation, c.Known.Reservations = "r", false
		}, "unknown reservation reservations"},
		{"accounting that does not answer", func(c *Cluster, _ *slurm.Partition, _ *Job) { c.Known.Accounting = false }, "unknown accounting user alice"},
	} {
		cluster := &Cluster{
			Partitions: []slurm.Partition{{Name: "p", State: "UP", MaxTime: slurm.Unlimited}}, QOS: []slurm.QOS{{Name: "normal"}, {Name: "long"}, {Name: "deny"}},
			Associations: []slurm.Association{lab}, Accounts: []slurm.Association{{Account: "lab", Parent: "root"}, {Account: "root"}},
			Nodes:        []slurm.Node{{Partitions: "p", CPUs: 64, MemMB: 512000, GPUs: 4, GRES: "gpu:a100:4"}},
			Reservations: []slurm.Reservation{{Name: "r"}},
			User:         "alice", Groups: []string{"alice"}, DefaultAccount: "lab", Known: Known{true, true, true, true, true, true},
			Config: slurm.Config{"SLURM_VERSION": "22.05.8", "AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageEnforce": "associations,limits,qos", "SelectTypeParameters": "CR_CORE_MEMORY"},
		}
		j := job
		c.change(cluster, &cluster.Partitions[0], &j)
		findings := cluster.Check(j)
		got := Of(findings).String()
		if len(findings) > 0 {
			got += " " + findings[0].Code + " " + findings[0].Whose
			if findings[0].Waits {
				got += " waits"
			}
			if findings[0].Text == "" || strings.Contains(findings[0].Text, "%!") {
				t.Errorf("%s: %q", c.name, findings[0].Text)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s; want %s (%+v)", c.name, got, c.want, findings)
		}
	}
}

func TestNeed(t *testing.T) {
	c := &Cluster{Known: Known{Config: true}, Config: slurm.Config{"SelectTypeParameters": "CR_CORE_MEMORY", "DefMemPerCPU": "500"}}
	for _, x := range []struct {
		name string
		p    slurm.Partition
		j    Job
		want Need
	}{
		{"the cluster's memory for each CPU", slurm.Partition{}, Job{CPUsPerTask: 4}, Need{4, 2000, 0, 4, 2000}},
		{"the partition's", slurm.Partition{DefMemPerCPU: slurm.AtMost(int64(8000))}, Job{CPUsPerTask: 2, Tasks: 2}, Need{4, 32000, 0, 4, 32000}},
		{"CPUs for each GPU", slurm.Partition{DefCPUPerGPU: slurm.AtMost(int64(4))}, Job{GPUs: 4}, Need{16, 8000, 4, 16, 8000}},
		{"memory for each GPU", slurm.Partition{DefMemPerGPU: slurm.AtMost(int64(4000))}, Job{GPUs: 2}, Need{1, 8000, 2, 1, 500}},
		{"memory for each GPU beyond what is asked for", slurm.Partition{DefMemPerGPU: slurm.AtMost(int64(4000))}, Job{GPUs: 2, MemMB: 100}, Need{1, 8000, 2, 1, 100}},
		{"a default beyond the most for each CPU", slurm.Partition{DefMemPerCPU: slurm.AtMost(int64(3000)), MaxMemPerCPU: slurm.AtMost(int64(2500))}, Job{CPUsPerTask: 2}, Need{4, 6000, 0, 2, 6000}},
		{"CPUs for the memory", slurm.Partition{MaxMemPerCPU: slurm.AtMost(int64(1000))}, Job{CPUsPerTask: 2, MemMB: 7500}, Need{8, 7500, 0, 2, 7500}},
	} {
		if got := c.Need(&x.p, x.j); got != x.want {
			t.Errorf("%s: %+v; want %+v", x.name, got, x.want)
		}
	}
}

func TestKinds(t *testing.T) {
	var got []string
	for _, n := range Kinds([]slurm.Node{
		{Name: "a", CPUs: 4, State: "DOWN"}, {Name: "b", CPUs: 4, State: "IDLE"}, {Name: "c", CPUs: 4, SpecCPUs: 1}, {Name: "d", CPUs: 4, GRES: "gpu:1"},
		{Name: "e", CPUs: 4, SpecCPUs: 1}, {Name: "f", CPUs: 4, Partitions: "p"},
	}) {
		got = append(got, n.Name)
	}
	if text := strings.Join(got, " "); text != "a c d f" {
		t.Error(text)
	}
}
