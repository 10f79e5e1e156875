package sbatch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	commands "github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	os.Setenv("PONOS_CLUSTER_LICENSES", "matlab:2000")
	switch s := os.Getenv("PONOS_SEED"); s {
	case "":
	case "random":
		seed = uint64(time.Now().UnixNano())
	default:
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, "PONOS_SEED:", err)
			os.Exit(2)
		}
		seed = n
	}
	harness.Main(m, nil)
}

// seed is what all cases are drawn from: the same each time, unless PONOS_SEED is a number or "random".
var seed uint64 = 7

// chance draws options and their values.
type chance struct{ *rand.Rand }

func (c chance) pick(words ...string) string { return words[c.IntN(len(words))] }

// slurm runs Slurm's commands as a user.
type slurm struct {
	t       *testing.T
	env     []string
	cred    *syscall.Credential
	version sbatch.Version
}

func newSlurm(t *testing.T) *slurm {
	t.Helper()
	s := &slurm{t: t, env: []string{"HOME=/tmp", "PATH=" + os.Getenv("PATH"), "TZ=UTC", "LC_ALL=C", "USER=alice"}}
	for k, v := range harness.Cluster(t) {
		s.env = append(s.env, k+"="+v)
	}
	u, err := user.Lookup("alice")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	said, _ := s.run("sbatch", "--version")
	var year, month int
	if _, err := fmt.Sscanf(said, "slurm %d.%d", &year, &month); err != nil {
		if _, err := fmt.Sscanf(said, "slurm-wlm %d.%d", &year, &month); err != nil {
			t.Fatalf("%q: %v", said, err)
		}
	}
	s.version = sbatch.Version(year*100 + month)
	return s
}

// run returns what a command writes, standard output first, and whether it succeeds.
func (s *slurm) run(args ...string) (said string, ok bool) {
	x := exec.Command(args[0], args[1:]...)
	x.Env, x.Dir, x.SysProcAttr = s.env, "/tmp", &syscall.SysProcAttr{Credential: s.cred}
	var out, errs bytes.Buffer
	x.Stdout, x.Stderr = &out, &errs
	err := x.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Error(err)
	}
	return out.String() + errs.String(), err == nil
}

// jobs returns the fields of all jobs in the queue, by id.
func (s *slurm) jobs(ids ...string) map[string]map[string]string {
	said, _ := s.run(append([]string{"scontrol", "--oneliner", "show", "job"}, ids...)...)
	all := map[string]map[string]string{}
	for line := range strings.Lines(said) {
		fields := map[string]string{}
		for _, word := range strings.Fields(line) {
			key, value, _ := strings.Cut(word, "=")
			fields[key] = value
		}
		all[fields["JobId"]] = fields
	}
	return all
}

