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
