package completions

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, nil, "ponos-task", "ponos-submit", "ponos-list", "ponos-poll", "ponos-stop", "ponos-start", "ponos-setup", "lfind")
}

// world is a home with launchers and a spool, and the Slurm of testscripts/fakeslurm.
func world(t *testing.T) (env []string, id string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"home/.config/ponos/launchers.yaml": "local:\n  - {connector: local, tags: [big, slow]}\n  - {connector: local, tags: [small]}\n",
		"slurm/nodes":                       "n1 gpu\nn2 gpu_spot\nn2 gpu\nn3 $(touch hacked)\nn4 -x\n",
		"slurm/shares":                      "root|\n research|\n  iea@a100|\n   iea@a100|zoe42\n",
		"slurm/queue":                       "4711 RUNNING PONOS_TASK=marked-7\n8 PENDING mine\n9 COMPLETED PONOS_TASK=over-1\n",
	} {
		path := filepath.Join(dir, name)
		executable.Write(t, path, text)
	}
	config := filepath.Join(dir, "p/ponos.yaml")
	env = append([]string{
		"HOME=" + filepath.Join(dir, "home"), "PATH=" + filepath.Join(harness.Root(), "testscripts/fakeslurm") + ":" + harness.Bin + ":/usr/bin:/bin", "SLURM_CONF=" + filepath.Join(dir, "slurm/slurm.conf"),
		"PONOS_CONFIG=" + config, "TERM=dumb", "LC_ALL=C", "ZDOTDIR=" + dir,
		"PONOS_COMPLETION_TIMEOUT=100s", // a busy machine takes more than the default
	}, harness.Clock()...)
	run(t, env, harness.Bin+"/ponos-setup", "--init", filepath.Dir(config), "--mode", "local")
	run(t, env, harness.Bin+"/ponos-poll") // else ponos-submit says that there is no agent
	id = strings.TrimSpace(run(t, env, harness.Bin+"/ponos-submit", "--", "true"))
	run(t, env, harness.Bin+"/ponos-submit", "--group", "sweep", ":::", "lr=0.1", "--", "true", "{lr}")
	return env, id
}

func run(t *testing.T, env []string, args ...string) string {
	t.Helper()
	c := exec.Command(args[0], args[1:]...)
	c.Env = env
	c.Dir = t.TempDir()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	if entries, err := os.ReadDir(c.Dir); err != nil || len(entries) > 0 {
		t.Errorf("%v has left %v, %v", args, entries, err)
	}
	return string(out)
}

func TestWords(t *testing.T) {
	env, _ := world(t)
	tasks := []string{"lr-0.1 pending", "marked-7", "true pending"}
	for line := range strings.Lines(run(t, env, harness.Bin+"/ponos-list", "--long")) {
		if words := strings.Fields(line); words[0] != "TASK" {
			tasks = append(tasks, words[0][len(words[0])-8:]+" "+words[1]+", "+words[2])
		}
	}
	slices.Sort(tasks)
	for kind, want := range map[string]string{
		"partitions": "gpu gpu_spot", "accounts": "iea@a100 research root", "users": "zoe42", "jobs": "4711 8", "groups": "sweep 1 task: 1 pending",
		"tasks": strings.Join(tasks, " "), "tags": "big slow small", "qos": "normal", "features": "a100 ib", "hosts": "n1 n2 n3 n4",
		"gres": "gpu gpu:v100 shard", "gpus": "v100", "models": "h100 v100",
	} {
		got := strings.Join(strings.Fields(run(t, env, harness.Bin+"/ponos-task", "words", kind)), " ")
		if got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
	}
}

// TestQuoted completes a request behind an open quote, which is how people type one.
func TestQuoted(t *testing.T) {
	env, _ := world(t)
	for typed, want := range map[string]string{
		"'cuda(model=":          "cuda(model=h100 cuda(model=v100",
		"\"cuda(mem=4G)&part":   "cuda(mem=4G)&partition= cuda(mem=4G)&partition!=",
		"'host=n1 & partition=": "host=n1 & partition=gpu host=n1 & partition=gpu_spot",
		"cud":                   "'cuda( 'cuda()", // bash takes a quote that it is given
	} {
		script := `. "$1"; COMP_WORDS=(ponos-submit --find "$2"); COMP_CWORD=2; _ponos_submit; echo "${COMPREPLY[*]}"`
		got := strings.TrimSpace(run(t, env, "bash", "-c", script, "bash", filepath.Join(harness.Root(), "completions/bash/ponos-submit"), typed))
		if got != want {
			t.Errorf("%s: got %q, want %q", typed, got, want)
		}
	}
}

// TestSilence has Slurm's programs hang, fail or be missing.
func TestSilence(t *testing.T) {
	for name, text := range map[string]string{
		"hangs": "#!/bin/sh\necho early\nsleep 100 &\nsleep 100\n", "fails": "#!/bin/sh\necho no >&2\nexit 1\n", "missing": "",
	} {
		env, _ := world(t)
		program := filepath.Join(t.TempDir(), "bin", "sinfo")
		env[1] = "PATH=" + filepath.Dir(program) + ":" + harness.Bin + ":/bin"
		env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "PONOS_COMPLETION_TIMEOUT=") })
		executable.Write(t, program, text)
		// Within the tool the limit is 300 ms; here it is that a program that hangs for 100
		// seconds does not hold the shell up.
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		c := exec.CommandContext(ctx, harness.Bin+"/ponos-task", "words", "partitions")
		c.Env = env
		out, err := c.CombinedOutput()
		cancel()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