// TestSlurmHasTheseOptions holds names, versions and who takes a value against sbatch --help and sbatch.
func TestSlurmHasTheseOptions(t *testing.T) {
	s := newSlurm(t)
	help, _ := s.run("sbatch", "--help")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-(\w), *)?--([a-z-]+)`).FindAllStringSubmatch(help, -1) {
		short, d := m[1], sbatch.Lookup(m[2])
		if listed[m[2]] = true; d == nil || !d.Known(s.version) && d.Name != "power" { // 24.11 lists what it does not know
			t.Errorf("--%s is in sbatch --help, and not in the table", m[2])
		} else if short != "" && sbatch.Short(short[0]) != d.Name {
			t.Errorf("-%s is --%s", short, m[2])
		}
	}
	if len(listed) < 80 {
		t.Fatalf("%d options in\n%s", len(listed), help)
	}
	var each []func()
	for _, d := range sbatch.All() {
		begins := func(o sbatch.Definition) bool {
			return o.Name != d.Name && strings.HasPrefix(o.Name, d.Name) && o.Known(s.version)
		}
		if d.Name == "nvmps" || d.Name == "autocomplete" || !d.Known(s.version) && slices.ContainsFunc(sbatch.All(), begins) {
			continue // of a plugin; for shells; short for another one
		}
		each = append(each, func() {
			said, _ := s.run("sbatch", "--test-only", "--"+d.Name)
			unknown, requires := strings.Contains(said, "unrecognized option"), strings.Contains(said, "requires an argument")
			if unknown == d.Known(s.version) || !unknown && requires == (d.Form == sbatch.Flag || d.Optional) {
				t.Errorf("--%s: %s", d.Name, said)
			}
			said, _ = s.run("sbatch", "--test-only", "--"+d.Name+"=x")
			if takes := !strings.Contains(said, "doesn't allow an argument"); !unknown && takes == (d.Form == sbatch.Flag || s.bare(d.Name)) {
				t.Errorf("--%s=x: %s", d.Name, said)
			}
		})
	}
	together(each)
}

// together calls functions, some of them at the same time.
func together(each []func()) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, 4)
	for _, f := range each {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			f()
		})
	}
	wait.Wait()
}

// bare reports whether an option takes no value in this version, and does in others.
func (s *slurm) bare(name string) bool {
	return name == "requeue" && s.version < 2511 || name == "get-user-env" && s.version >= 2605
}

// texts are values of options that may have any text, and that this cluster takes.
var texts = map[string][]string{
	"account": {"research"}, "qos": {"normal", "high"}, "partition": {"cpu", "gpu"}, "constraint": {"cpu", "a100"}, "exclude": {"cpu1", "gpu2"},
	"nodelist": {"gpu1"}, "licenses": {"matlab", "matlab:2"}, "deadline": {"2037-01-02T03:04:05"},
	"begin": {"now+1hour"}, "comment": {"words"}, "cpu-freq": {"high"}, "delay-boot": {"5"}, "dependency": {"singleton"}, "distribution": {"block", "cyclic"},
	"export": {"ALL", "NONE", "A=1"}, "gpu-bind": {"closest"}, "gpu-freq": {"low"}, "gres-flags": {"disable-binding", "enforce-binding"},
	"hint": {"compute_bound", "nomultithread"}, "job-name": {"a", "b"}, "mail-type": {"END", "FAIL"}, "mail-user": {"someone"}, "mem-bind": {"local"},
	"prefer": {"a100"}, "propagate": {"NONE"}, "signal": {"USR1@60", "B:USR2"}, "switches": {"1"}, "tres-bind": {"gres/gpu:closest"}, "wckey": {"key"},
	"chdir": {"/tmp"}, "input": {"/dev/null"}, "output": {"/dev/null"}, "error": {"/dev/null"}, "open-mode": {"append", "truncate"},
}

// forms are values of other forms, and what is not of the form.
var forms = map[sbatch.Form][2][]string{
	sbatch.Count:    {{"1", "1", "2", "2", "3"}, {"0", "-1", "x", "1.5", ""}},
	sbatch.Whole:    {{"1", "2"}, {"x"}},
	sbatch.Range:    {{"1", "1", "2", "1-2", "2-3"}, {"x", "", "node01"}},
	sbatch.Size:     {{"100", "100M", "200m", "1G"}, {"1.5G", "x", "1Q", "-1", ""}},
	sbatch.Time:     {{"5", "01:30:00", "1-02:00:00", "2:30"}, {"2x", "1:2:3:4", ""}},
	sbatch.GPUs:     {{"1", "2", "3", "4", "a100", "a100:2", "a100:1,rtx2080:1"}, {"a100:", "2:a100"}},
	sbatch.TaskGPUs: {{"1", "2", "a100:1"}, nil}, // since 23.02, sbatch takes any text for some GPUs or none
	sbatch.GRES:     {{"gpu", "gpu:2", "gpu:a100", "gpu:a100:2", "none"}, {"gpu:", "gpu:2:a100"}},
	sbatch.TRES:     {{"gres/gpu:1", "cpu:2", "gres/gpu:a100:1"}, {"gres/gpu:"}},
}

// resources are drawn more often.
var resources = []string{
	"nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "mem", "mem-per-cpu", "mem-per-gpu", "gpus", "gpus-per-node", "gpus-per-task", "gres",
	"cpus-per-gpu", "ntasks-per-gpu", "mincpus", "overcommit", "exclusive", "oversubscribe", "cores-per-socket", "threads-per-core", "tres-per-task",
}

// shares say how many GPUs parts of a job have, and how many parts there are.
var shares = []string{
	"gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "tres-per-task", "nodes", "ntasks", "ntasks-per-node", "ntasks-per-socket",
	"sockets-per-node", "gpus", "gpus-per-node", "gpus-per-task", "nodelist", "cpus-per-task",
}

// draw returns options of which at most one is wrong, and that one's name.
func (c chance) draw(s *slurm) (options sbatch.Options, wrong string) {
	all, gpus := sbatch.All(), c.IntN(3) == 0
	for range 1 + c.IntN(5) {
		d := all[c.IntN(len(all))]
		if gpus {
			d = *sbatch.Lookup(c.pick(shares...))
		} else if c.IntN(2) == 0 {
			d = *sbatch.Lookup(c.pick(resources...))
		}
		values, drawn := texts[d.Name]
		if d.Form == sbatch.Text && !drawn || options.Has(d.Name) || d.Use == 0 || c.left(d) || !d.Known(s.version) && c.IntN(4) > 0 {
			continue
		}
		o := sbatch.Option{Name: d.Name}
		switch f := forms[d.Form]; {
		case d.Form == sbatch.Flag, d.Optional && c.IntN(2) == 0:
		case d.Form == sbatch.Word && wrong == "" && c.IntN(6) == 0 && !s.bare(d.Name):
			o.Value, wrong = "maybe", d.Name
		case d.Form == sbatch.Word && s.bare(d.Name):
		case d.Form == sbatch.Word:
			o.Value = d.Words[c.IntN(min(len(d.Words), 4))] // later ones are not of all versions
		case drawn:
			o.Value = c.pick(values...)
		case wrong == "" && c.IntN(8) == 0 && len(f[1]) > 0 && d.Name != "nice": // sbatch takes any text for 0
			o.Value, wrong = c.pick(f[1]...), d.Name
		default:
			o.Value = c.pick(f[0]...)
		}
		if !d.Known(s.version) {
			wrong = d.Name
		}
		options = append(options, o)
	}
	return options, wrong
}

// left reports whether an option needs what the cluster does not have, or is the test's own.
func (c chance) left(d sbatch.Definition) bool {
	return slices.Contains([]string{"hold", "reboot", "nvmps", "segment", "resv-ports", "stepmgr", "nodefile"}, d.Name)
}

// resourcesOnly are refusals of options that each are right, and together are more than this cluster has, or
// do not add up. What they are is not for the table to say.
var resourcesOnly = regexp.MustCompile(`Invalid generic resource|` +
	`did not request any GPU|node configuration is not available|More processors requested|needs either a GRES|Invalid node name|` +
	`used without either|requires --sockets-per-node|has to be a multiple of --ntasks-per-gpu|` + // a filter of the site may add what lacks
	`Unable to allocate resources|Node count specification invalid|can not be bigger than|Invalid feature|Too few processes|` +
	`Requested partition configuration|Requested nodes not in this partition|Memory required by task|Can't set num_tasks|--gres-flags|Incompatible|Unable to satisfy cpu bind|` +
	`Invalid Trackable|tres-per-task|Invalid job constraint|Invalid time-min|Inconsistent values set|ntasks-per-gpu and --ntasks-per-tres are|not an option for --gres-flags|Job size specification|` + "CPU count per node can not be satisfied|" +
	"Requested operation not supported on this system") // --requeue=expedite, without the settings that it takes

