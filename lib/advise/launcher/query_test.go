package launcher

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/probe"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// saying returns a Search.Ask that gives these answers.
func saying(t *testing.T, nodes, partitions, accounts, qos string) func(context.Context, *Launcher) (*cluster.Snapshot, error) {
	t.Helper()
	s := &cluster.Snapshot{User: "alice", DefaultAccount: "lab", UserGroups: []string{"alice", "lab"}}
	n, err := slurm.ParseNodes(strings.NewReader(nodes))
	if err == nil {
		s.Groups = cluster.GroupNodes(n)
		s.Partitions, err = slurm.ParsePartitions(strings.NewReader(partitions + "\n"))
	}
	if err != nil {
		t.Fatal(err)
	}
	// A line is cluster|account|partition|QoS|default QoS.
	for line := range strings.Lines(accounts) {
		f := strings.Split(strings.TrimSpace(line), "|")
		s.Associations = append(s.Associations, slurm.Association{Cluster: f[0], Account: f[1], User: "alice", Partition: f[2], QOS: strings.Split(f[3], ","), DefaultQOS: f[4]})
	}
	// A line is name|longest time|least TRES|most TRES|flags.
	for line := range strings.Lines(qos) {
		f := strings.Split(strings.TrimSpace(line), "|")
		q := slurm.QOS{Name: f[0], Flags: slurm.List(f[4])}
		if wall, err := slurm.ParseDuration(f[1]); err == nil {
			q.MaxWall = slurm.AtMost(wall)
		}
		q.MinTRESPerJob, _ = slurm.ParseTRES(f[2])
		q.MaxTRESPerJob, _ = slurm.ParseTRES(f[3])
		s.QOS = append(s.QOS, q)
	}
	s.Config = slurm.Config{"ClusterName": "c", "SLURM_VERSION": "22.05.8", "SelectTypeParameters": "CR_CORE_MEMORY"}
	if accounts != "" {
		s.Config["AccountingStorageType"], s.Config["AccountingStorageEnforce"] = "accounting_storage/slurmdbd", "associations,limits,qos"
	}
	s.Known = admission.Known{Accounting: true, Accounts: true, Groups: true, Licenses: true, Config: true}
	return func(context.Context, *Launcher) (*cluster.Snapshot, error) { return s, nil }
}

// node returns a line of scontrol show nodes.
func node(name, partitions, rest string) string {
	return fmt.Sprintf("NodeName=%s CPUTot=16 RealMemory=64000 %s Partitions=%s\n", name, rest, partitions)
}

func TestDiskByProbe(t *testing.T) {
	const (
		gpus  = "Gres=gpu:a100:4 State=IDLE"
		known = "Gres=gpu:a100:4 TmpDisk=500000 State=IDLE"
		small = "Gres=gpu:a100:4 TmpDisk=50000 State=IDLE"
		old   = "Gres=gpu:t4:4 State=IDLE"
		found = 400 << 30
	)
	facts := func(disks map[string]int64) map[string]probe.Facts {
		all := map[string]probe.Facts{}
		for node, n := range disks {
			all[node] = probe.Facts{Node: node, Disk: n, Devices: []probe.Device{{Vendor: gpu.NVIDIA, Name: "A100", Memory: 80 << 30}}}
		}
		return all
	}
	for _, c := range []struct {
		name, nodes, spec string
		disks             map[string]int64
		want              string
	}{
		{"not known", node("a", "p", gpus), "disk=100G", nil, "none"},
		{"found", node("a", "p", gpus), "disk=100G", map[string]int64{"a": found}, "--nodes=1 --partition=p"},
		{"found to be small", node("a", "p", gpus), "disk=800G", map[string]int64{"a": found}, "none"},
		{"the least of what was found", node("a", "p", gpus) + node("b", "p", gpus), "disk=100G", map[string]int64{"a": found, "b": 10 << 30}, "none"},
		{"one that Slurm knows to be small", node("a", "p", gpus) + node("b", "p", small), "disk=100G", map[string]int64{"a": found}, "--nodes=1 --partition=p --exclude=b"},
		{"one that Slurm knows to suffice", node("a", "p", gpus) + node("b", "p", known), "disk=100G", map[string]int64{"a": found}, "--nodes=1 --partition=p"},
		{"Slurm's own figure first", node("a", "p", known), "disk=100G", map[string]int64{"a": 10 << 30}, "--nodes=1 --partition=p --tmp=95368M"},
		{"Slurm keeps jobs off what it does not know", node("a", "p", known) + node("b", "p", old), "disk=100G", nil, "--nodes=1 --partition=p --tmp=95368M"},
	} {
		ask := saying(t, c.nodes, "PartitionName=p State=UP", "", "")
		s := &Search{Launchers: []*Launcher{Direct(gpu.Builtin())}, Ask: func(ctx context.Context, l *Launcher) (*cluster.Snapshot, error) {
			snapshot, err := ask(ctx, l)
			snapshot.Facts = facts(c.disks)
			return snapshot, err
		}}
		a, err := s.Find(context.Background(), parse(t, c.spec))
		got := "none"
		if a != nil {
			got = a.Options.String()
		}
		if err != nil || got != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.name, got, err, c.want)
		}
	}
}

