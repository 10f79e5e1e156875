package retry

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// made is a spool with tasks, which are described by words: the id, the state, what the task comes
// after (after=ID), which one it retries (of=ID), the name of a variable (var=NAME) and its code (code=PATH).
// Each was submitted later than the one before, if it is not old.
func made(t *testing.T, lines ...string) *spool.Spool {
	t.Helper()
	s, err := spool.Make(filepath.Join(t.TempDir(), "spool"), noon)
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.For("agent")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		words := strings.Fields(line)
		e := queue.Entry{
			ID: task.ID(words[0]), Slug: "name-" + words[0], Command: []string{"true"}, Created: noon.Add(time.Duration(i) * time.Minute),
		}
		for _, w := range words[2:] {
			switch kind, value, _ := strings.Cut(w, "="); kind {
			case "old":
				e.Created = noon.Add(-time.Hour)
			case "after":
				e.After = append(e.After, task.ID(value))
			case "var":
				e.Env = map[string]string{value: "secret"}
			case "code":
				e.Source.Archive = value
			case "of":
				e.RetryOf, e.Attempt = task.ID(value), 2
				b, err := s.Retry([]queue.Entry{e})
				if err != nil {
					t.Fatal(err)
				}
				e.ID = b.IDs[0]
			}
		}
		if e.RetryOf == "" {
			if err := s.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		state, reason := task.State(words[1]), "because"
		if parent, ok := strings.CutPrefix(words[1], "parent:"); ok {
			id, err := s.Latest(task.ID(parent))
			if err != nil {
				t.Fatal(err)
			}
			state, reason = task.Error, fmt.Sprintf("parent task %s ended as failed", id)
		}
		if state == task.Pending {
			continue
		}
		if err := q.Report(t.Context(), e.ID, task.Report{State: state, Reason: reason, ExitCode: 3}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// retried is what follows when tasks are named: those that are submitted again, in their order, with
// what they come after, and what is refused. A retry is called by its task and a prime.
func retried(t *testing.T, s *spool.Spool, env map[string]string, names ...string) string {
	t.Helper()
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var found []queue.Summary
	for _, n := range names {
		i := slices.IndexFunc(all, func(r queue.Summary) bool { return r.Slug == "name-"+n })
		if i < 0 {
			t.Fatalf("no task %s", n)
		}
		found = append(found, all[i])
	}
	again, errs := plan(s, withChildren(all, found), env, true)
	made, err := submit(s, again)
	if err != nil {
		t.Fatal(err)
	}
	if all, err = s.List(); err != nil {
		t.Fatal(err)
	}
	called := func(id task.ID) string {
		for _, r := range all {
			if r.ID == id {
				name := strings.TrimPrefix(r.Slug, "name-")
				if slices.Contains(made, id) {
					name += "'"
				}
				return name
			}
		}
		return string(id)
	}
	var lines []string
	for _, id := range made {
		e, err := s.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		if e.State != task.Pending || e.Reason != "" || e.ExitCode != 0 || !e.Ended.IsZero() || e.Agent != "" || e.Job != "" || len(e.Variables) > 0 {
			t.Errorf("a retry has what its task was: %+v", e)
		}
		line := called(id)
		if e.Attempt != 2 {
			line += fmt.Sprintf("#%d", e.Attempt)
		}
		for _, parent := range e.After {
			line += "<" + called(parent)
		}
		lines = append(lines, line)
	}
	for _, err := range errs {
		text := err.Error()
		for _, r := range all {
			text = strings.ReplaceAll(text, string(r.ID), called(r.ID))
		}
		lines = append(lines, fmt.Sprintf("error %s; %s", text, fault.HintOf(err)))
	}
	return strings.Join(lines, "\n")
}

func TestRetry(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tasks []string
		env   map[string]string
		retry string
		want  string
	}{
		{"each state that is an end", []string{"a failed", "b error", "c stopped", "d cancelled"}, nil, "a b c d", "a'\nb'\nc'\nd'"},
		{"what has not ended, and what is completed", []string{"a pending", "b running", "c completed", "d failed"}, nil, "a b c d",
			"d'\nerror task a (name-a): it is pending; ponos-cancel stops it; it can be retried when it has ended\n" +
				"error task b (name-b): it is running; ponos-cancel stops it; it can be retried when it has ended\n" +
				"error task c (name-c): it has completed, and only what failed or was stopped is retried; "},
		{"the oldest first, in whatever order they are named", []string{"a failed", "b failed"}, nil, "b a", "a'\nb'"},
		{"a third attempt", []string{"a failed", "b failed of=a"}, nil, "b", "b'#3"},
		{"twice", []string{"a failed", "b failed of=a"}, nil, "a", "error task a (name-a): it has already been retried, as task b; retry that one"},

		{"children that ended with their parent, and theirs", []string{"a failed", "b parent:a after=a", "c parent:b after=b"}, nil, "a",
			"a'\nb'<a'\nc'<b'"},
		{"children that failed by themselves, or wait", []string{"a failed", "b failed", "c pending after=a", "d parent:b after=b"}, nil, "a", "a'"},
		{"a child of two", []string{"a failed", "b failed", "c parent:a after=b after=a"}, nil, "b a", "a'\nb'\nc'<b'<a'"},
		{"a child without its parent", []string{"a failed", "b parent:a after=a"}, nil, "b",
			"error task b (name-b): the task that it waits for, a (name-a), ended as failed; retry that one too"},
		{"a child of two, one of which is not retried", []string{"a failed", "b failed", "c parent:a after=a after=b"}, nil, "a",
			"a'\nerror task c (name-c): the task that it waits for, b (name-b), ended as failed; retry that one too"},
		{"a child of one that cannot be retried", []string{"a failed var=KEY", "b parent:a after=a"}, nil, "a",
			"error task a (name-a): its variables are not kept: KEY; pass them again with --env-file\n" +
				"error task b (name-b): the task that it waits for, a (name-a), ended as failed; retry that one too"},
		{"a parent that runs", []string{"a running", "b stopped after=a"}, nil, "b", "b'<a"},
		{"a parent that is gone", []string{"b error after=gone"}, nil, "b", "b'<gone"},
		// The first attempt of the parent was retried before the child had ended with it; the second
		// one, which is younger than the child, took the child along.
		{"a child older than its parent's last attempt", []string{"p failed", "q failed of=p", "c parent:p after=p old"}, nil, "q",
			"q'#3\nc'<q'"},
		{"a child that is older than its parent", []string{"c parent:p after=p", "p failed"}, nil, "p", "p'\nc'<p'"},
		{"a chain that is named backwards", []string{"c parent:b after=b", "b parent:a after=a", "a failed"}, nil, "c b a", "a'\nb'<a'\nc'<b'"},
		{"tasks that wait for each other", []string{"a failed after=b", "b failed after=a"}, nil, "a b",
			"error task b (name-b): the task that it waits for, a (name-a), ended as failed; retry that one too\n" +
				"error task a (name-a): the task that it waits for, b (name-b), ended as failed; retry that one too"},

		{"variables", []string{"a failed var=KEY"}, map[string]string{"KEY": "2", "MORE": "3"}, "a", "a'"},
		{"other variables", []string{"a failed var=KEY"}, map[string]string{"MORE": "3"}, "a",
			"error task a (name-a): its variables are not kept: KEY; pass them again with --env-file"},
		{"code that is gone", []string{"a failed code=/nowhere/x.tar.gz"}, nil, "a", "error task a (name-a): its code was removed from the spool; --directory or --repository gives it other code"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := retried(t, made(t, tt.tasks...), tt.env, strings.Fields(tt.retry)...); got != tt.want {
				t.Errorf("%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// A retry of tasks that another process has retried meanwhile is that one's.
func TestRetryAtTheSameTime(t *testing.T) {
	s := made(t, "a failed", "b failed")
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	again, errs := plan(s, all, nil, true)
	if len(again) != 2 || len(errs) > 0 {
		t.Fatal(again, errs)
	}
	first, err := submit(s, slices.Clone(again[:1]))
	if err != nil {
		t.Fatal(err)
	}
	both, err := submit(s, again)
	if err != nil || len(both) != 2 || both[0] != first[0] {
		t.Errorf("%v, then %v, %v", first, both, err)
	}
}

// A new request takes the place of the options that say what the job gets, and of the time limit if it has a duration: they would come
// before it. New options come before both.
func TestNewRequest(t *testing.T) {
	for _, tt := range []struct {
		find   string
		sbatch []string
		want   string
	}{
		{"cpu(mem=1G)", nil, "account=a time=5"},
		{"cpu(mem=1G) & duration=2h", nil, "account=a"},
		{"cpu(mem=1G) & duration=2h | cuda(mem=8G)", nil, "account=a time=5"},
		{"cpu(mem=1G)", []string{"mem=2G"}, "account=a mem=2G time=5"},
		{"", []string{"mem=2G"}, "account=a gres=gpu:1 mem=2G time=5"},
		{"", nil, "account=a mem=300M time=5 gres=gpu:1"},
	} {
		e := queue.Entry{Request: task.Request{Find: "cpu(cores=1)", Sbatch: []string{"account=a", "mem=300M", "time=5", "gres=gpu:1"}}}
		if err := (change{find: tt.find, sbatch: tt.sbatch}).rest(&e); err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
		got := slices.Clone(e.Request.Sbatch)
		if tt.sbatch != nil || tt.find != "" {
			slices.Sort(got)
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%+v: %s", tt, text)
		}
	}
}
