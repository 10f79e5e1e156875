package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	os.Setenv("PONOS_CLUSTER_TRES", "gres/gpu,gres/gpu:a100") // so that limits can name a type
	os.Setenv("PONOS_CLUSTER_LICENSES", "matlab:2")
	if s := os.Getenv("PONOS_SEED"); s == "random" {
		seed = uint64(time.Now().UnixNano())
	} else if s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, "PONOS_SEED:", err)
			os.Exit(2)
		}
		seed = n
	}
	draw = chance{rand.New(rand.NewPCG(seed, 0))}
	os.Setenv("PONOS_CLUSTER_NODES", draw.machines())
	harness.Main(m, nil)
}

// What all cases are drawn from: the same each time, unless PONOS_SEED is a number or
// "random".
var (
	seed uint64 = 41
	draw chance
)

// machines is what the nodes of the cluster have.
func (c chance) machines() string {
	var lines []string
	for _, name := range nodeNames {
		gpus := ""
		if !strings.HasPrefix(name, "cpu") {
			gpus = c.pick("a100:4", "a100:4", "rtx2080:2", "a100:2,rtx2080:2", "rtx2080:1,v100:3")
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s %s", name, c.pick("1", "1", "2"), c.pick("2", "4", "4", "6"), c.pick("4000", "8000", "8000", "16000"), "f"+name, gpus)))
	}
	return strings.Join(lines, "\n")
}

// runner runs what the package under test asks for as a user of the cluster.
type runner struct{ *harness.Someone }

// Run is that of command.Runner.
func (r runner) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	x := r.Command(append([]string{c.Name}, c.Args...)...)
	var out, errs bytes.Buffer
	x.Stdin, x.Stdout, x.Stderr = c.Stdin, &out, &errs
	if c.Stdout != nil {
		x.Stdout = c.Stdout
	}
	if c.Stderr != nil {
		x.Stderr = io.MultiWriter(&errs, c.Stderr)
	}
	err := x.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = &command.ExitError{Name: c.Name, Code: exit.ExitCode(), Stderr: errs.String()}
	}
	return command.Result{Stdout: out.Bytes()}, err
}

// chance draws what a world and its jobs are made of.
type chance struct{ *rand.Rand }

func (c chance) pick(words ...string) string { return words[c.IntN(len(words))] }
func (c chance) one(n int) bool              { return c.IntN(n) == 0 }

const partitions, qosCount = 8, 4

var (
	nodeNames = []string{"cpu1", "cpu2", "gpu1", "gpu2", "small1"}

	users    = []string{"alice", "bob", "carol"}
	accounts = []string{"research", "csi"}
)

// limits are settings of an association or a QoS, of which most are unset.
func (c chance) limits(names ...string) []string {
	var set []string
	for _, n := range names {
		value := "-1"
		switch {
		case strings.Contains(n, "TRES"):
			kinds := []string{"cpu", "node", "gres/gpu", "gres/gpu:a100", "mem"}
			kind := c.pick(kinds...)
			for _, k := range kinds {
				v := "-1"
				if k == kind && c.one(5) {
					v = map[string]string{"cpu": c.pick("2", "4", "8"), "node": "1", "gres/gpu": c.pick("1", "2"), "gres/gpu:a100": c.pick("1", "2"), "mem": c.pick("2000", "6000")}[k]
				}
				set = append(set, n+"="+k+"="+v)
			}
			continue
		case n == "MaxWall" && c.one(4):
			value = c.pick("30", "120")
		case n == "MaxSubmitJobs" && c.one(12), n == "MaxJobs" && c.one(12):
			value = "0"
		}
		set = append(set, n+"="+value)
	}
	return set
}

// limit sets the limits of users, again until the controller knows them: accounting tells it once, and on a machine that
// is busy it may not hear.
func limit(t *testing.T, root *harness.Someone, limits map[string][]string) {
	t.Helper()
	client := &slurm.Client{Run: runner{root}, Env: root.Env}
	known := func() bool {
		usages, err := client.Usages(t.Context(), users...)
		return err == nil && !slices.ContainsFunc(usages.Associations, func(a slurm.CountedAssociation) bool {
			set := limits[a.User]
			return set != nil && (a.MaxSubmit.Set != slices.Contains(set, "MaxSubmitJobs=0") || a.MaxJobs.Set != slices.Contains(set, "MaxJobs=0"))
		})
	}
	set := func() bool {
		for _, u := range users {
			root.Must(limits[u]...)
		}
		for range 20 {
			if known() {
				return true
			}
			time.Sleep(100 * time.Millisecond)
		}
		return false
	}
	if !harness.Wait(set) {
		t.Fatal("the controller does not know the limits of users")
	}
}