// questions are command lines and the one word that they are completed to.
func questions(id string) map[string]string {
	return map[string]string{
		"ponos-stop marked":            "marked-7",
		"ponos-stop " + id[:30]:        id,
		"ponos-submit --after marked":  "marked-7",
		"ponos-submit --after lr-":     "lr-0.1",
		"ponos-log lr-":                "lr-0.1",
		"ponos-cancel " + id[:30]:      id,
		"ponos-retry --group swe":      "sweep",
		"ponos-list --group swe":       "sweep",
		"ponos-list --state comp":      "completed",
		"lfind --tags sm":              "small",
		"lfind explain --tags big,slo": "big,slow",
		"fairshare jobs -p gpu_":       "gpu_spot",
		"fairshare jobs 47":            "4711",
		"fairshare --account iea":      "iea@a100",
		"ponos jobp":                   "jobpool",
		"ponos li":                     "list",
		"ponos list --state comp":      "completed",
		"ponos log lr-":                "lr-0.1",
		// What a tool says of itself.
		"lfind --kind sl":                 "slurm",
		"lfind --format sc":               "script",
		"jobpool --via ss":                "ssh",
		"jobpool run --place sp":          "spread",
		"jobpool -o pr":                   "print",
		"jobpool serve --output files,pr": "files,print",
		"fairshare history --source sre":  "sreport",
		"fairshare jobs --format stat":    "state",
		"ponos-task checkpoint -s HU":     "HUP",
		// Options of sbatch and their values, and requests.
		"ponos-submit --sbatch cons":             "constraint=",
		"ponos-submit --sbatch contig":           "contiguous",
		"ponos-submit --sbatch partition=gpu_":   "partition=gpu_spot",
		"ponos-run --sbatch=partition=gpu_":      "--sbatch=partition=gpu_spot",
		"ponos-retry --sbatch qos=no":            "qos=normal",
		"ponos-submit --sbatch account=iea":      "account=iea@a100",
		"ponos-submit --sbatch constraint=ib,a1": "constraint=ib,a100",
		"ponos-submit --sbatch exclude=n3,n1":    "exclude=n3,n1",
		"ponos-submit --sbatch gpus-per-node=v":  "gpus-per-node=v100",
		"ponos-submit --sbatch gres=gpu:v":       "gres=gpu:v100",
		"ponos-submit --gres sh":                 "shard",
		"ponos-submit --qos no":                  "normal",
		"ponos-submit --constraint a1":           "a100",
		"ponos-submit --sbatch exclusive=u":      "exclusive=user",
		"ponos-submit --find excl":               "exclusive",
		"ponos-submit --find duration=4m":        "duration=4min",
		"ponos-submit --find partition=gpu_":     "partition=gpu_spot",
		"lfind explain disk=2T":                  "disk=2T",
		"lfind duration=4m":                      "duration=4min",
	}
}

func TestBash(t *testing.T) {
	env, id := world(t)
	for line, want := range questions(id) {
		tool, _, _ := strings.Cut(line, " ")
		// Bash takes what is before the last = or : as words of their own.
		split := strings.NewReplacer("=", " = ", ":", " : ").Replace(line)
		whole := line[strings.LastIndexByte(line, ' ')+1:]
		before := whole[:strings.LastIndexAny(whole, "=:")+1]
		script := `. "$1"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _` + strings.ReplaceAll(tool, "-", "_") + `; echo "${COMPREPLY[*]}"`
		got := strings.TrimSpace(run(t, env, "bash", "-c", script, "bash", filepath.Join(harness.Root(), "completions/bash", tool), split))
		if got = before + got; got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

func TestFish(t *testing.T) {
	harness.Programs(t, "fish")
	env, id := world(t)
	for line, want := range questions(id) {
		words := strings.Fields(line)
		files := filepath.Join(harness.Root(), "completions/fish", words[0]) + ".fish"
		if words[0] == "ponos" { // else those of programs in PATH are loaded when they are needed
			files += " " + filepath.Join(harness.Root(), "completions/fish", "ponos-"+words[1]) + ".fish"
		}
		// A candidate has a tab and a description behind it.
		got, _, _ := strings.Cut(run(t, env, "fish", "--private", "-c", "for file in (string split ' ' $argv[1]); test -e $file; and source $file; end; complete -C $argv[2]", files, line), "\t")
		if got = strings.TrimSpace(got); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// zshScript types a line into an interactive zsh, with a tab at its end, and prints
// what the command was given in the end.
const zshScript = `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= RPS1= fpath=($1 \$fpath); unsetopt zle_bracketed_paste beep; autoload -Uz compinit; compinit -u -D; $3() { print -r -- \"<<\$*>>\" }; bindkey '^I' complete-word; print rea''dy"
zpty -r shell answer '*ready*'
zpty -w -n shell "$2"$'\t\n'
zpty -r shell answer '*<<*>>*'
answer=${answer##*<<}
print -r -- ${answer%%>>*}
zpty -d shell
`

func TestZsh(t *testing.T) {
	harness.Programs(t, "zsh")
	env, id := world(t)
	all := questions(id)
	all["ponos lfind --tags sm"] = "small"
	for line, want := range all {
		tool, args, _ := strings.Cut(line, " ")
		if i := strings.LastIndex(args, " "); i >= 0 {
			want = args[:i+1] + want
		}
		got := strings.TrimSpace(run(t, env, "timeout", "120", "zsh", "-f", "-c", zshScript, "zsh", filepath.Join(harness.Root(), "completions/zsh"), line, tool))
		if got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