func TestWhatSlurmSays(t *testing.T) {
	const (
		a100 = "Gres=gpu:a100:4 AvailableFeatures=big State=IDLE"
		t4   = "Gres=gpu:t4:4 AvailableFeatures=small State=IDLE"
		cpu  = "Gres=(null) State=IDLE"
		lab  = "c|lab||normal|normal\n"
	)
	for _, c := range []struct{ name, nodes, partitions, accounts, qos, spec, want string }{
		{"the simplest", node("a", "p", a100), "PartitionName=p State=UP", "", "", "cuda()*2", "--nodes=1 --partition=p --gpus-per-node=2"},
		{"a time limit", node("a", "p", a100), "PartitionName=p State=UP MaxTime=2-00:00:00", "", "", "duration=2d", "--nodes=1 --time=48:00:00 --partition=p"},
		{"beyond the time limit", node("a", "p", a100), "PartitionName=p State=UP MaxTime=2-00:00:00", "", "", "duration=49h", "none"},
		{"a partition that is down", node("a", "p", a100), "PartitionName=p State=DOWN", "", "", "cuda()", "none"},
		{"for root only", node("a", "p", a100), "PartitionName=p State=UP RootOnly=YES", "", "", "cuda()", "none"},
		{"with a reservation only", node("a", "p", a100), "PartitionName=p State=UP ReqResv=YES", "", "", "cuda()", "none"},
		{"for another group", node("a", "p", a100), "PartitionName=p State=UP AllowGroups=staff", "", "", "cuda()", "none"},
		{"for my group", node("a", "p", a100), "PartitionName=p State=UP AllowGroups=staff,lab", "", "", "cuda()", "--nodes=1 --partition=p --gpus-per-node=1"},
		{"nodes that are down", node("a", "p", "Gres=gpu:4 State=DOWN*"), "PartitionName=p State=UP", "", "", "cuda()", "none"},
		{"one of two nodes is down", node("a", "p", "Gres=gpu:4 State=DOWN") + node("b", "p", "Gres=gpu:4 State=IDLE"), "PartitionName=p State=UP", "", "", "cuda() & nodes=2", "none"},
		{"too many nodes", node("a", "p", cpu) + node("b", "p", cpu), "PartitionName=p State=UP MaxNodes=1", "", "", "nodes=2", "none"},
		{"too few nodes", node("a", "p", cpu) + node("b", "p", cpu), "PartitionName=p State=UP MinNodes=2", "", "", "cpu()", "none"},
		{"limits of a partition", node("a", "p", cpu), "PartitionName=p State=UP MaxCPUsPerNode=8 MaxMemPerNode=1000", "", "", "cpu(cores=9)", "none"},
		{"limits of a partition", node("a", "p", cpu), "PartitionName=p State=UP MaxCPUsPerNode=8 MaxMemPerNode=1000", "", "", "cpu(mem=2G)", "none"},
		{"GPUs by type", node("a", "p", a100) + node("b", "p", t4), "PartitionName=p State=UP", "", "", "cuda(mem=20G)", "--nodes=1 --partition=p --gpus-per-node=a100:1"},
		{"a model of which the memory is not known", node("a", "p", a100), "PartitionName=p State=UP", "", "", "cuda(mem=60G)", "none"},
		{"what each of the model has", node("a", "p", a100), "PartitionName=p State=UP", "", "", "cuda(mem=40GiB)", "--nodes=1 --partition=p --gpus-per-node=1"},
		{"more than the model has", node("a", "p", a100), "PartitionName=p State=UP", "", "", "cuda(mem=90G)", "none"},
		{"memory by features", node("a", "p", "Gres=gpu:4 AvailableFeatures=GPU_MEM:80GB State=IDLE") + node("b", "p", "Gres=gpu:4 AvailableFeatures=GPU_MEM:16GB State=IDLE"),
			"PartitionName=p State=UP", "", "", "cuda(mem=40G)", "--nodes=1 --partition=p --constraint=(GPU_MEM:80GB) --gpus-per-node=1"},
		{"nodes with two types", node("a", "p", "Gres=gpu:a100:2,gpu:t4:2 State=IDLE"), "PartitionName=p State=UP", "", "", "cuda(mem=20G) & cuda(mem=1G)", "--nodes=1 --partition=p --gpus-per-node=a100:1,t4:1"},
		{"names tell alike nodes apart", node("a", "p", "Gres=gpu:2 State=IDLE") + node("b", "p", "Gres=gpu:2 State=IDLE"), "PartitionName=p State=UP", "", "", "cuda() & host!=b",
			"--nodes=1 --partition=p --exclude=b --gpus-per-node=1"},
		{"names tell other nodes apart", node("a", "p", "Gres=gpu:2 State=IDLE") + node("b", "p", "Gres=gpu:2 AvailableFeatures=x State=IDLE"), "PartitionName=p State=UP", "", "",
			"cuda() & host!=b", "--nodes=1 --partition=p --exclude=b --gpus-per-node=1"},
		{"no GPU wanted, none wasted", node("a", "g", a100) + node("b", "c", cpu), "PartitionName=g State=UP\nPartitionName=c State=UP", "", "", "cpu()", "--nodes=1 --partition=c --cpus-per-task=1"},
		{"unless there is no other", node("a", "g", a100) + node("b", "c", "State=DOWN"), "PartitionName=g State=UP\nPartitionName=c State=UP", "", "", "cpu()", "--nodes=1 --partition=g --cpus-per-task=1"},
		{"not into a preemptible partition", node("a", "spot,p", a100), "PartitionName=spot State=UP PriorityTier=1 PreemptMode=REQUEUE\nPartitionName=p State=UP PriorityTier=2 PreemptMode=OFF", "", "",
			"cuda()", "--nodes=1 --partition=p --gpus-per-node=1"},
		{"unless it is named", node("a", "spot,p", a100), "PartitionName=spot State=UP PriorityTier=1 PreemptMode=REQUEUE\nPartitionName=p State=UP PriorityTier=2 PreemptMode=OFF", "", "",
			"cuda() & partition=spot", "--nodes=1 --partition=spot --gpus-per-node=1"},
		{"the QoS of Slurm, if the association has no default", node("a", "p", cpu), "PartitionName=p State=UP", "c|lab||high,mincpu,normal|\n", "high||||\nmincpu||||\nnormal||||\n", "cpu(cores=2)", "--nodes=1 --partition=p --cpus-per-task=2"},
		{"the same, alone in the partition", node("a", "p", cpu), "PartitionName=p State=UP AllowQos=normal", "c|lab||high,normal|\n", "high||||\nnormal||||\n", "cpu(cores=2)", "--nodes=1 --partition=p --cpus-per-task=2"},
		{"the only QoS of the association", node("a", "p", cpu), "PartitionName=p State=UP AllowQos=high", "c|lab||high|\n", "high||||\nnormal||||\n", "cpu(cores=2)", "--nodes=1 --partition=p --cpus-per-task=2"},
		{"another account", node("a", "p", a100), "PartitionName=p State=UP AllowAccounts=rich", lab + "c|rich||normal|normal\n", "", "cuda()", "--nodes=1 --account=rich --partition=p --gpus-per-node=1"},
		{"no account", node("a", "p", a100), "PartitionName=p State=UP AllowAccounts=rich", lab, "", "cuda()", "none"},
		{"a denied account", node("a", "p", a100), "PartitionName=p State=UP DenyAccounts=lab", lab, "", "cuda()", "none"},
		{"an account of another partition", node("a", "p", a100), "PartitionName=p State=UP", "c|lab|q|normal|normal\n", "", "cuda()", "none"},
		{"no mixing of accounts", node("a", "p,q", a100), "PartitionName=p State=UP\nPartitionName=q State=UP AllowAccounts=rich", lab + "c|rich||normal|normal\n", "", "cuda()", "--nodes=1 --partition=p --gpus-per-node=1"},
		{"the tightest QoS that is long enough", node("a", "p", a100), "PartitionName=p State=UP", "c|lab||t4,normal,t3|normal\n", "normal|1:00:00|||\nt3|20:00:00|||\nt4|4-04:00:00|||\n",
			"duration=19h", "--nodes=1 --time=19:00:00 --qos=t3 --partition=p"},
		{"the next one", node("a", "p", a100), "PartitionName=p State=UP", "c|lab||t4,normal,t3|normal\n", "normal|1:00:00|||\nt3|20:00:00|||\nt4|4-04:00:00|||\n",
			"duration=21h", "--nodes=1 --time=21:00:00 --qos=t4 --partition=p"},
		{"the default is not asked for", node("a", "p", a100), "PartitionName=p State=UP", "c|lab||t4,normal,t3|normal\n", "normal|1:00:00|||\n", "duration=1h", "--nodes=1 --time=01:00:00 --partition=p"},
		{"a QoS that the partition takes", node("a", "p", a100), "PartitionName=p State=UP AllowQos=t4,x", "c|lab||t4,normal|normal\n", "", "cuda()", "--nodes=1 --qos=t4 --partition=p --gpus-per-node=1"},
		{"none that it takes", node("a", "p", a100), "PartitionName=p State=UP AllowQos=x", "c|lab||t4,normal|normal\n", "", "cuda()", "none"},
		{"a QoS for GPUs", node("a", "p", a100), "PartitionName=p State=UP", "c|lab||normal|normal\n", "normal||gres/gpu=1|gres/gpu=4|\n", "cpu()", "none"},
		{"more GPUs than the QoS allows", node("a", "p", a100) + node("b", "p", a100), "PartitionName=p State=UP", "c|lab||normal|normal\n", "normal|||gres/gpu=4|\n", "cuda()*3 & nodes=2", "none"},
		{"the QoS of the partition", node("a", "p", a100), "PartitionName=p State=UP QoS=lim", "c|lab||normal|normal\n", "lim|1:00:00|||\n", "duration=2h", "none"},
		{"a QoS that comes before it", node("a", "p", a100), "PartitionName=p State=UP QoS=lim", "c|lab||normal|normal\n", "lim|1:00:00|||\nnormal|3:00:00|||OverPartQOS\n", "duration=2h", "--nodes=1 --time=02:00:00 --partition=p"},
		{"a QoS beyond the partition's time", node("a", "p", a100), "PartitionName=p State=UP MaxTime=1:00:00", "c|lab||normal|normal\n", "normal||||PartitionTimeLimit\n", "duration=2h", "--nodes=1 --time=02:00:00 --partition=p"},
		{"AMD", node("a", "p", "Gres=gpu:mi250:4 State=IDLE"), "PartitionName=p State=UP", "", "", "cuda()", "none"},
		{"AMD", node("a", "p", "Gres=gpu:mi250:4 State=IDLE"), "PartitionName=p State=UP", "", "", "rocm(mem=64G) | cuda()", "--nodes=1 --partition=p --gpus-per-node=1"},
	} {
		s := &Search{Launchers: []*Launcher{Direct(gpu.Builtin())}, Ask: saying(t, c.nodes, c.partitions, c.accounts, c.qos)}
		want := c.want
		if want != "none" {
			want = "slurm " + want
		}
		if got := found(t, s, c.spec); got != want {
			t.Errorf("%s: %s\n got %s\nwant %s", c.name, c.spec, got, want)
		}
	}
}

