package captures

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const printed = "7|a b|RUNNING|x|y|~0f\n8||PENDING|one\n\"two\"|~0f\n"

// A capture answers other columns than it was asked for, in another order and with other delimiters.
func TestReplay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "version", "squeue.table")
	if err := Record(file, []byte(printed), "squeue", "--noheader", "--Format=JobID:|,Feature:|,State:|,Name:|~0f"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if want := "JobID|Feature|State|Name\n7|a b|RUNNING|\"x|y\"\n8||PENDING|\"one\n\"\"two\"\"\"\n"; err != nil || string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	for _, tt := range []struct{ args, want string }{
		{"--noheader --Format=JobID:|,Feature:|,State:|,Name:|~0f", printed},
		{"--Format=State:;,JobID:#ff --states=PENDING,COMPLETING", "PENDING;8#ff\n"},
		{"--states=all --Format=Feature:|,Restarts:|", "a b|0|\n|0|\n"},
	} {
		var out bytes.Buffer
		header := strings.Replace(string(text), "|Name\n", "|Name|Restarts=0\n", 1)
		if err := ReplayText(&out, file, strings.NewReader(header), "squeue", strings.Fields(tt.args)...); err != nil || out.String() != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.args, &out, err, tt.want)
		}
	}
	err = Replay(&bytes.Buffer{}, file, "squeue", "--Format=JobID:|,Restarts:|")
	if want := file + " has no column Restarts, which squeue is asked for. Capture it again: go run ./testscripts/captures/record " + file; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
}

// How each command is asked for columns.
func TestFormats(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"sacct --parsable --delimiter=\x1f --jobs=7 --format=a,b", "1\x1f2\x1f\n"},
		{"sacct --parsable2 --format=b", "2\n"},
		{"sacctmgr --noheader --parsable show qos format=b,a", "2|1|\n"},
		{"sprio --noheader --format=%i|%Q|~", "5|6|~\n"},
		{"squeue --format=%Q%i", "65\n"},
	} {
		words := strings.Split(tt.line, " ")
		var out bytes.Buffer
		if err := ReplayText(&out, "x", strings.NewReader("a|b|%i|%Q\n1|2|5|6\n"), words[0], words[1:]...); err != nil || out.String() != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.line, &out, err, tt.want)
		}
	}
	for _, line := range []string{"sacct --parsable", "squeue --Format=a:|,:|", "sprio --format=id%i"} {
		words := strings.Fields(line)
		if err := ReplayText(&bytes.Buffer{}, "x", strings.NewReader("a|%i\n1|2\n"), words[0], words[1:]...); err == nil {
			t.Errorf("%s: no error", line)
		}
	}
}

// What Slurm did not print whole is not recorded.
func TestRecordCutShort(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sacct.table")
	for _, text := range []string{"1|2", "1|2|\n3|\n", "slurm_load_jobs error\n"} {
		if err := Record(file, []byte(text), "sacct", "--parsable", "--format=a,b"); err == nil {
			t.Errorf("%q is recorded", text)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("there is a file")
	}
}
