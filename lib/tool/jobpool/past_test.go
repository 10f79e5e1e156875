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
	run := step{args: "-q -j1 --run d 'exit {}' ::: 0 3 3 0 5 3", code: 1}
	run.run(t)
	killed, err := journal.Create("killed", "")
	if err != nil {
		t.Fatal(err)
	}
	killed.Sent("n1", 1, 0, 1)
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	host := regexp.QuoteMeta(machine.Hostname())
	for command, want := range map[string]string{
		"ctl status --run d": `ended at \S+ \S+ after \S+: 2 done, 4 failed, 0 cancelled, 0 left\n` +
			`  tasks 2-3, 6 failed with exit status 3\n  task 5 failed with exit status 5\n` +
			`to run those that failed again: jobpool --retry-failed --run \S+/d `,
		"ctl status --run d --json": `"phase":"ended"|"phase": "ended"`,
		"ctl list --run d":          `TASK +ID +STATE +NODE +PID +TIME +REASON +COMMAND *\n *2 +failed +` + host + ` +\S+ +failed with exit status 3 +exit 3\n`,
		"ctl list --run d --json":   `\{"seq":2,"state":"failed",.*"reason":"failed with exit status 3","command":"exit 3"\}\n`,
		"ctl explain --run d 5":     `^attempt 1 on ` + host + ` failed with exit status 5, after \S+\n$`,
		"ctl explain --run d 1":     `^attempt 1 on ` + host + ` succeeded, after \S+\n$`,
		"ctl explain --run d 7":     `^it has not run\n$`,
		"ctl status --run killed":   `0 done, 0 failed, 0 cancelled, 1 left: its scheduler was killed\n  task 1 has no known end\nto continue: repeat its command with --resume\n$`,
	} {
		code, out, errs := runTool(t, "", strings.Fields(command)...)
		if code != 0 || errs != "" || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %d, %s%s", command, code, out, errs)
		}
	}
}
