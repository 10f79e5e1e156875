package slurm

import (
	"strings"
	"testing"
	"time"
)

func TestParseConsumed(t *testing.T) {
	inUTC(t)
	text, asked := printed(t, "22.05.8/sacct-consumed", marked("sacct"), consumedColumns)
	byLabel := map[string]Consumed{}
	if err := parseConsumed(strings.NewReader(text), marked("sacct"), asked, func(c *Consumed) error { byLabel[c.Label] = *c; return nil }); err != nil || len(byLabel) != 8 {
		t.Fatalf("%d jobs, %v", len(byLabel), err)
	}
	j := byLabel["3"]
	if j.Nodes != 2 || j.Elapsed != 12*time.Second || j.Name != "multi" || len(j.Used) != 4 || j.TRES["mem"] != 2000 {
		t.Fatalf("%+v", j)
	}
	if s := j.Used[1]; s.Name != "0" || s.Nodes != "cpu[1-2]" || s.NodeCount != 2 || s.Tasks != 4 || s.CPU != 148*time.Millisecond || s.End-s.Start != 9 || int(s.Most["mem"]) != 107 {
		t.Errorf("%+v", s)
	}
	if a := byLabel["4_2"]; a.ID != "7" || len(a.Used) != 1 || a.Used[0].Name != "batch" {
		t.Errorf("%+v", a)
	}
	// A truncated line is an error, and so is a step without its job.
	for cut := 1; cut < len(text); cut += 1 + len(text)/200 {
		if text[cut-1] != '\n' && parseConsumed(strings.NewReader(text[:cut]), marked("sacct"), asked, func(*Consumed) error { return nil }) == nil {
			t.Errorf("cut at %d: no error", cut)
		}
	}
	_, steps, _ := strings.Cut(text, "\n")
	if err := parseConsumed(strings.NewReader(steps), marked("sacct"), asked, func(*Consumed) error { return nil }); err == nil || !strings.Contains(err.Error(), `step "1.batch" does not follow its job`) {
		t.Errorf("%v", err)
	}
}

func TestCPUTime(t *testing.T) {
	for text, want := range map[string]time.Duration{"00:04.249": 4249 * time.Millisecond, "01:02:03": 3723 * time.Second, "2-03:04:05": 51*time.Hour + 245*time.Second, "": 0} {
		if d, ok := parseCPUTime(text); !ok || d != want {
			t.Errorf("%q is %v, %v; want %v", text, d, ok, want)
		}
	}
	if _, ok := parseCPUTime("00:04.x"); ok {
		t.Error("a letter in a time")
	}
}
