package slurm

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/captures"
)

// FuzzListings parses text as the output of every command. The seeds are captured output.
func FuzzListings(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*/*.txt")
	if more, moreErr := filepath.Glob("testdata/*/*/*.txt"); err != nil || moreErr != nil {
		f.Fatal(err, moreErr)
	} else {
		seeds = append(seeds, more...)
	}
	for _, name := range seeds {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, q := range capturedQueries {
		files, err := filepath.Glob("testdata/*/" + q.capture + captures.Extension)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			names, err := captures.Captured(file)
			if err != nil {
				f.Fatal(err)
			}
			have := slices.DeleteFunc(slices.Clone(q.columns), func(name string) bool { return !slices.Contains(names, name) })
			f.Add([]byte(replay(f, file, q.command, formatArgs(q.layout, have)...)))
		}
	}
	f.Add([]byte(capturedSprio(f)))
	for _, text := range []string{
		"NodeName=a Gres=gpu:4(S:0,1),gpu:b:2 CPUTot=4\n", mark + "\n", strings.ReplaceAll("0|+|0||||0\n", "|", mark), "root||||0.0|0||1.0|||||\n", "alice|physics|\n",
		"LicenseName=x@y Total=-1 Remote=yes\n", "JobId=1 Nodes=a CPU_IDs=0 Nodes=b Mem=1 GRES=gpu\n",
		strings.ReplaceAll("9_[0-2,5%2]|CANCELLED by 0|0:0||||ponos-t|sbatch --comment=PONOS_TASK=a,b --array=0-1|\n", "|", mark),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		in := func() io.Reader { return bytes.NewReader(text) }
		nodes, err := ParseNodes(in())
		for _, n := range nodes {
			if err != nil || n.Name == "" || n.CPUs < 0 || n.JobMemMB() < 0 || n.SpecCPUs < 0 || n.GPUs < 0 {
				t.Errorf("%+v, %v", n, err)
			}
		}
		partitions, err := ParsePartitions(in())
		for _, p := range partitions {
			if err != nil || p.Name == "" || p.MaxTime < 0 || p.MaxNodes.Max < 0 {
				t.Errorf("%+v, %v", p, err)
			}
		}
		qos, err := tableOf(in(), barred("sacctmgr show qos"), qosColumns)
		for _, q := range qos {
			if err != nil || q.Name == "" || q.MaxWall.Max < 0 {
				t.Errorf("%+v, %v", q, err)
			}
		}
		associations, err := tableOf(in(), barred("sacctmgr show associations"), associationColumns)
		for _, a := range associations {
			if err != nil || a.Account == "" || a.MaxSubmit.Max < 0 {
				t.Errorf("%+v, %v", a, err)
			}
		}
		if err := ParseRuns(in(), func(r *Record) error {
			if r.ID == "" || r.Limit < 0 || r.Nodes < 0 {
				t.Errorf("%+v", r)
			}
			return nil
		}); err != nil && !strings.Contains(err.Error(), "sacct") {
			t.Error(err)
		}
		if err := parseConsumed(in(), marked("sacct"), consumedColumns, func(c *Consumed) error {
			if c.ID == "" || strings.Contains(c.ID, ".") || c.Elapsed < 0 {
				t.Errorf("%+v", c)
			}
			return nil
		}); err != nil && !strings.Contains(err.Error(), "sacct") {
			t.Error(err)
		}
		if err := rows(in(), marked("sacct"), waitColumns, func(w *Waited) error {
			if w.ID == "" || w.Limit < 0 || w.Hosts == "None assigned" {
				t.Errorf("%+v", w)
			}
			return nil
		}); err != nil && !strings.Contains(err.Error(), "sacct") {
			t.Error(err)
		}
		for _, asked := range [][]column[Record]{endColumns, partColumns} {
			records, err := parseAccount(in(), marked("sacct"), asked)
			for id, r := range records {
				if err != nil || !strings.HasPrefix(r.ID, id) || r.State == "" {
					t.Errorf("%q: %+v, %v", id, r, err)
				}
			}
		}
		own := 0
		if err := rows(in(), marked("squeue"), ownColumns, func(*Job) error { own++; return nil }); err == nil && own > bytes.Count(text, []byte("\n")) {
			t.Errorf("%d jobs", own)
		}
		_ = rows(in(), marked("squeue"), jobColumns, func(*Job) error { return nil })
		_, _ = parseSprio(in())
		_, _ = parseShares(in(), barred("sshare"), shareColumns)
		_, _ = ParseReservations(in())
		_, _ = ParseLicenses(in())
		_, _ = ParseJobDetails(in())
		_, _ = ParseConfig(in())
		usages, err := ParseUsages(in())
		for _, a := range usages.Associations {
			if err != nil || a.Account == "" || a.Jobs < 0 || a.WallMins < 0 {
				t.Errorf("%+v, %v", a, err)
			}
		}
		_, _ = tableOf(in(), barred("sreport"), reportColumns)
		odd := func(err error) {
			if failure, ok := FailureOf(err); !ok || failure != Unreadable {
				t.Errorf("a record is left out for %v", err)
			}
		}
		_, _ = parseUsages(in(), odd)
		_, _ = parseJobDetails(in(), odd)
		_, _ = parseNodes(in(), odd)
		_, _ = parsePartitions(in(), odd)
		_, _ = parseReservations(in(), odd)
		_, _ = parseLicenses(in(), odd)
		for _, asked := range [][]column[Record]{pastColumns, lineColumns} {
			var past []Record
			err := rows(in(), marked("sacct"), asked, collect(&past))
			for _, r := range past {
				if ids := Elements(r.ID); err == nil && (r.ID == "" || r.State == "" || len(ids) > maxElements) {
					t.Errorf("%+v, %q", r, ids)
				}
			}
		}
		_ = rows(in(), barred("sacct"), usageColumns, func(*Record) error { return nil })
	})
}

