package runner

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// What a place shows is believed after as many looks, for as long, and with as much from accounting as its proof asks for.
func TestBelieve(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	gone := func(looks int, since time.Duration) task.Absence {
		return task.Absence{Since: now.Add(-since), Last: now, Misses: looks}
	}
	shown := Job{Task: "a", ID: "7", Sight: Ended, Reason: "exit code 3", Restarts: 2, Spare: []string{"8"}, End: End{State: task.Failed, ExitCode: 3, Cause: "node"}}
	for name, tt := range map[string]struct {
		proof   Proof
		ref     Ref
		lacking bool
		want    Sight
	}{
		"at once":                    {Proof{}, Ref{}, false, Ended},
		"not at once":                {Proof{Looks: 2}, Ref{}, false, Traceless},
		"once is too little":         {Proof{Looks: 2}, Ref{Missing: gone(1, time.Hour)}, false, Traceless},
		"often enough":               {Proof{Looks: 2}, Ref{Missing: gone(2, time.Minute)}, false, Ended},
		"not for long":               {Proof{Looks: Fact, For: 10 * time.Minute}, Ref{Missing: gone(5, 9*time.Minute)}, false, Traceless},
		"for long":                   {Proof{Looks: Fact, For: 10 * time.Minute}, Ref{Missing: gone(5, 10*time.Minute)}, false, Ended},
		"for long, by a wrong clock": {Proof{Looks: 1, For: 10 * time.Minute}, Ref{Missing: gone(2, time.Hour)}, false, Traceless},
		"accounting answers without": {Proof{Looks: 1, Unaccounted: true}, Ref{Missing: gone(5, time.Hour)}, true, Unaccounted},
		"accounting never had it":    {Proof{Looks: 1, Unaccounted: true}, Ref{Missing: gone(5, time.Hour), Unaccounted: gone(5, time.Hour)}, true, Ended},
		"never":                      {Proof{Never: true}, Ref{Missing: gone(50, 24*time.Hour)}, false, Traceless},
	} {
		tt.proof.Why = "nobody shows it"
		got := Believe(shown, tt.proof, tt.ref, tt.lacking, now)
		if got.Sight != tt.want || got.ID != "7" || got.Restarts != 2 || len(got.Spare) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Sight != Ended && (got.End != (End{}) || got.Shows() != "" || got.Reason != "nobody shows it") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	p, q := Proof{Looks: 2, Why: "a"}, Proof{Looks: Fact, For: time.Minute, Unaccounted: true, Why: "b"}
	if p.And(q) != q || q.And(p) != q || p.And(Proof{}) != p || (Proof{}).And(p) != p {
		t.Errorf("%+v, %+v", p.And(q), q.And(p))
	}
}
