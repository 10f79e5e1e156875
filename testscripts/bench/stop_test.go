package bench

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// BenchmarkStop stops many tasks at once whose jobs have just ended.
func BenchmarkStop(b *testing.B) {
	const tasks = 2000
	for range b.N {
		w := newWorld(b, tasks, 1)
		w.poll(true)
		squeue, err := os.ReadFile(w.file("squeue.table"))
		w.must(err)
		w.must(os.WriteFile(w.file("squeue.table"), bytes.ReplaceAll(squeue, []byte("|RUNNING|"), []byte("|CANCELLED|")), 0o600))
		var lines strings.Builder
		for i := range tasks {
			fmt.Fprintf(&lines, `{"action":"stop","id":"%s","requires_gpu":false}`+"\n", id(i))
		}
		w.must(os.WriteFile(w.file("stops"), []byte(lines.String()), 0o600))
		t := w.run(true, "sh", "-c", "exec ponos-stop --config \"$1\" <\"$2\"", "sh", w.file("ponos.yaml"), w.file("stops"))
		if n := bytes.Count(t.out, []byte(`"event":"stopped"`)); n != tasks {
			b.Fatalf("%d stopped: %.300s", n, t.out)
		}
		b.ReportMetric(ms(t.cpu)/tasks, "cpu-ms/stop")
		b.ReportMetric(ms(t.wall), "wall-ms")
		b.ReportMetric(float64(t.memory)/(1<<20), "peak-MiB")
	}
}
