package docs

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// Pages whose examples need a cluster, a market or the reader's own programs show
// them without what they print. Here they are run as they stand, in a world that has
// what they name, and must end as the tools document it.

// indented returns the blocks of a page's EXAMPLES that are indented.
func indented(page string) (blocks []string) {
	_, examples, _ := strings.Cut(page, "\n# EXAMPLES\n")
	if end := regexp.MustCompile(`(?m)^# `).FindStringIndex(examples); end != nil {
		examples = examples[:end[0]]
	}
	for block := range strings.SplitSeq(examples, "\n\n") {
		if strings.HasPrefix(strings.TrimLeft(block, "\n"), "    ") {
			blocks = append(blocks, strings.TrimPrefix(strings.ReplaceAll("\n"+strings.Trim(block, "\n"), "\n    ", "\n"), "\n"))
		}
	}
	return blocks
}

// crontab is what stands before the command of a line of a crontab.
var crontab = regexp.MustCompile(`(?m)^[*/0-9]+ [*] [*] [*] [*]  ?`)

// play runs a block of an example.
func play(t *testing.T, dir, user string, env []string, block string) (string, int) {
	t.Helper()
	script := filepath.Join(dir, "example")
	executable.Write(t, script, "set -o pipefail\n"+block+"\n")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	words := append(append([]string{"env", "-i"}, env...), "bash", script)
	if user != "" {
		words = append([]string{"/sbin/runuser", "-u", user, "--"}, words...)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// Into a file: what stays in the background would keep a pipe open.
	printed, err := os.Create(filepath.Join(t.TempDir(), "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	cmd.Stdout, cmd.Stderr = printed, printed
	err = cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what an example has left in the background
	out, readErr := os.ReadFile(printed.Name())
	if readErr != nil {
		t.Fatal(readErr)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", block, err)
	}
	harness.Worded(t, string(out))
	return string(out), cmd.ProcessState.ExitCode()
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		executable.Write(t, path, text)
	}
}

// expect is how an example ends: with 0, if nothing else is said.
type expect struct {
	code int
	out  string // it prints this
}

func examplesOf(t *testing.T, page, dir, user string, env []string, edit func(string) string, ends map[string]expect) {
	t.Helper()
	blocks := indented(read(t, "man", page))
	if len(blocks) == 0 {
		t.Errorf("man/%s has no examples", page)
	}
	used := map[string]bool{}
	for _, block := range blocks {
		if regexp.MustCompile(`(?m)^(local|slurm):|^optional |^#!`).MatchString(block) {
			continue // a file
		}
		want := expect{}
		for part, e := range ends {
			if strings.Contains(block, part) {
				want, used[part] = e, true
			}
		}
		out, code := play(t, dir, user, env, edit(crontab.ReplaceAllString(block, "")))
		if code != want.code || !strings.Contains(out, want.out) {
			t.Errorf("man/%s: %s\nends with %d, want %d and %q:\n%s", page, block, code, want.code, want.out, out)
		}
	}
	for part := range ends {
		if !used[part] {
			t.Errorf("man/%s has no example with %q", page, part)
		}
	}
}

func asItIs(s string) string { return s }

func TestExamplesOfJobpool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"bin/simulate": "#!/bin/sh\necho simulate \"$@\"\n", "bin/render": "#!/bin/sh\necho render \"$1\"\n",
		// Workstations that are this machine.
		"bin/ssh":      "#!/bin/bash\nwhile [[ $1 == -* ]]; do case $1 in -o | -p | -l | -F | -i) shift 2 ;; *) shift ;; esac; done\nshift\nexec sh -c \"$*\"\n",
		"commands.txt": "echo one\necho two\n", "x.blend": "", "y.blend": "", "a.gz": "", "b.gz": "",
	})
	for _, name := range []string{"a", "b"} {
		if out, err := exec.Command("sh", "-c", "echo line | gzip >"+shell.Quote(filepath.Join(dir, name+".gz"))).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	env := []string{"HOME=" + dir, "PATH=" + filepath.Join(dir, "bin") + ":" + harness.Bin + ":/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	for name, value := range harness.Cluster(t) {
		env = append(env, name+"="+value)
	}
	examplesOf(t, "jobpool.1.md", dir, "", env, func(s string) string {
		if strings.Contains(s, "--alloc") { // the jobs run later
			s = strings.Replace(s, "cores=16", "cores=2", 1) + "\nfor _ in $(seq 6000); do [ -e night/pilots/over ] && break; sleep 0.1; done; jobpool log --run night\n"
		}
		// This machine may have fewer CPUs than the example's, and less memory.
		s = strings.NewReplacer("cpus=16 mem=64G", "cpus=1 mem=64M", "mem=2G", "mem=64M", "--cpus 4", "--cpus 1").Replace(s)
		return strings.Replace(s, "serve --run pool &\n", "serve --run pool &\nfor _ in $(seq 6000); do jobpool ctl status --run pool >/dev/null 2>&1 && break; sleep 0.1; done\n", 1)
	}, map[string]expect{
		"--alloc": {0, "two\n"}, "commands.txt": {0, "two\n"}, "zcat": {0, "1\n1\n"}, "#JOBPOOL": {0, "simulate --mesh coarse --seed 2\n"},
		"render": {0, "render y.blend"}, "jobpool call": {0, "simulate --seed 7\n"},
	})
}

