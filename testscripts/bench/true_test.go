package bench

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestFakesAreTrue has the real Slurm asked what the fakes were asked in a turn: it takes the same
// arguments, and prints as many columns.
func TestFakesAreTrue(t *testing.T) {
	var env []string
	for name, value := range harness.Cluster(t) {
		env = append(env, name+"="+value)
	}
	real := func(words ...string) (string, error) {
		c := exec.Command(words[0], words[1:]...)
		c.Env = append(os.Environ(), env...)
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		err := c.Run()
		if err == nil && errs.Len() > 0 {
			t.Errorf("%q: %s", words, errs.String())
		}
		return out.String(), err
	}
	out, err := real("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap", "true")
	if err != nil {
		t.Fatal(err)
	}
	job := strings.TrimSpace(out)
	defer func() { _, _ = real("scancel", job) }()
	for deadline := time.Now().Add(harness.Patience); ; time.Sleep(100 * time.Millisecond) { // accounting lags
		if out, err := real("sacct", "--noheader", "--allusers", "--jobs="+job); err == nil && out != "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("accounting has no job %s", job)
		}
	}
	config, err := real("scontrol", "show", "config")
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(config, "SLURM_VERSION ")
	for _, size := range []int{1, 2} {
		if size > 1 && strings.TrimLeft(version, " =") < "21.08" {
			continue // it keeps no SubmitLine, which is asked for elements of arrays
		}
		w := newWorld(t, 4, size)
		w.poll(true) // searches for older jobs as well
		w.calls()
		w.ended[1], w.ended[2], w.ended[3] = true, true, true
		w.slurm()
		w.poll(true)
		var asked []string
		for _, call := range w.calls() {
			words := strings.Split(call, " ")
			asked = append(asked, words[0])
			fake := string(w.run(true, words[0], words[1:]...).out)
			for i := range words {
				if strings.HasPrefix(words[i], "--jobs=") {
					words[i] = "--jobs=" + job
				}
			}
			out, err := real(words...)
			if got, want := shape(words[0], fake), shape(words[0], out); err != nil || len(got) == 0 || !within(got, want) {
				t.Errorf("%q: %v\n%s\nprints %q, its fake %q", words, err, out, want, got)
			}
		}
		if !slices.Contains(asked, "squeue") || !slices.Contains(asked, "sacct") {
			t.Errorf("a turn asks %q", asked)
		}
	}
}

// shape is what the lines of a program have in common: their columns, or their keys.
func shape(program, text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		switch program {
		case "squeue", "sacct":
			all = append(all, strings.Repeat("|", strings.Count(line, "|")))
		default:
			if key, _, found := strings.Cut(line, "="); found {
				all = append(all, strings.TrimSpace(key))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// within reports whether all of one list are in another one.
func within(some, all []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}
