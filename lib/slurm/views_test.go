package slurm

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// captured returns output of a command on a real cluster.
func captured(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "22.05.8", "queue", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func inUTC(t *testing.T) {
	t.Helper()
	was := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = was })
}

func parseSprio(r io.Reader) ([]Factors, error) {
	var all []Factors
	err := scanSprio(r, marked("sprio"), collect(&all))
	return all, err
}

func TestParseJobs(t *testing.T) {
	inUTC(t)
	byLabel := map[string]Job{}
	for _, j := range parsed(t, "22.05.8/queue/squeue", marked("squeue"), jobColumns) {
		byLabel[j.Label] = j
	}
	if got, want := byLabel["5_[3-6%3]"].Name, "作業|x y"; got != want {
		t.Errorf("name with a bar: %q; want %q", got, want)
	}
	if got, want := byLabel["19"].Name, "a\nb"; got != want {
		t.Errorf("name with a newline: %q; want %q", got, want)
	}
	if got := byLabel["14_[5-20]"]; got.TaskCount() != 16 || got.ArrayID != 14 || !got.Pending() {
		t.Errorf("array: %+v", got)
	}
	if got := byLabel["12+1"]; got.HetID != 12 || got.HetOffset != 1 || got.ID != 13 {
		t.Errorf("heterogeneous job: %+v", got)
	}
	four := byLabel["4"]
	if four.NodeList != "cpu[1-2]" || four.TRES["cpu"] != 6 || four.TRES["mem"] != 3000 || !four.HoldsNodes() || four.Limit != 20*time.Minute {
		t.Errorf("running job: %+v", four)
	}
	seven := byLabel["7"]
	if seven.GPUs() != 8 || seven.Nodes != 2 || seven.Start != time.Date(2026, 11, 20, 18, 20, 57, 0, time.UTC).Unix() {
		t.Errorf("job with GPUs: %+v (%v GPUs)", seven, seven.GPUs())
	}
	if got := byLabel["81"].Reason; got != "QOSMaxWallDurationPerJobLimit" {
		t.Errorf("reason %q", got)
	}
}

// Truncated output must never be used, wherever it ends.
func TestCutOff(t *testing.T) {
	inUTC(t)
	type output struct {
		text  string
		parse func(io.Reader) error
	}
	outputs := map[string]output{}
	for name, parse := range map[string]func(io.Reader) error{
		"config.txt":      func(r io.Reader) error { _, err := ParseConfig(r); return err },
		"node.txt":        func(r io.Reader) error { _, err := ParseNodes(r); return err },
		"reservation.txt": func(r io.Reader) error { _, err := ParseReservations(r); return err },
		"job.txt":         func(r io.Reader) error { _, err := ParseJobDetails(r); return err },
	} {
		outputs[name] = output{string(captured(t, name)), parse}
	}
	jobs, jobsAsked := printed(t, "22.05.8/queue/squeue", marked("squeue"), jobColumns)
	outputs["squeue"] = output{jobs, func(r io.Reader) error {
		return rows(r, marked("squeue"), jobsAsked, func(*Job) error { return nil })
	}}
	shares, sharesAsked := printed(t, "22.05.8/queue/sshare", barred("sshare"), shareColumns)
	outputs["sshare"] = output{shares, func(r io.Reader) error { _, err := parseShares(r, barred("sshare"), sharesAsked); return err }}
	usage, usageAsked := printed(t, "22.05.8/queue/sacct-usage", barred("sacct"), usageColumns)
	outputs["sacct"] = output{usage, func(r io.Reader) error {
		return rows(r, barred("sacct"), usageAsked, func(*Record) error { return nil })
	}}
	report, reportAsked := printed(t, "22.05.8/queue/sreport", barred("sreport"), reportColumns)
	outputs["sreport"] = output{report, func(r io.Reader) error {
		return rows(r, barred("sreport"), reportAsked, func(*ReportRow) error { return nil })
	}}
	outputs["sprio"] = output{capturedSprio(t), func(r io.Reader) error { _, err := parseSprio(r); return err }}
	for name, o := range outputs {
		whole, parse := []byte(o.text), o.parse
		if err := parse(bytes.NewReader(whole)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		command, _, _ := strings.Cut(name, ".")
		for cut := 1; cut < len(whole); cut += 1 + len(whole)/300 {
			if whole[cut-1] == '\n' {
				continue // whole lines: only the exit status of the command shows it
			}
			err := parse(bytes.NewReader(whole[:cut]))
			if err == nil {
				t.Errorf("%s cut at %d of %d: no error; the last line is %q", name, cut, len(whole), lastLine(whole[:cut]))
				break
			}
			if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "line ") {
				t.Errorf("%s cut at %d: %v; want the command (%s) and the line", name, cut, err, command)
				break
			}
		}
	}
}

