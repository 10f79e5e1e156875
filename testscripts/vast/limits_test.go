package vast

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// What limits decide is the same with both transports, which TestConformance holds to the same answers: here it is one of them.

// No more instances than allowed at a time, and none that is too dear by the hour.
func TestMaxInstancesAndPrice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api", extra: "  max_instances: 1\n  max_price_per_hour: 0.305\n"})
	w.offers(2)
	w.task("one", "sleep 1; echo done")
	w.task("two", "sleep 1; echo done")
	// Whichever is first may be over before it was seen to run.
	said := w.until("one runs", func() bool { return len(w.market.Instances()) > 0 })
	if n := len(w.market.Alive()); n > 1 || !strings.Contains(said, `"event":"deferred"`) {
		t.Errorf("%d instances\n%s", n, said)
	}
	w.until("one is over", func() bool { return final(w.state("one")) || final(w.state("two")) })
	// The other offer is too dear.
	said = ""
	for range 3 {
		out, _, _ := w.run(turn)
		said += out
	}
	if n := len(w.market.Instances()); n != 1 || !strings.Contains(said, "no suitable offer: ") {
		t.Errorf("%d instances were ordered\n%s", n, said)
	}
	w.market.AddOffer(500, map[string]any{"dph_base": 0.2, "inet_down_cost": 0.1})
	w.settled("one", "two")
	w.check("one", "two")
}

// Offers that would pay for being taken are not ordered, and what the market says of an order, with the secrets in it, is told without
// them.
func TestHostileMarket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api"})
	for i, fields := range []map[string]any{
		{"dph_base": -1}, {"inet_down_cost": -100}, {"inet_up_cost": -100}, {"storage_cost": -100}, {"dph_base": 0.01, "inet_down_cost": -0.001},
	} {
		w.market.AddOffer(int64(100+i), fields)
	}
	w.offers(2)
	w.market.Break(server.Fault{
		Method: "PUT", Path: "^/api/v0/asks/", Times: 1, Status: 400,
		Body: `{"success": false, "error": "odd", "msg": "\u001b[2J SECRET=` + secret + ` Authorization: Bearer ` + server.Key + `"}`,
	})
	w.task("task", "echo done")
	said := w.settled("task")
	for _, i := range w.market.Instances() {
		if id, _ := i.Offer["id"].(float64); id >= 100 && id < 105 {
			t.Errorf("offer %v was ordered", id)
		}
	}
	if strings.Contains(said, "\x1b") {
		t.Errorf("%q", said)
	}
	w.noSecrets()
	w.check("task")
}

// No offer is taken with which a task would cost too much, and a task that has cost too
// much is ended.
func TestMaxCostPerTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api", scale: 1, extra: "  max_price_per_hour: 0\n  max_cost_per_task: 0.5\n  expected_time: 1s\n"})
	w.market.AddOffer(1, map[string]any{"dph_base": 3000}) // 83 cents a second
	w.task("task", "echo begun; echo; echo more; sleep 100")
	out, _, _ := w.run(turn)
	why := `no suitable offer: of 1 offers, "max_cost_per_task 0.5" removes most: 1`
	if n := len(w.market.Requests("PUT " + asks[1:])); n > 0 || !strings.Contains(out, strings.ReplaceAll(why, `"`, `\"`)) {
		t.Errorf("%d orders\n%s", n, out)
	}
	if out, errs, code := w.run("vast-offers --explain"); code != 0 || !strings.Contains(out, why) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	w.market.AddOffer(2, map[string]any{"dph_base": 600}) // 17 cents
	start := time.Now()
	w.until("it runs", func() bool { return len(w.market.Instances()) > 0 })
	said := w.settled("task")
	// What it costs until the limit is reached, and to see that.
	most := 0.5 + 0.17*(2*w.slowest+time.Second).Seconds()
	if i := w.market.Instances(); len(i) != 1 || i[0].Offer["id"] != 2.0 {
		t.Errorf("ordered %+v", i)
	}
	if log := string(w.queue.Log("task")); w.state("task") != "error" || !strings.Contains(log, "and reaches max_cost_per_task") || !strings.Contains(log, "begun") {
		t.Errorf("task is %s\n%s", w.state("task"), log)
	}
	// Not more than a look before it would be passed: it costs from its order on, while the meter counts from when its container runs.
	cost := regexp.MustCompile(`"state":"error","cost_dollars":(\d+\.\d+)`).FindStringSubmatch(said)
	if cost == nil {
		t.Errorf("no cost in %s", said)
	} else if n, err := strconv.ParseFloat(cost[1], 64); err != nil || n < 0.5-600.0/3600*0.1 { // log_interval
		t.Errorf("it was ended when it had cost %s", cost[1])
	}
	if cost := w.market.Meter("ponos:"); cost > most {
		t.Errorf("the meter shows $%.3f after %v, want at most $%.3f", cost, time.Since(start), most)
	}
	w.noSecrets()
}

