package list

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/agent/metrics"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestCheck(t *testing.T) {
	for options, want := range map[string]string{
		"":                   "",
		"table":              "",
		"watch":              "",
		"watch long":         "",
		"watch groups":       "",
		"names artifacts":    "--names and --artifacts cannot be combined",
		"json long ids":      "--ids and --long cannot be combined",
		"watch json":         "--watch and --json cannot be combined",
		"watch table":        "--watch and --table cannot be combined",
		"watch artifacts":    "--watch and --artifacts cannot be combined",
		"watch long groups":  "--groups and --long cannot be combined",
		"attempts last long": "",
	} {
		err := check(func(name string) bool { return slices.Contains(strings.Fields(options), name) })
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want || err != nil && !fault.Is(err, fault.Usage) {
			t.Errorf("%s: %q; want %q", options, got, want)
		}
	}
}

func TestChooseTasks(t *testing.T) {
	all := []queue.Summary{
		{ID: "a1", Slug: "train", State: task.Failed, Retried: true}, {ID: "b1", Slug: "eval", State: task.Completed},
		{ID: "a2", Slug: "train", State: task.Stopped, RetryOf: "a1", Retried: true}, {ID: "c1", Slug: "eval", State: task.Failed},
		{ID: "a3", Slug: "train", State: task.Running, RetryOf: "a2"},
	}
	for _, tt := range []struct {
		words, states string
		attempts      bool
		last          int
		want          string
	}{
		{want: "b1 c1 a3"},
		{attempts: true, want: "a1 b1 a2 c1 a3"},
		{states: "failed", want: "c1"},
		{states: "failed", attempts: true, want: "a1 c1"},
		{last: 2, want: "c1 a3"},
		{last: 9, want: "b1 c1 a3"},
		{last: 1, states: "failed", attempts: true, want: "c1"},
		{words: "train", want: "a3"},
		{words: "train", attempts: true, want: "a1 a2 a3"},
		{words: "a2", attempts: true, want: "a1 a2"},
		{words: "a2", want: "a2"},
		{words: "eval train", attempts: true, states: "failed,running", want: "c1 a1 a3"},
		{words: "train", attempts: true, states: "stopped", want: "a2"}, // an attempt by itself
		{words: "eval train", attempts: true, last: 2, want: "a2 a3"},
		{words: "none train", attempts: true, last: 1, want: `a3 no task has the id or the name "none"`},
	} {
		f := tasklist.Filter{}
		if tt.states != "" {
			f.States = strings.Split(tt.states, ",")
		}
		before := fmt.Sprint(all)
		found, errs := choose(all, strings.Fields(tt.words), f, tt.attempts, tt.last)
		var got []string
		for _, s := range found {
			got = append(got, string(s.ID))
		}
		for _, err := range errs {
			got = append(got, err.Error())
		}
		if strings.Join(got, " ") != tt.want || fmt.Sprint(all) != before {
			t.Errorf("%+v: %s", tt, strings.Join(got, " "))
		}
	}
}

