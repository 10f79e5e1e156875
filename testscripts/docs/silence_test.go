package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// silentTime is how long a command may take in TestOneSilentCommand: those that answer take less.
const silentTime = "6s"

// ofSlurm are the commands of Slurm that tools run.
var ofSlurm = []string{"sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "sprio", "squeue", "sshare"}

// oneSilent are command lines, each with the commands of Slurm without which it cannot do, and with what it says where it does without.
// It does without any other command, and says nothing of it. Before the command hangs, prepare is run.
var oneSilent = []struct {
	line    string
	fails   string            // ends with status 3, the name of the command and a hint
	goesOn  map[string]string // ends with status 0, and prints this, by the command
	prepare string
}{
	{line: "ponos-setup >checks", fails: "sacct sbatch scancel scontrol squeue", prepare: "ponos-setup --init p --mode slurm >init"},
	{
		line:   "ponos-list --json >list",
		goesOn: map[string]string{"sacct": "ponos-list: warning: what the tasks used is not known: %: no answer"},
		prepare: strings.Replace(task, "sleep 1000", "true", 1) + "for _ in $(seq 600); do ponos-poll >acts; ponos-start <acts >>started; ponos-list >list; " +
			"grep -q ' completed ' list && break; sleep 0.1; done",
	},
	{line: "ponos-poll", fails: "squeue", prepare: task + "ponos-poll >acts; ponos-start <acts >started"},
	{line: "ponos-start <acts", fails: "sbatch", prepare: task + "ponos-poll >acts"},
	{
		line: "ponos-stop <stop", fails: "scancel",
		prepare: task + "ponos-poll >acts; ponos-start <acts >started; ponos-cancel $(cat id); ponos-poll | grep stop >stop",
	},
	{line: "ponos-cancel $(cat id); ponos-retry $(cat id); ponos-log $(cat id) || true", prepare: task},
	{
		line: "ponos-submit --sbatch mem=1G -- true >id && test -s id", prepare: "ponos-setup --init p --mode slurm >init; ponos-poll",
		goesOn: map[string]string{"sbatch": unchecked, "scontrol": unchecked},
	},
	{
		line:    "ponos-submit --find 'cpu(cores=1)' -- true >id && test -s id",
		prepare: "ponos-setup --init p --mode slurm >init; ponos-poll; rm -rf .cache",
		goesOn:  map[string]string{"sbatch": unchecked, "scontrol": unchecked, "sacctmgr": unchecked},
	},
	{line: "lfind 'cpu()'", fails: "scontrol", goesOn: map[string]string{"sbatch": notAsked, "sacctmgr": noAssociations}},
	{
		line: "lfind --soonest 'cuda()'", fails: "scontrol",
		goesOn: map[string]string{"sbatch": notAsked, "sacctmgr": noAssociations, "squeue": noPlan, "sprio": noPlan, "sshare": noPlan},
	},
	{line: "lfind --set time=5 'cpu()'", fails: "scontrol", goesOn: map[string]string{"sbatch": notAsked, "sacctmgr": noAssociations}},
	{line: "lfind explain 'cpu()' >explained", fails: "scontrol", goesOn: map[string]string{"sacctmgr": noAssociations}},
	{line: "lfind check", fails: "scontrol", goesOn: map[string]string{"sacctmgr": noAssociations}},
	{line: "lfind probe", fails: "scontrol", goesOn: map[string]string{"sacctmgr": noAssociations}},
	{line: "lfind convert >launchers", fails: "scontrol", goesOn: map[string]string{}},
	{line: "lfind run 'cpu()' -- true", fails: "scontrol sbatch", goesOn: map[string]string{"sacctmgr": noAssociations}},
	{line: "fairshare", fails: "scontrol sshare"},
	{line: "fairshare jobs", fails: "scontrol sprio squeue"},
	{line: "fairshare when $JOB", fails: "scontrol sprio squeue sshare"},
	{
		line: "fairshare where --gpus=1", fails: "sbatch scontrol sprio squeue sshare",
		goesOn: map[string]string{"sacctmgr": "slurmdbd does not answer, so the accounts and QOS of the user are not known"},
	},
	{line: "fairshare holes", fails: "scontrol sprio squeue"},
	{line: "fairshare limits", fails: "sacctmgr scontrol squeue"},
	{line: "fairshare used", fails: "sacct scontrol", prepare: ":"}, // what else it asks depends on what has run
	{line: "fairshare history", fails: "sacct scontrol"},
	{line: "fairshare waits", fails: "sacct scontrol"},
	{line: "echo x | jobpool --alloc 'cpu()' echo", fails: "sbatch squeue"},
	{line: "echo x | jobpool --alloc-sbatch=--time=5 echo", fails: "sbatch squeue"},
}

const (
	task           = "ponos-setup --init p --mode slurm >init; ponos-poll; ponos-submit -- sleep 1000 >id; "
	unchecked      = "ponos-submit: warning: whether the cluster can run the task was not checked: %: no answer"
	notAsked       = "lfind: note: whether Slurm takes the job was not checked: %: no answer"
	noPlan         = "lfind: warning: starts are those of sbatch --test-only: %: no answer"
	noAssociations = "lfind: warning: accounts and QoS are not known: %: no answer"
)

// TestOneSilentCommand has each tool meet a Slurm of which one command hangs. In the time of one command it ends with status 3, or
// goes on and says what is not known for that.
func TestOneSilentCommand(t *testing.T) {
	var variables []string
	for name, value := range harness.Cluster(t) {
		variables = append(variables, name+"="+value)
		t.Setenv(name, value)
	}
	dir := filepath.Join(os.Getenv("PONOS_CLUSTER"), "work", "alice", "silence")
	for _, name := range ofSlurm {
		// It writes down each time that it is run.
		executable.Write(t, filepath.Join(dir, "silent", name, name), "#!/bin/sh\necho \"$*\" >>\"$ASKED\"\nsleep 1000 &\nwait\n")
	}
	world := append(variables, "USER=alice", "LC_ALL=C.UTF-8", "ASKED=asked", "PONOS_SLURM_TIMEOUT="+silentTime, "JOB=")
	system := append(slices.Clone(world), "PATH=/usr/local/bin:/usr/bin:/bin")
	job, code := play(t, t.TempDir(), "", system, "/sbin/runuser -u alice -- sbatch --parsable --begin=now+1hour -o /dev/null --wrap true")
	if code != 0 {
		t.Fatal(job)
	}
	world[len(world)-1] += strings.TrimSpace(job)
	var wait sync.WaitGroup
	slots := make(chan struct{}, 16) // most only wait
	for _, c := range oneSilent {
		for _, silent := range ofSlurm {
			_, says := c.goesOn[silent]
			fails := slices.Contains(strings.Fields(c.fails), silent)
			// An agent, or a submission, is made only to see what it says.
			if c.prepare != "" && !says && !fails || strings.Contains(c.line, "jobpool") && !fails {
				continue
			}
			wait.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				oneSilentCase(t, world, dir, c.prepare, c.line, silent, fails, c.goesOn[silent])
			})
		}
	}
	wait.Wait()
	if out, code := play(t, t.TempDir(), "", system, "/sbin/runuser -u alice -- scancel --me"); code != 0 {
		t.Error(out)
	}
}

