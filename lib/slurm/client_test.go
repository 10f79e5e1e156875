package slurm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/fault"
)

// answers is a Slurm that says what a test wants, and notes what it was asked.
type answers struct {
	stdout, stderr string
	code           int
	asked          []command.Cmd
}

func (a *answers) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	a.asked = append(a.asked, c)
	var err error
	if a.code != 0 {
		err = &command.ExitError{Name: c.Name, Code: a.code, Stderr: a.stderr}
	}
	if c.Stdout != nil {
		// In two pieces, as a pipe may deliver it.
		for _, piece := range []string{a.stdout[:len(a.stdout)/2], a.stdout[len(a.stdout)/2:]} {
			if _, writeErr := c.Stdout.Write([]byte(piece)); writeErr != nil {
				return command.Result{Stderr: []byte(a.stderr)}, writeErr
			}
		}
		return command.Result{Stderr: []byte(a.stderr)}, err
	}
	return command.Result{Stdout: []byte(a.stdout), Stderr: []byte(a.stderr)}, err
}

func TestOutputKeepsTheUsersFormatsAway(t *testing.T) {
	a := &answers{stdout: "x"}
	c := Client{Run: a, Env: []string{"PATH=/bin", "SQUEUE_FORMAT=%i", "SLURM_TIME_FORMAT=relative", "SLURM_CONF=/etc/slurm.conf", "LC_ALL=de_DE", "SLURM_CLUSTERS=other"}}
	if _, err := c.Output(t.Context(), 0, "squeue", "--noheader"); err != nil {
		t.Fatal(err)
	}
	if got, want := a.asked[0].Env, []string{"PATH=/bin", "SLURM_CONF=/etc/slurm.conf", "LC_ALL=C"}; !slices.Equal(got, want) {
		t.Errorf("environment %q; want %q", got, want)
	}
	if a.asked[0].Timeout != DefaultTimeout {
		t.Errorf("timeout %v", a.asked[0].Timeout)
	}
}

func TestOutputPassesSlurmsWordsOn(t *testing.T) {
	c := Client{Run: &answers{code: 1, stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}}
	_, err := c.Output(t.Context(), 0, "squeue")
	if !fault.Is(err, fault.Unavailable) || !Unreachable(err) || fault.HintOf(err) == "" ||
		err.Error() != "squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)" {
		t.Errorf("got %v", err)
	}
	c = Client{Run: &answers{code: 1, stderr: "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified\n"}}
	_, err = c.Output(t.Context(), 0, "sbatch")
	db := Client{Run: &answers{code: 1, stderr: "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:db:6819: Connection refused\n"}}
	if _, err := db.Output(t.Context(), 0, "sacct"); !NoDatabase(err) || !Unreachable(err) || !strings.Contains(fault.HintOf(err), "slurmdbd") {
		t.Errorf("got %v, hint %q", err, fault.HintOf(err))
	}
	var e *Error
	if !errors.As(err, &e) || Unreachable(err) || NoDatabase(err) || e.Words() != "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified" {
		t.Errorf("got %v", err)
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"90": 90 * time.Minute, "1:30": 90 * time.Second, "1:30:00": 90 * time.Minute, "2-12": 60 * time.Hour,
		"1-0:30": 24*time.Hour + 30*time.Minute, "7-00:00:00": 7 * 24 * time.Hour, "0": 0,
		"UNLIMITED": Unlimited, "infinite": Unlimited, "0:00:01": time.Second,
	} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "x", "1:2:3:4", "1-", "-", "1d", "1-1:1:1:1", "99999999999", "1.5"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("ParseDuration(%q) = %v", s, got)
		}
	}
	for d, want := range map[time.Duration]string{
		200 * time.Minute: "3:20:00", 60 * time.Hour: "2-12:00:00", time.Second: "0:00:01", Unlimited: "UNLIMITED", 25 * time.Hour: "1-01:00:00",
	} {
		got := FormatDuration(d)
		if back, err := ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("FormatDuration(%v) = %q; want %q", d, got, want)
		}
	}
}

func TestParseMemory(t *testing.T) {
	for s, want := range map[string]int64{
		"500": 500 << 20, "4000M": 4000 << 20, "16G": 16 << 30, "1.5G": 3 << 29, "2T": 2 << 40, "10K": 10 << 10, "500Mn": 500 << 20, "4Gc": 4 << 30, "0": 0,
	} {
		if got, err := ParseMemory(s); err != nil || got != want {
			t.Errorf("ParseMemory(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "G", "x", "-1G", "1e40G", "NaN"} {
		if got, err := ParseMemory(s); err == nil {
			t.Errorf("ParseMemory(%q) = %d", s, got)
		}
	}
	for b, want := range map[int64]string{1: "1M", 1 << 30: "1G", 1<<30 + 1: "1025M", 0: "1M", 3 << 29: "1536M"} {
		if got := FormatMemory(b); got != want {
			t.Errorf("FormatMemory(%d) = %q; want %q", b, got, want)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"90", "1:30:00", "2-12", "UNLIMITED", "-", "4294967295-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil || d == Unlimited {
			return
		}
		if back, err := ParseDuration(FormatDuration(d)); d < 0 || err != nil || back != d {
			t.Errorf("%q = %v, and back %v, %v", s, d, back, err)
		}
	})
}

func TestParseTime(t *testing.T) {
	got, err := ParseTime("2026-11-20T17:41:19")
	if err != nil || !got.Equal(time.Date(2026, 11, 20, 17, 41, 19, 0, time.Local)) {
		t.Errorf("%v, %v", got, err)
	}
	for _, s := range []string{"Unknown", "N/A", ""} {
		if got, err := ParseTime(s); err != nil || !got.IsZero() {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	if _, err := ParseTime("yesterday"); err == nil || !strings.Contains(err.Error(), "yesterday") {
		t.Errorf("%v", err)
	}
}