func TestExamplesOnACluster(t *testing.T) {
	var variables []string
	for name, value := range harness.Cluster(t) {
		variables = append(variables, name+"="+value)
		t.Setenv(name, value)
	}
	dir := filepath.Join(os.Getenv("PONOS_CLUSTER"), "work", "alice", "examples")
	write(t, dir, map[string]string{"train.sh": "#!/bin/bash\ntrue\n", "train.py": "", "bin/python": "#!/bin/sh\necho trained\n", ".config/ponos/x": ""})
	if out, err := exec.Command("chown", "-R", "alice", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env := append(variables, "HOME="+dir, "USER=alice", "PATH="+filepath.Join(dir, "bin")+":"+harness.Bin+":/usr/bin:/bin", "LC_ALL=C.UTF-8")
	id, code := play(t, dir, "alice", env, "sbatch --parsable --begin=now+1hour -o /dev/null --wrap true")
	if code != 0 {
		t.Fatal(id)
	}
	id = strings.TrimSpace(id)
	edit := func(s string) string {
		// The nodes of the cluster are smaller, and not all partitions are for alice.
		s = strings.NewReplacer("349", id, "/var/lib/node_exporter", dir, "cores=8, mem=32G", "cores=4, mem=4G", "lfind run", "rm ~/.config/ponos/launchers.yaml; lfind run").Replace(s)
		if strings.HasSuffix(s, " --watch") { // until somebody interrupts it
			s = "timeout --signal=INT 2 " + s
		}
		return s
	}
	examplesOf(t, "fairshare.1.md", dir, "alice", env, edit, map[string]expect{
		"jobs 349": {0, "job " + id}, "--watch": {124, ""}, "--prometheus": {0, ""},
	})
	if text, err := os.ReadFile(filepath.Join(dir, "fairshare.prom")); err != nil || !strings.Contains(string(text), "# TYPE ") {
		t.Errorf("no metrics: %v\n%s", err, text)
	}
	examplesOf(t, "lfind.1.md", dir, "alice", env, edit, map[string]expect{
		"opts=$(lfind": {0, "Submitted batch job "}, "--soonest": {0, "--partition="}, "explain": {1, "GPU"}, "convert": {0, "slurm"}, "run --attach": {0, "trained\n"},
	})
	readmeOnACluster(t, dir, env, edit)
	// What the plugin gives to lfind.
	requests := regexp.MustCompile(`--find(?: '|=)([^'\n]+)`).FindAllStringSubmatch(strings.Join(indented(read(t, "man/spank_ponos.8.md")), "\n"), -1)
	if len(requests) < 3 {
		t.Errorf("man/spank_ponos.8.md has %d requests", len(requests))
	}
	for _, r := range requests {
		if out, code := play(t, dir, "alice", env, edit("lfind '"+r[1]+"'")); code != 0 {
			t.Errorf("man/spank_ponos.8.md: %s: %d\n%s", r[1], code, out)
		}
	}
	// A user's agent, as a job.
	blocks := harness.Blocks(t, "ponos-tutorial.7.md", "THE AGENT FOR A SITE")
	out, code := play(t, dir, "alice", env, "set -e\n"+edit(blocks[len(blocks)-1]))
	if code != 0 || !regexp.MustCompile(`(?m)^The agent is job \d+ of Slurm`).MatchString(out) || !regexp.MustCompile(`(?m)^(cpu|small)\d$`).MatchString(out) {
		t.Errorf("the agent as a job: %d\n%s", code, out)
	}
	if out, code := play(t, dir, "alice", env, "scancel --me"); code != 0 {
		t.Error(out)
	}
}

func TestExamplesOfLaunchers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := []string{"HOME=" + dir, "PATH=" + harness.Bin + ":/usr/bin:/bin"}
	for i, block := range indented(read(t, "man/launchers.yaml.5.md")) {
		write(t, dir, map[string]string{"launchers.yaml": block + "\n"})
		if out, code := play(t, dir, "", env, "lfind check launchers.yaml"); code != 0 {
			t.Errorf("example %d: %d\n%s\n%s", i, code, out, block)
		}
	}
}

