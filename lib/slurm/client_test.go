package slurm

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

// answers is a Slurm that gives prepared answers and records the commands.
type answers struct {
	stdout, stderr string
	capture        string // file whose columns are printed instead of stdout
	code           int
	asked          []command.Cmd
}

func (a *answers) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	a.asked = append(a.asked, c)
	var err error
	if a.code != 0 {
		err = &command.ExitError{Name: c.Name, Code: a.code, Stderr: a.stderr}
	}
	if a.capture != "" {
		var out bytes.Buffer
		if err := captures.Replay(&out, a.capture, c.Name, c.Args...); err != nil {
			return command.Result{}, err
		}
		a.stdout = out.String()
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
	if _, err := c.Output(t.Context(), "squeue", "--noheader"); err != nil {
		t.Fatal(err)
	}
	if got, want := a.asked[0].Env, []string{"PATH=/bin", "SLURM_CONF=/etc/slurm.conf", "LC_ALL=C", "SLURM_BITSTR_LEN=256"}; !slices.Equal(got, want) {
		t.Errorf("environment %q; want %q", got, want)
	}
	if a.asked[0].Timeout != usual {
		t.Errorf("timeout %v", a.asked[0].Timeout)
	}
}

// The end of a job is asked for in seconds since 1970: TZ=CET-1CEST is UTC for Go, and not for squeue.
func TestJobEnd(t *testing.T) {
	for answer, want := range map[string]time.Time{
		"1795448072|RUNNING|1795440872|\n":          time.Unix(1795448072, 0),
		"1795448072|SUSPENDED|1795440872|\n":        time.Unix(1795448072, 0),
		"NONE|RUNNING|1795440872|\n":                time.Unix(1795440872, 0).AddDate(0, 0, 365),
		"NONE|PENDING|N/A|\n":                       {},
		"N/A|PENDING|N/A|\n":                        {},
		"2026-11-24T05:17:31|RUNNING|1795440872|\n": time.Date(2026, 11, 24, 5, 17, 31, 0, time.Local),
		"": {},
	} {
		a := &answers{stdout: answer}
		c := Client{Run: a, Env: []string{"PATH=/bin", "SLURM_TIME_FORMAT=relative"}}
		end, suspended, err := c.JobEnd(t.Context(), "7")
		if !end.Equal(want) || suspended != strings.Contains(answer, "SUSPENDED") || err != nil {
			t.Errorf("%q: %v, %v, %v", answer, end, suspended, err)
		}
		if env := a.asked[0].Env; slices.Contains(env, "SLURM_TIME_FORMAT=relative") || !slices.Contains(env, "SLURM_TIME_FORMAT=%s") {
			t.Errorf("environment %q", env)
		}
	}
}

func TestOutputPassesSlurmsWordsOn(t *testing.T) {
	c := Client{Run: &answers{code: 1, stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}}
	_, err := c.Output(t.Context(), "squeue")
	if !fault.Is(err, fault.Unavailable) || !Unreachable(err) || fault.HintOf(err) == "" ||
		err.Error() != "squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)" {
		t.Errorf("got %v", err)
	}
	c = Client{Run: &answers{code: 1, stderr: "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified\n"}}
	_, err = c.Output(t.Context(), "sbatch")
	db := Client{Run: &answers{code: 1, stderr: "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:db:6819: Connection refused\n"}}
	if _, err := db.Output(t.Context(), "sacct"); !failedBy(err, NoDatabase) || !Unreachable(err) || !strings.Contains(fault.HintOf(err), "slurmdbd") {
		t.Errorf("got %v, hint %q", err, fault.HintOf(err))
	}
	var e *Error
	if !errors.As(err, &e) || Unreachable(err) || !WasRefused(err) || e.Words() != "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified" {
		t.Errorf("got %v", err)
	}
}

// silent is a Slurm whose commands hang.
type silent struct{}

func (silent) Run(ctx context.Context, c command.Cmd) (command.Result, error) {
	return command.System.Run(ctx, command.Cmd{Name: "sleep", Args: []string{"60"}, Timeout: c.Timeout})
}

