package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// place says which test runs a command of README.md that is not in a block marked as console. A name without arguments
// is no command there, but the name of a tool.
func place(command string) string {
	tool, arguments, _ := strings.Cut(command, " ")
	switch {
	case tool == "make":
		return "make"
	case tool == "systemctl":
		return "systemd"
	case strings.HasPrefix(command, "#!"):
		return "cluster"
	case strings.Contains(command, " * * * *  "):
		return "cron"
	case arguments == "" || command == "ponos run" || !slices.Contains(tools, tool):
		return ""
	case tool == "lfind", tool == "fairshare", tool == "ponos-task", strings.Contains(command, "--alloc"):
		return "cluster"
	}
	return "here"
}

// readmeCommands are the blocks of README.md, and the words in its text that are a command with arguments, that a test
// runs in a place.
func readmeCommands(t *testing.T, where string) (commands []string) {
	t.Helper()
	readme := read(t, "README.md")
	blocks := regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)\n```$")
	for _, m := range blocks.FindAllStringSubmatch(readme, -1) {
		if is := place(m[2]); is == where {
			commands = append(commands, m[2])
		} else if is == "" && m[1] != "console" {
			t.Errorf("README.md: no test runs\n%s", m[2])
		}
	}
	for _, m := range quoted.FindAllStringSubmatch(blocks.ReplaceAllString(readme, ""), -1) {
		if place(m[1]) == where {
			commands = append(commands, m[1])
		}
	}
	if len(commands) == 0 {
		t.Fatalf("README.md has no command for %q", where)
	}
	return commands
}

// turns are the lines of a shell that take turns of the agent until a condition holds.
func turns(until string) string {
	return "\nfor _ in $(seq 300); do " + until + " && exit; ponos-poll | ponos-stop | ponos-start >/dev/null; sleep 0.2; done; exit 1"
}

// TestReadmeHere runs commands as processes of this machine, after those that the console shows.
func TestReadmeHere(t *testing.T) {
	harness.Programs(t, "git", "python3")
	home := t.TempDir()
	dir := filepath.Join(home, "code")
	write(t, dir, map[string]string{"train": "#!/bin/sh\n[ \"$2\" != 1 ]\n", "params.tsv": "lr\n0.1\n1\n", "commands.txt": "echo one\necho two\n"})
	env := append(harness.Clock(), "HOME="+home, "PATH="+harness.Bin+":/usr/bin:/bin", "LC_ALL=C.UTF-8", "PONOS_CONFIG="+home+"/ponos/ponos.yaml")
	if out, code := play(t, dir, "", env, "ponos-setup --init ~/ponos --mode local && ponos-poll"); code != 0 {
		t.Fatal(out)
	}
	for _, command := range readmeCommands(t, "here") {
		end := expect{}
		switch {
		case strings.Contains(command, "--every"): // until Ctrl-C
			command = "(" + strings.Replace(command, "ponos-poll", "exec timeout --foreground -s INT 3 ponos-poll", 1) + ")"
			end.code = 124 // of timeout
		case strings.HasPrefix(command, "ponos run --each"):
			end = expect{code: 1, out: "2 tasks: 1 completed, 1 failed"}
		case strings.HasPrefix(command, "ponos-log"):
			end.out = "task failed: exit code 1"
		case strings.HasPrefix(command, "ponos-cancel"):
			command = "ponos-submit --name lr-1 -- sleep 600 2>/dev/null && " + command + turns("[ -z \"$(ponos-list --state unfinished --ids)\" ]")
		case strings.HasPrefix(command, "ponos-retry"):
			end.out = "-"
		case strings.HasPrefix(command, "jobpool"):
			end.out = "two"
		}
		out, code := play(t, dir, "", env, command)
		if code != end.code || !strings.Contains(out, end.out) {
			t.Errorf("README.md: %s\nends with %d, want %d and %q:\n%s", command, code, end.code, end.out, out)
		}
	}
	if table, err := os.ReadFile(filepath.Join(dir, "results.tsv")); err != nil || strings.Count(string(table), "\n") != 3 {
		t.Errorf("the table of results: %v\n%s", err, table)
	}
}

// TestReadmeMake has make print what it would do: "make demo" runs the script that testscripts/demo runs.
func TestReadmeMake(t *testing.T) {
	t.Parallel()
	for _, command := range readmeCommands(t, "make") {
		sh := exec.Command("sh", "-ec", "make() { command make -n \"$@\"; }\n"+command)
		sh.Dir = harness.Root()
		if out, err := sh.CombinedOutput(); err != nil {
			t.Errorf("README.md: %s: %v\n%s", command, err, out)
		}
	}
}

// TestReadmeCron has cron read the line, and runs its command.
func TestReadmeCron(t *testing.T) {
	harness.Programs(t, "crontab=cron")
	dir := t.TempDir()
	env := append(harness.Clock(), "HOME="+dir, "PATH="+harness.Bin+":/usr/bin:/bin", "PONOS_CONFIG="+dir+"/ponos/ponos.yaml")
	for _, command := range readmeCommands(t, "cron") {
		check := exec.Command("crontab", "-n", "-")
		check.Stdin = strings.NewReader(command + "\n")
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("crontab: %s: %v\n%s", command, err, out)
		}
		script := "ponos-setup --init ~/ponos --mode local >/dev/null && ponos-poll\nponos-submit --name x -- true 2>/dev/null\n" +
			crontab.ReplaceAllString(command, "") + "\nls ponos/spool/active" + turns("[ -z \"$(ponos-list --state unfinished --ids)\" ]")
		if out, code := play(t, dir, "", env, script); code != 0 || !strings.Contains(out, "@") { // the file of a task that an agent has taken
			t.Errorf("README.md: %s: %d\n%s", command, code, out)
		}
	}
}

// TestReadmeSystemd enables the unit as the package installs it, in a root of its own.
func TestReadmeSystemd(t *testing.T) {
	harness.Programs(t, "systemctl=systemd")
	root := t.TempDir()
	units := filepath.Join(root, "usr/lib/systemd/system")
	if err := os.MkdirAll(units, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-c", `cp "$1"/*.service "$1"/*.timer "$2"`, "sh", filepath.Join(harness.Root(), "lib/systemd"), units).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, command := range readmeCommands(t, "systemd") {
		words := slices.DeleteFunc(strings.Fields(command), func(w string) bool { return w == "--now" })
		out, err := exec.Command(words[0], append([]string{"--root=" + root}, words[1:]...)...).CombinedOutput()
		if err != nil {
			t.Errorf("README.md: %s: %v\n%s", command, err, out)
		}
		if _, err := os.Readlink(filepath.Join(root, "etc/systemd/system/timers.target.wants", words[len(words)-1])); err != nil {
			t.Errorf("README.md: %s: %v\n%s", command, err, out)
		}
	}
}

// readmeOnACluster runs the commands for Slurm. The job 349 has the id.
func readmeOnACluster(t *testing.T, dir string, env []string, edit func(string) string) {
	t.Helper()
	write(t, dir, map[string]string{"train": "#!/bin/sh\necho trained\n", "commands.txt": "echo one\necho two\n"})
	for _, command := range readmeCommands(t, "cluster") {
		end := expect{}
		switch {
		case strings.HasPrefix(command, "#!"):
			executable.Write(t, filepath.Join(dir, "prologue"), command+"\n")
			command, end.out = `srun -Q --task-prolog="$PWD/prologue" sh -c 'echo "job $PONOS_JOB $PONOS_RESTARTS $PONOS_PREEMPTED, $SLURM_JOB_ID"'`, " 0 no, "
		case strings.HasPrefix(command, "ponos-task"):
			command, end.out = "srun -Q "+command, "trained\n"
		case strings.Contains(command, "--alloc"):
			command = strings.Replace(command, "cores=16", "cores=2", 1) +
				"\nfor _ in $(seq 6000); do [ -e night/pilots/over ] && break; sleep 0.1; done; jobpool log --run night\n"
			end.out = "two\n"
		case strings.HasPrefix(command, "lfind"):
			end.out = "--gpus"
		}
		if out, code := play(t, dir, "alice", env, edit(command)); code != end.code || !strings.Contains(out, end.out) {
			t.Errorf("README.md: %s\nends with %d, want %d and %q:\n%s", command, code, end.code, end.out, out)
		}
	}
}

func TestReadmeKnowsEveryTool(t *testing.T) {
	readme := read(t, "README.md")
	links := map[string]bool{}
	for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(readme, -1) {
		links[m[1]] = true
		if _, err := os.Stat(filepath.Join(harness.Root(), m[1])); err != nil {
			t.Errorf("README.md leads nowhere: %v", err)
		}
	}
	pages, err := filepath.Glob(filepath.Join(harness.Root(), "man/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if !links["man/"+filepath.Base(page)] {
			t.Errorf("README.md has no link to man/%s", filepath.Base(page))
		}
	}
	overview := read(t, "man/ponos.7.md")
	for _, tool := range tools {
		if !regexp.MustCompile(`(?m)^\*\*.*\b` + tool + `\*\*\(1\).*\n:`).MatchString(overview) {
			t.Errorf("man/ponos.7.md does not say what %s does", tool)
		}
	}
	// Within one screen: what it is, and how to try it.
	if i := strings.Index(readme, "make demo "); i < 0 || strings.Count(readme[:i], "\n") > 36 {
		t.Errorf("the two commands stand in line %d of README.md", strings.Count(readme[:max(i, 0)], "\n"))
	}
}
