package vast

import (
	"strings"
	"testing"
)

// transports runs a test with both transports.
func transports(t *testing.T, test func(t *testing.T, via string)) {
	t.Parallel()
	for _, via := range []string{"api", "cli"} {
		t.Run(via, func(t *testing.T) {
			t.Parallel()
			test(t, via)
		})
	}
}

func TestNormalRun(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, program: true})
		w.offers(3)
		w.task("good", `echo hello from $PONOS_TASK; echo "$TASK_BOOTSTRAP $TASK_PARENTS $PONOS_DATA key=[$CONTAINER_API_KEY]"; sleep 1; echo bye`)
		w.task("bad", "echo going down; exit 7")
		out, errs, code := w.run("ponos-setup")
		if code != 0 || errs != "" || !strings.Contains(out, "account 4242 by "+via+", credit $50.00") {
			t.Fatalf("ponos-setup: %d\n%s%s", code, out, errs)
		}
		all := w.settled("good", "bad")
		if got := w.history("good"); got != "unscheduled,pending,running,completed" {
			t.Errorf("good: %s", got)
		}
		if got := w.state("bad"); got != "failed" {
			t.Errorf("bad: %s", got)
		}
		if log := string(w.queue.Log("good")); !strings.Contains(log, "hello from ") || !strings.Contains(log, "\ntrue {} ") || !strings.Contains(log, "/data key=[]\nbye\n") ||
			strings.Contains(log, "PONOS-EXIT") || strings.Count(log, "bye") != 1 || !strings.Contains(log, "cost: about $1.0") {
			t.Errorf("log:\n%s", log)
		}
		if !strings.Contains(all, `"event":"ended"`) || !strings.Contains(all, `"cost_dollars":1.0`) {
			t.Errorf("no cost in %s", all)
		}
		w.check("good", "bad")
	})
}
