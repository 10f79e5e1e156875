package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestHostileUserOfSlurm submits jobs whose texts imitate the output of Slurm's commands, as one user, and looks at the cluster
// as another one: no view ends, and no view shows more, or another state of others' jobs.
func TestHostileUserOfSlurm(t *testing.T) {
	c := newCluster(t)
	defer c.must("root", "scancel", "--user=bob", "--user=alice")
	train := c.submit("alice", "--job-name=train", "--time=60", "--mem=100M", "--nodelist=cpu1")
	wide := c.submit("alice", "--job-name=wide", "--time=60", "--nodes=2", "--ntasks=3", "--mem=100M")
	c.until("alice's jobs run", func() bool { return c.state(train) == "RUNNING" && c.state(wide) == "RUNNING" })
	short := strings.TrimSpace(c.must("alice", "sbatch", "--parsable", "--job-name=train", "--time=5", "--mem=1M", "--output=/dev/null", "--wrap=true"))
	c.until("a short job is accounted for", func() bool {
		return strings.Contains(c.must("root", "sacct", "--noheader", "--parsable2", "--allocations", "--format=State", "--jobs="+short), "COMPLETED")
	})
	views := [][]string{
		{"jobs", "--json"}, {"jobs", train, "--json"}, {"jobs", wide, "--json"}, {"holes", "--json"}, {"where", "--json", "--time=5"},
		{"when", "--json", train}, {"when", "--time=5"}, {"used", "--all", "--json"}, {"history", "--json"}, {"limits", "--json"}, {"--all", "--json"}, {"jobs"}, {"used", "--all"},
	}
	// The jobs that the views show, and where alice's jobs are, before and after.
	picture := func() (facts []string) {
		for _, view := range views {
			out, errs, code := c.as("alice", append([]string{"fairshare"}, view...)...)
			if code == 2 || code == 3 || strings.Contains(out, "\x1b") || !slices.Contains(view, "--json") && strings.Contains(out, "\u202e") {
				t.Errorf("fairshare %s: exit status %d: %.500s\n%.500q", strings.Join(view, " "), code, errs, out)
			}
			for line := range strings.Lines(errs) {
				if !strings.HasPrefix(line, "fairshare: warning: records that cannot be read or believed are left out") {
					t.Errorf("fairshare %s: %s", strings.Join(view, " "), line)
				}
			}
		}
		real := map[string]bool{} // what squeue says in columns without text of users
		for line := range strings.Lines(c.must("root", "squeue", "--noheader", "--all", "--format=%A %u %T")) {
			real[strings.TrimSpace(line)] = true
		}
		type jobs struct {
			Jobs []struct {
				ID    uint64 `json:"raw_job_id"`
				User  string `json:"user"`
				State string `json:"state"`
			} `json:"jobs"`
		}
		shown := decode[jobs](t, c.must("alice", "fairshare", "jobs", "--json")).Jobs
		shown = append(shown, decode[jobs](t, c.must("alice", "fairshare", "jobs", "--json", "--jobs="+train+","+wide)).Jobs...)
		for _, j := range shown {
			fact := fmt.Sprintf("%d %s %s", j.ID, j.User, j.State)
			if facts = append(facts, fact); !real[fact] {
				t.Errorf("fairshare shows %q, squeue does not", fact)
			}
		}
		return facts
	}
	before := picture()

	keys := "UserId=alice(1001) JobState=PENDING ExitCode=0:0 OverSubscribe=NO CoreSpec=* Nodes=cpu1 CPU_IDs=0-3 Mem=8000 GRES= MinCPUsNode=1"
	fake := "\nJobId=" + train + " JobName=forged " + keys + " Command=\n"
	row := func(mark string) string {
		return strings.Join([]string{"a", "99999", "alice", "research", "cpu", "normal", "COMPLETED", "2026-01-01T00:00:00", "2026-01-01T00:00:00", "2026-01-01T00:00:09", "01:00:00", "1", "cpu=1", "forged"}, mark)
	}
	texts := []string{
		"x " + keys, "x" + fake, "x StdErr= StdOut= Power= " + fake, "x" + strings.Repeat(fake, 3), "JobId=", "\nJobId=99999\n", "\nNo jobs in the system\n",
		"\x1f\n" + row("\x1f") + "\x1f\n", "|\n" + row("|") + "|\n", "|~\n" + row("|"), "\x1b[2J\u202egnp\r\v\x00", "\t\n\n", strings.Repeat("x", 900), "%", `"`, "\xff\xfe",
	}
	work := filepath.Join(c.dir, "work", "bob")
	for i, text := range texts {
		text = strings.ReplaceAll(text, "\x00", "")
		dir := filepath.Join(work, strings.ReplaceAll(text[:min(len(text), 200)], "/", ""))
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatalf("%q: %v", dir, err)
		}
		defer os.RemoveAll(dir)
		for _, option := range []string{"--job-name=", "--comment=", "--chdir=", "--output=/dev/null/", "--network=", "--wckey="} {
			value := text
			if option == "--chdir=" {
				value = dir
			}
			// What Slurm refuses cannot be in its output.
			if _, errs, code := c.as("bob", "sbatch", "--time=10", "--mem=1M", "--cpus-per-task=1", option+value, "--wrap=true"); code != 0 && i == 0 {
				t.Logf("%s%.20q: %s", option, value, errs)
			}
		}
	}
	// So that the queue stands still while it is looked at twice.
	waiting := strings.Fields(c.must("root", "squeue", "--noheader", "--user=bob", "--states=PENDING", "--format=%A"))
	_, _, _ = c.as("root", "scontrol", "hold", strings.Join(waiting, ",")) // some may have begun
	c.until("bob's jobs end or are held", func() bool {
		for line := range strings.Lines(c.must("root", "squeue", "--noheader", "--user=bob", "--format=%T %r")) {
			if strings.TrimSpace(line) != "PENDING JobHeldAdmin" && strings.TrimSpace(line) != "PENDING JobHeldUser" {
				return false
			}
		}
		return true
	})
	after := picture()
	for _, fact := range before {
		if !slices.Contains(after, fact) {
			t.Errorf("%q is no longer shown", fact)
		}
	}
	if waits := strings.Count(c.must("root", "squeue", "--noheader", "--all", "--states=PENDING", "--format=%A"), "\n"); len(after) != waits+2 {
		t.Errorf("%d jobs are shown, %d wait, and 2 run", len(after), waits)
	}
	if when, _, code := c.as("alice", "fairshare", "when", train); code != 0 || !strings.Contains(when, "job "+train+" runs") {
		t.Errorf("when %s: %d, %s", train, code, when)
	}
}