func lastLine(b []byte) []byte { return b[bytes.LastIndexByte(b, '\n')+1:] }

// The name of a job cannot add a row.
func TestForgedRow(t *testing.T) {
	inUTC(t)
	text, asked := printed(t, "22.05.8/queue/squeue", marked("squeue"), jobColumns)
	row := strings.SplitAfterN(text, "\n", 2)[0]
	at := strings.LastIndex(strings.TrimSuffix(row, mark+"\n"), mark) + len(mark) // of the name
	row = row[:at] + "\n" + row[at:]
	forged := strings.TrimSuffix(row, mark+"\n") + "\n" + strings.ReplaceAll(row, mark, "|bbbbaaaa") + mark + "\n"
	var jobs []Job
	if err := rows(strings.NewReader(forged), marked("squeue"), asked, collect(&jobs)); err != nil || len(jobs) != 1 {
		t.Fatalf("%d jobs, %v; want one with a strange name", len(jobs), err)
	}
}

// Other versions format some columns differently.
func TestOtherVersions(t *testing.T) {
	inUTC(t)
	row := strings.ReplaceAll("9|9|9|N/A|0|0|eve|(null)|gpu|(null)|PENDING|4294901758|-5|2026-11-20T17:50:56|Unknown|N/A|N/A|NONE|UNLIMITED|2-4|8|cpu=8,mem=0.50T,node=2,gres/gpu:h100=2|"+
		"gres/gpu:h100:2|gres/gpu:1||(null)|(null)|a&b|(null)|afterok:3_*(unfulfilled)|Nodes required for job are DOWN, DRAINED or reserved|n|", "|", mark) + "\n"
	asked := pick(jobColumns, strings.Split("JobID|ArrayJobID|JobArrayID|ArrayTaskID|HetJobID|HetJobOffset|UserName|Account|Partition|QOS|State|PriorityLong|Nice|"+
		"SubmitTime|EligibleTime|AccrueTime|StartTime|EndTime|TimeLimit|NumNodes|NumCPUs|tres-alloc|"+
		"tres-per-job|tres-per-node|NodeList|SchedNodes|ReqNodes|Feature|Reservation|Dependency|Reason|Name", "|")...)
	var jobs []Job
	if err := rows(strings.NewReader(row), marked("squeue"), asked, collect(&jobs)); err != nil {
		t.Fatal(err)
	}
	j := jobs[0]
	if j.Limit != Unlimited || j.Nodes != 2 || j.GPUs() != 2 || j.TRES["mem"] != 524288 || j.Account != "" || j.HetID != 0 || j.Nice != -5 || j.End != 0 {
		t.Errorf("%+v", j)
	}
	j.TRES = nil // a cluster that does not track GPUs
	if j.GPURequest = "node:gres/gpu:1"; j.GPUs() != 2 {
		t.Errorf("%v GPUs; want one on each of two nodes", j.GPUs())
	}
	for _, record := range []string{
		// 20.11: no CPUEfctv. 24.11: more keys, a planned node, GPUs of two kinds.
		"NodeName=n1 Arch=x86_64 CoresPerSocket=32 CPUAlloc=8 CPUTot=64 CPULoad=1.00 AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:4(S:0-1) " +
			"GresDrain=N/A GresUsed=gpu:(null):2(IDX:0-1) RealMemory=512000 AllocMem=64000 State=MIXED ThreadsPerCore=2 Weight=1 Partitions=gpu\n",
		"NodeName=n1 Arch=x86_64 CoresPerSocket=32 CPUAlloc=8 CPUEfctv=64 CPUTot=64 CPULoad=1.00 AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:a100:2,gpu:h100:2,shard:8 " +
			"GresDrain=N/A GresUsed=gpu:a100:1(IDX:0),gpu:h100:1(IDX:2),shard:0 RealMemory=512000 AllocMem=64000 State=MIXED+PLANNED ThreadsPerCore=2 Weight=1 Partitions=gpu Comment=State=DOWN\n",
	} {
		nodes, err := ParseNodes(strings.NewReader(record))
		if err != nil {
			t.Fatal(err)
		}
		if n := nodes[0]; n.GPUs != 4 || n.GPUsTaken != 2 || n.CPUs != 64 || n.SpecCPUs != 0 || !n.Usable() {
			t.Errorf("%+v", n)
		}
	}
}