// TestClasses checks which places an answer joins, and in which order.
func TestClasses(t *testing.T) {
	const (
		cpu   = "Gres=(null) State=IDLE"
		small = "Gres=gpu:t4:4 AvailableFeatures=t State=IDLE"
		large = "Gres=gpu:h200:4 AvailableFeatures=h State=IDLE"
	)
	fat := strings.Replace(node("f", "f", cpu), "=64000", "=900000", 1)
	for _, c := range []struct {
		name, nodes, partitions, spec, want string
		any                                 bool
	}{
		{name: "whole nodes are not joined with parts of nodes", nodes: node("a", "x", cpu) + node("b", "p", cpu),
			partitions: "PartitionName=x State=UP OverSubscribe=EXCLUSIVE\nPartitionName=p State=UP", spec: "cpu()", want: "--partition=p --cpus-per-task=1"},
		{name: "they are used where there is no other", nodes: node("a", "x", cpu), partitions: "PartitionName=x State=UP OverSubscribe=EXCLUSIVE", spec: "cpu()", want: "--partition=x --cpus-per-task=1"},
		{name: "they are like others for a job that wants them", nodes: node("a", "x", cpu) + node("b", "p", cpu),
			partitions: "PartitionName=p State=UP\nPartitionName=x State=UP OverSubscribe=EXCLUSIVE", spec: "exclusive", want: "--partition=p,x --exclusive"},
		{name: "joined, they are behind: Slurm keeps the memory of a whole node for the next partition", nodes: node("a", "x", cpu) + node("b", "p", cpu),
			partitions: "PartitionName=x State=UP OverSubscribe=EXCLUSIVE\nPartitionName=p State=UP MaxMemPerNode=1000", spec: "cpu()", want: "--partition=p,x --cpus-per-task=1", any: true},
		{name: "a job that may lose its nodes is never joined with others", nodes: node("a", "x,q", cpu) + node("b", "p,q", cpu),
			partitions: "PartitionName=x State=UP OverSubscribe=EXCLUSIVE\nPartitionName=p State=UP PriorityTier=2\nPartitionName=q State=UP PreemptMode=REQUEUE", spec: "cpu()", want: "--partition=p,x --cpus-per-task=1", any: true},
		{name: "of features that select the same nodes, that of the request is named", nodes: node("a", "p", "AvailableFeatures=sm_86,x,big State=IDLE") + node("b", "p", cpu),
			partitions: "PartitionName=p State=UP", spec: "feature=x", want: "--partition=p --constraint=(x)"},
		{name: "a name with a blank is no word of an answer", nodes: node("a", "p,GPU dev", cpu),
			partitions: "PartitionName=p State=UP\nPartitionName=GPU dev State=UP", spec: "cpu()", want: "--partition=p --cpus-per-task=1"},
		{name: "large memory is for those who need it", nodes: node("a", "p", cpu) + fat, partitions: "PartitionName=f State=UP\nPartitionName=p State=UP", spec: "cpu()", want: "--partition=p --cpus-per-task=1"},
		{name: "and who needs it gets it", nodes: node("a", "p", cpu) + fat, partitions: "PartitionName=p State=UP\nPartitionName=f State=UP", spec: "cpu(mem=200G)", want: "--partition=f --mem=190735M --cpus-per-task=1"},
		{name: "partitions for special jobs", nodes: node("a", "p,debug,long-runs,interactive", cpu),
			partitions: "PartitionName=debug State=UP\nPartitionName=interactive State=UP\nPartitionName=long-runs State=UP\nPartitionName=p State=UP MaxTime=2-0", spec: "duration=1h", want: "--time=01:00:00 --partition=p"},
		{name: "a job that only they take", nodes: node("a", "p,debug,long-runs", cpu),
			partitions: "PartitionName=debug State=UP MaxTime=30\nPartitionName=p State=UP MaxTime=2-0\nPartitionName=long-runs State=UP", spec: "duration=3d", want: "--time=72:00:00 --partition=long-runs"},
		{name: "all of them", nodes: node("a", "p,debug", cpu), partitions: "PartitionName=debug State=UP\nPartitionName=p State=UP", spec: "cpu()", want: "--partition=p,debug --cpus-per-task=1", any: true},
		{name: "the smallest GPUs that suffice", nodes: node("h", "p", large) + node("t", "q", small), partitions: "PartitionName=p State=UP\nPartitionName=q State=UP", spec: "cuda()", want: "--partition=q,p --gpus-per-node=1"},
		{name: "what is billed less", nodes: node("a", "p,q", cpu), partitions: "PartitionName=p State=UP TRESBillingWeights=CPU=2.0,Mem=0.25G\nPartitionName=q State=UP", spec: "cpu()", want: "--partition=q,p --cpus-per-task=1"},
	} {
		s := &Search{Launchers: []*Launcher{Direct(gpu.Builtin())}, Any: c.any, Ask: saying(t, c.nodes, c.partitions, "", "")}
		if got, want := found(t, s, c.spec), "slurm --nodes=1 "+c.want; got != want {
			t.Errorf("%s: %s\n got %s\nwant %s", c.name, c.spec, got, want)
		}
	}
}

