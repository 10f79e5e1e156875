package slurm

import (
	"strings"
	"testing"
)

func FuzzSacctmgr(f *testing.F) {
	f.Add("main|physics|gpu|normal,high|normal\n")
	f.Add("normal|1-00:00:00|gres/gpu=1|cpu=8,mem=10G,node=2|OverPartQOS\n")
	f.Add("alice|physics\n")
	f.Fuzz(func(t *testing.T, text string) {
		if rules, err := ParseQOSRules(strings.NewReader(text)); err == nil {
			for _, q := range rules {
				if q.MaxWall < 0 || q.MaxMemory < 0 || q.MaxGPUs < 0 || q.MinGPUs < 0 || q.MaxCPUs < 0 || q.MaxNodes < 0 {
					t.Errorf("%q: %+v", text, q)
				}
			}
		}
		_, _ = ParseMemberships(strings.NewReader(text))
		_, _ = ParseDefaultAccount(strings.NewReader(text))
	})
}

// What single answers hold, a line or a few.
func FuzzAnswers(f *testing.F) {
	f.Add("sbatch: Job 7 to start at 2026-11-20T21:00:00 using 4 processors on nodes cpu[1-2] in partition cpu\n")
	f.Add("JobId=7 ExitCode=0:9 Reason=None")
	f.Add("welcome\n42;cluster\n")
	f.Add("CANCELLED by 1000\nRUNNING\n")
	f.Add("cpu=4,mem=1.5G,gres/gpu:a100=2,billing=4")
	f.Add("16G")
	f.Add("2026-11-20T21:00:00")
	f.Fuzz(func(t *testing.T, text string) {
		if e, err := ParseStartEstimate(text); err == nil && e.Start.IsZero() {
			t.Errorf("%q starts at no time", text)
		}
		_, _, _ = ParseJobEnd(text)
		if id, err := parseSubmitted([]byte(text)); err == nil && (id == "" || strings.Trim(id, "0123456789") != "") {
			t.Errorf("%q is job %q", text, id)
		}
		_ = parseRuns(text)
		if m, err := ParseMemory(text); err == nil && m < 0 {
			t.Errorf("%q is %d bytes", text, m)
		}
		_, _ = ParseTime(text)
		_, _ = ParseTRESCounts(text)
		_, _ = ParseWholeNodes(strings.NewReader(text))
		_, _ = ParsePast(strings.NewReader(text))
	})
}
