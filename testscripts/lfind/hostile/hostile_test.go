package hostile

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// machines are nodes of several kinds: with two threads on a core, with two types of GPUs, with GPUs of which only a
// feature tells the model, with slices beside whole GPUs, with shards of GPUs, with several sockets.
const machines = `cpu1 1 2x2 8000 cpu
cpu2 2 2 30000 cpu,big
gpu1 1 8 16000 ib a100:2,rtx2080:2,shard:8
gpu2 1 4x2 16000 a100-80g :4,shard:12
small1 2 4 12000 mig h100:1,h100_1g.10gb:3`

// gpuOf is what a device of a node is: its model, and the gigabytes that are sure of it.
var gpuOf = map[string][]struct {
	model     string
	gigabytes int
	slice     bool
}{
	"gpu1":   {{"a100", 40, false}, {"a100", 40, false}, {"rtx2080", 8, false}, {"rtx2080", 8, false}},
	"gpu2":   {{"a100", 80, false}, {"a100", 80, false}, {"a100", 80, false}, {"a100", 80, false}},
	"small1": {{"h100", 80, false}, {"h100", 9, true}, {"h100", 9, true}, {"h100", 9, true}},
}

func TestMain(m *testing.M) {
	os.Setenv("PONOS_CLUSTER_NODES", machines)
	os.Setenv("PONOS_CLUSTER_TRES", "gres/gpu,gres/gpu:a100")
	harness.Main(m, nil, "lfind")
}

// partitions are combined by lfind in every way that their users may.
const partitions = `x0 Nodes=cpu[1-2] OverSubscribe=EXCLUSIVE
x1 Nodes=cpu[1-2],gpu1 OverSubscribe=EXCLUSIVE MaxMemPerNode=3000
x2 Nodes=gpu[1-2] OverSubscribe=EXCLUSIVE
x3 Nodes=cpu[1-2],small1 OverSubscribe=EXCLUSIVE MaxCPUsPerNode=2
x4 Nodes=cpu1,gpu1 OverSubscribe=EXCLUSIVE DefMemPerCPU=3000
x5 Nodes=gpu[1-2],small1 OverSubscribe=EXCLUSIVE QOS=part
m0 Nodes=cpu[1-2] MaxMemPerNode=1200
m1 Nodes=cpu[1-2],gpu[1-2] MaxMemPerNode=6000 DefMemPerNode=2000
m2 Nodes=cpu[1-2],gpu[1-2] MaxMemPerCPU=1000
m3 Nodes=gpu[1-2],small1 MaxMemPerCPU=2500 DefMemPerCPU=2000
m4 Nodes=gpu[1-2] JobDefaults=DefMemPerGPU=5000
c0 Nodes=cpu[1-2],gpu1 MaxCPUsPerNode=2
c1 Nodes=gpu[1-2],small1 MaxCPUsPerNode=3 JobDefaults=DefCpuPerGPU=3
c2 Nodes=gpu[1-2] JobDefaults=DefCpuPerGPU=2
t0 Nodes=cpu[1-2],gpu[1-2],small1 MaxTime=30 DefaultTime=10
t1 Nodes=gpu1,small1 MaxTime=2-0 QOS=part
n0 Nodes=cpu[1-2],gpu[1-2] MinNodes=2
n1 Nodes=gpu[1-2],small1 MaxNodes=1
a0 Nodes=gpu[1-2] AllowAccounts=csi
a1 Nodes=cpu[1-2],small1 AllowQos=short,high
a2 Nodes=gpu[1-2] DenyAccounts=csi AllowGroups=alice,bob
d0 Nodes=cpu[1-2],gpu[1-2] State=DRAIN
long Nodes=cpu[1-2],gpu[1-2] PriorityTier=5
debug Nodes=cpu1,gpu1,small1 MaxTime=60
spot Nodes=cpu[1-2],gpu[1-2],small1 PriorityTier=1 PreemptMode=REQUEUE`

