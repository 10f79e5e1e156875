package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

const (
	packedTasks = 500
	otherTasks  = 100 // in jobs of their own, which take longer
)

// BenchmarkPack runs short tasks on a real cluster, from their first turn to the record of the
// last end: in pilot jobs, as job arrays and as single jobs.
func BenchmarkPack(b *testing.B) {
	s := newStarter(b)
	for _, c := range []struct {
		name, arrays, option string
		tasks                int
	}{{"pack", "false", "--pack", packedTasks}, {"arrays", "true", "", otherTasks}, {"single", "false", "", otherTasks}} {
		b.Run(c.name, func(b *testing.B) {
			s.tb = b
			text := fmt.Sprintf("mode: slurm\nqueue: spool:%[1]s/spool\ndata_dir: %[1]s/data\npid_file: %[1]s/pid\nslurm:\n  arrays: %[2]s\n  base: {time: 5, mem: 100M}\n  pack: {linger: 5s}\n", s.dir, c.arrays)
			s.must(os.WriteFile(s.config(), []byte(text), 0o600))
			before := s.submitted()
			s.add(c.tasks)
			began := time.Now()
			for {
				s.run("bash", "-c", `ponos-poll --config "$1" | ponos-start --config "$1" $2 >/dev/null`, "turn", s.config(), c.option)
				left := s.run("ponos-list", "--spool", s.spool.Dir, "--long")
				if !strings.Contains(left, " pending ") && !strings.Contains(left, " running ") {
					break
				}
				if time.Since(began) > harness.Patience {
					b.Fatalf("tasks are not over:\n%s", left)
				}
			}
			took := time.Since(began)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(c.tasks)/took.Seconds(), "tasks/s")
			b.ReportMetric(took.Seconds(), "s")
			b.ReportMetric(float64(s.submitted()-before), "jobs")
		})
	}
}

// submitted is how many jobs Slurm has numbered so far, elements of arrays included once for each array.
func (s *starter) submitted() int {
	jobs := map[string]bool{}
	for line := range strings.Lines(s.run("squeue", "--noheader", "--states=all", "--format=%F")) {
		jobs[strings.TrimSpace(line)] = true
	}
	return len(jobs)
}