func TestExamplesOfVast(t *testing.T) {
	t.Parallel()
	market := server.New(server.Options{Credit: 50})
	web := httptest.NewServer(market)
	defer web.Close()
	defer market.Close()
	market.SetURL(web.URL)
	market.AddOffer(1, map[string]any{"gpu_ram": 48000, "reliability2": 0.999, "dph_total": 0.5})
	market.AddOffer(2, map[string]any{"gpu_name": "A100 SXM4", "gpu_ram": 81920, "compute_cap": 800, "num_gpus": 2, "dph_base": 0.9})
	dir := t.TempDir()
	write(t, dir, map[string]string{"ponos.yaml": "queue: spool:" + dir + "/spool\nmode: vast\ndata_dir: " + dir + "/data\npid_file: " + dir + "/pid\nvast_api:\n  api_key_file: " + dir + "/key\n  url: " + web.URL + "\n"})
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte(server.Key), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + dir, "PATH=" + harness.Bin + ":/usr/bin:/bin", "PONOS_CONFIG=" + dir + "/ponos.yaml"}
	examplesOf(t, "vast-offers.1.md", dir, "", env, asItIs, map[string]expect{"--explain": {0, "offers are left."}, "gpu_ram>=40": {0, "OFFER"}, "--find": {0, "2 x A100 SXM4"}})
	ours := func(s string) string { return strings.ReplaceAll(s, "/etc/ponos/main.yaml", dir+"/ponos.yaml") }
	examplesOf(t, "vast-reap.1.md", dir, "", env, ours, nil)
}

// TestEveryExampleIsRun holds that no page has examples that nothing runs.
func TestEveryExampleIsRun(t *testing.T) {
	inWorlds := []string{"fairshare.1", "jobpool.1", "lfind.1", "launchers.yaml.5", "spank_ponos.8", "vast-offers.1", "vast-reap.1"}
	pages, err := filepath.Glob(filepath.Join(harness.Root(), "man/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		page, name := read(t, "man", filepath.Base(path)), strings.TrimSuffix(filepath.Base(path), ".md")
		configuration := strings.Contains(page, "```yaml\n") // TestExamplesOfConfigurationsAreRead
		if strings.Contains(page, "\n# EXAMPLES\n") && len(steps(page)) == 0 && !configuration && !slices.Contains(inWorlds, name) {
			t.Errorf("nothing runs the examples of man/%s.md", name)
		}
		for _, section := range []string{"NAME", "DESCRIPTION", "SEE ALSO"} {
			if !strings.Contains(page, "\n# "+section+"\n") {
				t.Errorf("man/%s.md has no section %s", name, section)
			}
		}
	}
}