// TestGPUsOfNodes checks what GPUs nodes are taken to have, and what of them an answer takes.
func TestGPUsOfNodes(t *testing.T) {
	gres := func(gres, features string) string {
		return "Gres=" + gres + " AvailableFeatures=" + features + " State=IDLE"
	}
	const mixed = "gpu:h100:2,gpu:nvidia_h100_80gb_hbm3_1g.10gb:7"
	for _, c := range []struct{ name, nodes, spec, want string }{
		{"a variant of one site makes no other unknown", node("a", "p", gres("gpu:h100:4", "ib")), "cuda(mem=80G)", "--partition=p --gpus-per-node=1"},
		{"a feature beside the type", node("a", "p", gres("gpu:a100:4", "gpu80")) + node("b", "p", gres("gpu:a100:4", "gpu40")), "cuda(mem=80G)", "--partition=p --constraint=(gpu80) --gpus-per-node=1"},
		{"the features that do", node("a", "p", gres("gpu:4", "rome,GPU_GEN:AMP,GPU_MEM:80GB,ib")) + node("b", "p", gres("gpu:4", "rome,GPU_GEN:AMP,GPU_MEM:40GB,ib")), "cuda(mem=60G)",
			"--partition=p --constraint=(GPU_MEM:80GB) --gpus-per-node=1"},
		{"one feature for all that match", node("a", "p", gres("gpu:4", "rome,vram80,rack1")) + node("b", "p", gres("gpu:4", "milan,vram80,rack2")) + node("c", "p", gres("gpu:4", "rome,vram40,rack3")), "cuda(mem=60G)",
			"--partition=p --constraint=(vram80) --gpus-per-node=1"},
		{"two where none is enough", node("a", "p", gres("gpu:a100:4", "gpu80,new,ib")) + node("b", "p", gres("gpu:a100:2", "gpu80,ib")) + node("c", "p", gres("gpu:a100:4", "gpu40,new")), "cuda(mem=60G) * 3 & cpu(cores=2)",
			"--partition=p --constraint=(gpu80&new) --cpus-per-task=2 --gpus-per-node=3"},
		{"an instance type", node("a", "p", gres("gpu:8", "p4de.24xlarge")), "cuda(mem=80G)", "--partition=p --gpus-per-node=1"},
		{"the name of a partition is the last word", node("a", "v100", gres("gpu:4", "(null)")), "cuda(model=v100)", "--partition=v100 --gpus-per-node=1"},
		{"features say more than the name of a partition", node("a", "v100", gres("gpu:4", "t4")), "cuda(model=v100)", "none"},
		{"a number that no variant has is a slice", node("a", "p", gres("gpu:h100-47:2", "(null)")), "cuda(mem=40G)", "none"},
		{"and has its size", node("a", "p", gres("gpu:h100-47:2", "(null)")), "slice(mem=40G)", "--partition=p --gpus-per-node=1"},
		{"whole GPUs beside slices are requested by type", node("a", "p", gres(mixed, "(null)")), "cuda()", "--partition=p --gpus-per-node=h100:1"},
		{"and so are slices", node("a", "p", gres(mixed, "(null)")), "slice()", "--partition=p --gpus-per-node=nvidia_h100_80gb_hbm3_1g.10gb:1"},
		{"whole nodes come with all of both", node("a", "p", gres(mixed, "(null)")), "slice() & exclusive", "none"},
		{"slices are no GPUs", node("a", "p", gres(mixed, "(null)")), "cuda() * 3", "none"},
		{"a slice for each task", node("a", "p", gres(mixed, "(null)")), "slice(mem=9G) * 2 & tasks=2", "--partition=p --ntasks-per-node=2 --gpus-per-node=nvidia_h100_80gb_hbm3_1g.10gb:2"},
		{"a model that names a slice", node("a", "p", gres(mixed, "(null)")), "cuda(model=1g.10gb)", "--partition=p --gpus-per-node=nvidia_h100_80gb_hbm3_1g.10gb:1"},
		{"an upper bound is the size on the box", node("a", "p", gres("gpu:v100:4", "v100-16g")), "cuda(mem<=16G)", "--partition=p --gpus-per-node=1"},
		{"an upper bound is the size on the box", node("a", "p", gres("gpu:l40s:4", "(null)")), "cuda(mem=24G..48G)", "--partition=p --gpus-per-node=1"},
		{"and no more", node("a", "p", gres("gpu:l40s:4", "(null)")), "cuda(mem<=40G)", "none"},
		{"shards are those of one GPU", node("a", "p", gres("gpu:4,shard:8", "(null)")), "gres(shard) * 3", "none"},
		{"of each type as many as it has", node("a", "p", gres("gpu:t4:1,gpu:l40s:3,shard:t4:2,shard:l40s:12", "(null)")), "gres(shard) * 4",
			"--partition=p --gres=shard:4"},
		{"whole nodes come without shards", node("a", "p", gres("gpu:4,shard:8", "(null)")), "gres(shard) & exclusive", "none"},
		{"a type of shards", node("a", "p", gres("gpu:t4:1,gpu:l40s:3,shard:t4:2,shard:l40s:12", "(null)")), "gres(shard:t4) * 3", "none"},
	} {
		partitions := "PartitionName=p State=UP\nPartitionName=v100 State=UP"
		s := &Search{Launchers: []*Launcher{Direct(gpu.Builtin())}, Ask: saying(t, c.nodes, partitions, "", "")}
		want := c.want
		if want != "none" {
			want = "slurm --nodes=1 " + want
		}
		if got := found(t, s, c.spec); got != want {
			t.Errorf("%s: %s\n got %s\nwant %s", c.name, c.spec, got, want)
		}
	}
}

