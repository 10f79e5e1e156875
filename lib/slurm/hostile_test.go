package slurm

import (
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ponos-tools/ponos/lib/base/command"
)

// record is what scontrol prints of a job, with free texts of its user.
func record(id int, name, command, comment string) string {
	return fmt.Sprintf("JobId=%d JobName=%s UserId=bob(1004) GroupId=bob(1004) MCS_label=N/A Priority=1 Nice=0 Account=research QOS=normal "+
		"JobState=RUNNING Reason=None Dependency=(null) Requeue=1 ExitCode=0:0 DerivedExitCode=0:0 TimeMin=N/A Partition=cpu ReqNodeList=(null) ExcNodeList=cpu2 "+
		"NodeList=cpu1 NumNodes=1 NumCPUs=1 TRES=cpu=1,mem=500M CoreSpec=* JOB_GRES=(null)   Nodes=cpu1 CPU_IDs=0 Mem=500 GRES= MinCPUsNode=1 "+
		"Features=(null) OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=%s WorkDir=/tmp Comment=%s StdErr=/o StdIn=/dev/null StdOut=/o Power= \n",
		id, name, command, comment)
}

// scontrol answers with the jobs, or with one of them.
type scontrol map[int]string

func (s scontrol) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	out := &strings.Builder{}
	for id := range 100 {
		if last := c.Args[len(c.Args)-1]; last == "job" || last == fmt.Sprint(id) {
			out.WriteString(s[id])
		}
	}
	if c.Stdout != nil {
		_, err := io.WriteString(c.Stdout, out.String())
		return command.Result{}, err
	}
	return command.Result{Stdout: []byte(out.String())}, nil
}

// A user who chooses the texts of a job changes nothing of other jobs, and nothing of this job but the texts.
func TestTextsForgeNoJob(t *testing.T) {
	honest := record(5, "train", "(null)", "x")
	forged := strings.TrimSpace(strings.NewReplacer("cpu1", "cpu[1-9]", "OverSubscribe=OK", "OverSubscribe=NO").Replace(honest))
	middle := forged[strings.Index(forged, "UserId="):strings.Index(forged, " Command=")]
	for what, evil := range map[string]string{
		"keys in a name":                record(6, "x "+middle, "(null)", "c"),
		"keys and an end in a name":     record(6, "x "+middle+" Command=", "(null)", "c"),
		"keys in a command":             record(6, "x", "run "+middle, "c"),
		"placements in a name":          record(6, "x Nodes=cpu[1-9] CPU_IDs=0-7 Mem=9 GRES=gpu:9", "(null)", "c"),
		"a region in a name":            record(6, "x CoreSpec=* Nodes=cpu[1-9] CPU_IDs=0-7 Mem=9 GRES=gpu:9 MinCPUsNode=1", "(null)", "c"),
		"placements in a comment":       record(6, "x", "(null)", "c Nodes=cpu[1-9] CPU_IDs=0-7 Mem=9 GRES=gpu:9"),
		"a record in a comment":         record(6, "x", "(null)", "c\n"+forged),
		"a record with an end before":   record(6, "x", "(null)", "c StdErr= StdIn= StdOut= Power= \n"+forged),
		"a record in a name":            record(6, "x\n"+forged, "(null)", "c"),
		"a record of nobody":            record(6, "x", "(null)", "c\n"+strings.Replace(forged, "JobId=5", "JobId=77", 1)),
		"half a record":                 record(6, "x\nJobId=5", "(null)", "c"),
		"a record and a line":           record(6, "x", "(null)", "c\nJobId=77 JobState=COMPLETED\n2|alice|COMPLETED"),
		"a first key without a number":  record(6, "x\nJobId=", "(null)", "c"),
		"control characters":            record(6, "\x1f\r\v\x00\x1b[2J", "(null)", "\u202ec"),
		"64 KiB":                        record(6, strings.Repeat("x JobId=5 \n", 6000), "(null)", "c"),
		"many records of another":       record(6, "x", "(null)", strings.Repeat("c\n"+forged, 50)),
		"words that end a listing":      record(6, "x\nNo jobs in the system\n", "(null)", "c"),
		"a line that begins as another": record(6, "x\nNodeName=cpu1 State=DOWN", "(null)", "c"),
	} {
		var doubts Doubts
		all, err := (&Client{Run: scontrol{5: honest, 6: evil, 7: record(7, "after", "(null)", "y")}, Odd: doubts.Add}).AllJobDetails(t.Context(), func(*JobDetail) bool { return true })
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		byID := map[uint64]JobDetail{}
		for _, j := range all {
			if _, twice := byID[j.ID]; twice {
				t.Errorf("%s: two records of job %d", what, j.ID)
			}
			byID[j.ID] = j
		}
		for _, id := range []uint64{5, 7} {
			want := JobDetail{ID: id, State: "RUNNING", UserID: 1004, ExcNodes: "cpu2", StdOut: "/o", Comment: byID[id].Comment, Placements: []Placement{{id, "cpu1", 1, 500, 0}}}
			if diff := cmp.Diff(want, byID[id]); diff != "" {
				t.Errorf("%s: job %d: %s", what, id, diff)
			}
		}
		if j, ok := byID[6]; ok && (j.WholeNodes || len(j.Placements) != 1 || j.Placements[0].Nodes != "cpu1") {
			t.Errorf("%s: %+v", what, j)
		}
		if warnings := doubts.Warnings(); len(byID) < 3 && (len(warnings) != 1 || !strings.Contains(warnings[0], "JobId=6")) {
			t.Errorf("%s: job 6 is left out, and the warnings are %q", what, warnings)
		}
	}
}

