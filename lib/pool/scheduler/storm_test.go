package scheduler

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStorm runs random tasks while nodes come and go at random: every task ends
// exactly once, no CPU is ever given to two, and no task runs twice at a time.
func TestStorm(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			l := newLab(t, 1+r.IntN(4), 1+r.IntN(4), 4)
			l.cfg.LostRetries, l.cfg.Reconnects, l.cfg.Retries = 1000, 1000, 1
			for _, m := range l.nodes {
				m.stubborn = r.IntN(2) == 0
			}
			var b strings.Builder
			for range 400 {
				status := 0
				if r.IntN(10) == 0 {
					status = 1
				}
				seconds := r.Float64() * 0.2
				if r.IntN(20) == 0 {
					seconds = 20
				}
				fmt.Fprintf(&b, "{\"cmd\":\"sleep %.3f %d\",\"cpus\":%d}\n", seconds, status, 1+r.IntN(4)*r.IntN(2))
			}
			stop, stopped := make(chan bool), make(chan bool)
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(r.IntN(40)) * time.Second):
						n := l.nodes[r.IntN(len(l.nodes))]
						if r.IntN(3) == 0 {
							n.partition()
						} else {
							n.lose()
						}
					}
				}
			}()
			res := l.run(b.String())
			close(stop)
			<-stopped
			l.workers.Wait()
			if res.Done+res.Failed != 400 || res.Left != 0 {
				t.Errorf("seed %d: %+v\n%s", seed, res, &l.said)
			}
			ends := l.ends()
			for seq := int64(1); seq <= 400; seq++ {
				if ends[seq] != 1 {
					t.Errorf("seed %d: task %d ended %d times", seed, seq, ends[seq])
				}
			}
		})
	}
}