// drawn is a case.
type drawn struct {
	options sbatch.Options
	wrong   string
	id      string
	said    string
}

func (d *drawn) String() string { return fmt.Sprintf("sbatch %s\n%s", d.options, d.said) }

// TestSlurmTakesOptions submits jobs with random options, held, and compares what Slurm says of each with the table.
func TestSlurmTakesOptions(t *testing.T) {
	const enough = 800
	s := newSlurm(t)
	start := time.Now()
	c := chance{rand.New(rand.NewPCG(seed, 0))}
	t.Logf("PONOS_SEED=%d, Slurm %d", seed, s.version)
	cases := make([]drawn, enough)
	var each []func()
	for i := range cases {
		d := &cases[i]
		d.options, d.wrong = c.draw(s)
		args := append([]string{"sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=:"}, d.options.Args()...)
		each = append(each, func() {
			said, ok := s.run(args...)
			if d.said = said; ok {
				d.id, _, _ = strings.Cut(said, "\n")
			}
		})
	}
	together(each)
	defer s.run("scancel", "--user=alice")
	shown := s.jobs()
	count := map[string]int{}
	for i := range cases {
		d := &cases[i]
		count[s.verdict(d)]++
		if d.id != "" {
			count["fields"] += compare(t, d, shown[d.id])
			s.amount(d, shown[d.id])
			count["amounts"]++
		}
	}
	t.Logf("%v in %s", count, time.Since(start).Round(time.Second))
	if t.Failed() {
		t.Logf("PONOS_SEED=%d draws this again", seed)
	}
	if count["accepted"] < enough/3 || count["refused"] < enough/20 || count["fields"] < enough/6 || count["amounts"] < enough/4 {
		t.Errorf("the cases are too alike: %v", count)
	}
}