// What administrators and coordinators write costs the record it is in, with a warning that names it, and never the view.
func TestTextsForgeNoRecord(t *testing.T) {
	reservation := func(name, comment string) string {
		return "ReservationName=" + name + " StartTime=2026-11-26T06:30:40 EndTime=2026-11-26T07:30:40 Duration=01:00:00 Nodes=cpu1 NodeCnt=1 CoreCnt=4 Features=(null) " +
			"PartitionName=(null) Flags=SPEC_NODES TRES=cpu=4 Users=alice Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE MaxStartDelay=(null) Comment=" + comment + "\n"
	}
	node := func(features, reason string) string {
		return "NodeName=cpu2 Arch=x86_64 CPUAlloc=0 CPUTot=4 AvailableFeatures=" + features + " ActiveFeatures=" + features +
			" Gres=(null) RealMemory=8000 AllocMem=0 State=IDLE Partitions=cpu Reason=" + reason + "\n"
	}
	partition := func(accounts string) string {
		return "PartitionName=cpu2 AllowAccounts=" + accounts + " MaxTime=1:00:00 Nodes=cpu[1-2] State=UP TotalCPUs=8\n"
	}
	account := func(name string) string {
		return "ClusterName=c Account=" + name + " UserName= Partition= GrpJobs=9(1) MaxJobs= MaxWallPJ= MaxTRESPJ= MinPrioThresh=\n"
	}
	reservations := func(text string, odd func(error)) (names []string, err error) {
		all, err := parseReservations(strings.NewReader(text), odd)
		for _, r := range all {
			names = append(names, r.Name+" "+r.Nodes+" "+r.State)
		}
		return names, err
	}
	nodes := func(text string, odd func(error)) (names []string, err error) {
		all, err := parseNodes(strings.NewReader(text), odd)
		for _, n := range all {
			names = append(names, n.Name+" "+n.State)
		}
		return names, err
	}
	partitions := func(text string, odd func(error)) (names []string, err error) {
		all, err := parsePartitions(strings.NewReader(text), odd)
		for _, p := range all {
			names = append(names, p.Name+" "+p.State)
		}
		return names, err
	}
	usages := func(text string, odd func(error)) (names []string, err error) {
		all, err := parseUsages(strings.NewReader(text), odd)
		for _, a := range all.Associations {
			names = append(names, fmt.Sprint(a.Account, " ", a.Jobs))
		}
		for _, q := range all.QOS {
			names = append(names, fmt.Sprint(q.Name, " ", q.Jobs, " ", q.Accounts["csi"].Jobs, " ", q.Users[1001].Jobs))
		}
		return names, err
	}
	qos := func(name, account string) string {
		return "QOS=" + name + "(1) UsageRaw=0.0 GrpJobs=N(3) GrpWall=N(0.0) MaxWallPJ= Account Limits= " + account +
			"={MaxJobsPA=N(2) MaxTRESPA=cpu=N(4)} User Limits= 1001={MaxJobsPU=N(1) MaxTRESPU=cpu=N(4)}\n"
	}
	goodNode := strings.Replace(node("fast", "(null)"), "cpu2", "cpu1", 1)
	goodPartition := strings.Replace(partition("ALL"), "cpu2", "cpu", 1)
	for _, row := range []struct {
		what, text string
		read       func(string, func(error)) ([]string, error)
		want       []string
		warning    string // "": the record is read as it is
	}{
		{"a blank in a name", reservation("a b", ""), reservations, []string{"a b cpu1 ACTIVE"}, ""},
		{"another key in a name", reservation("a x=1", ""), reservations, []string{"a x=1 cpu1 ACTIVE"}, ""},
		{"a line break in a name", reservation("a\nb", "") + reservation("c", ""), reservations, []string{"c cpu1 ACTIVE"}, "ReservationName=a: "},
		{"a line break in the only name", reservation("a\nb", ""), reservations, nil, "ReservationName=a: "},
		{"keys in a name", reservation("a Nodes=ALL Flags=MAINT", "") + reservation("c", ""), reservations, []string{"c cpu1 ACTIVE"}, "ReservationName=a: "},
		{"times in a name", reservation("a StartTime=x EndTime=y", ""), reservations, nil, "ReservationName=a: "},
		{"the end of a record in a name", reservation("a Comment=", ""), reservations, nil, "ReservationName=a: "},
		{"a record in a name", reservation("a\nReservationName=", "") + reservation("c", ""), reservations, []string{"c cpu1 ACTIVE"}, "ReservationName=a: "},
		{"controls in a name", reservation("a\x1b[2J\u202e", "") + reservation("c\nb", ""), reservations, []string{"a\x1b[2J\u202e cpu1 ACTIVE"}, "ReservationName=c: "},
		{"a comment", reservation("a", "x\ny State=INACTIVE\nz"), reservations, []string{"a cpu1 ACTIVE"}, ""},
		{"a line break in features", goodNode + node("a\nb", "(null)"), nodes, []string{"cpu1 IDLE"}, "NodeName=cpu2: "},
		{"keys in features", goodNode + node("a State=DOWN", "(null)"), nodes, []string{"cpu1 IDLE"}, "NodeName=cpu2: "},
		{"keys in a reason", goodNode + node("a", "x State=DOWN\nCPUTot=1"), nodes, []string{"cpu1 IDLE", "cpu2 IDLE"}, ""},
		{"keys in accounts of a partition", goodPartition + partition("a State=DOWN"), partitions, []string{"cpu UP"}, "PartitionName=cpu2: "},
		{"a line break in accounts", goodPartition + partition("a\nb"), partitions, []string{"cpu UP"}, "PartitionName=cpu2: "},
		{"keys in an account", account("a") + account("b GrpJobs=9(7)"), usages, []string{"a 1"}, `GrpJobs="9(1)"`},
		{"two reservations of a name", reservation("a", "") + reservation("c", "") + reservation("a", ""), reservations, []string{"c cpu1 ACTIVE"}, `"ReservationName=a": 2 records`},
		{"two nodes of a name", node("a", "(null)") + goodNode + node("b", "(null)"), nodes, []string{"cpu1 IDLE"}, `"NodeName=cpu2": 2 records`},
		{"three partitions of a name", strings.Repeat(partition("ALL"), 3) + goodPartition, partitions, []string{"cpu UP"}, `"PartitionName=cpu2": 3 records`},
		{"two accounts of a name", account("a") + account("b") + account("b"), usages, []string{"a 1"}, `"Account=b UserName= Partition= ClusterName=c": 2 records`},
		{"a QOS", qos("normal", "csi"), usages, []string{"normal 3 2 1"}, ""},
		{"two QOS of a name", qos("normal", "csi") + qos("a", "csi") + qos("a", "csi"), usages, []string{"normal 3 2 1"}, `"QOS=a": 2 records`},
		{"keys in a QOS", qos("normal", "csi") + qos("a GrpJobs=N(9) b", "csi"), usages, []string{"normal 3 2 1"}, `GrpJobs="N(3)"`},
		{"limits in a QOS", qos("normal", "csi") + qos("a Account Limits= csi={MaxJobsPA=N(9)} User Limits= ", "csi"), usages, []string{"normal 3 2 1"}, `QOS="QOS=a`},
		{"a line break in a QOS", qos("normal", "csi") + qos("a\nb", "csi"), usages, []string{"normal 3 2 1"}, `QOS="QOS=a"`},
		{"an account among those of a QOS", qos("normal", "csi") + qos("a", "csi={MaxJobsPA=N(9)} csi"), usages, []string{"normal 3 2 1"}, `Account Limits="csi"`},
		{"keys of an account of a QOS", qos("normal", "csi") + qos("a", "x={MaxJobsPA=N(9) MaxJobsPA=N(8)} csi"), usages, []string{"normal 3 2 1"}, `MaxJobsPA="N(8)"`},
		{"a user of a QOS twice", qos("normal", "csi") + strings.Replace(qos("a", "csi"), " User Limits= ", " User Limits= alice(1001)={MaxJobsPU=N(9)} ", 1), usages, []string{"normal 3 2 1"}, `User Limits="1001"`},
		{"a line break in an account", account("a") + account("b\nc"), usages, []string{"a 1"}, `Account="b"`},
	} {
		var doubts Doubts
		names, err := row.read(row.text, doubts.Add)
		if err != nil || !reflect.DeepEqual(names, row.want) {
			t.Errorf("%s: %q, %v; want %q", row.what, names, err, row.want)
		}
		warnings := doubts.Warnings()
		if (len(warnings) > 0) != (row.warning != "") || len(warnings) > 1 || len(warnings) == 1 && !strings.Contains(warnings[0], row.warning) {
			t.Errorf("%s: warnings %q; want one with %q", row.what, warnings, row.warning)
		}
		if strings.ContainsAny(strings.Join(warnings, ""), "\n\x1b\u202e") {
			t.Errorf("%s: %q", row.what, warnings)
		}
	}
}