// FuzzValues parses single values.
func FuzzValues(f *testing.F) {
	for _, s := range []string{
		"sbatch: Job 7 to start at 2026-11-20T21:00:00 using 4 processors on nodes cpu[1-2] in partition cpu\n", "welcome\n42;cluster\n",
		"cpu=4,mem=1.5G,gres/gpu:a100=2,billing=4", "16G", "500Mn", "2026-11-20T21:00:00", "90", "1:30:00", "2-12", "UNLIMITED", "-", "4294967295-0", "0:15", "0-3,7",
		"gpu:a100:no_consume:2(S:0,1),shard:2K", "IDLE*+DRAIN", "DefCpuPerGPU=4,DefMemPerGPU=1000", "1,3-5,10-20:2%4",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDuration(s); err == nil && d != Unlimited {
			if back, err := ParseDuration(FormatDuration(d)); d < 0 || err != nil || back != d {
				t.Errorf("%q = %v, and back %v, %v", s, d, back, err)
			}
		}
		if m, err := ParseMemory(s); err == nil && m < 0 {
			t.Errorf("%q is %v MiB", s, m)
		}
		if e, err := ParseStartEstimate(s); err == nil && e.Start.IsZero() {
			t.Errorf("%q starts at no time", s)
		}
		if id, err := parseSubmitted([]byte(s)); err == nil && (id == "" || strings.Trim(id, "0123456789") != "") {
			t.Errorf("%q is job %q", s, id)
		}
		gres, err := ParseGRES(s)
		for _, g := range gres {
			if err == nil && (g.Name == "" || g.Count < 0) {
				t.Errorf("%q: %+v", s, g)
			}
		}
		counts, _ := ParseTRES(s)
		for name, n := range counts {
			if name == "" || !(n >= 0) {
				t.Errorf("%q: %v", s, counts)
			}
		}
		if n, ok := countIDs(s); ok && n <= 0 {
			t.Errorf("%q has %d ids", s, n)
		}
		if countTasks(s) < 1 {
			t.Errorf("%q has no task", s)
		}
		_, _ = ParseTime(s)
		_, _ = nodeState(s)
		_, _ = parseExit(s)
		_, _ = parseFloat([]byte(s))
		_, _ = JobDefaults(s)
		_, _ = LimitOfReason(s)
	})
}

func FuzzSlices(f *testing.F) {
	f.Add("5|PENDING|N/A|\n6|COMPLETING|2026-11-18T10:00:00|\n7|RUNNING|2026-11-18T10:00:01|\n", "7")
	f.Add("7|RUNNING|2026-11-18T10:00:01|\n6|RUNNING|2026-11-18T10:00:01|\n", "7")
	f.Add("", "7")
	f.Fuzz(func(t *testing.T, text, id string) {
		rows, err := cellsOf(strings.NewReader(text), barred("squeue"), 3)
		if err != nil {
			return
		}
		own, err := slicesOf(rows, id)
		if err != nil {
			return
		}
		states := map[string]string{}
		for _, row := range rows {
			if _, twice := states[row[0]]; twice {
				return
			}
			states[row[0]] = row[1]
		}
		if (own.Before != nil && !own.Waiting) && !slices.ContainsFunc(own.Before, func(o string) bool { return states[o] == "COMPLETING" }) {
			t.Errorf("%q: those before %s run, but nothing waits or runs", text, id)
		}
		// One of two running tasks must be first, or both would wait.
		for _, other := range own.Before {
			if !Runs(states[id]) || !Runs(states[other]) {
				continue
			}
			theirs, err := slicesOf(rows, other)
			if err == nil && slices.Contains(theirs.Before, id) {
				t.Errorf("%q: %s and %s wait for each other", text, id, other)
			}
		}
	})
}