// verdict compares whether Slurm accepts a job with what the table says.
func (s *slurm) verdict(d *drawn) string {
	var bad error
	for _, o := range d.options {
		bad = cmp.Or(bad, o.Check())
		if known := sbatch.Lookup(o.Name); !known.Known(s.version) {
			bad = cmp.Or(bad, fmt.Errorf("--%s is of another version", o.Name))
		}
		if known := sbatch.Lookup(o.Name); o.Value == "" && known.Form != sbatch.Flag && !known.Optional {
			bad = cmp.Or(bad, fmt.Errorf("--%s lacks a value", o.Name))
		}
	}
	bad = cmp.Or(bad, d.options.Conflict(s.version))
	switch {
	case bad != nil && d.id != "":
		s.t.Errorf("the table: %v; Slurm accepts it: %v", bad, d)
	case bad == nil && d.wrong != "":
		s.t.Errorf("%s is wrong, and the table does not say so: %v", d.wrong, d)
	case d.id == "" && !final(d.said):
		s.t.Errorf("the message is in no list: %v", d)
	case bad != nil:
		return "refused"
	case d.id != "":
		return "accepted"
	case strings.Contains(d.said, "number of requested tasks differ") && !d.options.Has("ntasks"): // it follows from others
	case strings.Contains(d.said, "Task count specification invalid") && d.options.Has("gpus"): // 26.05: they make more nodes than tasks
	case !resourcesOnly.MatchString(d.said):
		s.t.Errorf("the table finds nothing wrong: %v", d)
	}
	return "do not fit"
}

// final reports whether the agent knows by what sbatch says that there is no job, and need not look for one.
func final(said string) bool {
	err := commands.Refusal("sbatch", &command.ExitError{Name: "sbatch", Code: 1, Stderr: said})
	return commands.RefusedJob(err) || commands.Unavailable(err) || commands.AtLimit(err)
}