// TestQuerySlurm checks how a file and Slurm complement each other.
func TestQuerySlurm(t *testing.T) {
	nodes := node("a", "gpu,heavy", "Gres=gpu:4 AvailableFeatures=GPU4,GPUM24G State=IDLE") + node("b", "other", "Gres=gpu:2 AvailableFeatures=GPU2,GPUM48G State=IDLE")
	partitions := "PartitionName=gpu State=UP MaxTime=2-0\nPartitionName=heavy State=UP\nPartitionName=other State=UP AllowAccounts=lab\n"
	for _, c := range []struct{ name, yaml, spec, want string }{
		{"a disabled partition is left out", documentedAuto(t), "cuda(mem=20G)*2", "auto --nodes=1 --partition=gpu,other --gpus-per-node=2"},
		{"priorities of the file", entry("query_slurm: true, partitions: {other: {priority: 1}}"), "cuda(mem=20G)", "x --nodes=1 --partition=other,gpu,heavy --gpus-per-node=1"},
		{"a ratio of the file", entry("query_slurm: true, configuration: {gpu: {min_mem_ratio: 0.5}}"), "cuda(mem=20G)", "x --nodes=1 --partition=gpu,heavy --gpus-per-node=1"},
		{"QoS and accounts of the file", entry("query_slurm: true, qos: {long: {max_duration: 300h}}, partitions: {gpu: {qos: [long], accounts: [lab]}}"), "cuda() & duration=40h & partition=gpu",
			"x --nodes=1 --time=40:00:00 --account=lab --qos=long --partition=gpu --gpus-per-node=1"},
		{"no QoS of the file is longer than Slurm allows", entry("query_slurm: true, qos: {long: {max_duration: 300h}}, partitions: {gpu: {qos: [long]}}"), "cuda() & duration=50h & partition=gpu", "none"},
		{"an account that Slurm does not take", entry("query_slurm: true, partitions: {other: {accounts: [poor]}}"), "cuda() & partition=other", "none"},
		{"a partition that Slurm does not have", entry("query_slurm: true, partitions: {old: {nodes: [{count: 4}]}}"), "cpu() & partition=old", "none"},
		{"regular expressions of the file", entry(`query_slurm: true, features_regex: ['GPUM(?P<cuda_memory>\d)']`), "cuda(mem=20G)", "none"},
	} {
		s := &Search{Launchers: load(t, c.yaml), Ask: saying(t, nodes, partitions, "", "")}
		if got := found(t, s, c.spec); got != c.want {
			t.Errorf("%s: %s\n got %s\nwant %s", c.name, c.spec, got, c.want)
		}
	}
}

