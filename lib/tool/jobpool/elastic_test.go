package jobpool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
)

// A scheduler whose job ends submits the jobs that go on, unless one is there that lasts: jobs
// that began together end together.
func TestLastSchedulerSubmitsTheNextJobs(t *testing.T) {
	fakes, err := filepath.Abs("../../../testscripts/fakeslurm")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", fakes+":"+os.Getenv("PATH"))
	for name, tt := range map[string]struct {
		ends      map[string]time.Duration // of jobs that run, from now on
		pending   bool                     // one more job waits
		done      int64
		elapsed   time.Duration
		submitted int
		says      string
	}{
		"alone":                       {ends: map[string]time.Duration{"16": 20 * time.Second}, done: 5, elapsed: time.Hour, submitted: 3},
		"beside one that lasts":       {ends: map[string]time.Duration{"16": 20 * time.Second, "17": time.Minute}, done: 5, elapsed: time.Hour},
		"beside one that waits":       {ends: map[string]time.Duration{"16": 20 * time.Second}, pending: true, done: 5, elapsed: time.Hour},
		"all end together":            {ends: map[string]time.Duration{"16": 20 * time.Second, "17": 21 * time.Second, "18": 20 * time.Second}, done: 5, elapsed: time.Hour, submitted: 3},
		"nothing ended":               {ends: map[string]time.Duration{"16": 20 * time.Second}, elapsed: time.Hour, says: "no task has ended during the job"},
		"nothing ended in its moment": {ends: map[string]time.Duration{"16": 20 * time.Second, "17": 20 * time.Second}, elapsed: time.Second, submitted: 3},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			run := filepath.Join(dir, "run")
			t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
			t.Setenv("SLURM_JOB_ID", "16")
			if err := pilot.Save(run, &pilot.Pool{ID: "x", MaxJobs: 3, Options: []string{"--partition=cpu"}}); err != nil {
				t.Fatal(err)
			}
			var queue strings.Builder
			for job, left := range tt.ends {
				queue.WriteString(job + " RUNNING jobpool:x\n")
				if err := pilot.Announce(run, pilot.Node{Job: job, Name: "cpu1", CPUs: 2, End: clock.Now().Add(left), Life: 3600}); err != nil {
					t.Fatal(err)
				}
			}
			if tt.pending {
				queue.WriteString("19 PENDING jobpool:x\n")
			}
			if err := os.WriteFile(filepath.Join(dir, "queue"), []byte(queue.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			e, err := newElastic(run, &runner{console: &console{w: &said}, base: pool.Spec{Need: pool.Need{CPUs: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			e.status = &scheduler.Status{}
			e.status.Waiting = 1000
			close(e.done)
			e.end(&core.Summary{HandedOver: true, Done: tt.done, Elapsed: tt.elapsed, Exit: core.ExitLeft})
			asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
			if n := strings.Count(string(asked), "\nsbatch --parsable"); n != tt.submitted || !strings.Contains(said.String(), tt.says) || (tt.submitted == 0) != (!strings.Contains(said.String(), "submitted")) && tt.says == "" {
				t.Errorf("%d jobs were submitted, want %d\n%s\n%s", n, tt.submitted, said.String(), asked)
			}
		})
	}
}
