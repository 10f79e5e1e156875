package fairshare

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/locale"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

var update = flag.Bool("update", false, "rewrite the expected output")

// recorded answers as Slurm 22.05.8 once did, from the fixtures of lib/slurm.
type recorded struct {
	dir   string
	files map[string]string // what to answer instead, by command and subject; NAME.table is a capture
	fail  map[string]string // commands that fail, and what they say
}

func (r recorded) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	key := c.Name
	if c.Name == "scontrol" {
		key = c.Args[len(c.Args)-1]
		if _, err := strconv.Atoi(key); err == nil {
			key = "job"
		}
	}
	if said, ok := r.fail[key]; ok {
		if said == "missing" {
			return command.Result{}, &command.NotFoundError{Name: c.Name}
		}
		return command.Result{Stderr: []byte(said)}, &command.ExitError{Name: c.Name, Code: 1, Stderr: said}
	}
	out := c.Stdout
	var printed bytes.Buffer
	if out == nil {
		out = &printed
	}
	err := r.print(out, key, c)
	return command.Result{Stdout: printed.Bytes()}, err
}

// print answers with a text or with a capture.
func (r recorded) print(out io.Writer, key string, c command.Cmd) error {
	if _, ok := r.files[key]; !ok {
		if key == "sacctmgr" {
			if key = c.Args[3]; key == "associations" {
				if _, err := os.Stat(filepath.Join(r.dir, key+captures.Extension)); err != nil { // captured for single users
					key += "-" + cmp.Or(strings.TrimPrefix(c.Args[4], "user="), "accounts")
				}
			}
		}
		switch key {
		case "flags=assoc,qos":
			key = "assoc-mgr"
		case "sacct":
			key = "sacct-usage"
		}
	}
	if text, ok := r.files[key]; ok {
		_, err := io.WriteString(out, text)
		return err
	}
	file := filepath.Join(r.dir, key+captures.Extension)
	table, err := os.ReadFile(file)
	if text, ok := r.files[key+captures.Extension]; ok {
		table, err = []byte(text), nil
	}
	if err == nil {
		if err := captures.ReplayText(out, file, bytes.NewReader(table), c.Name, c.Args...); err != nil {
			// A gap in the captures is one failure, not one of each test.
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return nil
	}
	b, err := os.ReadFile(filepath.Join(r.dir, key+".txt"))
	if (key == "assoc-mgr" || key == "qos") && err != nil { // not captured: a cluster that does not show them
		return &command.ExitError{Name: c.Name, Code: 1, Stderr: "error: Access/permission denied"}
	}
	if err != nil {
		return err
	}
	_, err = out.Write(b)
	return err
}

func TestMain(m *testing.M) {
	// The expected output has symbols; TestASCII sets another locale.
	os.Setenv("LC_ALL", "C.UTF-8")
	os.Setenv("TERM", "xterm-256color")
	os.Exit(m.Run())
}

const fixtures = "../../slurm/testdata/22.05.8/queue"

// fairshare runs the tool at the time at which the fixtures were captured.
func fairshare(t *testing.T, r recorded, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	if r.dir == "" {
		r.dir = fixtures
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	was := time.Local
	time.Local = time.UTC
	defer func() { time.Local = was }()
	text, err := os.ReadFile(filepath.Join(r.dir, "now"))
	if err != nil {
		t.Fatal(err)
	}
	captured, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	a := planner.New()
	a.Client.Run = r
	a.Client.Env = []string{"PATH=/nowhere"}
	a.Now = func() time.Time { return time.Unix(captured, 0).UTC() }
	a.UID = func(name string) (uint32, bool) {
		id, ok := map[string]uint32{"root": 0, "alice": 1001, "carol": 1003}[name]
		return id, ok
	}
	var out, errs bytes.Buffer
	code = tool(a, &out, &errs).Run(context.Background(), append([]string{"fairshare"}, args...), strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// TestASCII prints the same without symbols, as wide as with them, and the same JSON.
func TestASCII(t *testing.T) {
	dumb := [][2]string{{"LC_ALL", "C"}, {"LC_ALL", ""}, {"TERM", "dumb"}}
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		t.Setenv(name, "")
	}
	symbols := 0
	for _, args := range [][]string{
		{"-a"}, {"-A", "csi"}, {"jobs"}, {"jobs", "2"}, {"jobs", "81"}, {"jobs", "--json"}, {"holes"}, {"holes", "-p", "gpu", "--json"},
		{"history", "-a", "--since", "2d"}, {"history", "-a", "--by", "account"}, {"--help"}, {"jobs", "no-job"},
	} {
		_, out, errs := fairshare(t, recorded{}, args...)
		if strings.ContainsFunc(out, func(r rune) bool { return r >= utf8.RuneSelf }) {
			symbols++
		}
		for _, variable := range dumb {
			was := os.Getenv(variable[0])
			t.Setenv(variable[0], variable[1])
			_, plainOut, plainErrs := fairshare(t, recorded{}, args...)
			want := locale.Symbols(out)
			if slices.Contains(args, "--json") {
				want = out // with names that are not ASCII
			}
			if plainOut != want || plainErrs != errs {
				t.Errorf("%v: fairshare %v prints\n%s%s\nwant\n%s%s", variable, args, plainOut, plainErrs, want, errs)
			}
			if utf8.RuneCountInString(plainOut) != utf8.RuneCountInString(out) || want != out && len(plainOut) != utf8.RuneCountInString(out) {
				t.Errorf("%v: fairshare %v is not ASCII, or has other columns:\n%s", variable, args, plainOut)
			}
			t.Setenv(variable[0], was)
		}
	}
	if symbols < 5 {
		t.Errorf("only %d outputs have symbols", symbols)
	}
}

// A name that is not ASCII is data, and remains unchanged in every locale.
func TestNamesKeepTheirLetters(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(fixtures, "squeue.table"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LC_ALL", "C")
	named := strings.Replace(string(text), "alice", "zoé…", 1)
	if _, out, errs := fairshare(t, recorded{files: map[string]string{"squeue.table": named}}, "jobs"); !strings.Contains(out, "zoé…") {
		t.Errorf("%s%s", out, errs)
	}
}

// TestGolden compares whole outputs. Run with -update after a change, and read
// what has changed.
func TestGolden(t *testing.T) {
	partitions, err := os.ReadFile(filepath.Join(fixtures, "partitions.txt")) // of the same cluster
	if err != nil {
		t.Fatal(err)
	}
	classic := recorded{dir: strings.Replace(fixtures, "queue", "classic", 1), files: map[string]string{"partitions": string(partitions)}}
	limited := recorded{dir: filepath.Dir(fixtures)}
	for name, c := range map[string]struct {
		recorded
		args []string
	}{
		"shares-user":         {args: []string{"-u", "alice"}},
		"shares-account":      {args: []string{"-A", "csi"}},
		"shares-all":          {args: []string{"-a"}},
		"shares-json":         {args: []string{"-u", "bob", "--json"}},
		"shares-classic":      {classic, []string{"-u", "carol"}},
		"shares-classic-json": {classic, []string{"-u", "carol", "--json"}},
		"jobs":                {args: []string{"jobs"}},
		"jobs-user":           {args: []string{"jobs", "-u", "alice", "-p", "gpu,gpu_spot"}},
		"jobs-first":          {args: []string{"jobs", "-n1"}},
		"jobs-json":           {args: []string{"jobs", "-p", "gpu", "--json"}},
		"jobs-format":         {args: []string{"jobs", "-j", "2", "--format", "priority"}},
		"jobs-fields":         {args: []string{"jobs", "-p", "cpu", "-o", "jobid,rank,priority,sum,age,fairshare,nice,reason,start,timelimit,tasks,name"}},
		"story":               {args: []string{"jobs", "2"}},
		"story-array":         {args: []string{"jobs", "5_4"}},
		"story-het":           {args: []string{"jobs", "12+1"}},
		"story-limit":         {args: []string{"jobs", "81"}},
		"story-depends":       {args: []string{"jobs", "9"}},
		"story-held":          {args: []string{"jobs", "19"}},
		"story-running":       {args: []string{"jobs", "-j4"}},
		"story-json":          {args: []string{"jobs", "2", "--json"}},
		"holes":               {args: []string{"holes"}},
		"holes-now":           {args: []string{"holes", "--now", "--list", "-p", "gpu_small"}},
		"holes-json":          {args: []string{"holes", "-p", "gpu", "--json"}},
		"when":                {recorded{fail: map[string]string{"sacct": "error"}}, []string{"when", "2", "3"}},
		"when-json":           {recorded{fail: map[string]string{"sacct": "error"}}, []string{"when", "2", "--json"}},
		"limits":              {limited, []string{"limits", "carol"}},
		"limits-account":      {recorded{dir: limited.dir, files: map[string]string{"associations-csi": ""}}, []string{"limits", "csi"}},
		"limits-json":         {limited, []string{"limits", "carol", "--json"}},
		"history":             {args: []string{"history", "-a", "--since", "2d"}},
		"history-account":     {args: []string{"history", "-a", "--by", "account", "--tres", "gpu", "--since", "2026-11-20"}},
		"history-json":        {args: []string{"history", "-a", "--since", "2d", "--json"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := fairshare(t, c.recorded, c.args...)
			if code != 0 || errs != "" {
				t.Fatalf("exit status %d, stderr %q", code, errs)
			}
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if out != string(want) {
				t.Errorf("fairshare %s prints\n%s\nwant\n%s", strings.Join(c.args, " "), out, want)
			}
			if strings.HasSuffix(name, "json") && !json.Valid([]byte(out)) {
				t.Error("not JSON")
			}
		})
	}
}

// The sum of the factors is Slurm's priority, to one point, for every pending job.
func TestSums(t *testing.T) {
	for _, named := range [][]string{{"2", "5"}, {"--format", "jobid"}} { // each row says why, however it was requested
		if code, out, errs := fairshare(t, recorded{}, append([]string{"jobs", "--json"}, named...)...); code != 0 || strings.Contains(out, `"reason_plain":""`) {
			t.Errorf("%v: exit status %d, %s%s", named, code, out, errs)
		}
	}
	_, out, _ := fairshare(t, recorded{}, "jobs", "--json")
	var doc struct {
		Jobs []queueJobJSON `json:"jobs"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	counted := 0
	for _, j := range doc.Jobs {
		if j.Sum == nil {
			continue
		}
		counted++
		if d := *j.Sum - j.Priority; d < -1 || d > 1 {
			t.Errorf("job %s in %s: the factors make %v, Slurm says %v", j.JobID, j.Partition, *j.Sum, j.Priority)
		}
	}
	if counted < 8 {
		t.Errorf("only %d jobs have factors", counted)
	}
}

// queueJobJSON are the members of a job that the tests look at.
type queueJobJSON struct {
	JobID     string   `json:"job_id"`
	Partition string   `json:"partition"`
	Priority  float64  `json:"priority"`
	Sum       *float64 `json:"factors_sum"`
}

func replaceConfig(t *testing.T, pairs ...string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(fixtures, "config.txt"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for i := 0; i < len(pairs); i += 2 {
		text = regexp.MustCompile(`(?m)^`+pairs[i]+` .*$`).ReplaceAllString(text, pairs[i]+" = "+pairs[i+1])
	}
	return map[string]string{"config": text}
}

func with(files map[string]string, key, text string) map[string]string {
	files[key] = text
	return files
}

// withoutFactors is the header of a capture of sprio with the factor 0 for all.
const withoutFactors = "%i|%r|%u|%Y|%a=0.0|%A=0|%b=0.0|%B=0|%f=0.0|%F=0|%j=0.0|%J=0|%p=0.0|%P=0|%q=0.0|%Q=0|%S=0|%N=0|%t=|%T=\n"

func TestOtherClusters(t *testing.T) {
	noDatabase := recorded{files: replaceConfig(t, "AccountingStorageType", "accounting_storage/none"),
		fail: map[string]string{
			"sshare": "sshare: error: You are not running a supported accounting_storage plugin\n(accounting_storage/none).\n",
			"sacct":  "Slurm accounting storage is disabled\n",
		}}
	basic := recorded{files: replaceConfig(t, "PriorityType", "priority/basic"),
		fail: map[string]string{"sprio": "sprio: error: You are not running a supported priority plugin\n(priority/basic).\n"}}
	noSprio := recorded{fail: map[string]string{"sprio": "missing"}}
	zero := replaceConfig(t, "PriorityWeightAge", "0", "PriorityWeightFairShare", "0", "PriorityWeightJobSize", "0", "PriorityWeightPartition", "0",
		"PriorityWeightQOS", "0", "PriorityWeightTRES", "(null)")
	zero["sprio.table"] = withoutFactors + "1|gpu|alice|1\n"
	down := map[string]string{}
	for _, what := range []string{"squeue", "sprio", "sshare", "config", "node", "partitions", "reservation", "sacct", "sacctmgr", "job"} {
		down[what] = "error: Unable to contact slurm controller (connect failure)"
	}
	// Slurm refuses to show nodes, or shows none.
	refused := recorded{files: with(replaceConfig(t, "PrivateData", "nodes"), "sacct", ""),
		fail: map[string]string{"node": "slurm_load_node error: Access/permission denied"}}
	none := recorded{files: with(with(replaceConfig(t, "PrivateData", "nodes"), "sacct", ""), "node", "No nodes in the system\n")}
	for name, c := range map[string]struct {
		recorded
		args           []string
		code           int
		stdout, stderr string // patterns
	}{
		"no slurmdbd, shares":  {noDatabase, nil, 3, `^$`, `needs slurmdbd(.|\n)*hint: fairshare jobs, holes, where and when work without it`},
		"no slurmdbd, history": {noDatabase, []string{"history"}, 3, `^$`, `history needs slurmdbd`},
		"no slurmdbd, jobs":    {noDatabase, []string{"jobs"}, 0, `RANK .*JOBID`, `^$`},
		"no slurmdbd, when":    {noDatabase, []string{"when", "2"}, 0, `because the cluster has no accounting`, ``},
		"no slurmdbd, holes":   {noDatabase, []string{"holes"}, 0, `partition cpu`, `^$`},
		"basic, jobs":          {basic, []string{"jobs"}, 0, `priority/basic: jobs are taken in the order of their submission`, `^$`},
		"basic, shares":        {basic, []string{"-u", "alice"}, 0, `fair share does not count here`, `^$`},
		"without sprio":        {noSprio, []string{"jobs"}, 0, `without factors: sprio: program not found`, `^$`},
		// Usage that is reset at midnight has no time to decay by half.
		"reset": {recorded{files: replaceConfig(t, "PriorityUsageResetPeriod", "DAILY")}, []string{"-u", "alice"}, 0,
			`it is reset to nothing daily, next on 2026-11-21 00:00(.|\n)*is set to nothing on\s+2026-11-21 00:00`, `^$`},
		"zero weights":   {recorded{files: zero}, []string{"jobs"}, 0, `all weights are zero`, `^$`},
		"down, shares":   {recorded{fail: down}, nil, 3, `^$`, `fairshare: (scontrol|sshare): Unable to contact slurm controller`},
		"down, jobs":     {recorded{fail: down}, []string{"jobs"}, 3, `^$`, `Unable to contact slurm controller`},
		"down, holes":    {recorded{fail: down}, []string{"holes"}, 3, `^$`, `Unable to contact slurm controller`},
		"down, where":    {recorded{fail: down}, []string{"where"}, 3, `^$`, `Unable to contact slurm controller`},
		"down, history":  {recorded{fail: down}, []string{"history"}, 3, `^$`, `Unable to contact slurm controller`},
		"garbled squeue": {recorded{files: map[string]string{"squeue": "what?\n"}}, []string{"jobs"}, 3, `^$`, `squeue: line 1 of its output`},
		"garbled sprio":  {recorded{files: map[string]string{"sprio": "1|gpu|al"}}, []string{"jobs"}, 3, `^$`, `sprio: line 1 of its output: cut short`},
		"garbled sshare": {recorded{files: map[string]string{"sshare": "root|x|\n"}}, []string{"-a"}, 3, `^$`, `sshare: line 1 of its output`},
		"garbled node":   {recorded{files: map[string]string{"node": "NodeName=a CPUTot=x State=IDLE\n"}}, []string{"holes"}, 3, `^$`, `scontrol show node: line 1`},
		"empty queue":    {recorded{files: map[string]string{"squeue": "", "sprio": ""}}, []string{"jobs"}, 0, `^no job waits\n$`, `^$`},
		// Jobs that are kept private take their nodes all the same, nobody knows how long.
		"private jobs": {recorded{files: map[string]string{"squeue": ""}}, []string{"holes", "-p", "gpu_small", "--list"}, 0,
			`^partition gpu_small\n  1 CPU, 6500MiB for 7d now on small1 \(sure\): --partition=gpu_small --nodes=1 --cpus-per-task=1 --mem=6500M --time=7-00:00:00\n$`, `^$`},
		// Hidden jobs that wait may come first. An operator sees them, and a coordinator some of them.
		"PrivateData": {recorded{files: with(replaceConfig(t, "PrivateData", "accounts,jobs"), "squeue", "")}, []string{"holes", "-p", "gpu_small", "--list"}, 0,
			`  1 CPU, 6500MiB for 7d now on small1 \(likely\): .*\n      jobs of other users may come first, which Slurm hides \(PrivateData\)\n`, `^$`},
		"PrivateData=usage": {recorded{files: with(replaceConfig(t, "PrivateData", "usage"), "squeue", "")}, []string{"holes", "-p", "gpu_small", "--list"}, 0,
			`  1 CPU, 6500MiB for 7d now on small1 \(sure\): `, `^$`},
		"PrivateData, coordinator": {recorded{files: with(replaceConfig(t, "PrivateData", "jobs"), "user", "alice|None|\n")}, []string{"holes", "-p", "gpu_spot", "--list"}, 0,
			`  1 CPU, 6500MiB for 7d now on small1 \(likely\): `, `^$`},
		"PrivateData, operator": {recorded{files: with(replaceConfig(t, "PrivateData", "jobs"), "user", "alice|Operator|\n")}, []string{"holes", "-p", "gpu_spot", "--list"}, 0,
			`  1 CPU, 6500MiB for 7d now on small1 \(sure\): `, `^$`},
		"no nodes, jobs": {refused, []string{"jobs"}, 0, `RANK .*JOBID`, `^$`},
		"no nodes, job": {refused, []string{"jobs", "2"}, 0,
			`^job 2 (.|\n)*EXPECTED START(.|\n)*\nSlurm hides the nodes from you \(PrivateData=nodes\)`, `^$`},
		"no nodes, JSON":    {none, []string{"jobs", "2", "--json"}, 0, `"job_id": ?"2"(.|\n)*"never_starts_as_it_is": ?false`, `^$`},
		"no nodes, holes":   {refused, []string{"holes"}, 3, `^$`, `^fairshare: Slurm hides the nodes from you .*\n.*hint: .*\n$`},
		"no nodes, when":    {none, []string{"when", "2"}, 3, `^$`, `^fairshare: Slurm hides the nodes from you .*\n.*hint: .*\n$`},
		"no nodes, where":   {refused, []string{"where"}, 3, `^$`, `^fairshare: Slurm hides the nodes from you .*\n.*hint: .*\n$`},
		"when, runs":        {recorded{files: map[string]string{"sacct": ""}}, []string{"when", "4"}, 0, `^job 4 runs since`, `^$`},
		"when, held":        {recorded{files: map[string]string{"sacct": ""}}, []string{"when", "19"}, 0, `^job 19 does not start until that changes: held by its owner\n`, `^$`},
		"when, no history":  {recorded{files: map[string]string{"sacct": ""}}, []string{"when", "2"}, 0, `if all jobs run to their time limits(.|\n)*no job has ended here in 30 days`, `^$`},
		"when, not there":   {recorded{files: map[string]string{"sacct": ""}}, []string{"when", "999"}, 2, `^$`, `job 999 is not in the queue`},
		"when, nothing":     {recorded{}, []string{"when"}, 2, `^$`, `no job and no sbatch option is given`},
		"when, both":        {recorded{}, []string{"when", "--score", "7"}, 2, `^$`, `cannot be combined with a job`},
		"when, no score":    {recorded{files: map[string]string{"sacct": ""}}, []string{"when", "--score"}, 0, `^no forecast on this cluster has been scored yet`, `^$`},
		"when, no file":     {recorded{}, []string{"when", "--replay", "/nonexistent"}, 2, `^$`, `/nonexistent`},
		"when, not a trace": {recorded{}, []string{"when", "--replay", "fairshare_test.go"}, 2, `^$`, `hint: create it with: sacct -aXD`},
		"when, a trace":     {recorded{}, []string{"when", "--replay", "../../advise/planner/testdata/trace.swf"}, 0, `^40 jobs in the trace, 32 jobs forecast\nFORECAST +COUNT(.|\n)*learned +32`, `^$`},
		"when, no shares":   {recorded{files: map[string]string{"sacct": ""}, fail: map[string]string{"sshare": "missing"}}, []string{"when", "2"}, 0, `^job 2 `, `^$`},
		"when, no sprio":    {recorded{files: map[string]string{"sacct": ""}, fail: map[string]string{"sprio": "missing"}}, []string{"when", "2"}, 0, `^job 2 `, `^$`},
		"when, down":        {recorded{fail: down}, []string{"when", "2"}, 3, `^$`, `Unable to contact slurm controller`},
		"newer Slurm":       {recorded{files: replaceConfig(t, "SLURM_VERSION", "24.05.1")}, []string{"holes", "-p", "cpu"}, 0, `partition cpu`, `^$`},
		"an array":          {recorded{}, []string{"jobs", "5"}, 0, `2 tasks of the array run\n`, `^$`},
		"nobody's":          {recorded{}, []string{"jobs", "-u", "root"}, 0, `^no job waits of root\n$`, `^$`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := fairshare(t, c.recorded, c.args...)
			if code != c.code || !regexp.MustCompile(c.stdout).MatchString(out) || !regexp.MustCompile(c.stderr).MatchString(errs) {
				t.Errorf("exit status %d\nstdout %s\nstderr %s\nwant %d, %q, %q", code, out, errs, c.code, c.stdout, c.stderr)
			}
		})
	}
}

// A priority that an administrator has set has no factors.
func TestDirectPriority(t *testing.T) {
	sprio := withoutFactors + "2|gpu|alice|5000\n"
	_, out, _ := fairshare(t, recorded{files: map[string]string{"sprio.table": sprio}}, "jobs", "2")
	if !strings.Contains(out, "an administrator has set it to 5000") {
		t.Error(out)
	}
}

// With INCR_ONLY, squeue has the priority that counts, which sprio does not tell: job 2 comes
// before job 1, and why is said.
func TestPrioritiesThatOnlyRise(t *testing.T) {
	dir := "../../slurm/testdata/22.05.8/queue/"
	read := func(name string) string {
		text, err := os.ReadFile(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	queue := strings.Replace(read("squeue.table"), "|PENDING|2887|", "|PENDING|5000|", 1)
	for flags, want := range map[string][2]string{"": {"2 of 3 +2887 ", "Slurm says"}, "INCR_ONLY": {"1 of 3 +5000 ", "here a priority only rises (PriorityFlags=INCR_ONLY): 5000 is from when"}} {
		config := strings.Replace(read("config.txt"), "PriorityFlags           = ", "PriorityFlags           = "+flags, 1)
		_, out, errs := fairshare(t, recorded{dir: dir, files: map[string]string{"config": config, "squeue.table": queue}}, "jobs", "2")
		if !regexp.MustCompile(want[0]).MatchString(out) || !strings.Contains(out, want[1]) || errs != "" {
			t.Errorf("%q: %s%s", flags, out, errs)
		}
	}
}

// A signal ends a replay with the scores until then.
func TestReplayEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("a signal")
	cancel(why)
	for asJSON, want := range map[bool]string{false: "^40 jobs in the trace, 0 jobs forecast\n$", true: `"trace_jobs": 40,(.|\n)*"forecast": "learned",\s+"count": 0`} {
		var out bytes.Buffer
		err := showReplay(ctx, "../../advise/planner/testdata/trace.swf", asJSON, time.Unix(0, 0), &out)
		if !errors.Is(err, why) || !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%v: %s", err, out.String())
		}
	}
}

func TestMarkChanges(t *testing.T) {
	before := "RANK  JOBID\n1     7  100\n2     8  90\n"
	after := "RANK  JOBID\n1     7  105\n2     9  90\n"
	want := "RANK  JOBID\n1     7  \x1b[7m105\x1b[27m\n2     \x1b[7m9\x1b[27m  90\n"
	if got := markChanges(before, after); got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		45 * time.Second: "45s", 12 * time.Minute: "12m", 200 * time.Minute: "3h20m", 3 * time.Hour: "3h", 52 * time.Hour: "2d4h", -time.Second: "0s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %s; want %s", d, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "30d": 720 * time.Hour, "2w": 336 * time.Hour, "1.5d": 36 * time.Hour} {
		if got, err := duration("x", text); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "5", "d", "-3h", "99999999d", "xd"} {
		if got, err := duration("x", bad); err == nil {
			t.Errorf("%q: %v; want an error", bad, got)
		}
	}
}

// A job that does not grow older, by a limit on how many do, is overtaken by waiting.
func TestWaitingHelps(t *testing.T) {
	v := &queueView{config: slurm.Config{"PriorityMaxAge": "10-00:00:00"}, jobs: []slurm.Job{{Accrue: 100}, {Accrue: 100}, {}}, standings: make([]standing, 3)}
	v.weights.Age = 1000
	for _, c := range []struct {
		mine, other int
		want        string
	}{
		{0, 1, "waiting alone does not overtake it: its age grows as fast"}, {0, 2, "the age of the other does not grow: by age alone this job overtakes it in 1d"},
		{2, 1, "waiting alone does not overtake it: the age of this job does not grow (a limit on the number of jobs whose age grows, or it is not eligible)"},
	} {
		if got := v.waitingHelps(c.mine, c.other, 100); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	v.weights.Age = 0
	if got := v.waitingHelps(0, 1, 100); got != "waiting alone does not overtake it: age does not count here" {
		t.Error(got)
	}
}