func TestNoAnswer(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for name, want := range map[string]Failure{"squeue": NoAnswer, "sacct": NoDatabase} {
		for ctx, limit := range map[context.Context]string{t.Context(): "50ms", late: "1min"} {
			t.Setenv(limitEnv, limit)
			c := Client{Run: silent{}}
			if _, err := c.Output(ctx, name); !failedBy(err, want) || !fault.Is(err, fault.Unavailable) || fault.HintOf(err) == "" {
				t.Errorf("%s: %v", name, err)
			}
		}
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

// failedBy reports whether err is a failed command with this Failure.
func failedBy(err error, want Failure) bool {
	why, ok := FailureOf(err)
	return ok && why == want
}

// TestFailures checks that a failure differs from an empty answer.
func TestFailures(t *testing.T) {
	for words, want := range map[string]Failure{
		"sacctmgr: error: Problem talking to the database: Connection refused": NoDatabase,
		// 22.05 and 24.11:
		"sacctmgr: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:db:6819: Connection refused\nsacctmgr: error: Sending PersistInit msg: Connection refused": NoDatabase,
		"sacctmgr: error: _open_persist_conn: failed to open persistent connection to host:db:6819: Connection refused\nsacctmgr: error: Sending PersistInit msg: Connection refused":                   NoDatabase,
		"sacctmgr: error: Access/permission denied":                                   Refused,
		"slurm_load_partitions: Unable to contact slurm controller (connect failure)": NoAnswer,
	} {
		c := &Client{Run: &answers{code: 1, stderr: words}}
		if qos, err := c.QOS(t.Context()); qos != nil || !failedBy(err, want) || !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v, %v", words, qos, err)
		}
	}
	for _, words := range []string{
		"Slurm accounting storage is disabled\n",
		"You are not running a supported accounting_storage plugin\nOnly 'accounting_storage/slurmdbd' is supported.\n",
	} {
		c := &Client{Run: &answers{code: 1, stderr: words}}
		if _, err := c.Associations(t.Context(), "alice"); !errors.Is(err, ErrNoAccounting) {
			t.Errorf("%s: %v", words, err)
		}
	}
	if _, err := (&Client{Run: &answers{stdout: "welcome\n"}}).Nodes(t.Context()); !failedBy(err, Unreadable) {
		t.Errorf("odd output: %v", err)
	}
	if _, err := (&Client{Dir: "/nowhere"}).Nodes(t.Context()); !failedBy(err, NotInstalled) || !Unreachable(err) {
		t.Errorf("no such program: %v", err)
	}
	gone := &Client{Run: &answers{code: 1, stderr: "slurm_load_jobs error: Invalid job id specified\n"}}
	if jobs, err := gone.JobDetails(t.Context(), "7"); jobs != nil || err != nil {
		t.Errorf("a job that is gone: %v, %v", jobs, err)
	}
	for what, nothing := range map[string]func(*Client) (int, error){
		"No nodes in the system\n":           func(c *Client) (int, error) { v, err := c.Nodes(t.Context()); return len(v), err },
		"No reservations in the system\n":    func(c *Client) (int, error) { v, err := c.Reservations(t.Context()); return len(v), err },
		"No licenses configured in Slurm.\n": func(c *Client) (int, error) { v, err := c.Licenses(t.Context()); return len(v), err },
		"":                                   func(c *Client) (int, error) { v, err := c.QOS(t.Context()); return len(v), err },
	} {
		if n, err := nothing(&Client{Run: &answers{stdout: what}}); n != 0 || err != nil {
			t.Errorf("%q: %d, %v", what, n, err)
		}
	}
}

func TestValues(t *testing.T) {
	for s, want := range map[string]float64{
		"500": 500, "4000M": 4000, "16G": 16384, "1.5G": 1536, "2T": 2 << 20, "10K": 10.0 / 1024, "500Mn": 500, "4Gc": 4096, "0": 0,
	} {
		if got, err := ParseMemory(s); err != nil || got != want {
			t.Errorf("ParseMemory(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "G", "x", "-1G", "1e40G", "NaN"} {
		if got, err := ParseMemory(s); err == nil {
			t.Errorf("ParseMemory(%q) = %v", s, got)
		}
	}
	for b, want := range map[int64]string{1: "1M", 1 << 30: "1G", 1<<30 + 1: "1025M", 0: "1M", 3 << 29: "1536M", math.MaxInt64: "8796093022207M"} {
		if got := FormatMemory(b); got != want {
			t.Errorf("FormatMemory(%d) = %q; want %q", b, got, want)
		}
	}
	for s, want := range map[string]string{"2026-11-20T17:41:19": "2026-11-20 17:41:19", "Unknown": "", "N/A": "", "": "", "InvalidDate": "", "2026-11-20T17:41:60": "2026-11-20 17:42:00"} {
		text := ""
		got, err := ParseTime(s)
		if got != 0 {
			text = Time(got).Format(time.DateTime)
		}
		if err != nil || text != want {
			t.Errorf("ParseTime(%q) = %s, %v", s, text, err)
		}
	}
	for _, s := range []string{"yesterday", "2026-11-20", "2026-13-20T17:41:19", "2026-11-20T17:61:00"} {
		if _, err := ParseTime(s); err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("ParseTime(%q): %v", s, err)
		}
	}
	for s, want := range map[string]Limit[int64]{"": {}, "UNLIMITED": {}, "-1": {}, "N/A": {}, "0": AtMost[int64](0), "12": AtMost[int64](12)} {
		if got, ok := parseCount(s); !ok || got != want || got.Allows(13) == got.Set {
			t.Errorf("parseCount(%q) = %v, %v", s, got, ok)
		}
	}
}
