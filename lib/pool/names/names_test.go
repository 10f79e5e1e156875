package names

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

func TestAllNamesAreKnown(t *testing.T) {
	dir := t.TempDir()
	m := &Map{Dir: dir, Recent: 100}
	const n = 20000
	for i := range n {
		name := fmt.Sprint("task ", i)
		if _, ok := m.Get(name); ok {
			t.Fatalf("%q is there before it was put", name)
		}
		m.Put(name, byte(i%3))
		if i%1000 == 17 {
			for j := 0; j <= i; j += 7 {
				if v, ok := m.Get(fmt.Sprint("task ", j)); !ok || v != byte(j%3) {
					t.Fatalf("after %d: task %d has %d, %v", i, j, v, ok)
				}
			}
		}
	}
	for i := range n {
		if v, ok := m.Get(fmt.Sprint("task ", i)); !ok || v != byte(i%3) {
			t.Fatalf("task %d has %d, %v", i, v, ok)
		}
	}
	m.wait()
	if len(m.runs) > 12 {
		t.Errorf("%d files; want a few", len(m.runs))
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%d files have a name", len(left))
	}
}

// wait waits for merging to end.
func (m *Map) wait() {
	for {
		m.mu.Lock()
		done := m.merging
		m.mu.Unlock()
		if done == nil {
			return
		}
		<-done
	}
}

// Without room on the disk, names stay in memory.
func TestNoRoom(t *testing.T) {
	m := &Map{Dir: "/nonexistent", Recent: 10}
	for i := range 100 {
		m.Put(fmt.Sprint(i), 1)
	}
	for i := range 100 {
		if _, ok := m.Get(fmt.Sprint(i)); !ok {
			t.Errorf("%d is not there", i)
		}
	}
}

// BenchmarkMemory measures what a million names take.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		m := &Map{Dir: b.TempDir()}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range 1000000 {
			name := fmt.Sprint("step-", i)
			m.Get(name)
			m.Put(name, 1)
		}
		m.wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/(1<<20), "MiB")
		runtime.KeepAlive(m)
	}
}
