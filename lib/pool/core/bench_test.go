package core

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// cluster are the nodes of a simulated pool, without connections and processes.
type cluster struct {
	core  *Core
	now   time.Time
	ends  ends
	queue map[*Worker]map[pool.Need][]wire.Key // follow on slots of that need
	asked []*Worker
	rand  *rand.Rand
	ended int
	busy  int // CPUs

}

// done is the end of a task.
type done struct {
	at     time.Time
	worker *Worker
	key    wire.Key
	need   pool.Need
}

type ends []done

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(done)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (c *cluster) handle(e Event) {
	for _, effect := range c.core.Handle(e, c.now) {
		switch x := effect.(type) {
		case Connect:
			c.asked = append(c.asked, x.Worker)
		case Start:
			if x.Run.Follow {
				q := c.queue[x.Worker]
				if q == nil {
					q = map[pool.Need][]wire.Key{}
					c.queue[x.Worker] = q
				}
				q[x.Run.Need] = append(q[x.Run.Need], x.Run.Key)
				continue
			}
			c.begin(x.Worker, x.Run.Key, x.Run.Need)
		case Send:
			if m := x.Message; m.Unrun != nil { // it is given back, if it has not begun
				for need, q := range c.queue[x.Worker] {
					if i := slices.Index(q, *m.Unrun); i >= 0 {
						c.queue[x.Worker][need] = slices.Delete(q, i, i+1)
						c.core.Handle(Received{x.Worker, []wire.Message{{Back: m.Unrun}}}, c.now)
					}
				}
			}
		case Lease:
		}
	}
}

// begin runs a task for 1 to 30 seconds.
func (c *cluster) begin(w *Worker, k wire.Key, need pool.Need) {
	d := time.Second + time.Duration(c.rand.Int64N(int64(29*time.Second)))
	c.busy += need.CPUs
	heap.Push(&c.ends, done{c.now.Add(d), w, k, need})
}

// step lets a tenth of a second pass.
func (c *cluster) step() {
	c.now = c.now.Add(100 * time.Millisecond)
	messages := map[*Worker][]wire.Message{}
	var order []*Worker
	for len(c.ends) > 0 && !c.ends[0].at.After(c.now) {
		d := heap.Pop(&c.ends).(done)
		c.busy -= d.need.CPUs
		end := &wire.Done{Key: d.key, Start: 1, Seconds: 1}
		if q := c.queue[d.worker][d.need]; len(q) > 0 {
			end.Next = &q[0]
			c.queue[d.worker][d.need] = q[1:]
			c.begin(d.worker, q[0], d.need)
		}
		if messages[d.worker] == nil {
			order = append(order, d.worker)
		}
		messages[d.worker] = append(messages[d.worker], wire.Message{Done: end})
		c.ended++
	}
	for _, w := range order {
		c.handle(Received{w, messages[w]})
	}
	c.handle(Tick{})
}

// BenchmarkSimulated lets a scheduler decide for 1,000 nodes of 128 CPUs and 10 million
// tasks, one in ten of 4 CPUs: decisions a second of its own time, its memory, and how much
// of the nodes was used until the input ended.
func BenchmarkSimulated(b *testing.B) {
	large := &pool.Spec{Need: pool.Need{CPUs: 4}}
	for _, nodes := range []int{100, 1000} {
		total := 10_000 * nodes
		b.Run(fmt.Sprintf("%d nodes", nodes), func(b *testing.B) {
			for range b.N {
				simulate(b, nodes, total, large)
			}
		})
	}
}

func simulate(b *testing.B, nodes, total int, large *pool.Spec) {
	c := &cluster{now: time.Unix(1e9, 0), queue: map[*Worker]map[pool.Need][]wire.Key{}, rand: rand.New(rand.NewPCG(1, 2))}
	var specs []NodeSpec
	for i := range nodes {
		specs = append(specs, NodeSpec{Name: "n" + strconv.Itoa(i), Most: 128, Group: -1})
	}
	c.core = New(Config{Nodes: specs, Session: "s", Lease: 132 * time.Second, Policy: Policy{ReadAhead: 300_000, NodeTimeout: 10 * time.Minute}}, c.now)
	small := &pool.Spec{Need: pool.Need{CPUs: 1}}
	c.handle(Tick{})
	var cpus []pool.CPU
	for id := range 128 {
		cpus = append(cpus, pool.CPU{ID: id, Core: id})
	}
	for len(c.asked) > 0 {
		asked := c.asked
		c.asked = nil
		for _, w := range asked {
			c.handle(Connected{w, &wire.Hello{CPUs: cpus, Mem: 1 << 38, Kernel: w.Node.Spec.Name}})
		}
		c.step()
	}
	begun, heapMost, used, steps := time.Now(), uint64(0), 0.0, 0.0
	start := c.now
	for seq := 0; c.ended < total; {
		for seq < total && !c.core.Full() {
			in := make([]Input, 0, 256)
			for range min(256, total-seq) {
				seq++
				spec := small
				if seq%10 == 0 {
					spec = large
				}
				in = append(in, Input{Task: &pool.Task{Seq: int64(seq), Text: "simulate --case " + strconv.Itoa(seq), Spec: spec}})
			}
			c.handle(Tasks{Inputs: in})
			if seq == total {
				c.handle(InputEnded{})
			}
		}
		c.step()
		if seq < total && c.now.Sub(start) > 30*time.Second {
			steps++
			used += float64(c.busy) / float64(128*nodes)
		}
		if int(c.now.Sub(start)/(100*time.Millisecond))%500 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			heapMost = max(heapMost, m.HeapInuse)
		}
		if c.now.Sub(start) > 24*time.Hour {
			b.Fatalf("%d of %d tasks have ended in a day", c.ended, total)
		}
	}
	if s := c.core.Summary(); s.Done != int64(total) {
		b.Fatalf("%+v", s)
	}
	took := time.Since(begun)
	b.ReportMetric(float64(total)/took.Seconds(), "decisions/s")
	b.ReportMetric(float64(heapMost)/(1<<20), "MiB")
	b.ReportMetric(100*used/max(1, steps), "%used")
	b.ReportMetric(c.now.Sub(start).Seconds(), "simulated-s")
}