// An account's name with bars and a line break makes up a row of another one: neither is believed.
func TestBarsForgeNoAssociation(t *testing.T) {
	asked := pick(associationColumns, "account", "user", "grpjobs")
	text := "csi|alice|5|\nx|bob|1|\ncsi|alice|99|\nresearch|alice|7|\n"
	key := func(a *Association) string { return a.Account + "|" + a.User }
	var doubts Doubts
	form := layout{"sacctmgr show associations", "|", doubts.Add}
	all, err := tableOf(strings.NewReader(text), form, asked)
	if err == nil {
		all, err = sole(form.command, all, key, form.odd)
	}
	if err != nil || len(all) != 2 || all[0].Account != "x" || all[1].Account != "research" {
		t.Errorf("%+v, %v", all, err)
	}
	if warnings := doubts.Warnings(); len(warnings) != 1 || !strings.Contains(warnings[0], `"csi|alice": 2 records`) {
		t.Errorf("%q", warnings)
	}
}

// A bar in the name of an account moves the columns: the row is not believed.
func TestBarsForgeNoRow(t *testing.T) {
	var doubts Doubts
	var got []string
	form := layout{"sacctmgr show user", "|", doubts.Add}
	err := rows(strings.NewReader("alice|csi|\nbob|a|b|\ncarol|x|\n"), form, userColumns, collect(&got))
	if warnings := doubts.Warnings(); err != nil || !reflect.DeepEqual(got, []string{"csi", "x"}) || len(warnings) != 1 || !strings.Contains(warnings[0], `"bob"`) {
		t.Errorf("%q, %v, %q", got, err, warnings)
	}
}