// No more instances are ordered in an hour than allowed, whatever becomes of them.
func TestMaxCreatesPerHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api", extra: "  max_creates_per_hour: 2\n"})
	w.offers(9)
	slugs := []string{"one", "two", "three"}
	for _, slug := range slugs {
		w.task(slug, "echo done")
	}
	said := w.until("two are over", func() bool {
		n := 0
		for _, slug := range slugs {
			if final(w.state(slug)) {
				n++
			}
		}
		return n == 2
	})
	for range 3 {
		out, _, _ := w.run(turn)
		said += out
	}
	if n := len(w.market.Requests("PUT " + asks[1:])); n != 2 || !strings.Contains(said, "2 instances were ordered within an hour, as many as max_creates_per_hour") {
		t.Errorf("%d orders\n%s", n, said)
	}
	for _, slug := range slugs {
		if !final(w.state(slug)) {
			if err := w.queue.Stop(slug); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.settled(slugs...)
	w.check(slugs...)
}

// A task that runs too long is ended by its own instance, without the agent, which stops or
// destroys itself then.
func TestMaxRuntime(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"stop", "destroy"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			// The bill tells the end of an instance that is gone, by the clock of the tools.
			w := newWorld(t, options{via: "api", scale: 1, boot: time.Millisecond, extra: "  max_runtime: 2s\n  entry_grace: 1s\n  entry_end: " + end + "\n"})
			w.offers(1)
			w.task("task", "echo begun; sleep 100")
			w.until("it has run", func() bool { all := w.market.Instances(); return len(all) == 1 && all[0].Runs > 0 })
			for start := time.Now(); time.Since(start) < harness.Patience; time.Sleep(100 * time.Millisecond) {
				if _, ok := running(w); !ok {
					break
				}
			}
			// Where the machine is busy, a turn may have come first, and destroyed it.
			i := w.market.Instances()
			if len(i) != 1 || end == "stop" && (i[0].Actual != "exited" || i[0].Intended != "stopped") || end == "destroy" && i[0].Destroyed.IsZero() || !strings.Contains(w.container(i[0].ID), " late ") {
				t.Errorf("%+v", i)
			}
			w.settled("task")
			if log := string(w.queue.Log("task")); w.state("task") != "error" || !strings.Contains(log, "longer than max_runtime") {
				t.Errorf("task is %s\n%s", w.state("task"), log)
			}
			w.check("task")
		})
	}
}

// A machine that was at fault is avoided for some hours, however cheap it is.
func TestAvoided(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api"})
	w.offers(3)
	w.market.Machine(1, server.Machine{Stuck: true, Status: "Error response from daemon: no space left on device"})
	w.task("one", "echo done")
	w.settled("one")
	w.market.AddOffer(99, map[string]any{"dph_base": 0.01, "machine_id": 1})
	if out, errs, code := w.run("vast-offers"); code != 0 || errs != "" || strings.Contains(out, "      99  ") || !strings.Contains(out, "31000003") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	w.task("two", "echo done")
	w.settled("two")
	on := map[any]int{}
	for _, i := range w.market.Instances() {
		on[i.Offer["machine_id"]]++
	}
	if on[1.0] != 1 || on[2.0] != 1 || on[3.0] != 1 {
		t.Errorf("instances on machines: %v", on)
	}
	w.check("one", "two")
}
