package slurm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the jobs of a capture of states mean, by their names, which say what they are. In the order of the columns: what squeue
// says of the caller's job (state, reason, exit, highest exit of its steps, restarts); of a job that waits or runs, its tasks,
// those that may run at once, its GPUs, and whether it holds nodes; what scontrol says of it: whole nodes, and CPUs and GPUs on
// each group of nodes; and what accounting says: state, by whom it was cancelled, and the first failure.
var meanings = map[string]string{
	"array-1":           "RUNNING None 0:0 0:0 0 | 1/1 gpus=0 holds=true | whole=false cpu1:1:0 | RUNNING  0",
	"array-2-3%1":       "PENDING JobArrayTaskLimit 0:0 0:0 0 | 2/1 gpus=0 holds=false | whole=false  | ",
	"begin":             "PENDING BeginTime 0:0 0:0 0 | 1/1 gpus=0 holds=false | whole=false  | PENDING  0",
	"cancelled":         "CANCELLED None 0:15 0:0 0 |  | whole=false  | CANCELLED 0 143",
	"cancelled-pending": "CANCELLED JobHeldUser 0:0 0:0 0 |  | whole=false  | CANCELLED 0 0",
	"completed":         "COMPLETED None 0:0 0:0 0 |  | whole=false  | COMPLETED  0",
	"configuring":       "CONFIGURING None 0:0 0:0 0 | 1/1 gpus=0 holds=true | whole=false small1:1:0 | RUNNING  0",
	"deadline":          "DEADLINE DeadLine 0:1 0:0 0 |  | whole=false  | DEADLINE  1",
	"dependent":         "PENDING Dependency 0:0 0:0 0 | 1/1 gpus=0 holds=false | whole=false  | PENDING  0",
	"dependent-never":   "PENDING DependencyNeverSatisfied 0:0 0:0 0 | 1/1 gpus=0 holds=false | whole=false  | PENDING  0",
	"exclusive":         "RUNNING None 0:0 0:0 0 | 1/1 gpus=0 holds=true | whole=true cpu2:4:0 | RUNNING  0",
	"failed":            "FAILED NonZeroExitCode 3:0 0:0 0 |  | whole=false  | FAILED  3",
	"gpu-typed":         "RUNNING None 0:0 0:0 0 | 1/1 gpus=1 holds=true | whole=false gpu1:1:1 | RUNNING  0",
	"gpu-untyped":       "RUNNING None 0:0 0:0 0 | 1/1 gpus=2 holds=true | whole=false gpu1:1:2 | RUNNING  0",
	"held":              "PENDING JobHeldUser 0:0 0:0 0 | 1/1 gpus=0 holds=false | whole=false  | PENDING  0",
	"held-admin":        "PENDING JobHeldAdmin 0:0 0:0 0 | 1/1 gpus=0 holds=false | whole=false  | PENDING  0",
	"het+0":             "RUNNING None 0:0 0:0 0 | 1/1 gpus=0 holds=true | whole=false cpu1:1:0 | RUNNING  0",
	"het+1":             "RUNNING None 0:0 0:0 0 | 1/1 gpus=0 holds=true | whole=false gpu1:1:0 | RUNNING  0",
	"no-output":         "COMPLETED None 0:0 0:0 0 |  | whole=false  | COMPLETED  0",
	"node-fail":         "NODE_FAIL NodeDown 0:1 0:0 0 |  | whole=false  | NODE_FAIL  0",
	"out-of-memory":     "OUT_OF_MEMORY OutOfMemory 0:125 0:0 0 |  | whole=false  | OUT_OF_MEMORY  253",
	"plain":             "RUNNING None 0:0 0:0 0 | 1/1 gpus=0 holds=true | whole=false cpu1:1:0 | RUNNING  0",
	"preempted":         "PREEMPTED None 0:15 0:0 0 |  | whole=false  | PREEMPTED  143",
	"preempts":          "CANCELLED None 0:15 0:0 0 |  | whole=false  | CANCELLED 0 143",
	"requeue-held":      "PENDING job_requeued_in_held_state 0:0 0:0 1 | 1/1 gpus=0 holds=false | whole=false  | PENDING  0",
	"requeued":          "RUNNING None 0:0 0:0 1 | 1/1 gpus=0 holds=true | whole=false gpu2:1:0 | RUNNING  0",
	"reserved":          "PENDING Reservation 0:0 0:0 0 | 1/1 gpus=0 holds=false | whole=false  | PENDING  0",
	"resources":         "PENDING Resources 0:0 0:0 0 | 1/1 gpus=0 holds=false | whole=false  | PENDING  0",
	"signaled":          "FAILED RaisedSignal:11(Segmentation_fault) 0:11 0:0 0 |  | whole=false  | FAILED  139",
	"special-exit":      "SPECIAL_EXIT job_requeued_in_held_state 0:0 0:0 1 | 1/1 gpus=0 holds=false | whole=false  | PENDING  0",
	"step-failed":       "COMPLETED None 0:0 1:0 0 |  | whole=false  | COMPLETED  1",
	"suspended":         "SUSPENDED None 0:0 0:0 0 | 1/1 gpus=0 holds=false | whole=false gpu2:1:0 | SUSPENDED  0",
	"timeout":           "TIMEOUT TimeLimit 0:15 0:0 0 |  | whole=false  | TIMEOUT  143",
}