func TestScreen(t *testing.T) {
	for _, tt := range []struct {
		lines, last string
		height      int
		want        string
	}{
		{"T a b c", "3", 6, "T a b c 3"},
		{"T a b c", "3", 5, "T a b 3"},
		{"T a b c", "3", 3, "T 3"},
		{"T a b c", "3", 1, "T 3"}, // the names of the columns stay
		{"T a b c", "", 3, "T a"},
		{"", "", 3, ""},
	} {
		if got := strings.Join(screen(strings.Fields(tt.lines), strings.Fields(tt.last), tt.height), " "); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestRan(t *testing.T) {
	for _, tt := range []struct {
		state          task.State
		started, ended time.Duration // after noon; 0: not yet
		want           string
	}{
		{task.Pending, 0, 0, "-"},
		{task.Stopped, 0, time.Minute, "-"}, // it never ran
		{task.Running, time.Minute, 0, "59m00s"},
		{task.Running, 2 * time.Hour, 0, "0s"}, // the clock of its host is ahead
		{task.Running, time.Minute, 3 * time.Minute, "59m00s"},
		{task.Failed, time.Minute, 3 * time.Minute, "2m00s"},
		{task.Failed, 3 * time.Minute, time.Minute, "0s"},
		{task.Error, time.Minute, 0, "0s"}, // when it ended is not known
	} {
		s := queue.Summary{State: tt.state}
		if tt.started > 0 {
			s.Started = noon.Add(tt.started)
		}
		if tt.ended > 0 {
			s.Ended = noon.Add(tt.ended)
		}
		if got := brief(ran(s, noon.Add(time.Hour))); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "-", 0: "0s", 999 * time.Millisecond: "0s", 59 * time.Second: "59s", time.Minute: "1m00s", time.Hour - 1: "59m59s",
		time.Hour: "1h00m", 24*time.Hour - 1: "23h59m", 24 * time.Hour: "1d00h", 1<<63 - 1: "106751d23h",
	} {
		if got := brief(d); got != want {
			t.Errorf("%d: %s; want %s", d, got, want)
		}
	}
}

// The columns of a table, by what is in it.
func TestTables(t *testing.T) {
	at := func(s queue.Summary) queue.Summary {
		s.Created = noon
		return s
	}
	one := at(queue.Summary{ID: "a1", Slug: "train", State: task.Pending, Attempt: 1})
	again := at(queue.Summary{ID: "a2", Slug: "ev\nal", State: task.Failed, Attempt: 2, Group: "g", ExitCode: 3, Reason: "exit code 3"})
	stopping := at(queue.Summary{ID: "a3", Slug: "train", State: task.Stopping, Attempt: 1, Group: "g"})
	for _, tt := range []struct {
		name string
		got  func(out *bufio.Writer) error
		want string
	}{
		{"nothing", func(out *bufio.Writer) error { return short(nil, noon).Print(out) }, ""},
		{"one", func(out *bufio.Writer) error { return short([]queue.Summary{one}, noon).Print(out) },
			"TASK NAME STATE AGE TIME REASON|a1 train pending 0s -"},
		{"groups and attempts", func(out *bufio.Writer) error { return short([]queue.Summary{one, again}, noon).Print(out) },
			"TASK NAME GROUP STATE TRY AGE TIME REASON|a1 train pending 1 0s -|a2 ev al g failed 2 0s - exit code 3"},
		{"counts", func(out *bufio.Writer) error { return groups([]queue.Summary{again, one, again}).Print(out) },
			"GROUP TASKS PENDING RUNNING COMPLETED FAILED ERROR STOPPED|g 2 0 0 0 2 0 0|- 1 1 0 0 0 0 0"},
		{"counts with a state that is rare", func(out *bufio.Writer) error { return groups([]queue.Summary{stopping}).Print(out) },
			"GROUP TASKS PENDING RUNNING STOPPING COMPLETED FAILED ERROR STOPPED|g 1 0 0 1 0 0 0 0"},
		{"names", func(out *bufio.Writer) error { return printNames(out, []queue.Summary{one, again, stopping}) }, "train|ev al"},
		{"long", func(out *bufio.Writer) error {
			again.Created, again.Started, again.Ended = time.Time{}, time.Time{}, time.Time{}
			return long([]queue.Summary{again}).Print(out)
		}, "TASK NAME STATE GROUP TRY SUBMITTED STARTED ENDED EXIT REASON|a2 ev al failed g 2 - - - 3 exit code 3"},
	} {
		var text strings.Builder
		out := bufio.NewWriter(&text)
		if err := tt.got(out); err != nil {
			t.Fatal(err)
		}
		out.Flush()
		var lines []string
		for line := range strings.Lines(text.String()) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if got := strings.Join(lines, "|"); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

func TestFileName(t *testing.T) {
	for name, want := range map[string]string{
		"lr=0.1": "lr=0.1", "a/b": "a-b", "../x": "_..-x", "": "_", ".": "_.", "..": "_..", ".x": "_.x", "a\x00\n\x7fb": "a---b",
		"a\u009bb": "a-b", strings.Repeat("x", 300): strings.Repeat("x", 200), strings.Repeat("é", 150): strings.Repeat("é", 100),
		"x" + strings.Repeat("é", 150): "x" + strings.Repeat("é", 99), "\xff": "\uFFFD",
	} {
		if got := fileName(name); got != want {
			t.Errorf("%q: %q; want %q", name, got, want)
		}
	}
}

func FuzzFileName(f *testing.F) {
	f.Add("../a\x1b")
	f.Add(strings.Repeat("x", 199) + "é")
	f.Fuzz(func(t *testing.T, name string) {
		got := fileName(name)
		if !filepath.IsLocal(got) || got != filepath.Base(got) || got[0] == '.' || len(got) > 200 || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%q: %q", name, got)
		}
	})
}

func TestLink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "link")
	for _, to := range []string{"/a", "/a", "/b"} {
		if err := link(to, path); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(path); got != to || err != nil {
			t.Errorf("%s: %s, %v", to, got, err)
		}
	}
	for name, make := range map[string]func(string) error{
		"directory": func(p string) error { return os.Mkdir(p, 0o700) }, "file": func(p string) error { return os.WriteFile(p, nil, 0o600) },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if err := link("/a", path); err == nil || err.Error() != path+" exists and is not a link" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWriteTable(t *testing.T) {
	memory, cpu := int64(1<<30), 1.5
	rows := []record{
		{Entry: queue.Entry{ID: "a", Slug: "one", State: task.Completed, Created: noon.Local(), Job: "12", CPUSeconds: &cpu, Rent: task.Rent{Cost: 1.25, Machine: 77, GPU: "RTX 4090"}, MaxMemory: &memory,
			Source: task.Source{Archive: "/spool/sources/c0ffee.tar.gz"}, Request: task.Request{Find: "cpu(mem=1G)", Sbatch: []string{"time=1"}},
			Command: []string{"sh", "-c", "echo a"}, Parameters: map[string]string{"id": "x\ty", "lr": "a\\b\nc\rd\x1b"}}, Metrics: metrics.Values{"job": 7, "val.loss": math.NaN()}},
		{Entry: queue.Entry{ID: "b", State: task.Error, ExitCode: 3, Reason: "why", Source: task.Source{Repository: "r", Revision: "abc", Archive: "/d1.tar.gz"}}},
		{Entry: queue.Entry{ID: "c", State: task.Failed, ExitCode: 3, Attempt: 2, Source: task.Source{Repository: "r", Revision: "abc"}, Attempts: make([]task.Attempt, 2), Parameters: map[string]string{"lr": "é\xff"}}, Metrics: metrics.Values{"lr": 0.25}},
	}
	const want = "id|name|group|state|attempt|submitted|started|ended|wait_seconds|run_seconds|exit_code|reason|parameter.id|lr|metric.job|metric.lr|val.loss|job|cpu_seconds|max_memory|code|options|command|cost_dollars|machine|gpu\n" +
		`a|one||completed|1|2026-11-20T12:00:00Z|||||0||x\ty|a\\b\nc\rd?|7||NaN|12|1.500|1073741824|c0ffee|--find 'cpu(mem=1G)' --sbatch time=1|sh -c 'echo a'|1.2500|77|RTX 4090` + "\n" +
		"b|||error|1|||||||why|||||||||abc+d1|||||\n" +
		"c|||failed|4||||||3|||é?||0.25|||||abc|||||\n"
	var out strings.Builder
	if err := (tableOf{[]string{"id", "lr"}, []string{"job", "lr", "val.loss"}}).write(&out, rows); err != nil || strings.ReplaceAll(out.String(), "\t", "|") != want {
		t.Errorf("%v\n%s\nwant\n%s", err, strings.ReplaceAll(out.String(), "\t", "|"), want)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\tb\n", "\\\r\x1b\u0085")
	f.Fuzz(func(t *testing.T, a, b string) {
		var out strings.Builder
		if err := line(&out, []string{a, b}); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.Count(text, "\t") != 1 || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || !utf8.ValidString(text) ||
			strings.ContainsFunc(strings.NewReplacer("\t", "", "\n", "").Replace(text), unicode.IsControl) {
			t.Errorf("%q and %q: %q", a, b, text)
		}
	})
}

func TestRanIn(t *testing.T) {
	const id = "01a20103-99ea-754e-afc2-aaaa11111111"
	submitted := noon.Add(300 * time.Millisecond)
	for _, tt := range []struct {
		name, comment, job string
		submit             int64
		want               bool
	}{
		{"its comment", task.Marks(id), "x", noon.Unix(), true},
		{"another task's comment", task.Marks("01a20103-99ea-754e-afc2-bbbb22222222"), "ponos-train", noon.Unix(), false},
		{"another comment", "mine", "ponos-train", noon.Unix(), false},
		{"a name, where comments are not stored", "", "ponos-train", noon.Unix(), true},
		{"another name", "", "train", noon.Unix(), false},
		{"an earlier job of this id", task.Marks(id), "ponos-train", noon.Unix() - 1, false},
		{"a job whose submission is not known", task.Marks(id), "ponos-train", 0, false},
	} {
		var c slurm.Consumed
		c.Comment, c.Name, c.Submit = tt.comment, tt.job, tt.submit
		if got := ranIn(&c, queue.Entry{ID: id, Created: submitted}); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
	for job, want := range map[string]bool{
		"12": true, "12_3": true, "": false, "_": false, "12_": false, "_3": false, "1_2_3": false, "12,13": false, "--help": false, "12\n": false,
		"0b1c-4": false, "ponos:x:y:1": false,
	} {
		if slurmJob.MatchString(job) != want {
			t.Errorf("job %q: %t", job, !want)
		}
	}
}

func TestLimited(t *testing.T) {
	waits := queue.Summary{State: task.Pending, Reason: "submit limit of alice: 8 of 8"}
	short := queue.Summary{State: task.Completed, Started: noon, Ended: noon.Add(time.Minute), Reason: waits.Reason}
	long := queue.Summary{State: task.Failed, Started: noon, Ended: noon.Add(time.Hour)}
	for _, tt := range []struct {
		all  []queue.Summary
		want bool
	}{
		{[]queue.Summary{waits, short, short, long}, true}, {[]queue.Summary{waits, short, long}, false},
		{[]queue.Summary{short, {State: task.Pending}}, false}, {[]queue.Summary{waits, {State: task.Stopped}}, false},
	} {
		if got := limited(tt.all, tt.all); got != tt.want {
			t.Errorf("%+v: %v", tt.all, got)
		}
	}
}
