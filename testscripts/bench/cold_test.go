package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// BenchmarkColdStart starts each tool, beside the smallest of programs and git.
func BenchmarkColdStart(b *testing.B) {
	help, err := exec.Command(filepath.Join(harness.Bin, "ponos"), "--help").Output()
	if err != nil {
		b.Fatal(err)
	}
	programs := []string{"true", "git"}
	dir := b.TempDir()
	for _, line := range regexp.MustCompile(`(?m)^  ([a-z-]+)  `).FindAllStringSubmatch(string(help), -1) {
		if err := os.Symlink(filepath.Join(harness.Bin, "ponos"), filepath.Join(dir, line[1])); err != nil {
			b.Fatal(err)
		}
		programs = append(programs, line[1])
	}
	if len(programs) < 10 {
		b.Fatalf("only %q", programs)
	}
	b.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	times := map[string][]time.Duration{}
	for range 30 { // in turns, as the machine is not as fast at all times
		for _, name := range programs {
			c := exec.Command(name, "--version")
			began := time.Now()
			if err := c.Run(); err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			times[name] = append(times[name], time.Since(began))
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, name := range programs {
		b.ReportMetric(ms(median(times[name])), name+"-ms")
	}
}