// world makes random partitions, QoS and limits of associations.
func world(t *testing.T, root *harness.Someone, r chance) {
	t.Helper()
	for i := range qosCount {
		set := r.limits("MaxWall", "MaxTRESPerJob", "MaxTRESPerUser", "MaxTRESPerNode")
		least := "MinTRESPerJob=cpu=-1,gres/gpu=-1"
		if r.one(5) {
			least = "MinTRESPerJob=" + r.pick("cpu=2,gres/gpu=-1", "cpu=-1,gres/gpu=1")
		}
		flags := r.pick("-1", "-1", "DenyOnLimit", "DenyOnLimit", "DenyOnLimit,OverPartQOS", "PartitionTimeLimit")
		root.Must(append([]string{"sacctmgr", "-iQ", "modify", "qos", fmt.Sprintf("q%d", i), "set", least, "Flags=" + flags}, set...)...)
	}
	limits := map[string][]string{}
	for _, u := range users {
		limits[u] = append([]string{"sacctmgr", "-iQ", "modify", "user", u, "set", "QOS=" + r.pick("q0", "q1,q2", "normal,q0", "normal,q0", "normal,q0,q1", "normal,q1,q2", "normal,q0,q1,q2,q3"),
			"DefaultQOS=" + r.pick("-1", "-1", "-1", "q0", "q1")},
			r.limits("MaxWall", "MaxTRESPerJob", "MaxSubmitJobs", "MaxJobs")...)
	}
	limit(t, root, limits)
	for _, a := range accounts {
		root.Must(append([]string{"sacctmgr", "-iQ", "modify", "account", a, "set", "DefaultQOS=" + r.pick("-1", "-1", "-1", "q1")}, r.limits("GrpTRES")...)...)
	}
	for i, nodes := range []string{r.pick("", "", "cpu1", "cpu2", "cpu[1-2]"), r.pick("", "", "gpu1", "small1", "gpu2,small1")} {
		if nodes != "" {
			whom := r.pick("users=alice", "users=alice,bob", "accounts=research", "accounts=csi", "users=-bob", "accounts=-csi", "users=bob accounts=research", "users=-alice accounts=research")
			set := append([]string{"scontrol", "create", "reservation", fmt.Sprintf("reservationname=r%d", i), "starttime=now", "duration=2-00:00:00", "nodes=" + nodes, "flags=ignore_jobs"}, strings.Fields(whom)...)
			root.Must(set...)
		}
	}
	for i := range partitions {
		name := fmt.Sprintf("p%d", i)
		set := []string{"PartitionName=" + name, "Nodes=" + r.pick("cpu[1-2]", "gpu[1-2]", "small1", "cpu[1-2],gpu[1-2],small1", "gpu1,small1"),
			"State=" + r.pick("UP", "UP", "UP", "UP", "UP", "UP", "UP", "UP", "UP", "DRAIN", "INACTIVE")}
		add := func(n int, settings ...string) {
			if r.one(n) {
				set = append(set, r.pick(settings...))
			}
		}
		add(6, "MaxTime=60", "MaxTime=10")
		add(5, "DefaultTime=5", "DefaultTime=50")
		add(12, "MinNodes=2")
		add(7, "MaxNodes=1")
		add(9, "AllowAccounts=research", "AllowAccounts=csi", "DenyAccounts=csi", "AllowAccounts=root")
		add(9, "AllowQos=normal,q0", "AllowQos=q1", "DenyQos=q0")
		add(14, "AllowGroups=bob", "AllowGroups=alice,carol")
		add(18, "AllocNodes=cpu1")
		add(18, "RootOnly=YES")
		add(9, "MaxCPUsPerNode=2", "MaxCPUsPerNode=3")
		add(9, "MaxMemPerNode=4000", "MaxMemPerCPU=1000", "MaxMemPerCPU=2500")
		add(6, "DefMemPerNode=3000", "DefMemPerCPU=3000")
		add(6, "JobDefaults=DefCpuPerGPU=3", "JobDefaults=DefMemPerGPU=5000")
		add(5, "QOS=q3", "QOS=q2")
		add(6, "OverSubscribe=EXCLUSIVE")
		root.Must(append([]string{"scontrol", "create"}, set...)...)
	}
}

