package jobpool

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/machine"
)

// A run that has ended answers as one that runs.
func TestEndedRun(t *testing.T) {
	alone(t)
	run := []string{"-q", "-j1", "--run", "d", "echo out {}; echo err {} >&2; exit {}", ":::", "0", "3", "3", "0", "5", "3"}
	if code, _, errs := runTool(t, "", run...); code != 1 {
		t.Fatalf("%d %s", code, errs)
	}
	killed, err := journal.Create("killed", "")
	if err != nil {
		t.Fatal(err)
	}
	killed.Sent("n1", 1, 1)
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	host := regexp.QuoteMeta(machine.Hostname())
	for command, want := range map[string]string{
		"ctl status --run d": `ended at \S+ \S+ after \S+: 2 done, 4 failed, 0 cancelled, 0 left\n` +
			`  tasks 2-3, 6 on ` + host + ` failed with exit status 3: echo out 3; .*\n  task 5 on ` + host + ` failed with exit status 5: .*\n` +
			`output of failed tasks: jobpool log --failed --run d\n` +
			`to run those that failed again: jobpool --retry-failed --run \S+/d `,
		"ctl status --run d --json": `"phase":"ended"|"phase": "ended"`,
		"ctl list --run d":          `TASK +ID +STATE +NODE +PID +TIME +REASON +COMMAND *\n *2 +failed +` + host + ` +\S+ +failed with exit status 3 +echo out 3; .*\n`,
		"ctl list --run d --json":   `\{"seq":2,"state":"failed",.*"reason":"failed with exit status 3","command":"echo out 3; .*\n`,
		"log --run d 5":             "^out 5\n$",
		"log --run d --failed": `^==> task 2 on ` + host + ` failed with exit status 3: .* <==\nout 3\nerr 3\n\n==> task 3 .*\nout 3\nerr 3\n\n` +
			`==> task 5 .* failed with exit status 5: .*\nout 5\nerr 5\n\n==> task 6 .*\nout 3\nerr 3\n$`,
		"ctl explain --run d 5":   `^attempt 1 on ` + host + ` failed with exit status 5, after \S+\n$`,
		"ctl explain --run d 1":   `^attempt 1 on ` + host + ` succeeded, after \S+\n$`,
		"ctl explain --run d 7":   `^it has not run\n$`,
		"ctl status --run killed": `0 done, 0 failed, 0 cancelled, 1 left: its scheduler was killed\n  task 1 on n1 has no known end\nto continue: repeat its command with --resume\n$`,
	} {
		code, out, errs := runTool(t, "", strings.Fields(command)...)
		if code != 0 || errs != "" && command != "log --run d 5" || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %d, %s%s", command, code, out, errs)
		}
	}
}

// Of a run that has ended, single tasks can be run again.
func TestRetryOfAnEndedRun(t *testing.T) {
	alone(t)
	const args = " -q -k -j1 --run d 'echo {}; test -e {}' ::: a b c"
	for _, again := range []struct{ tasks, says, runs string }{
		{"", "", "a\nb\nc\n"}, {"2 3", "tasks 2-3", "b\nc\n"}, {"all", "tasks 1-3", "a\nb\nc\n"},
	} {
		how := ""
		if again.tasks != "" {
			how = "--resume"
			code, out, errs := runTool(t, "", strings.Fields("ctl retry --run d "+again.tasks)...)
			want := "to run " + again.says + " again: jobpool --resume --run " + mustGetwd(t) + "/d "
			if code != 0 || errs != "" || !strings.HasPrefix(out, want) {
				t.Errorf("retry %s: %d, %s%s; want %s", again.tasks, code, out, errs, want)
			}
		}
		s := step{args: how + args, code: 1, stdout: again.runs}
		s.run(t)
	}
}