// world is the accounting of five users.
var world = []string{
	"add qos short MaxWall=30 Flags=DenyOnLimit",
	"add qos two MaxTRESPerJob=gres/gpu=2,cpu=6",
	"add qos part MaxTRESPerJob=gres/gpu=3 MaxTRESPerUser=cpu=12 Flags=DenyOnLimit",
	"modify user bob set QOS=normal,short,two DefaultQOS=two",
	"modify user carol set QOS=normal,short,high DefaultQOS=-1",
	"modify user alice set MaxTRESPerJob=node=2",
	"add account guests parent=research MaxTRESPerJob=gres/gpu=1,cpu=4",
	"add user dave account=guests",
	"add user erin account=research,csi DefaultAccount=csi",
}

// asked is a request, and what its answer has to have on each node.
type asked struct {
	spec, model     string
	gigabytes, gpus int
	slice           bool
	shards          string // number of shards of a GPU; ""
}

func draw(r *rand.Rand) asked {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	var a asked
	var terms []string
	if r.IntN(3) > 0 {
		a.gpus = 1
		var args []string
		call := "cuda"
		switch r.IntN(5) {
		case 0:
			a.slice, call = true, "slice"
		case 1:
			a.model = pick("a100", "rtx2080", "h100")
			args = append(args, "model="+a.model)
		case 2, 3:
			a.gigabytes = []int{5, 20, 40, 60, 80}[r.IntN(5)]
			args = append(args, fmt.Sprintf("mem=%dG", a.gigabytes))
		}
		term := call + "(" + strings.Join(args, ", ") + ")"
		if !a.slice && r.IntN(3) == 0 {
			a.gpus = 2 + r.IntN(2)
			term += fmt.Sprintf(" * %d", a.gpus)
		}
		terms = append(terms, term)
	} else if r.IntN(3) == 0 {
		a.shards = strconv.Itoa(1 + r.IntN(4)) // a GPU of gpu1 has 2, of gpu2 3
		terms = append(terms, fmt.Sprintf("gres(shard) * %s", a.shards))
	}
	switch r.IntN(5) {
	case 0, 1:
		terms = append(terms, fmt.Sprintf("cpu(cores=%d)", 1+r.IntN(5)))
	case 2:
		terms = append(terms, fmt.Sprintf("cpu(cores=%d, mem=%dM)", 1+r.IntN(3), []int{400, 1500, 4000, 9000}[r.IntN(4)]))
	}
	if r.IntN(4) == 0 {
		terms = append(terms, "duration="+pick("5min", "45min", "3h", "3 days"))
	}
	if r.IntN(8) == 0 {
		terms = append(terms, "nodes=2")
	}
	if r.IntN(10) == 0 {
		terms = append(terms, "exclusive")
	}
	if r.IntN(8) == 0 {
		terms = append(terms, "partition="+pick("x*", "m*", "c*", "t*", "a*", "n*"))
	}
	if len(terms) == 0 {
		terms = append(terms, "cpu()")
	}
	a.spec = strings.Join(terms, " & ")
	return a
}

// fits reports whether a job's output, "NODE DEVICES SHARDS", is what was requested.
func (a *asked) fits(output string) bool {
	words := append(strings.Split(strings.TrimSuffix(output, "\n"), " "), "", "")
	node, devices, shards := words[0], words[1], words[2]
	switch {
	case node == "" || shards != a.shards:
		return false
	case a.shards != "":
		return len(devices) == 1
	case a.gpus == 0:
		return true
	}
	n := 0
	for word := range strings.SplitSeq(devices, ",") {
		i, err := strconv.Atoi(word)
		if err != nil || i >= len(gpuOf[node]) {
			return false
		}
		g := gpuOf[node][i]
		if g.slice != a.slice || a.model != "" && g.model != a.model || g.gigabytes < a.gigabytes {
			return false
		}
		n++
	}
	return n >= a.gpus
}

// forever are the reasons of jobs that start only if somebody changes a limit or the job.
var forever = []string{"Max", "Min", "Limit", "Config", "Constraint", "Invalid", "Bad", "Account", "QOSNotAllowed", "Inactive", "Down"}