// job draws options of sbatch.
func (c chance) job() (args []string) {
	number := func(option string, one int, values ...int) {
		if c.one(one) {
			args = append(args, fmt.Sprintf("--%s=%d", option, values[c.IntN(len(values))]))
		}
	}
	args = []string{"--partition=" + fmt.Sprintf("p%d", c.IntN(partitions))}
	if c.one(5) {
		args = append(args, "--account="+c.pick(accounts...))
	}
	if c.one(3) {
		args = append(args, "--qos="+c.pick("normal", "normal", "q0", "q0", "q1", "q2", "q3"))
	}
	if c.one(2) {
		args = append(args, "--time="+c.pick("5", "45", "100", "600"))
	}
	if c.one(5) {
		args = append(args, "--nodes="+c.pick("1", "1", "2", "2", "3"))
	} else {
		args = append(args, "--nodes=1")
	}
	number("ntasks-per-node", 8, 1, 2, 3)
	if c.one(10) {
		args = append(args, "--exclusive")
	}
	gpus := c.one(4)
	switch {
	case gpus && c.one(4):
		number("cpus-per-gpu", 1, 1, 2, 3)
	default:
		number("cpus-per-task", 2, 1, 1, 2, 2, 2, 4, 6, 9)
	}
	switch {
	case c.one(6):
		number("mem-per-cpu", 1, 300, 500, 1000, 2000, 3000)
	case gpus && c.one(6):
		number("mem-per-gpu", 1, 500, 2000, 5000)
	default:
		number("mem", 2, 0, 500, 500, 500, 2000, 3500, 7000, 12000)
	}
	if gpus {
		spec := fmt.Sprint(1 + c.IntN(4))
		if c.one(3) {
			spec = c.pick("a100", "a100", "rtx2080", "v100") + ":" + spec
		}
		args = append(args, c.pick("--gpus-per-node=", "--gpus-per-node=", "--gres=gpu:")+spec)
	}
	if c.one(10) {
		args = append(args, fmt.Sprintf("--licenses=%s:%d", c.pick("matlab", "matlab", "matlab", "nosuch"), 1+c.IntN(3)))
	}
	if c.one(9) {
		args = append(args, "--reservation="+c.pick("r0", "r0", "r1", "r1", "nosuch"))
	}
	return args
}

// jobOf is what the model makes of options.
func jobOf(args []string) admission.Job {
	var all sbatch.Options
	for _, arg := range args {
		o, err := sbatch.Parse(arg)
		if err != nil {
			panic(err)
		}
		all = append(all, o)
	}
	j, places := admission.JobOf(all)
	j.Partition = places[0]
	return j
}

// said is what Slurm did with a job.
type said struct {
	accepted bool
	words    string
}

func ask(s *harness.Someone, args ...string) said {
	var errs bytes.Buffer
	r, err := runner{s}.Run(context.Background(), command.Cmd{Name: "sbatch", Args: args, Stderr: &errs, Stdin: strings.NewReader("#!/bin/sh\n:\n")})
	if err != nil {
		return said{false, strings.TrimSpace(errs.String())}
	}
	return said{true, strings.TrimSpace(string(r.Stdout))}
}

type drawn struct {
	who  *harness.Someone
	job  admission.Job
	args []string

	verdict  admission.Verdict
	waits    bool // accepted, and never started
	late     bool // refused by sbatch, but not by --test-only
	findings []admission.Finding
	fits     []string // nodes that can have the job
	now      []string // of fits, those that others have not reserved
	place    string   // the partition as Slurm shows it
}