// All readers know the words that stand for a number which is not known or has no bound.
func TestNoNumbers(t *testing.T) {
	for _, word := range []string{"-nan", "nan", "N/A", "n/a", "INVALID", "UNLIMITED", "Unlimited", "NONE", "None", "inf", "INFINITE", "Unknown", "(null)"} {
		if !noNumber(word) || !noNumber("") {
			t.Errorf("%q is taken for a number", word)
		}
		counts := strings.Join([]string{word, word, word, word, word}, mark) + mark + "\n"
		numbers := append(pick(jobColumns, "PriorityLong", "Nice", "NumNodes", "NumCPUs"), pick(ownColumns, "RestartCnt")...)
		var listed []Job
		if err := rows(strings.NewReader(counts), marked("squeue"), numbers, collect(&listed)); err != nil || !reflect.DeepEqual(listed, []Job{{}}) {
			t.Errorf("%s: %+v, %v", word, listed, err)
		}
		c := Config{"SchedulerParameters": "bf_window=" + word + ",bf_resolution=" + word, "MaxMemPerCPU": word}
		if c.BackfillWindow() != 24*time.Hour || c.BackfillResolution() != time.Minute || c.Number("MaxMemPerCPU") != 0 {
			t.Errorf("%s: window %v, resolution %v, memory %v", word, c.BackfillWindow(), c.BackfillResolution(), c.Number("MaxMemPerCPU"))
		}
		if limit, ok := parseCount(word); !ok || limit.Set {
			t.Errorf("%s: count %+v, %v", word, limit, ok)
		}
		if wall, ok := parseWall(word); !ok || wall.Set {
			t.Errorf("%s: wall %+v, %v", word, wall, ok)
		}
		if list, ok := parseTRES("cpu=2,mem=" + word); !ok || !reflect.DeepEqual(list, TRES{"cpu": 2}) {
			t.Errorf("%s: TRES %v, %v", word, list, ok)
		}
		if list, ok := parseMost("mem=" + word + ",gres/gpuutil=7"); !ok || !reflect.DeepEqual(list, TRES{"gres/gpuutil": 7}) {
			t.Errorf("%s: most %v, %v", word, list, ok)
		}
		if d, ok := parseCPUTime(word); !ok || d != 0 {
			t.Errorf("%s: CPU time %v, %v", word, d, ok)
		}
		if at, err := ParseTime(word); err != nil || at != 0 {
			t.Errorf("%s: time %v, %v", word, at, err)
		}
		if exit, ok := parseExit(word); !ok || exit != (Exit{}) {
			t.Errorf("%s: exit %v, %v", word, exit, ok)
		}
		if w := (Config{"PriorityWeightAge": word}).Weight("Age"); w != 0 {
			t.Errorf("%s: weight %v", word, w)
		}
		if d := (Config{"PriorityDecayHalfLife": word + " sec"}).Duration("PriorityDecayHalfLife"); d != 0 {
			t.Errorf("%s: duration %v", word, d)
		}
		if err := eachFactor("cpu="+word, func(name string, v float64) { t.Errorf("%s: %s %v", word, name, v) }); !err {
			t.Errorf("%s: no factor", word)
		}
		p := counter{scan: newRecordScanner("scontrol", strings.NewReader(""))}
		if n := p.used("GrpWall", "N("+word+")"); n != 0 || p.err != nil {
			t.Errorf("%s: usage %v, %v", word, n, p.err)
		}
		partitions, err := ParsePartitions(strings.NewReader("PartitionName=p MaxTime=" + word + " MinNodes=" + word + " MaxNodes=" + word + "\n"))
		if err != nil || partitions[0].MaxTime != Unlimited || partitions[0].MinNodes != 0 || partitions[0].MaxNodes.Set {
			t.Errorf("%s: %+v, %v", word, partitions, err)
		}
		jobs, err := ParseJobDetails(strings.NewReader(strings.Replace(strings.Replace(record(5, "x", "y", "z"), "CPU_IDs=0", "CPU_IDs="+word, 1), "Mem=500", "Mem="+word, 1)))
		if err != nil || !reflect.DeepEqual(jobs[0].Placements, []Placement{{5, "cpu1", 0, 0, 0}}) {
			t.Errorf("%s: %+v, %v", word, jobs, err)
		}
	}
}