// What a version of Slurm does otherwise, of jobs and of nodes.
var otherwise = map[string]map[string]string{
	"22.05.8": { // does not make the directory of the output
		"signaled":  "FAILED JobLaunchFailure 0:11 0:0 0 |  | whole=false  | FAILED  139",
		"node-fail": "NODE_FAIL NodeDown 0:0 0:0 0 |  | whole=false  | NODE_FAIL  0",
		"no-output": "FAILED JobLaunchFailure 15:53 0:0 0 |  | whole=false  | FAILED  181",
	},
	"20.11.4": {
		"signaled":  "FAILED JobLaunchFailure 0:11 0:0 0 |  | whole=false  | FAILED  139",
		"node-fail": "NODE_FAIL NodeDown 0:15 0:0 0 |  | whole=false  | NODE_FAIL  143",
		"no-output": "FAILED NonZeroExitCode 1:0 0:0 0 |  | whole=false  | FAILED  1",
		// It limits no memory here, and a node that was powered down comes back at once.
		"out-of-memory": "", "configuring": "",
	},
	"20.11.4 nodes": {
		"maint": "MAINT usable=true startable=true", "reserved": "RESERVED usable=true startable=true", "reboot": "REBOOT usable=true startable=false",
		"powered-down": "", "powering-down": "", "powering-up": "",
	},
	"26.05.5 nodes": {"powering-down": "IDLE+POWER_DOWN usable=true startable=false"}, // a moment before
}

// What the nodes of a capture of states mean: their words, whether a job can count on them, and whether one starts there now.
var nodeMeanings = map[string]string{
	"allocated":        "ALLOCATED usable=true startable=true",
	"down":             "DOWN usable=false startable=false",
	"drained":          "DRAIN+IDLE usable=false startable=false",
	"draining":         "DRAIN+MIXED usable=false startable=false",
	"fail":             "FAIL+IDLE usable=false startable=false",
	"idle":             "IDLE usable=true startable=true",
	"maint":            "IDLE+MAINTENANCE+RESERVED usable=true startable=true",
	"mixed":            "MIXED usable=true startable=true",
	"not-responding":   "DOWN+NOT_RESPONDING usable=false startable=false",
	"powered-down":     "IDLE+POWERED_DOWN usable=true startable=true",
	"powering-down":    "IDLE+POWERING_DOWN usable=true startable=false",
	"powering-up":      "MIXED+NOT_RESPONDING+POWERING_UP usable=true startable=false",
	"reboot":           "IDLE+REBOOT_REQUESTED usable=true startable=false",
	"reboot-requested": "DRAIN+MIXED+REBOOT_REQUESTED usable=true startable=false",
	"reserved":         "IDLE+RESERVED usable=true startable=true",
}

// All versions print the same jobs and nodes in each state, and mean the same with them.
func TestStatesMean(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*/states")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("%q, %v", dirs, err)
	}
	for _, dir := range dirs {
		version := filepath.Base(filepath.Dir(dir))
		t.Run(version, func(t *testing.T) {
			want := maps.Clone(nodeMeanings)
			maps.Copy(want, otherwise[version+" nodes"])
			compare(t, want, nodesMean(t, dir))
			want = maps.Clone(meanings)
			maps.Copy(want, otherwise[version])
			compare(t, want, jobsMean(t, version))
			// The only job that waits for nodes alone has priorities.
			for name, weighed := range map[string]bool{"sprio": true, "weightless/sprio": false} {
				var factors []Factors
				text := replay(t, dir+"/"+name+".table", "sprio", sprioFormat(mark))
				if err := scanSprio(strings.NewReader(text), marked("sprio"), collect(&factors)); err != nil || len(factors) != 1 {
					t.Fatalf("%s: %d rows, %v", name, len(factors), err)
				}
				f := factors[0]
				if sum := f.Age.Weighted + f.FairShare.Weighted + f.JobSize.Weighted + f.PartitionFactor.Weighted + f.QOS.Weighted; (sum > 0) != weighed || f.Assoc != (Factor{}) {
					t.Errorf("%s: %+v", name, f)
				}
			}
		})
	}
}