// documentedAuto returns the last launcher of the documented file, which queries Slurm.
func documentedAuto(t *testing.T) string {
	t.Helper()
	_, auto, _ := strings.Cut(testdata(t, "documented.yaml"), "  - id: auto")
	return "slurm:\n  - id: auto" + auto
}

// Nodes are scarce if they have much more memory for each core than most others have, not than an odd one.
func TestScarceMemory(t *testing.T) {
	node := func(name string, nodes, cpus, mib int) string {
		text := ""
		for i := range nodes {
			text += fmt.Sprintf("NodeName=%s%d CPUTot=%d RealMemory=%d State=IDLE Partitions=%s\n", name, i+1, cpus, mib, name)
		}
		return text
	}
	for _, c := range []struct{ nodes, want string }{
		{node("std", 3, 32, 128000) + node("big", 1, 32, 1024000), "std"},
		{node("odd", 1, 1, 1024) + node("std", 3, 32, 128000) + node("big", 1, 32, 1024000), "odd,std"},
		{node("phi", 2, 272, 96000) + node("std", 60, 32, 128000), "phi,std"},
		{node("phi", 60, 272, 96000) + node("std", 2, 32, 128000), "phi"},
	} {
		partitions := ""
		for _, name := range []string{"odd", "phi", "std", "big"} {
			if strings.Contains(c.nodes, "="+name) {
				partitions += "PartitionName=" + name + " State=UP\n"
			}
		}
		s := &Search{Launchers: []*Launcher{Direct(gpu.Builtin())}, Ask: saying(t, c.nodes, strings.TrimSpace(partitions), "", "")}
		want := "slurm --nodes=1 --partition=" + c.want + " --cpus-per-task=1"
		if got := found(t, s, "cpu(cores=1)"); got != want {
			t.Errorf("%s\n got %s\nwant %s", c.nodes, got, want)
		}
	}
}