// Of a listing that has to be whole, one record that cannot be believed is an error.
func TestDoubtfulRecordOfAWholeListing(t *testing.T) {
	c := &Client{Run: scontrol{5: record(5, "x UserId=root(0)", "(null)", "")}}
	if details, err := c.JobDetails(t.Context(), "5"); err == nil {
		t.Errorf("%+v", details)
	}
}

// A row that cannot be read costs itself, where the caller takes notice; if no row can be read, that is an error.
func TestOddRowCostsItself(t *testing.T) {
	row := func(cells ...string) string { return strings.Join(cells, mark) + mark + "\n" }
	good := row("1", "2026-11-26T01:00:00", "2026-11-26T01:00:00", "2026-11-26T02:00:00")
	odd := row("2", "yesterday", "", "")
	read := func(text string) (ids []string, warnings []string, err error) {
		var doubts Doubts
		form := marked("sacct")
		form.odd = doubts.Add
		err = rows(strings.NewReader(text), form, startColumns, func(r *Record) error { ids = append(ids, r.ID); return nil })
		return ids, doubts.Warnings(), err
	}
	ids, warnings, err := read(odd + good + odd)
	if err != nil || !reflect.DeepEqual(ids, []string{"1"}) ||
		!reflect.DeepEqual(warnings, []string{`records that cannot be read or believed are left out, of totals too: sacct: line 1 of its output: "2": Submit: "yesterday": expected a time, and 1 others`}) {
		t.Errorf("%q, %q, %v", ids, warnings, err)
	}
	if ids, _, err := read(odd + odd); err == nil {
		t.Errorf("%q: nothing was understood, and that is no error", ids)
	}
	if ids, _, err := read(good + good[:20]); err == nil {
		t.Errorf("%q: the listing was cut, and that is no error", ids)
	}
}

