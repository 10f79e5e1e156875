package slurm

import (
	"strings"
	"testing"
)

func TestWaits(t *testing.T) {
	inUTC(t)
	text, asked := printed(t, "22.05.8/queue/sacct-waits", marked("sacct"), waitColumns)
	byLabel := map[string][]Waited{}
	if err := rows(strings.NewReader(text), marked("sacct"), asked, func(w *Waited) error {
		byLabel[w.Label] = append(byLabel[w.Label], *w)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// It was requeued: its second run has waited 6 s for its begin time, and a second in the queue.
	r := byLabel["31"]
	if len(r) != 2 || r[0].State != "REQUEUED" || r[1].Eligible-r[1].Submit != 6 || r[1].Start-r[1].Eligible != 1 || r[1].Reason != "BeginTime" || r[1].Hosts != "gpu2" {
		t.Errorf("%+v", r)
	}
	if w := byLabel["29"][0]; w.Start != 0 || w.Hosts != "" || w.Reason != "" || w.State != "CANCELLED" || w.TRES["cpu"] == 0 {
		t.Errorf("%+v", w)
	}
	if w := byLabel["16_1"][0]; w.ID != "17" || w.Limit == 0 {
		t.Errorf("%+v", w)
	}
}

// Tasks of an array that have not started share a row.
func TestWaitsOfTasks(t *testing.T) {
	for _, tt := range []struct {
		label, id string
		want      bool
		tasks     int
	}{
		{"12", "12", true, 1}, {"12", "1", false, 1}, {"12", "12_1", false, 1}, {"12_3", "12_3", true, 1}, {"12_3", "12", true, 1},
		{"12_3", "12_33", false, 1}, {"12_[4-9%2]", "12_5", true, 6}, {"12_[4-9%2]", "12_3", false, 6}, {"12_[4-9%2]", "12", true, 6},
		{"12_[1,7]", "12_7", true, 2}, {"12_[1,7]", "1_7", false, 2}, {"12+1", "12", true, 1}, {"12+1", "12+1", true, 1},
		{"12+1", "12+0", false, 1}, {"12_[1-3,...]", "12_2", true, 3}, {"12_", "12_", true, 1},
	} {
		w := &Waited{Label: tt.label, Record: Record{ID: "99"}}
		if got, n := w.Is(tt.id), w.TaskCount(); got != tt.want || n != tt.tasks || !w.Is("99") {
			t.Errorf("%s, %s: %v, %d tasks", tt.label, tt.id, got, n)
		}
	}
}