// predict is what the model says of a job.
func (d *drawn) predict(c *admission.Cluster, nodes []slurm.Node) {
	d.findings = c.Check(d.job)
	d.verdict = admission.Of(d.findings)
	d.waits = d.verdict == admission.No && !slices.ContainsFunc(d.findings, func(f admission.Finding) bool { return f.Verdict == admission.No && !f.Waits })
	hard := func(f admission.Finding) bool { return f.Verdict == admission.No && !f.Waits && !f.Late }
	d.late = d.verdict == admission.No && !d.waits && !slices.ContainsFunc(d.findings, hard)
	p := c.Partition(d.job.Partition)
	free := *p
	free.MaxMemPerCPU, free.Exclusive = slurm.Limit[int64]{}, false
	if d.job.MemPerGPU > 0 {
		free.DefMemPerCPU = slurm.Limit[int64]{}
	}
	reserved := map[string]bool{}
	for _, r := range c.Reservations {
		names, _ := hostlist.Expand(r.Nodes)
		for _, n := range names {
			reserved[n] = d.job.Reservation == ""
		}
	}
	tested := int64(0) // nodes that --test-only thinks can have the job: it does not count CPUs by MaxMemPerCPU, those of whole nodes in a partition of such, and no default beside --mem-per-gpu
	for i := range nodes {
		if c.Fits(p, &nodes[i], d.job) {
			if d.fits = append(d.fits, nodes[i].Name); !reserved[nodes[i].Name] {
				d.now = append(d.now, nodes[i].Name)
			}
		}
		if c.Fits(&free, &nodes[i], d.job) {
			tested++
		}
	}
	if wanted := max(1, d.job.Nodes); int64(len(d.fits)) < wanted {
		d.late = tested >= wanted && (d.late || !slices.ContainsFunc(d.findings, hard))
		d.verdict, d.waits = admission.No, false
	}
}

// reserved reports whether a job has to wait for the end of reservations. Of one that
// wants several nodes of which some are reserved, --test-only says that it can never
// be, and sbatch takes it.
func (d *drawn) reserved() bool { return int64(len(d.now)) < max(1, d.job.Nodes) }

func (d *drawn) String() string {
	return fmt.Sprintf("%s: sbatch %s\n%s\nmodel: %v %+v, fits %v", d.who.Name, strings.Join(d.args, " "), d.place, d.verdict, d.findings, d.fits)
}

// TestAgainstSlurm draws worlds and jobs until there are enough cases or the time is
// over, but one world at least.
func TestAgainstSlurm(t *testing.T) {
	const enough, budget = 400, 60 * time.Second
	root := harness.As(t, "root")
	t.Logf("PONOS_SEED=%d", seed)
	for i := range qosCount {
		root.Must("sacctmgr", "-iQ", "add", "qos", fmt.Sprintf("q%d", i))
	}
	start := time.Now()
	count := map[string]int{}
	for total := 0; total == 0 || total < enough && time.Since(start) < budget; {
		total += runWorld(t, root, draw, count)
		if t.Failed() {
			t.Fatalf("PONOS_SEED=%d draws this again", seed)
		}
	}
	t.Logf("%v in %s", count, time.Since(start).Round(time.Second))
	if count["yes"] == 0 || count["no"] == 0 {
		t.Errorf("all cases are alike: %v", count)
	}
}

func runWorld(t *testing.T, root *harness.Someone, r chance, count map[string]int) int {
	world(t, root, r)
	defer func() {
		for _, u := range users {
			root.Must("scancel", "--user="+u)
		}
		for i := range partitions {
			deleted(t, root, "PartitionName", fmt.Sprintf("p%d", i))
		}
		for _, name := range strings.Fields(root.Must("sh", "-c", "scontrol --oneliner show reservation | sed -n 's/^ReservationName=\\([^ ]*\\) .*/\\1/p'")) {
			deleted(t, root, "ReservationName", name)
		}
	}()
	places := map[string]string{}
	for i := range partitions {
		name := fmt.Sprintf("p%d", i)
		places[name] = root.Must("scontrol", "--oneliner", "show", "partition", name)
	}
	var all []*drawn
	for _, name := range users {
		who := harness.As(t, name)
		client := &slurm.Client{Run: runner{who}, Env: who.Env}
		snapshot, err := cluster.Asker{Slurm: client, User: name, Now: time.Now}.Ask(t.Context())
		if err != nil || snapshot.Note != "" {
			t.Fatalf("%v %s", err, snapshot.Note)
		}
		nodes, err := client.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		model := snapshot.Admission()
		for range 25 {
			d := &drawn{who: who, args: r.job()}
			d.job = jobOf(d.args)
			d.predict(model, nodes)
			d.place = places[d.job.Partition]
			all = append(all, d)
		}
	}
	compare(t, all, count)
	land(t, root, all, count)
	return len(all)
}