// TestMeaning: all versions print the same jobs, and mean the same with them.
func TestMeaning(t *testing.T) {
	for _, version := range []string{"20.11.4", "21.08.8-2", "22.05.8", "23.11.10", "24.11.5", "25.11.7", "26.05.5"} {
		details, err := ParseJobDetails(openTestdata(t, version+"/job.txt"))
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		placed := 0
		for _, j := range details {
			if j.WholeNodes {
				t.Errorf("%s: job %d is taken for an exclusive one", version, j.ID)
			}
			for _, p := range j.Placements {
				if placed++; j.State == "RUNNING" && (p.Nodes != "gpu1" || p.CPUs != 2 || p.MemMB != 1000 || p.GPUs != 2) {
					t.Errorf("%s: %+v", version, p)
				}
			}
		}
		if placed != 6 {
			t.Errorf("%s: %d placements", version, placed)
		}
		if version == "20.11.4" || version == "26.05.5" {
			var factors []Factors
			text := replay(t, "testdata/"+version+"/sprio.table", "sprio", sprioFormat(mark))
			if err := scanSprio(strings.NewReader(text), marked("sprio"), collect(&factors)); err != nil || len(factors) != 2 {
				t.Fatalf("%s: %d rows of sprio, %v", version, len(factors), err)
			}
			for _, f := range factors {
				if f.Assoc != (Factor{}) || f.FairShare != (Factor{1, 10000}) || f.QOS != (Factor{0.1, 200}) || f.Priority < 10000 || len(f.TRES) != 2 {
					t.Errorf("%s: %+v", version, f)
				}
			}
		}
		if _, err := os.Stat("testdata/" + version + "/job-exclusive.txt"); err != nil {
			continue // captured of the oldest, of the newest, and of one between
		}
		details, err = ParseJobDetails(openTestdata(t, version+"/job-exclusive.txt"))
		if err != nil || len(details) == 0 {
			t.Fatalf("%s: %v", version, err)
		}
		for _, j := range details {
			if !j.WholeNodes {
				t.Errorf("%s: job %d is not taken for an exclusive one", version, j.ID)
			}
		}
	}
}

// FuzzTextsOfAJob: whatever a user writes into the texts of a job, those before and after it are read as they are, and the
// job itself is on the node that Slurm gave it.
func FuzzTextsOfAJob(f *testing.F) {
	f.Add("x", "run", "c")
	f.Add("x UserId=root(0)", "CoreSpec=* Nodes=n", "c\nJobId=5 JobName=x JobState=FAILED ExitCode=0:1\n")
	f.Add("\nJobId=5", mark+"\n5"+mark, "\x1f\n|~\n")
	f.Fuzz(func(t *testing.T, name, command, comment string) {
		evil := record(6, name, command, comment)
		all, err := (&Client{Run: scontrol{5: record(5, "a", "b", "c"), 6: evil, 7: record(7, "a", "b", "c")}, Odd: func(error) {}}).AllJobDetails(t.Context(), func(*JobDetail) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		seen := map[uint64]int{}
		for _, j := range all {
			seen[j.ID]++
			want := []Placement{{j.ID, "cpu1", 1, 500, 0}}
			if j.ID >= 5 && j.ID <= 7 && (j.WholeNodes || !reflect.DeepEqual(j.Placements, want) || j.State != "RUNNING") {
				t.Errorf("%+v", j)
			}
		}
		if seen[5] != 1 || seen[7] != 1 || seen[6] > 1 {
			t.Errorf("the jobs were shown %v times", seen)
		}

		if strings.Contains(name+comment, mark) {
			return // nobody can know it
		}
		row := func(id, name, comment string) string { return id + mark + name + mark + comment + mark + "\n" }
		columns := append(pick(recordColumns, "JobIDRaw", "JobName"), pick(recordColumns, "Comment")...)
		var got []string
		err = rows(strings.NewReader(row("5", "a", "b")+row("6", name, comment)+row("7", "a", "b")), marked("sacct"), columns, func(r *Record) error {
			got = append(got, r.ID+" "+r.Name+" "+r.Comment)
			return nil
		})
		if want := []string{"5 a b", "6 " + name + " " + comment, "7 a b"}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	})
}