// TestSubmitted submits each answer, as it is and not only with --test-only, and holds that none is refused, none waits
// for what will not come, and each job gets what was requested. PONOS_CASES is the number of requests of each user.
func TestSubmitted(t *testing.T) {
	root := harness.As(t, "root")
	for _, name := range []string{"cpu", "gpu", "gpu_small", "gpu_csi_a", "gpu_spot"} { // those of all tests
		root.Must("scontrol", "delete", "PartitionName="+name)
	}
	for line := range strings.Lines(partitions) {
		root.Must(append([]string{"scontrol", "create"}, strings.Fields("PartitionName="+strings.TrimSpace(line))...)...)
	}
	for _, line := range world {
		root.Must(append([]string{"sacctmgr", "-iQ"}, strings.Fields(line)...)...)
	}
	cases := 30
	if n, err := strconv.Atoi(os.Getenv("PONOS_CASES")); err == nil {
		cases = n
	}
	seed := uint64(7)
	if n, err := strconv.ParseUint(os.Getenv("PONOS_SEED"), 10, 64); err == nil {
		seed = n
	}
	r := rand.New(rand.NewPCG(seed, 0))
	type job struct {
		asked
		who       *harness.Someone
		id, words string
	}
	var jobs []*job
	nothing := 0
	for _, name := range []string{"alice", "bob", "carol", "dave", "erin"} {
		who := harness.As(t, name)
		who.Must("lfind", "cpu()") // fills the cache
		var lock sync.Mutex
		var wait sync.WaitGroup
		slots := make(chan struct{}, 4)
		for range cases {
			a := draw(r)
			any := r.IntN(8) == 0
			slots <- struct{}{}
			wait.Go(func() {
				defer func() { <-slots }()
				args := []string{"lfind", "-q", "--no-verify", a.spec}
				if any {
					args = append(args, "--any")
				}
				words, errs, status := who.Run(args...)
				lock.Lock()
				defer lock.Unlock()
				switch status {
				case 0:
					jobs = append(jobs, &job{asked: a, who: who, words: strings.TrimSpace(words)})
				case 1:
					nothing++
				default:
					t.Errorf("%s: %s: status %d\n%s", name, a.spec, status, errs)
				}
			})
		}
		wait.Wait()
	}
	refused := 0
	script := "#!/bin/sh\necho \"$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_SHARDS_ON_NODE\"\n"
	for _, j := range jobs {
		path := filepath.Join(j.who.Dir, "job.sh")
		executable.Write(t, path, script)
		out, errs, status := j.who.Run(append(append([]string{"sbatch", "--parsable", "--output=%j.out"}, strings.Fields(j.words)...), path)...)
		if status != 0 {
			refused++
			t.Errorf("%s: Slurm refuses %s\n%s", j.spec, j.words, errs)
			continue
		}
		j.id = strings.TrimSpace(out)
	}
	deadline := time.Now().Add(harness.Patience)
	for {
		queue := root.Must("squeue", "-h", "-o", "%i %T %r")
		waiting := 0
		for line := range strings.Lines(queue) {
			id, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			if slices.ContainsFunc(forever, func(w string) bool { return strings.Contains(rest, w) }) && !strings.Contains(rest, "PerUser") {
				i := slices.IndexFunc(jobs, func(j *job) bool { return j.id == id })
				t.Errorf("%s with %s waits for ever: %s", jobs[i].spec, jobs[i].words, rest)
				root.Must("scancel", id)
			}
			waiting++
		}
		if waiting == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("jobs left:\n%s", queue)
		}
		time.Sleep(300 * time.Millisecond)
	}
	landed := 0
	for _, j := range jobs {
		if j.id == "" {
			continue
		}
		out, err := os.ReadFile(filepath.Join(j.who.Dir, j.id+".out"))
		if err != nil || !j.fits(string(out)) {
			t.Errorf("%s with %s, job %s: landed on %q, %v", j.spec, j.words, j.id, out, err)
			continue
		}
		landed++
	}
	t.Logf("%d answers submitted, %d refused, %d landed right; %d times nothing", len(jobs), refused, landed, nothing)
	if len(jobs) < cases {
		t.Errorf("only %d answers of %d requests", len(jobs), 5*cases)
	}
}
