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

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// answers is Slurm as it once was: what each command printed.
type answers map[string]string

func (a answers) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	line := strings.Join(append([]string{filepath.Base(c.Name)}, c.Args...), " ")
	for prefix, out := range a {
		if strings.HasPrefix(line, prefix) {
			if words, failed := strings.CutPrefix(out, "fail: "); failed {
				return command.Result{}, &command.ExitError{Name: c.Name, Code: 1, Stderr: words}
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
	text, err := os.ReadFile("../../slurm/testdata/22.05.8/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func testbed(t *testing.T) answers {
	return answers{
		"scontrol --oneliner show nodes":                               testdata(t, "show_nodes_oneline.txt"),
		"scontrol --oneliner show partitions":                          testdata(t, "show_partitions_oneline.txt"),
		"sacctmgr --noheader --parsable2 show associations user=alice": testdata(t, "assoc_alice.txt"),
		"sacctmgr --noheader --parsable2 show user alice":              "alice|research\n",
		"sacctmgr --noheader --parsable2 show qos":                     testdata(t, "qos_limits.txt"),
		"id -un": "alice\n",
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
	if len(s.Groups) != 3 || s.Groups[1].Hosts != "gpu1,gpu2" || s.Groups[1].Count != 2 || len(s.Partitions) != 5 || len(s.Memberships) != 2 ||
		s.DefaultAccount != "research" || len(s.QOS) != 4 || s.User != "alice" || s.Note != "" {
		t.Errorf("%+v", s)
	}
}

func TestAskWithoutAccounting(t *testing.T) {
	a := testbed(t)
	a["sacctmgr --noheader --parsable2 show qos"] = "fail: sacctmgr: error: Problem talking to the database: Connection refused"
	s, err := ask(a)
	if err != nil || s.Memberships != nil || s.QOS != nil || !strings.Contains(s.Note, "Connection refused") {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAskFails holds that a listing which fails or is odd is an error, never an
// empty cluster.
func TestAskFails(t *testing.T) {
	for _, out := range []string{"fail: slurm_load_node error: Unable to contact slurm controller (connect failure)", "slurm_load_node error\n"} {
		a := testbed(t)
		a["scontrol --oneliner show nodes"] = out
		if s, err := ask(a); err == nil {
			t.Errorf("%s: %+v", out, s)
		}
	}
}

func TestOneCluster(t *testing.T) {
	a := testbed(t)
	a["sacctmgr --noheader --parsable2 show associations user=alice"] = "other|far||normal|normal\ntestbed|research||normal|normal\n"
	a["scontrol show config"] = "Configuration data as of 2026-11-20T18:00:00\nClusterName             = testbed\n"
	s, err := ask(a)
	if err != nil || len(s.Memberships) != 1 || s.Memberships[0].Account != "research" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestUserGroups(t *testing.T) {
	a := testbed(t)
	a["scontrol --oneliner show partitions"] = "PartitionName=p AllowGroups=lab\n"
	a["id -Gn"] = "alice lab\n"
	if s, err := ask(a); err != nil || !reflect.DeepEqual(s.UserGroups, []string{"alice", "lab"}) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestGroupNodes(t *testing.T) {
	groups := GroupNodes([]slurm.Node{
		{Name: "a", Partitions: "p", CPUs: 4, State: "IDLE"}, {Name: "b", Partitions: "p", CPUs: 8}, {Name: "c", Partitions: "p", CPUs: 4, State: "DOWN*"},
	})
	want := []Group{{Partitions: "p", CPUs: 4, Hosts: "a,c", Count: 2, Unusable: 1}, {Partitions: "p", CPUs: 8, Hosts: "b", Count: 1}}
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
		if err := os.WriteFile(f, []byte("lfind cluster 1\nrubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	get("one")
	expect(6, "when it is rubbish")
	note = "no accounting"
	c.Refresh = true
	get("one")
	c.Refresh = false
	now = now.Add(MaxAgePartial)
	get("one")
	expect(8, "when it lacked something")
	_, err = c.Get(context.Background(), "three", func(context.Context) (*Snapshot, error) { return nil, errors.New("no") })
	if err == nil {
		t.Error("an error is none")
	}
}