func oneSilentCase(t *testing.T, world []string, dir, prepare, line, silent string, fails bool, says string) {
	home, err := os.MkdirTemp(dir, "home")
	if err != nil {
		t.Error(err)
		return
	}
	if out, err := exec.Command("chown", "-R", "alice", home).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
		return
	}
	answers := harness.Bin + ":/usr/local/bin:/usr/bin:/bin"
	env := append(slices.Clone(world), "HOME="+home, "PONOS_CONFIG="+filepath.Join(home, "p/ponos.yaml"), "PATH="+answers)
	if prepare == "" {
		prepare = ":"
	}
	if out, code := play(t, home, "alice", env, prepare); code != 0 {
		t.Errorf("%s: %d\n%s", prepare, code, out)
		return
	}
	env[len(env)-1] = "PATH=" + filepath.Join(dir, "silent", silent) + ":" + answers
	out, code := play(t, home, "alice", env, "{ "+line+"\n} 2>said; status=$?; cat said; exit $status")
	asked, _ := os.ReadFile(filepath.Join(home, "asked"))
	t.Logf("%s hangs, %d times asked: %s: status %d\n%s", silent, strings.Count(string(asked), "\n"), line, code, out)
	tool := regexp.MustCompile(`(ponos-)?(fairshare|lfind|jobpool|setup|list|poll|stop|start|submit)`).FindString(line)
	switch {
	case fails:
		want := regexp.MustCompile(`(?m)^` + tool + `: (?:.*: )?` + silent + `: no answer within .*\n` + tool + `: hint: .`)
		if code != 3 || !want.MatchString(out) {
			t.Errorf("%s hangs: %s: status %d, want 3 and %s:\n%s", silent, line, code, want, out)
		}
	case code != 0 || !strings.Contains(out, strings.ReplaceAll(says, "%", silent)) || says == "" && strings.Contains(out, "no answer"):
		t.Errorf("%s hangs: %s: status %d, want 0 and %q:\n%s", silent, line, code, says, out)
	}
	// Of all candidates of lfind, not more are asked about than at the same time.
	if n := strings.Count(string(asked), "\n"); silent == "sbatch" && n > 4 {
		t.Errorf("%s hangs: %s: asked %d times:\n%s", silent, line, n, asked)
	}
}
