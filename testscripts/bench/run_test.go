package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// beside runs commands of a user of the real cluster in turn, some rounds of all of them, and reports the median time and CPU time of
// each, and how many times those of the last one both are.
func beside(b *testing.B, rounds int, names []string, commands func(round int) [][]string) {
	b.Helper()
	home := filepath.Join(os.Getenv("PONOS_CLUSTER"), "work", "alice", fmt.Sprintf("bench%d", time.Now().UnixNano()))
	env := []string{"env", "-i", "HOME=" + home, "USER=alice", "PATH=" + harness.Bin + ":" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
	for name, value := range harness.Cluster(b) {
		env = append(env, name+"="+value)
		if name == "PONOS_CLUSTER" {
			home = filepath.Join(value, "work", "alice", filepath.Base(home))
			env[2] = "HOME=" + home
		}
	}
	if out, err := exec.Command("install", "-d", "-o", "alice", home).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	took, cpu := map[string][]time.Duration{}, map[string][]time.Duration{}
	play := func(name string, words []string) {
		c := exec.Command("/sbin/runuser", append(append([]string{"-u", "alice", "--"}, env...), words...)...)
		c.Dir = home
		began := time.Now()
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%q: %v\n%s", words, err, out)
		}
		took[name] = append(took[name], time.Since(began))
		cpu[name] = append(cpu[name], c.ProcessState.UserTime()+c.ProcessState.SystemTime())
	}
	play("first", []string{"ponos-run", "--", "true"}) // it writes the configuration
	for round := range rounds {
		for i, words := range commands(round) {
			play(names[i], words)
		}
	}
	last := names[len(names)-1]
	for _, name := range names {
		b.ReportMetric(ms(median(took[name])), name+"-ms")
		b.ReportMetric(ms(median(cpu[name])), name+"-cpu-ms")
		if name != last {
			b.ReportMetric(float64(median(took[last]))/float64(median(took[name])), last+"/"+name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHello runs a command that does nothing: alone, with srun, and with ponos run.
func BenchmarkHello(b *testing.B) {
	for range b.N {
		beside(b, 7, []string{"bare", "srun", "ponos"}, func(int) [][]string {
			return [][]string{{"true"}, {"srun", "--quiet", "true"}, {"ponos-run", "--", "true"}}
		})
	}
}

// arrayOf submits an array and ends when the command of its last element has: "sbatch --wait" looks after 2, 6, 12, 20, 30 and 42 s only.
const arrayOf = `mkfifo -- "$1" && exec 3<>"$1" &&
	sbatch --quiet --output=/dev/null --array="$2" --wrap "sleep 0.3; echo >$1" && head -n "$3" <&3`

// BenchmarkSweep runs short tasks as a job array and with ponos run: 100, and 24 of which two may run at a time.
func BenchmarkSweep(b *testing.B) {
	for _, s := range []struct {
		name, limit string
		tasks       int
	}{{"All", "", 100}, {"Two", "2", 24}} {
		b.Run(s.name, func(b *testing.B) {
			for range b.N {
				beside(b, 3, []string{"array", "ponos"}, func(round int) [][]string {
					array, most := fmt.Sprintf("1-%d", s.tasks), []string{}
					if s.limit != "" {
						array, most = array+"%"+s.limit, []string{"--at-most", s.limit}
					}
					values := []string{":::"}
					for i := range s.tasks {
						values = append(values, fmt.Sprintf("n=%d.%d", round, i))
					}
					return [][]string{
						{"sh", "-c", arrayOf, "sh", fmt.Sprintf("ended%d", round), array, fmt.Sprint(s.tasks)},
						append(append(append([]string{"ponos-run"}, most...), values...), "--", "env", "n={n}", "sleep", "0.3"),
					}
				})
			}
		})
	}
}
