package cluster

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

// answers maps commands to their recorded output, or to "capture: " and the text of a capture.
type answers map[string]string

func (a answers) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	line := strings.Join(append([]string{filepath.Base(c.Name)}, c.Args...), " ")
	for prefix, out := range a {
		if strings.HasPrefix(line, prefix) {
			if words, failed := strings.CutPrefix(out, "fail: "); failed {
				return command.Result{}, &command.ExitError{Name: c.Name, Code: 1, Stderr: words}
			}
			if text, ok := strings.CutPrefix(out, "capture: "); ok {
				var b strings.Builder
				if err := captures.ReplayText(&b, prefix, strings.NewReader(text), c.Name, c.Args...); err != nil {
					return command.Result{}, err
				}
				out = b.String()
			}
			if c.Stdout != nil {
				_, err := io.WriteString(c.Stdout, out)
				return command.Result{}, err
			}
			return command.Result{Stdout: []byte(out)}, nil
		}
	}
	return command.Result{}, &command.NotFoundError{Name: c.Name}
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../slurm/testdata/22.05.8/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func testbed(t *testing.T) answers {
	return answers{
		"scontrol --all --oneliner --details show node":               testdata(t, "show_nodes_oneline.txt"),
		"scontrol --all --oneliner show partitions":                   testdata(t, "show_partitions_oneline.txt"),
		"sacctmgr --noheader --parsable show associations user=alice": "capture: " + testdata(t, "associations-alice.table"),
		"sacctmgr --noheader --parsable show user alice":              "capture: " + testdata(t, "user.table"),
		"sacctmgr --noheader --parsable show qos":                     "capture: " + testdata(t, "qos.table"),
		"scontrol --oneliner show licenses":                           testdata(t, "licenses.txt"),
		"scontrol --all --oneliner show reservation":                  "No reservations in the system\n",
		"scontrol show config":                                        testdata(t, "config.txt"),
		"id -un":                                                      "alice\n",
	}
}

func ask(a answers) (*Snapshot, error) {
	return Asker{Slurm: &slurm.Client{Run: a}, Now: time.Now}.Ask(context.Background())
}