// compare asks sbatch --test-only of each job.
func compare(t *testing.T, all []*drawn, count map[string]int) {
	answers := make([]said, len(all))
	slots := make(chan struct{}, 4)
	var wait sync.WaitGroup
	for i, d := range all {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			answers[i] = ask(d.who, append([]string{"--test-only"}, d.args...)...)
		})
	}
	wait.Wait()
	for i, d := range all {
		switch {
		case d.verdict == admission.Unknown, d.waits, d.late, d.verdict == admission.Yes && d.reserved():
			count["waits or unknown"]++
		case d.verdict == admission.Yes:
			if count["yes"]++; !answers[i].accepted {
				t.Errorf("%v\nSlurm: %s", d, answers[i].words)
			}
		default:
			if count["no"]++; answers[i].accepted {
				t.Errorf("%v\nSlurm accepts it", d)
			}
		}
	}
}

// land submits some of the jobs that the model has start, and some that it has wait
// for ever, and looks where they have run.
func land(t *testing.T, root *harness.Someone, all []*drawn, count map[string]int) {
	const most = 6
	ids := map[string]*drawn{}
	started, waiting, late := 0, 0, 0
	for _, d := range all {
		starts := !slices.ContainsFunc(d.findings, func(f admission.Finding) bool { return f.Waits })
		if d.late && d.verdict == admission.No && starts && late < most {
			late++
			if a := ask(d.who, append([]string{"--parsable", "--output=/dev/null"}, d.args...)...); a.accepted {
				root.Must("scancel", a.words)
				t.Errorf("%v\nSlurm accepts it, job %s", d, a.words)
			}
			count["refused late"]++
		}
		if d.verdict != admission.Yes && !d.waits {
			continue
		}
		if d.waits || d.reserved() {
			if waiting++; waiting > most {
				continue
			}
		} else if started++; started > most {
			continue
		}
		a := ask(d.who, append([]string{"--parsable", "--output=/dev/null"}, d.args...)...)
		if !a.accepted {
			t.Errorf("%v\nSlurm refuses it: %s", d, a.words)
			continue
		}
		ids[a.words] = d
	}
	deadline := time.Now().Add(harness.Patience)
	for id, d := range ids {
		for {
			fields := strings.Fields(root.Must("scontrol", "--oneliner", "show", "job", id))
			value := func(key string) string {
				for _, f := range fields {
					if v, ok := strings.CutPrefix(f, key+"="); ok {
						return v
					}
				}
				return ""
			}
			state, reason := value("JobState"), value("Reason")
			if d.waits || d.reserved() {
				if state != "PENDING" {
					t.Errorf("%v\njob %s is %s on %s", d, id, state, value("NodeList"))
				} else if reason == "None" && time.Now().Before(deadline) {
					time.Sleep(200 * time.Millisecond)
					continue
				}
				count["waited"]++
				break
			}
			if state == "PENDING" || state == "CONFIGURING" {
				if time.Now().After(deadline) {
					t.Errorf("%v\njob %s is %s: %s", d, id, state, reason)
					break
				}
				time.Sleep(200 * time.Millisecond)
				continue
			}
			names := strings.Fields(root.Must("scontrol", "show", "hostnames", value("NodeList")))
			for _, n := range names {
				if !slices.Contains(d.now, n) {
					t.Errorf("%v\njob %s is on %s", d, id, n)
				}
			}
			count["landed"]++
			break
		}
	}
}

// deleted removes a partition or a reservation, which takes as long as its jobs need to end.
func deleted(t *testing.T, root *harness.Someone, what, name string) {
	for end := time.Now().Add(harness.Patience); ; time.Sleep(200 * time.Millisecond) {
		_, err := runner{root}.Run(context.Background(), command.Cmd{Name: "scontrol", Args: []string{"delete", what + "=" + name}})
		if err == nil || time.Now().After(end) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
	}
}
