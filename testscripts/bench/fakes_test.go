package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/captures"
)

// The fakes replay captures: squeue.table and sacct.table in $PONOS_FAKE. They
// note each call in $PONOS_FAKE/calls, and take as long as the real ones, unless
// $PONOS_FAKE_PACE is "instant".
var fakes = map[string]func(){
	"squeue": func() { play("squeue", squeuePace) },
	"sacct":  func() { play("sacct", sacctPace) },
	"scontrol": func() {
		note("scontrol")
		fmt.Println("ClusterName             = bench\nSLURM_VERSION           = 22.05.8")
	},
}

// pace is how long a command takes.
type pace struct {
	base time.Duration // however much it prints
	wait time.Duration // for each line, for the daemon to gather it
	work time.Duration // for each line, on this machine: unpacking and printing
}

// As measured with Slurm 22.05 on 2 cores. squeue with the agent's own arguments
// and 9,100 pending jobs takes 80 ms, 50 ms of them computing, and prints its
// first line after half of the time; with no job it takes 4 ms.
var squeuePace = pace{wait: 3200 * time.Nanosecond, work: 5100 * time.Nanosecond}

// sacct for 100 jobs of two lines each takes 60 ms and for 500 jobs 200 ms, most of
// it waiting for the database.
var sacctPace = pace{base: 25 * time.Millisecond, wait: 175 * time.Microsecond}

func note(name string) {
	line := append([]string{name}, os.Args[1:]...)
	f, err := os.OpenFile(filepath.Join(os.Getenv("PONOS_FAKE"), "calls"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, strings.Join(line, " "))
	}
	check(err)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// play replays a capture at a pace.
func play(name string, p pace) {
	note(name)
	began := time.Now()
	var out bytes.Buffer
	check(captures.Replay(&out, filepath.Join(os.Getenv("PONOS_FAKE"), name+captures.Extension), name, os.Args[1:]...))
	text := out.Bytes()
	if os.Getenv("PONOS_FAKE_PACE") == "instant" {
		_, err := os.Stdout.Write(text)
		check(err)
		return
	}
	lines := time.Duration(bytes.Count(text, []byte("\n")))
	time.Sleep(time.Until(began.Add(p.base + lines*p.wait)))
	// The real ones print through a buffer of this size.
	const buffer = 4096
	perByte := float64(lines*p.work) / float64(max(1, len(text)))
	start := time.Now()
	for at := 0; at < len(text); at += buffer {
		end := min(at+buffer, len(text))
		for float64(time.Since(start)) < perByte*float64(end) {
			runtime.KeepAlive(text) // computing, not sleeping
		}
		_, err := os.Stdout.Write(text[at:end])
		check(err)
	}
}

// installFakes returns a directory with the fakes, to be put in front of PATH.
func installFakes(tb testing.TB) string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	for name := range fakes {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}