// TestSlurmTakesNames submits jobs with names and sizes that only the controller can judge. Each refusal is known as one: else an
// agent would look for a job, and submit again for ever.
func TestSlurmTakesNames(t *testing.T) {
	s := newSlurm(t)
	refused := 0
	var each []func()
	var mutex sync.Mutex
	for _, d := range sbatch.All() {
		if d.Use&sbatch.ByTask == 0 || !d.Known(s.version) || d.Form == sbatch.Flag {
			continue
		}
		for _, value := range []string{"nosuch", "nosuch:1", "99999999", "-1", "0", "1,2", "afterok:99999999", "99-0", "[a&b", "gpu:nosuch:1", "B:x@y"} {
			each = append(each, func() {
				said, ok := s.run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=:", "--"+d.Name+"="+value)
				if ok {
					return
				}
				mutex.Lock()
				defer mutex.Unlock()
				if refused++; !final(said) {
					t.Errorf("--%s=%s is refused, by a message that is in no list: %s", d.Name, value, said)
				}
			})
		}
	}
	together(each)
	s.run("scancel", "--user=alice")
	t.Logf("%d of %d are refused", refused, len(each))
	if refused < 100 {
		t.Errorf("only %d are refused", refused)
	}
}

// fields are those of scontrol show job that have an option's value as it was given, where that is not the key
// of scontrol update.
var fields = map[string]string{
	"nodes": "", "licenses": "Licenses", "begin": "", "mem": "MinMemoryNode", "exclusive": "", "dependency": "", "delay-boot": "", "requeue": "Requeue",
	"tmp": "MinTmpDiskNode", "time": "TimeLimit", "reservation": "Reservation", "mail-type": "MailType", "prefer": "Prefer", "mem-per-cpu": "MinMemoryCPU",
	"ntasks": "", "mincpus": "", "time-min": "TimeMin", "switches": "", "no-requeue": "Requeue", "oversubscribe": "OverSubscribe", "cpus-per-task": "CPUs/Task",
	"chdir": "WorkDir", "wckey": "", "input": "StdIn", "error": "StdErr", "mail-user": "",
}

// compare compares the values of options with what Slurm shows of a job, and returns how many it shows.
func compare(t *testing.T, d *drawn, shown map[string]string) (count int) {
	t.Helper()
	for _, o := range d.options {
		known := sbatch.Lookup(o.Name)
		key, special := fields[o.Name]
		if !special {
			key = known.Update
		}
		want, text := o.Value, ""
		switch {
		case key == "":
			continue
		case d.options.Has("requeue") && d.options.Has("no-requeue"): // the last one counts
			continue
		case o.Name == "no-requeue":
			want = "0"
		case o.Name == "oversubscribe":
			if want = "YES"; d.options.Has("exclusive") {
				continue
			}
		case known.Form == sbatch.Flag || o.Name == "requeue":
			want = "1"
		case o.Name == "nice" && want == "":
			want = "100"
		case known.Form == sbatch.Size:
			mb, _ := sbatch.Megabytes(o.Value)
			text, _, _ = strings.Cut(shown[key], "c")
			if got, _ := sbatch.Megabytes(text); got == mb && shown[key] != "" {
				want = shown[key]
			}
		case known.Form == sbatch.Time:
			want = map[string]string{"5": "00:05:00", "2:30": "00:03:00"}[o.Value]
			want = cmp.Or(want, o.Value)
		case o.Name == "licenses" && want == "matlab":
			want = shown[key] // with a number or without
		case o.Name == "mail-type" || o.Name == "cpus-per-task" && d.options.Has("tres-per-task"):
			want = shown[key]
		}
		if count++; shown[key] != want {
			t.Errorf("%s: %s is %q, want %q: %v", o.Arg(), key, shown[key], want, d)
		}
	}
	return count
}

// tres are the resources of a job as Slurm counts them.
func tres(shown map[string]string) map[string]int64 {
	found := map[string]int64{}
	counted := cmp.Or(shown["ReqTRES"], shown["TRES"]) // since 23.02, and before
	if allocated := shown["AllocTRES"]; strings.Contains(allocated, "=") {
		counted = allocated
	}
	for item := range strings.SplitSeq(counted, ",") {
		name, value, _ := strings.Cut(item, "=")
		if name == "mem" {
			found[name], _ = sbatch.Megabytes(value)
			continue
		}
		found[name], _ = strconv.ParseInt(value, 10, 64)
	}
	return found
}

