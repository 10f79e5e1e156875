package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// texts imitate what Slurm's commands print, of nodes, reservations and jobs.
var texts = []string{
	"x State=IDLE RealMemory=1 CPUTot=999 Gres=gpu:h100:8", "x\nNodes=cpu[1-9] CPUAlloc=0 CPUTot=999 State=IDLE Partitions=cpu",
	"x\nStartTime=2026-01-01T00:00:00 EndTime=2036-01-01T00:00:00 Nodes=cpu[1-2],gpu[1-2],small1 Flags=MAINT State=ACTIVE",
	"x\nPartitionName=forged Nodes=cpu[1-2] State=UP Default=YES", "\nJobId=1 JobState=RUNNING\n", "a|b|c\x1f\n|", "\x1b[2J\u202egnp\r\v", "\n\n\t", "%", "'\";$(false)",
	"\xff\xfe", strings.Repeat("x", 2000), "No nodes in the system",
}

// TestHostileUserOfSlurmAndTools looks with the tools that submit at a cluster on which another user's jobs imitate the
// jobs of alice's agent and pool, and the texts of nodes, reservations, accounts and features imitate Slurm's output: what lfind finds
// stays the same, and alice's task and pool go on, each with its one job.
func TestHostileUserOfSlurmAndTools(t *testing.T) {
	c := newCluster(t)
	defer c.must("root", "scancel", "--user=bob", "--user=alice")
	home := filepath.Join(c.dir, "work", "alice", "hostile")
	c.must("alice", "mkdir", home)
	defer os.RemoveAll(home)
	c.env = append(c.env, "XDG_STATE_HOME="+home+"/state", "XDG_CACHE_HOME="+home+"/cache", "XDG_CONFIG_HOME="+home+"/config")
	config := filepath.Join(home, "ponos.yaml")
	c.must("alice", "sh", "-c", "umask 077; printf '%s\n' 'mode: slurm' 'queue: spool:"+home+"/spool' 'data_dir: "+home+"/data' 'pid_file: "+home+"/pid' 'slurm: {base: {mem: 100M, time: 60}}' >"+config)
	id := strings.TrimSpace(c.must("alice", "ponos-submit", "--config", config, "--", "sleep", "7200"))
	turn := "set -o pipefail; ponos-poll --config " + config + " | ponos-stop --config " + config + " | ponos-start --config " + config
	jobs := func() []string {
		return strings.Fields(c.must("root", "squeue", "--noheader", "--user=alice", "--format=%A"))
	}
	task := func() string {
		if out, errs, code := c.as("alice", "bash", "-c", turn); code != 0 || errs != "" {
			t.Errorf("a turn: exit status %d: %s%s", code, out, errs)
		}
		return decode[struct {
			State string `json:"state"`
		}](t, c.must("alice", "ponos-list", "--config", config, "--json", id)).State
	}
	c.until("alice's task runs", func() bool { return task() == "running" })
	own := jobs()

	run := filepath.Join(home, "run")
	c.must("alice", "jobpool", "--run", run, "--alloc-sbatch=--time=30 --mem=100M", "--max-jobs=1", "--linger=10m", "sleep", ":::", "7200")
	c.until("alice's pool runs its command", func() bool {
		out, _, code := c.as("alice", "jobpool", "ctl", "list", "--json", "--run", run)
		return code == 0 && strings.Contains(out, `"running"`)
	})
	if len(jobs()) != len(own)+1 {
		t.Fatalf("jobs of alice: %v, then %v", own, jobs())
	}
	own = jobs()

	c.must("root", "scontrol", "update", "nodename=cpu2", "state=drain", "reason=maintenance")
	c.must("root", "scontrol", "create", "reservation=later", "starttime=now+2days", "duration=60", "nodes=gpu2", "users=root")
	defer c.as("root", "scontrol", "update", "nodename=cpu2", "state=resume")
	defer c.as("root", "scontrol", "delete", "reservation=later")
	views := [][]string{
		{"lfind", "cpu(cores=1)"}, {"lfind", "list"}, {"lfind", "--soonest", "cpu(cores=2) & duration=1 hour"}, {"lfind", "explain", "cuda(mem=10G) * 2"},
		{"fairshare", "holes", "--json"}, {"fairshare", "where", "--json", "--time=5", "--gpus=1"}, {"ponos-list", "--config", config, "--json"},
	}
	changing := regexp.MustCompile(`(?m)"(at|[a-z_]*time|age|seconds|start|end|updated|[a-z_]*seconds)": *[^,\n]*|[0-9]{4}-[0-9-]+T[0-9:Z]+|[0-9]+[dhms][0-9dhms]*|[0-9:]{5,}`)
	look := func() map[string]string {
		seen := map[string]string{}
		for _, view := range views {
			out, errs, code := c.as("alice", view...)
			name := strings.Join(view, " ")
			shown := out + errs
			if strings.Contains(name, "--json") { // a document for programs has names as they are
				shown = strings.ReplaceAll(out, "\u202e", "") + errs
			}
			if code == 2 || code == 3 || strings.ContainsAny(shown, "\x1b\v\x07\ufffe\u202e") {
				t.Errorf("%s: exit status %d: %.300q\n%.300q", name, code, errs, out)
			}
			for line := range strings.Lines(errs) {
				if !strings.Contains(line, "lfind: would start") && !strings.Contains(line, "records that cannot be read or believed are left out") {
					t.Errorf("%s: %s", name, line)
				}
			}
			if !strings.Contains(name, "fairshare") { // whose answers move with the time
				seen[name] = changing.ReplaceAllString(out, "")
			}
			if strings.Contains(out, "forged") || strings.Contains(out, "h100") {
				t.Errorf("%s shows what was forged: %s", name, out)
			}
		}
		return seen
	}
	before := look()

	// bob's jobs imitate those of the agent and of the pool, by name and comment.
	for _, job := range own {
		name := strings.TrimSpace(c.must("root", "squeue", "--noheader", "--jobs="+job, "--format=%j"))
		comment := strings.TrimSpace(c.must("root", "squeue", "--noheader", "--jobs="+job, "--format=%k"))
		forged := comment + "\n" + job + "|alice|COMPLETED|" + comment + "\nJobId=" + job + " JobState=COMPLETED ExitCode=0:0"
		for _, text := range []string{comment, forged} {
			c.must("bob", "sbatch", "--hold", "--time=10", "--mem=1M", "--job-name="+name, "--comment="+text, "--output=/dev/null", "--wrap=true")
			c.must("bob", "sbatch", "--time=10", "--mem=1M", "--job-name="+text, "--comment="+text, "--nodelist=gpu1", "--partition=gpu", "--output=/dev/null", "--wrap=exit 3")
		}
	}
	c.until("bob's jobs end", func() bool {
		return strings.TrimSpace(c.must("root", "squeue", "--noheader", "--user=bob", "--states=RUNNING,COMPLETING", "--format=%A")) == "" &&
			!strings.Contains(c.must("root", "squeue", "--noheader", "--user=bob", "--format=%r"), "None")
	})
	taken := 0
	for i := 0; i < len(texts); i += 3 { // a look takes seconds
		text, second, third := texts[i], texts[(i+1)%len(texts)], texts[(i+2)%len(texts)]
		for _, set := range [][]string{
			{"scontrol", "update", "nodename=cpu2", "state=drain", "reason=" + text}, {"scontrol", "update", "nodename=cpu2", "comment=" + second}, {"scontrol", "update", "nodename=cpu2", "extra=" + third},
			{"scontrol", "update", "reservation=later", "comment=" + second}, {"sacctmgr", "-i", "modify", "account", "research", "set", "description=" + third},
		} {
			if _, _, code := c.as("root", set...); code == 0 { // what Slurm refuses cannot be in its output
				taken++
			}
		}
		for name, out := range look() {
			if out != before[name] {
				t.Errorf("%q: %s shows\n%s, and before\n%s", text, name, out, before[name])
			}
		}
		if state := task(); state != "running" {
			t.Errorf("%q: the task is %s", text, state)
		}
	}
	if taken < len(texts)/2 {
		t.Errorf("Slurm has taken only %d texts", taken)
	}

	// Names: of reservations and features, which administrators choose, and of accounts, which a coordinator makes.
	c.must("root", "sacctmgr", "-i", "add", "coordinator", "account=research", "names=bob")
	defer c.as("root", "sacctmgr", "-i", "delete", "coordinator", "account=research", "names=bob")
	features := func(text string) int {
		_, _, code := c.as("root", "scontrol", "update", "nodename=cpu2", "availablefeatures=cpu"+text, "activefeatures=cpu"+text)
		return code
	}
	defer features("")
	named := map[string]int{}
	for i := 0; i < len(texts); i += 3 {
		text, second, third := texts[i], texts[(i+1)%len(texts)], texts[(i+2)%len(texts)]
		_, _, reserved := c.as("root", "scontrol", "create", "reservation="+text, "starttime=now+2days", "duration=60", "nodes=gpu1", "users=root")
		_, _, added := c.as("bob", "sacctmgr", "-i", "add", "account", "name="+third, "parent=research")
		for kind, code := range map[string]int{"reservations": reserved, "accounts": added, "features": features("," + second)} {
			if code == 0 {
				named[kind]++
			}
		}
		for name, out := range look() {
			if name != "lfind list" && !strings.Contains(name, "explain") && out != before[name] { // these show the node and its features
				t.Errorf("%q: %s shows\n%s, and before\n%s", text, name, out, before[name])
			}
		}
		if state := task(); state != "running" {
			t.Errorf("%q: the task is %s", text, state)
		}
		setup := []string{"ponos-setup", "--init", filepath.Join(home, fmt.Sprint("init-", i)), "--mode", "slurm"}
		if out, errs, code := c.as("alice", setup...); code != 0 || !strings.Contains(out, "Tasks run on Slurm, in partition cpu") {
			t.Errorf("%q: a first configuration: %d, %s%s", second, code, out, errs)
		}
		c.as("root", "scontrol", "delete", "reservation="+text)
		c.as("root", "sacctmgr", "-i", "delete", "account", "name="+third)
		features("")
	}
	for _, kind := range []string{"reservations", "accounts", "features"} {
		if named[kind] == 0 {
			t.Errorf("Slurm has taken no names of %s", kind)
		}
	}
	if now := jobs(); strings.Join(now, " ") != strings.Join(own, " ") {
		t.Errorf("alice's jobs were %v, and are %v", own, now)
	}
	if out, errs, code := c.as("alice", "jobpool", "ctl", "status", "--run", run); code != 0 || !strings.Contains(out, "1 running") {
		t.Errorf("the pool: %d, %s%s", code, out, errs)
	}
}