// TestSites checks requests against nodes of many sites, as their public documentation describes them.
func TestSites(t *testing.T) {
	kinds := map[string]bool{}
	for line := range strings.Lines(testdata(t, "sites.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "|")
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		if len(f) != 4 {
			t.Fatalf("%q", line)
		}
		kinds[f[0]+f[1]] = true
		features := f[1]
		if features == "" {
			features = "(null)"
		}
		partitions := ""
		for name := range strings.SplitSeq(f[2], ",") {
			partitions += "PartitionName=" + name + " State=UP\n"
		}
		nodes := node("a", f[2], "Gres="+f[0]+" AvailableFeatures="+features+" State=IDLE")
		s := &Search{Launchers: []*Launcher{Direct(gpu.Builtin())}, Ask: saying(t, nodes, strings.TrimSpace(partitions), "", "")}
		for expected := range strings.SplitSeq(f[3], ", ") {
			spec, answer, _ := strings.Cut(expected, " ")
			if got := found(t, s, spec); (got != "none") != (answer == "yes") {
				t.Errorf("%s with features %q in %s: %s: %s, want %s", f[0], f[1], f[2], spec, got, answer)
			}
		}
	}
	if len(kinds) < 55 {
		t.Errorf("%d kinds of nodes", len(kinds))
	}
}