// amount compares what options request with what Slurm counts of a job that has not started. That is not yet what
// raises it when nodes are chosen.
func (s *slurm) amount(d *drawn, shown map[string]string) {
	t, early := s.t, s.version < 2205
	t.Helper()
	a, err := d.options.Amount()
	if err != nil {
		t.Errorf("%v: %v", err, d)
		return
	}
	has := func(names ...string) bool { return slices.ContainsFunc(names, d.options.Has) }
	// Versions that take both of the latter count some resources by one of them, and some by the other.
	if a.Since > s.version || has(sbatch.GPUsPerNode) && has("gres") {
		return
	}
	counted := tres(shown)
	if perGPU := has("ntasks-per-gpu", "ntasks-per-tres"); perGPU { // NumCPUs may be of --ntasks, and NumTasks of the GPUs
		a.CPUs, a.MemMB = max(a.CPUs, counted["cpu"]), 0
	}
	raised := has("mincpus", "cpus-per-gpu", "overcommit", "ntasks-per-gpu", "ntasks-per-tres") ||
		strings.Contains(d.options.Value("nodes"), "-") || has("gpus") && has("gpus-per-node", "gres", "gpus-per-task", "tres-per-task") ||
		has("ntasks") && has("ntasks-per-node")
	same := func(what string, got, want int64, exact bool) {
		if got > want || exact && got != want {
			t.Errorf("%s: the table says %d, Slurm counts %d: %v\n%v", what, want, got, d, shown)
		}
	}
	// Some versions set the nodes of such jobs when they start.
	counts := (!early || !has("gpus") || !has("gpus-per-node", "gres")) && (!has("ntasks") || !has("ntasks-per-node"))
	same("nodes", counted["node"], a.Nodes, counts)
	same("CPUs", counted["cpu"], a.CPUs, !raised)
	same("GPUs", counted["gres/gpu"], a.GPUs, counts)
	if n, err := strconv.ParseInt(shown["NumTasks"], 10, 64); err == nil {
		same("tasks", n, a.Tasks, !has("gpus") || !has("gpus-per-node", "gres"))
	}
	if a.MemMB > 0 && (!early || !has("mem-per-gpu")) { // 20.11 counts the memory of GPUs when a job starts
		same("memory", counted["mem"], a.MemMB, !raised)
	}
	exclusive := shown["OverSubscribe"] == "NO"
	if kind, ok := shown["Exclusive"]; ok { // since 26.05, where OverSubscribe is NO of most jobs
		exclusive = kind == "NODE"
	}
	if a.Exclusive != exclusive && !has("oversubscribe") {
		t.Errorf("exclusive: %v: %v", a.Exclusive, d)
	}
}