func TestAsk(t *testing.T) {
	s, err := ask(testbed(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Groups) != 3 || s.Groups[1].Hosts != "gpu1,gpu2" || s.Groups[1].Count != 2 || len(s.Partitions) != 5 || len(s.Associations) != 2 ||
		s.DefaultAccount != "research" || len(s.QOS) != 5 || s.User != "alice" || s.Note != "" {
		t.Errorf("%+v", s)
	}
}

func TestAskWithoutAccounting(t *testing.T) {
	a := testbed(t)
	a["sacctmgr --noheader --parsable show qos"] = "fail: sacctmgr: error: Problem talking to the database: Connection refused"
	s, err := ask(a)
	if err != nil || s.Associations != nil || s.QOS != nil || !strings.Contains(s.Note, "Connection refused") {
		t.Errorf("%+v, %v", s, err)
	}
	// A cluster without accounting is a different case.
	for _, what := range []string{"qos", "user alice", "associations user=alice"} {
		a["sacctmgr --noheader --parsable show "+what] = "fail: You are not running a supported accounting_storage plugin"
	}
	if s, err := ask(a); err != nil || s.Associations != nil || s.Note != "" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAskInPart checks that a failed query is noted, and not taken for an empty answer.
func TestAskInPart(t *testing.T) {
	for argv, want := range map[string]string{
		"scontrol --oneliner show licenses":          "licenses are not known: scontrol: denied",
		"scontrol --all --oneliner show reservation": "reservations are not known: scontrol: denied",
		"scontrol show config":                       "the configuration is not known: scontrol: denied",
	} {
		a := testbed(t)
		a[argv] = "fail: denied"
		s, err := ask(a)
		if err != nil || s.Note != want {
			t.Errorf("%s: %q, %v", argv, s.Note, err)
		}
		if known := s.Known; known.Licenses && known.Reservations && known.Config {
			t.Errorf("%s: %+v", argv, known)
		}
	}
}

// TestAskFails checks that a failed or unexpected listing is an error, never an empty cluster.
func TestAskFails(t *testing.T) {
	for _, out := range []string{"fail: slurm_load_node error: Unable to contact slurm controller (connect failure)", "slurm_load_node error\n"} {
		a := testbed(t)
		a["scontrol --all --oneliner --details show node"] = out
		if s, err := ask(a); err == nil {
			t.Errorf("%s: %+v", out, s)
		}
	}
}

func TestOneCluster(t *testing.T) {
	a := testbed(t)
	a["sacctmgr --noheader --parsable show associations user=alice"] = "capture: " + strings.ReplaceAll(testdata(t, "associations-alice.table"), "testbed|iea", "other|iea")
	a["scontrol show config"] = "Configuration data as of 2026-11-20T18:00:00\nClusterName             = testbed\nSLURM_VERSION           = 22.05.8\n"
	s, err := ask(a)
	if err != nil || len(s.Associations) != 1 || s.Associations[0].Account != "research" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestUserGroups(t *testing.T) {
	a := testbed(t)
	a["scontrol --all --oneliner show partitions"] = "PartitionName=p AllowGroups=lab\n"
	a["id -Gn"] = "alice lab\n"
	if s, err := ask(a); err != nil || !reflect.DeepEqual(s.UserGroups, []string{"alice", "lab"}) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestGroupNodes(t *testing.T) {
	groups := GroupNodes([]slurm.Node{
		{Name: "a", Partitions: "p", CPUs: 4, State: "IDLE"}, {Name: "b", Partitions: "p", CPUs: 8, Sockets: 1, CoresPerSocket: 4, ThreadsPerCore: 2}, {Name: "c", Partitions: "p", CPUs: 4, State: "DOWN+NOT_RESPONDING"},
	})
	want := []Group{{Partitions: "p", CPUs: 4, Threads: 1, Hosts: "a,c", Count: 2, Unusable: 1}, {Partitions: "p", CPUs: 8, Threads: 2, Hosts: "b", Count: 1}}
	if !reflect.DeepEqual(groups, want) {
		t.Errorf("%+v; want %+v", groups, want)
	}
}

func TestCache(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	asked := 0
	c := Cache{Dir: filepath.Join(t.TempDir(), "cache"), Now: func() time.Time { return now }}
	note := ""
	get := func(key string) *Snapshot {
		t.Helper()
		s, err := c.Get(context.Background(), key, func(context.Context) (*Snapshot, error) {
			asked++
			return &Snapshot{Time: now, User: "alice", Groups: []Group{{Hosts: "a"}}, Note: note}, nil
		})
		if err != nil || s.User != "alice" || s.Groups[0].Hosts != "a" {
			t.Fatalf("%+v, %v", s, err)
		}
		return s
	}
	expect := func(want int, when string) {
		t.Helper()
		if asked != want {
			t.Fatalf("%s: asked %d times, want %d", when, asked, want)
		}
	}
	get("one")
	get("one")
	expect(1, "again at once")
	get("two")
	expect(2, "another cluster")
	now = now.Add(MaxAge)
	get("one")
	expect(3, "when it is old")
	c.Refresh = true
	get("one")
	expect(4, "with --refresh")
	c.Refresh = false
	now = now.Add(-time.Hour)
	get("one")
	expect(5, "when it is of the future")
	files, err := filepath.Glob(filepath.Join(c.Dir, "cluster-*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if err := os.WriteFile(f, []byte("lfind cluster 2\nrubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	get("one")
	expect(6, "when it is rubbish")
	for _, f := range files {
		if err := os.Chmod(f, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	get("one")
	expect(7, "when others could have written it")
	note = "no accounting"
	c.Refresh = true
	get("one")
	c.Refresh = false
	now = now.Add(MaxAgePartial)
	get("one")
	expect(9, "when it lacked something")
	_, err = c.Get(context.Background(), "three", func(context.Context) (*Snapshot, error) { return nil, errors.New("no") })
	if err == nil {
		t.Error("an error is none")
	}
}

func TestNodesDifferByDisk(t *testing.T) {
	nodes := []slurm.Node{{Name: "n1", CPUs: 4, MemMB: 1000, TmpDiskMB: 900}, {Name: "n2", CPUs: 4, MemMB: 1000}, {Name: "n3", CPUs: 4, MemMB: 1000, TmpDiskMB: 900}}
	groups := GroupNodes(nodes)
	if len(groups) != 2 || groups[0].Count != 2 || groups[0].Disk != 900<<20 || groups[1].Count != 1 || groups[1].Disk != 0 {
		t.Errorf("got %+v", groups)
	}
}