// compare reports each entry that is not as wanted.
func compare(t *testing.T, want, got map[string]string) {
	t.Helper()
	for name := range got {
		if want[name] == "" {
			t.Errorf("%q: %q is not in the table", name, got[name])
		}
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%q: %q, want %q", name, got[name], want[name])
		}
	}
}

var nameOfJob = regexp.MustCompile(`(?m)^JobId=(\d+) (?:ArrayJobId=(\d+) ArrayTaskId=(\S+) )?.*?JobName=(\S+)`)

// jobsMean reads the jobs of a capture of states.
func jobsMean(t *testing.T, version string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + version + "/states/job.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{} // by the id that commands accept
	raw := map[uint64]string{}   // and by the raw one
	for _, m := range nameOfJob.FindAllStringSubmatch(string(text), -1) {
		name, label := m[4], m[1]
		if m[2] != "" {
			name, label = name+"-"+m[3], m[2]+"_"+m[3]
		}
		names[label] = name
		var id uint64
		_, _ = fmt.Sscan(m[1], &id)
		raw[id] = name
	}
	facts := map[string][4]string{}
	set := func(name string, i int, format string, args ...any) {
		f := facts[name]
		if f[i] != "" {
			t.Errorf("two rows of %s", name)
		}
		f[i] = fmt.Sprintf(format, args...)
		facts[name] = f
	}
	for _, j := range parsed(t, version+"/states/squeue-own", marked("squeue"), ownColumns) {
		label := strings.NewReplacer("[", "", "]", "").Replace(j.Label)
		if low, offset, het := strings.Cut(label, "+"); het {
			var id uint64
			_, _ = fmt.Sscan(low, &id)
			names[label] = raw[id] + "+" + offset
		}
		set(names[label], 0, "%s %s %d:%d %d:%d %d", j.State, strings.ReplaceAll(j.Reason, " ", "_"), j.Exit.Code, j.Exit.Signal, j.Derived.Code, j.Derived.Signal, j.Restarts)
	}
	for _, j := range parsed(t, version+"/states/squeue", marked("squeue"), jobColumns) {
		name := raw[j.ID]
		if j.HetID != 0 {
			name = fmt.Sprint(j.Name, "+", j.HetOffset)
			raw[j.ID] = name
		}
		set(name, 1, "%d/%d gpus=%v holds=%v", j.TaskCount(), j.RunnableTasks(), j.GPUs(), j.HoldsNodes())
	}
	details, err := ParseJobDetails(openTestdata(t, version+"/states/job.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range details {
		var placed []string
		if Runs(j.State) {
			for _, p := range j.Placements {
				placed = append(placed, fmt.Sprintf("%s:%d:%d", p.Nodes, p.CPUs, p.GPUs))
			}
		}
		set(raw[j.ID], 2, "whole=%v %s", j.WholeNodes, strings.Join(placed, ","))
	}
	ended, asked := printed(t, version+"/states/sacct", marked("sacct"), endColumns)
	account, err := parseAccount(strings.NewReader(ended), marked("sacct"), asked)
	if err != nil {
		t.Fatal(err)
	}
	for id, r := range account {
		if name := names[id]; name != "" {
			set(name, 3, "%s %s %d", r.State, r.By, r.FirstFailure().Status())
		}
	}
	all := map[string]string{}
	for name, f := range facts {
		all[name] = strings.Join(f[:], " | ")
	}
	return all
}

// nodesMean reads the nodes of a capture of states.
func nodesMean(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(dir + "/nodes.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		label, record, _ := strings.Cut(line, " ")
		nodes, err := ParseNodes(strings.NewReader(record))
		if err != nil || len(nodes) != 1 {
			t.Fatalf("%s: %d nodes, %v", label, len(nodes), err)
		}
		n := nodes[0]
		words := slices.Sorted(strings.SplitSeq(n.State, "+"))
		words = slices.DeleteFunc(words, func(w string) bool { return w == "PLANNED" }) // comes and goes with the plan
		all[label] = fmt.Sprintf("%s usable=%v startable=%v", strings.Join(words, "+"), n.Usable(), n.Startable())
	}
	return all
}