// TestSlurmAllocates starts jobs that request random resources, and compares what each gets with what its
// options amount to.
func TestSlurmAllocates(t *testing.T) {
	const enough, least, budget = 40, 5, 25 * time.Second
	s := newSlurm(t)
	c := chance{rand.New(rand.NewPCG(seed, 1))}
	defer s.run("scancel", "--user=alice")
	start, ran := time.Now(), 0
	for tries := 0; ran < enough && tries < 10*enough && (ran < least || time.Since(start) < budget); tries++ {
		var d drawn
		for range 1 + c.IntN(4) {
			o := sbatch.Option{Name: c.pick(resources...)}
			if known := sbatch.Lookup(o.Name); !d.options.Has(o.Name) && known.Known(s.version) && !known.Optional && known.Form != sbatch.Flag {
				o.Value = c.pick(forms[known.Form][0]...)
				d.options = append(d.options, o)
			}
		}
		a, err := d.options.Amount()
		if err != nil || len(d.options) == 0 || a.Since > s.version || d.options.Conflict(sbatch.Newest) != nil {
			continue
		}
		partition := "cpu"
		if a.GPUs > 0 {
			partition = "gpu"
		}
		args := append([]string{"sbatch", "--parsable", "--output=/dev/null", "--partition=" + partition, "--wrap=sleep 300"}, d.options.Args()...)
		said, ok := s.run(args...)
		if !ok {
			continue // TestSlurmTakesOptions is about that
		}
		d.id, _, _ = strings.Cut(said, "\n")
		shown := s.started(d.id)
		s.run("scancel", d.id)
		if shown == nil {
			continue // it does not fit
		}
		ran++
		got := tres(shown)
		same := func(what string, got, want int64) {
			if got != want {
				t.Errorf("%s: the table says %d, the job got %d: %v\n%v", what, want, got, &d, shown)
			}
		}
		if got["node"] != a.Nodes { // it did not fit on fewer
			if got["node"] < a.Nodes || a.MostNodes > 0 && got["node"] > a.MostNodes || got["cpu"] < a.CPUs {
				t.Errorf("%d nodes, %d CPUs; the table says %d and %d: %v", got["node"], got["cpu"], a.Nodes, a.CPUs, &d)
			}
			continue
		}
		same("GPUs", got["gres/gpu"], a.GPUs)
		if has := d.options.Has; has("ntasks-per-gpu") || has("mincpus") && (a.GPUs > 0 || a.PerTask > 0) {
			continue // Slurm gives some of these jobs fewer CPUs than their tasks have
		}
		if s.version < 2205 && a.Tasks == 1 && a.PerNode > 1 {
			continue // 20.11 gives CPUs to as many tasks as a node may have
		}
		same("CPUs", got["cpu"], a.CPUs)
		if a.MemMB > 0 {
			same("memory", got["mem"], a.MemMB)
		}
	}
	if t.Logf("PONOS_SEED=%d: %d jobs in %s", seed, ran, time.Since(start).Round(time.Second)); ran < least {
		t.Errorf("only %d jobs ran", ran)
	}
}

// started returns the fields of a job that runs, nil if it does not start soon: the cluster may be too small for it.
func (s *slurm) started(id string) map[string]string {
	for range 50 {
		shown := s.jobs(id)[id]
		switch reason := shown["Reason"]; {
		case shown["JobState"] == "RUNNING":
			return shown
		case shown["JobState"] != "PENDING", !slices.Contains([]string{"None", "Priority", "Resources", "BeginTime"}, reason):
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// TestSlurmChangesOptions changes a held job by the keys that the table has for scontrol update.
func TestSlurmChangesOptions(t *testing.T) {
	s := newSlurm(t)
	root := *s
	root.cred = nil // some of them are an administrator's
	defer s.run("scancel", "--user=alice")
	var each []func()
	for _, d := range sbatch.All() {
		values, special := texts[d.Name]
		if !special {
			values = forms[d.Form][0]
		}
		if d.Form == sbatch.Flag || d.Name == "requeue" {
			values = []string{""}
		}
		// The cluster has no program for reboots, and no WCKeys.
		if d.Update == "" || !d.Known(s.version) || len(values) == 0 || slices.Contains([]string{"reboot", "wckey"}, d.Name) {
			continue
		}
		each = append(each, func() {
			args := []string{"sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=:", "--time=3-00:00:00", "--ntasks=2", "--no-requeue"}
			if d.Name == "nodelist" { // of that partition
				args = append(args, "--partition=gpu")
			}
			said, ok := s.run(args...)
			id, _, _ := strings.Cut(said, "\n")
			o := sbatch.Option{Name: d.Name, Value: values[0]}
			if !ok {
				t.Errorf("sbatch: %s", said)
				return
			}
			if said, ok := root.run("scontrol", "update", "job="+id, o.Update()); !ok {
				t.Errorf("scontrol update %s: %s", o.Update(), said)
				return
			}
			compare(t, &drawn{options: sbatch.Options{o}, id: id}, s.jobs(id)[id])
		})
	}
	if together(each); len(each) < 20 {
		t.Errorf("only %d options", len(each))
	}
}
