package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// known are the kinds of files in these tests.
var known = Kinds{Queues: []Kind{SpoolKind, ArkindexKind}, Modes: []Kind{VastKind, SlurmKind, LocalKind}}

func parse(t *testing.T, text string) (Config, error) {
	t.Helper()
	return Parse(strings.NewReader(text), "/etc/ponos/ponos.yaml", known)
}

const arkindex = "url: https://arkindex.example.org/\nfarm_id: 5b0e0c1e-0000-4000-8000-000000000001\nseed: 0123abcd\n"

func TestDefaults(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/home/me/.state")
	c, err := parse(t, arkindex)
	if err != nil {
		t.Fatal(err)
	}
	if c.Queue != "arkindex" || c.Mode != "local" || c.DataDir != "/usr/share/ponos/data" || c.PIDFile != "/home/me/.state/ponos/ponos.pid" ||
		c.Logging.Level != "INFO" || c.Logging.TaskFormat != DefaultTaskFormat || c.Sentry.Environment != "production" ||
		c.Local.MaxJobs < 1 {
		t.Errorf("%+v", c)
	}
}

func TestWholeFile(t *testing.T) {
	t.Setenv("WORK", "/scratch/me")
	c, err := parse(t, `
queue: spool:spool
data_dir: $WORK/ponos
logging: {level: warning}
slurm:
  base: {account: abc@v100, time_limit: 20:00:00}
  gpu:
    partitions: [gpu_p13, gpu_p2]
    gres_per_node: {tesla: 2}
    memory_per_node: 4G
    requeue: true
    exclusive:
  cpu: {requeue: no, cpus_per_task: 8}
  limits: {time: 2 days, gpus: 4, partitions: [gpu_p13, gpu_p2], accounts: abc@v100}
environments: {timeout: 2d}
retry: 'oom: mem*2 <= 64G, lost'
requests: {'train-*': 'cuda(mem=14G)'}
`)
	if l := c.Slurm.Limits; time.Duration(l.Time) != 48*time.Hour || l.GPUs != 4 || strings.Join(l.Partitions, " ") != "gpu_p13 gpu_p2" || strings.Join(l.Accounts, " ") != "abc@v100" ||
		c.Retry != "oom: mem*2 <= 64G, lost" || c.Requests["train-*"] != "cuda(mem=14G)" {
		t.Errorf("%+v %q %v", l, c.Retry, c.Requests)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c.Queue != "spool:/etc/ponos/spool" || c.DataDir != "/scratch/me/ponos" || c.Mode != "slurm" || c.Logging.Level != "WARNING" ||
		time.Duration(c.Environment.Timeout) != 48*time.Hour {
		t.Errorf("%+v", c)
	}
	want := "--account=abc@v100 --time=20:00:00 --partition=gpu_p13,gpu_p2 --gres=gpu:tesla:2 --mem=4G --requeue --exclusive"
	if got := c.Slurm.Base.With(c.Slurm.GPU...).String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := c.Slurm.CPU[0].Arg(); got != "--no-requeue" {
		t.Errorf("requeue: false gives %s", got)
	}
}

// What sbatch would refuse is refused here, and yes and no become what sbatch takes.
func TestSettingsOfSbatch(t *testing.T) {
	for settings, want := range map[string]string{
		"base: {kill-on-invalid-dep: yes}":                        "--kill-on-invalid-dep=yes",
		"base: {kill_on_invalid_dep: false}":                      "--kill-on-invalid-dep=no",
		"base: {exclusive: yes}":                                  "--exclusive",
		"base: {exclusive: user}":                                 "--exclusive=user",
		"{base: {exclusive: yes, time: 5}, cpu: {exclusive: no}}": "--time=5",
		"{base: {contiguous: on}, cpu: {contiguous: off}}":        "",
		"{base: {requeue: yes}, cpu: {requeue: no}}":              "--no-requeue",
		"{base: {mem: 1G}, cpu: {mem-per-cpu: 2G}}":               "--mem-per-cpu=2G",
		"{base: {gres: gpu:2}, cpu: {gpus: a100}}":                "--gpus=a100",
		"base: {time: 2h}":                                        "--time=2:00:00",
		"base: {of-a-plugin: true, another: 3}":                   "--of-a-plugin --another=3",
		"{base: {partition: a, mem: 1G, time: 5, of-a-plugin: on}, cpu: {partition: no, mem: off, of-a-plugin: false}}": "--time=5",
		"base: {partition: 'no', qos: \"yes\"}":                   "--partition=no --qos=yes",
		"{base: {gres: gpu:1}, cpu: {gpus: no, mem-per-cpu: no}}": "--gres=gpu:1",
		"{base: {gres: gpu:1}, cpu: {gpus: 2, gpus-per-node: 1}}": "--gpus=2 --gpus-per-node=1",
	} {
		c, err := parse(t, "queue: spool:spool\nslurm: {"+strings.Trim(settings, "{}")+"}}\n")
		if err != nil {
			t.Errorf("%s: %v", settings, err)
		} else if got := c.Slurm.Base.With(c.Slurm.CPU...).String(); got != want {
			t.Errorf("%s: %s, want %s", settings, got, want)
		}
	}
	for settings, want := range map[string]string{
		"base: {kill-on-invalid-dep: }":                   `slurm.base.kill-on-invalid-dep: option "kill-on-invalid-dep" lacks a value`,
		"base: {exclusive: maybe}":                        `slurm.base.exclusive: option "exclusive": invalid value "maybe"`,
		"base: {cpus-per-task: four}":                     "expected a whole number from 1",
		"base: {mem: 1G, mem-per-cpu: 1G}":                "--mem and --mem-per-cpu cannot be combined",
		"base: {contiguous: 3}":                           "takes no value",
		"base: {array: 1-3}":                              "the agent cannot work with this option",
		"base: {partition: yes}":                          `option "partition" lacks a value`,
		"base: {find: no}":                                "lacks a resource request",
		"base: {find: }":                                  "lacks a resource request",
		"base: {memory: 8G}":                              `slurm.base.memory: sbatch has no option "memory"; did you mean "mem"?`,
		"daemon: {comment: x}":                            "marks its jobs",
		"daemon: {tasks-per-node: 1, ntasks_per_node: 2}": "given twice",
	} {
		if _, err := parse(t, "queue: spool:spool\nslurm: {"+settings+"}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", settings, err, want)
		}
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	_, err := parse(t, `
url: ftp://x
farm_id: [1]
sed: abc
logging:
  levle: INFO
  level: LOUD
  task_format: nothing
slurm:
  base: {comment: x, Bad Key: 1}
  gpu: [1]
  cpu: {output: x, signal: "B:USR1@60"}
  limits: {time: 1s, gpus: -1, partitions: {a: b}, accounts: ['a b']}
retry: 'oom: mem/2'
requests: {'[': 'cuda()'}
local: {max_jobs: many}
retention: soon
mode: cloud
`)
	if !fault.Is(err, fault.Usage) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		`/etc/ponos/ponos.yaml:2: url: not an http or https URL: "ftp://x"`,
		`slurm.limits.time: expected at least a minute`,
		`slurm.limits.gpus: -1 is negative`,
		`slurm.limits.partitions: expected a list of names`,
		`slurm.limits.accounts: invalid name "a b"`,
		`retry: "oom: mem/2": unknown step "mem/2"`,
		`requests: invalid pattern "["`,
		`ponos.yaml:3: farm_id: expected a string`,
		`ponos.yaml:4: sed: unknown key; did you mean "seed"?`,
		`ponos.yaml:6: logging.levle: unknown key; did you mean "level"?`,
		`ponos.yaml:7: logging.level: invalid value "LOUD": expected one of NOTSET,`,
		`ponos.yaml:8: logging.task_format: it has no %(message)s`,
		`ponos.yaml:10: slurm.base.comment: the agent marks its jobs by the comment`,
		`slurm.base.Bad Key: not a long option of sbatch: "Bad Key"`,
		`ponos.yaml:11: slurm.gpu: expected a mapping`,
		`ponos.yaml:12: slurm.cpu.output: the agent names the jobs of tasks, and keeps their output`,
		`ponos.yaml:12: slurm.cpu.signal: with B: only the job script gets the signal`,
		`ponos.yaml:16: local.max_jobs: expected a whole number`,
		`ponos.yaml:17: retention: invalid duration "soon"`,
		`ponos.yaml:18: mode: invalid value "cloud": expected "vast", "slurm" or "local"`,
		`ponos.yaml: seed: it is missing`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in\n%v", want, err)
		}
	}
}

func TestBrokenFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "queue: missing",
		"a: b: c":                "mapping values are not allowed",
		arkindex + "---\nurl: x": "more than one document",
		"- 1":                    "not a mapping",
		"just text":              "not a mapping",
		arkindex + "seed: x":     "twice",
		arkindex + "slurm: {cpu: {time_limit: 1, time: 2}}": "option --time is given twice",
		"queue: 'spool:'": "lacks its directory",
		"url: https://a.example/\nfarm_id: farm\nseed: s\n": `ponos.yaml:2: farm_id: expected a UUID, not "farm"`,
	} {
		if _, err := parse(t, text); err == nil || !strings.Contains(err.Error(), want) || !fault.Is(err, fault.Usage) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func TestLoadWarnsOfReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ponos.yaml")
	if err := errors.Join(os.WriteFile(path, []byte(arkindex), 0o600), os.Chmod(path, 0o644)); err != nil { // whatever the umask
		t.Fatal(err)
	}
	c, err := Load(path, known)
	if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "chmod 600") {
		t.Errorf("%q, %v", c.Warnings, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err = Load(path, known); err != nil || len(c.Warnings) != 0 {
		t.Errorf("%q, %v", c.Warnings, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(arkindex)
	f.Add("slurm: {base: {a: [1, 2], b: {c: d}}, gpu: *x}")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse(strings.NewReader(text), "x.yaml", known); err != nil && !fault.Is(err, fault.Usage) {
			t.Errorf("%q: %v is not of kind Usage", text, err)
		}
	})
}

// On a file system that is read-only, the message says so, and does not send the user elsewhere.
func TestReadOnlyDataDir(t *testing.T) {
	dir := t.TempDir()
	needs.Mount(t, dir, "tmpfs", syscall.MS_RDONLY, "size=64k")
	c := Config{DataDir: filepath.Join(dir, "data")}
	err := c.CheckDataDir()
	if err == nil || !strings.HasSuffix(err.Error(), "is not writable: read-only file system") || fault.HintOf(err) != "" {
		t.Errorf("%v; hint %q", err, fault.HintOf(err))
	}
}

// A configuration, a key and a data_dir that others can write are refused, with the command that mends it.
func TestOthersWrite(t *testing.T) {
	dir := t.TempDir()
	path, key, data := filepath.Join(dir, "ponos.yaml"), filepath.Join(dir, "key"), filepath.Join(dir, "data")
	text := "queue: spool:" + dir + "/spool\ndata_dir: " + data + "\nvast_api: {api_key_file: " + key + "}\n"
	err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.WriteFile(key, []byte("k\n"), 0o600),
		os.MkdirAll(data+"/state/tasks", 0o700))
	if err != nil {
		t.Fatal(err)
	}
	load := func() error {
		c, err := Load(path, known)
		if err == nil {
			_, err = c.Vast.Key()
		}
		return errors.Join(err, c.CheckDataDir())
	}
	if err := load(); err != nil {
		t.Fatal(err)
	}
	for _, open := range []string{path, key, data, data + "/state", data + "/state/tasks"} {
		info, err := os.Stat(open)
		if err == nil {
			err = os.Chmod(open, 0o777)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := load(); fault.KindOf(err) != fault.Usage || fault.HintOf(err) != "chmod go-w "+open {
			t.Errorf("%s: %v; hint %q", open, err, fault.HintOf(err))
		}
		if err := os.Chmod(open, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	if err := load(); err != nil {
		t.Error(err)
	}
}
