package forecast

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func BenchmarkZZ(b *testing.B) {
	w := large(5000, 100_000)
	for i := range w.Jobs {
		j := &w.Jobs[i]
		j.User, j.Account, j.Name = fmt.Sprintf("user%03d", i%300), "lab", fmt.Sprintf("train-%d", i)
	}
	var runs []Past
	for i := range int64(40_000) {
		runs = append(runs, past(fmt.Sprintf("user%03d", i%300), fmt.Sprintf("train-%d", i), 60+i*97%5000, 36_000, now-i*40))
	}
	h := NewHistory(runs)
	for b.Loop() {
		for _, at := range []int{100, 5000, 50000, 95000} {
			for _, arrivals := range []bool{false, true} {
				t := time.Now()
				seconds := map[uint64]int64{}
				var jobs []Job
				if arrivals {
					jobs, seconds = h.Arrivals(w.Now, w.Now+30*86400, nil2(), func(*Past) float64 { return 1 })
				}
				starts, visits := replayed(never, w, []int{len(w.Jobs) - at}, Course{Arrivals: jobs, Until: w.Now + 30*86400, Turns: 100, Work: 4_000_000, Run: func(j *Job) int64 {
					if s, ok := seconds[j.ID]; ok {
						return s
					}
					return h.Draw(j, 0, nil2())
				}})
				fmt.Println(at, arrivals, time.Since(t), starts[0]-w.Now, visits)
			}
		}
	}
}

var rnd = rand.New(rand.NewPCG(1, 2))

func nil2() *rand.Rand { return rnd }