func capturedSprio(t testing.TB) string {
	return replay(t, "testdata/22.05.8/queue/sprio.table", "sprio", sprioFormat(mark))
}

func TestSprio(t *testing.T) {
	rows, err := parseSprio(strings.NewReader(capturedSprio(t)))
	if err != nil {
		t.Fatal(err)
	}
	want := Factors{
		ID: 1, Partition: "gpu", User: "alice", Priority: 2916, Age: Factor{0.0243981, 24}, FairShare: Factor{0.2, 2000}, JobSize: Factor{0.1178571, 59},
		PartitionFactor: Factor{0.5, 500}, QOS: Factor{0.1, 200},
		TRES: []TRESFactor{{"cpu", Factor{0.06, 6}}, {"mem", Factor{0.02, 2}}, {"gres/gpu", Factor{0.25, 125}}},
	}
	if !reflect.DeepEqual(rows[0], want) {
		t.Errorf("got %+v\nwant %+v", rows[0], want)
	}
	for _, bad := range []string{
		"1|gpu|alice|x|0|0|0|0|0|0|0|0|0|0|0|0|0|0|||\n", "1|gpu|alice|5|0|0|0|0|0|0|0|0|0|0|0|0|0|\n", "hello\n",
		"1|gpu|alice|5|0|0|0|0|0|0|0|0|0|0|0|0|0|0|cpu|cpu=1|\n", "1|gpu|alice|1e999|0|0|0|0|0|0|0|0|0|0|0|0|0|0|||\n",
	} {
		if rows, err := parseSprio(strings.NewReader(strings.ReplaceAll(bad, "|", mark))); err == nil {
			t.Errorf("%q: %+v; want an error", bad, rows)
		}
	}
	// Without TRES weights sprio prints nothing there, and 20.11 of a factor without weight that it is no number.
	rows, err = parseSprio(strings.NewReader(strings.ReplaceAll("7|cpu|bob|1|0.0|0|-nan|-nan|0.0|0|0.0|0|0.0|0|0.0|0|0|0|||\n", "|", mark)))
	if err != nil || len(rows) != 1 || rows[0].TRES != nil || rows[0].Assoc != (Factor{}) {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestShares(t *testing.T) {
	text, asked := printed(t, "22.05.8/queue/sshare", barred("sshare"), shareColumns)
	rows, err := parseShares(strings.NewReader(text), barred("sshare"), asked)
	if err != nil {
		t.Fatal(err)
	}
	last := rows[len(rows)-1]
	if last.Name() != "bob@research" || last.Depth != 2 || last.NormShares != 0.5 || last.RawUsage != 2534 || last.FairShare != 0.4 || !last.HasFactor {
		t.Errorf("%+v", last)
	}
	if rows[0].Depth != 0 || rows[0].HasFactor {
		t.Errorf("root: %+v", rows[0])
	}
	parent, err := parseShares(strings.NewReader("root||||0.0|0||1.0|||||\n root|root||parent|0.0|0|0.0|0.0|1.0|inf|||\n"), barred("sshare"), asked)
	if err != nil || !parent[1].Parent {
		t.Errorf("%+v, %v", parent, err)
	}
	for _, bad := range []string{"  deep|||1|0|0|0|0|0|0|||\n", "root|||x|0|0|0|0|0|0|||\n", "root||||\n"} {
		if _, err := parseShares(strings.NewReader(bad), barred("sshare"), asked); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestConfig(t *testing.T) {
	c, err := ParseConfig(bytes.NewReader(captured(t, "config.txt")))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Multifactor() || !c.Accounting() || !c.FairTree() || c.Weight("FairShare") != 10000 || c.TRESWeights()["gres/gpu"] != 500 {
		t.Errorf("%v", c)
	}
	if c.Duration("PriorityDecayHalfLife") != 7*24*time.Hour || c.Duration("PriorityMaxAge") != 24*time.Hour || c.Duration("KillWait") != 2*time.Second {
		t.Error(c.Duration("PriorityDecayHalfLife"), c.Duration("PriorityMaxAge"), c.Duration("KillWait"))
	}
	if c.BackfillResolution() != time.Minute || c.BackfillWindow() != 7*24*time.Hour || c.AtLeast(23, 2) || !c.AtLeast(22, 5) || !c.AtLeast(20, 11) {
		t.Error(c.BackfillResolution(), c.BackfillWindow(), c["SLURM_VERSION"])
	}
}

func TestReservations(t *testing.T) {
	inUTC(t)
	all, err := ParseReservations(bytes.NewReader(captured(t, "reservation.txt")))
	if err != nil || len(all) != 2 || all[0].Name != "maint1" || all[0].Nodes != "cpu1" || all[1].CoreCount != 4 || all[1].TRES["cpu"] != 4 || all[1].State != "INACTIVE" || !all[0].Flags.Has("MAINT") || !slices.Equal(all[1].Accounts, []string{"csi"}) {
		t.Fatalf("%+v, %v", all, err)
	}
	none, err := ParseReservations(strings.NewReader("No reservations in the system\n"))
	if err != nil || none != nil {
		t.Errorf("%v, %v", none, err)
	}
}

func TestPlacements(t *testing.T) {
	all, err := ParseJobDetails(bytes.NewReader(captured(t, "job.txt")))
	if err != nil {
		t.Fatal(err)
	}
	four := all[slices.IndexFunc(all, func(j JobDetail) bool { return j.ID == 4 })]
	if want := []Placement{{4, "cpu1", 4, 2000, 0}, {4, "cpu2", 2, 1000, 0}}; !reflect.DeepEqual(four.Placements, want) {
		t.Errorf("%+v; want %+v", four.Placements, want)
	}
	if _, err := ParseJobDetails(strings.NewReader("JobId=8 JobName=sh\n")); err == nil {
		t.Error("half a job is no error")
	}
}

func TestGPUsIn(t *testing.T) {
	for list, want := range map[string]int64{
		"gres:gpu:2": 2, "gres/gpu:2": 2, "gres/gpu=2": 2, "gpu:a100:4": 4, "gpu": 1, "gres:gpu:a100:2,gres:gpu:v100:1": 3,
		"gpu:a100:4(S:0-1)": 4, "shard:8": 0, "(null)": 0, "": 0, "gres/gpu:a100=3": 3, "gpu:a100:2(IDX:0,3)": 2,
	} {
		if got := gpusIn(list); got != want {
			t.Errorf("gpusIn(%q) = %v; want %v", list, got, want)
		}
	}
}

func TestCountTasks(t *testing.T) {
	for tasks, want := range map[string]int{"": 1, "7": 1, "5-20": 16, "1-6%3": 6, "1,3-5": 4, "0-10:2": 6, "1-5,...": 5, "x": 1} {
		if got := countTasks(tasks); got != want {
			t.Errorf("countTasks(%q) = %d; want %d", tasks, got, want)
		}
	}
}

func TestHasTask(t *testing.T) {
	for _, c := range []struct {
		tasks, task string
		want        bool
	}{
		{"7", "7", true}, {"7", "8", false}, {"1,3-5%2", "4", true}, {"1,3-5%2", "2", false}, {"0-10:2", "6", true},
		{"0-10:2", "5", false}, {"0-10:2%4", "10", true}, {"1-5,...", "9", false}, {"", "1", false}, {"1-3%1", "1-3%1", true},
	} {
		if got := (&Job{Tasks: c.tasks}).HasTask(c.task); got != c.want {
			t.Errorf("HasTask(%q) of %q = %v; want %v", c.task, c.tasks, got, c.want)
		}
	}
}

func TestTRES(t *testing.T) {
	got, err := ParseTRES("cpu=2,mem=62.50G,node=1,billing=2,gres/gpu=1,gres/gpu:a100=1")
	if err != nil || got["mem"] != 64000 || got["cpu"] != 2 || got.GPUs() != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := ParseTRES("gres/gpu:a100=1,gres/gpu:v100=2"); err != nil || got.GPUs() != 3 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"cpu", "cpu=", "cpu=-1", "cpu=1e999", "=1", "cpu=1,"} {
		if got, err := ParseTRES(bad); err == nil {
			t.Errorf("%q: %v; want an error", bad, got)
		}
	}
}

func TestExplainReason(t *testing.T) {
	for reason, want := range map[string]string{
		"Priority":                               "jobs with a higher priority come first",
		"QOSMaxWallDurationPerJobLimit":          "requests more time than its QoS allows a job",
		"QOSMaxGRESPerUser":                      "its user has reached a limit of its QoS: GPUs",
		"QOSGrpCpuLimit":                         "its QoS has reached its limit: CPUs",
		"AssocGrpCPUMinutesLimit":                "its account has reached its limit: CPU minutes",
		"AssocMaxJobsLimit":                      "its account has reached its limit: running jobs",
		"MaxCpuPerAccount":                       "its account has reached a limit of its QoS: CPUs",
		"ReqNodeNotAvail, UnavailableNodes:gpu2": "nodes it needs are down, drained or reserved (gpu2)",
		"SomethingNew":                           "SomethingNew",
	} {
		if got := ExplainReason(reason); got.Plain != want || got.Advice == "" {
			t.Errorf("%s: %+v; want %q", reason, got, want)
		}
	}
	for _, c := range []struct {
		job                  Job
		considered, competes bool
	}{
		{Job{Reason: "Priority"}, true, true}, {Job{Reason: "Dependency"}, false, false}, {Job{Reason: "JobHeldUser"}, false, false},
		// Nodes are reserved for others; the job still competes for the rest.
		{Job{Reason: "Reservation"}, true, true}, {Job{Reason: "Reservation", Reservation: "mine"}, false, false},
		{Job{Reason: "QOSGrpGRES"}, true, false}, {Job{Reason: "AssocMaxJobsLimit"}, true, false}, {Job{Reason: "Licenses"}, true, false},
		{Job{Reason: "JobArrayTaskLimit"}, true, false},
	} {
		if got := c.job.Considered(); got != c.considered || c.job.Competes() != c.competes {
			t.Errorf("%+v: considered %v, competes %v", c.job, got, c.job.Competes())
		}
	}
	others := Job{Label: "7", Reason: "Reservation"}
	if e := others.Explain(); e.Plain != "others have reserved nodes that it could use" {
		t.Error(e)
	}
	drained := Job{Label: "7", Reason: "ReqNodeNotAvail, UnavailableNodes:n1"}
	if e := drained.Explain(); e.Plain != "the nodes that it could use are down, drained or reserved (n1)" || strings.Contains(e.Advice, "by name") {
		t.Error(e)
	}
}

func TestEarlierRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sacct.table")
	if err := os.WriteFile(file, []byte("State\nPREEMPTED\nCANCELLED by 1000\nNODE_FAIL\nRUNNING\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Client{Run: &answers{capture: file}}
	runs, err := c.EarlierRuns(t.Context(), "7")
	if want := []string{"PREEMPTED", "CANCELLED", "NODE_FAIL"}; err != nil || !slices.Equal(runs, want) {
		t.Errorf("%q, %v; want %q", runs, err, want)
	}
}

func TestParseRuns(t *testing.T) {
	runs := parsed(t, "22.05.8/sacct-runs", barred("sacct"), runColumns)
	if len(runs) != 34 {
		t.Fatalf("%d runs", len(runs))
	}
	first := runs[0]
	if first.Name != "short1" || first.QOS != "normal" || first.Limit != 20*time.Minute || first.Nodes != 1 || first.End-first.Start != 20 || first.TRES["cpu"] != 2 || first.Submit != first.Start {
		t.Errorf("%+v", first)
	}
}
