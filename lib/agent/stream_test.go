package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// stream does starts as a test wants.
func stream(out io.Writer, do func(task.ID) (task.Outcome, error)) (*Stream, *[]string) {
	var mu sync.Mutex
	var problems []string
	return &Stream{
		Kind: task.Start, Jobs: 4, Out: out,
		Do: func(_ context.Context, id task.ID) (task.Outcome, error) { return do(id) },
		Problem: func(err error) {
			mu.Lock()
			problems = append(problems, err.Error())
			mu.Unlock()
		},
	}, &problems
}

// However many actions wait for their turn, the lines behind them pass.
func TestStreamPassesOnBehindManyActions(t *testing.T) {
	passed := make(chan struct{})
	var out syncBuffer
	s, _ := stream(&out, func(id task.ID) (task.Outcome, error) {
		<-passed
		return task.Outcome{Event: "started", ID: id}, nil
	})
	go func() {
		defer close(passed)
		for !strings.Contains(out.String(), "note") && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	const many = 30000
	var lines strings.Builder
	for i := range many {
		fmt.Fprintf(&lines, `{"action":"start","id":"t%d"}`+"\n", i)
	}
	if err := s.Run(t.Context(), strings.NewReader(lines.String()+`{"note":1}`+"\n")); err != nil {
		t.Error(err)
	}
	if text := out.String(); !strings.HasPrefix(text, `{"note":1}`) || strings.Count(text, `"started"`) != many {
		t.Errorf("%d started, begins with %.100s", strings.Count(text, `"started"`), text)
	}
}

// A line about a task at which the stream works waits; all others do not, and the
// same action again is done once.
func TestStreamKeepsTheOrderOfATask(t *testing.T) {
	release := make(chan struct{})
	var mu sync.Mutex
	calls := map[task.ID]int{}
	var out syncBuffer
	s, problems := stream(&out, func(id task.ID) (task.Outcome, error) {
		mu.Lock()
		calls[id]++
		mu.Unlock()
		if id == "slow" {
			<-release
		}
		return task.Outcome{Event: "started", ID: id}, nil
	})
	go func() {
		for !strings.Contains(out.String(), "note") && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		close(release)
	}()
	err := s.Run(t.Context(), strings.NewReader(`{"action":"start","id":"slow"}
{"action":"stop","id":"slow"}
{"action":"start","id":"slow"}
{"note":1}
`))
	if err != nil || len(*problems) != 0 {
		t.Errorf("%v, %q", err, *problems)
	}
	want := `{"note":1}
{"event":"started","id":"slow"}
{"action":"stop","id":"slow"}
`
	if out.String() != want || calls["slow"] != 1 {
		t.Errorf("%d calls, printed\n%s\nwant\n%s", calls["slow"], out.String(), want)
	}
}

func TestStreamStatus(t *testing.T) {
	down := fault.Errorf(fault.Unavailable, "squeue: down")
	for _, tt := range []struct {
		name    string
		results map[task.ID]error
		failed  bool
		code    int
	}{
		{"all well", map[task.ID]error{"a": nil, "b": nil}, false, 0},
		{"Slurm is down", map[task.ID]error{"a": down, "b": down}, false, 3},
		{"one failed, the rest is done", map[task.ID]error{"a": errors.New("x"), "b": nil}, false, 1},
		{"a task that cannot be started", map[task.ID]error{"a": nil}, true, 1},
	} {
		var out syncBuffer
		s, problems := stream(&out, func(id task.ID) (task.Outcome, error) {
			if tt.failed {
				return task.Outcome{Event: "failed", ID: id, Reason: "no code"}, nil
			}
			return task.Outcome{Event: "started", ID: id}, tt.results[id]
		})
		var input strings.Builder
		for id := range tt.results {
			input.WriteString(`{"action":"start","id":"` + string(id) + "\"}\n")
		}
		if code, _ := fault.Code(s.Run(t.Context(), strings.NewReader(input.String()))); code != tt.code {
			t.Errorf("%s: status %d, want %d", tt.name, code, tt.code)
		}
		if (tt.code == 0) != (len(*problems) == 0) {
			t.Errorf("%s: problems %q", tt.name, *problems)
		}
	}
}

// A signal ends the stream although its input stays open.
func TestStreamEndsWithItsContext(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	s, _ := stream(io.Discard, func(task.ID) (task.Outcome, error) { return task.Outcome{}, nil })
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := s.Run(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestStreamWithoutReader(t *testing.T) {
	s, _ := stream(brokenPipe{}, func(task.ID) (task.Outcome, error) { return task.Outcome{}, nil })
	if err := s.Run(t.Context(), strings.NewReader("{}\n{}\n")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// syncBuffer is a buffer that may be looked at while it is written to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestTaskLine(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 0, 1, 23e6, time.UTC)
	got := taskLine("[agent %(levelname)s %(asctime)s] %(message)s 100%%", "INFO", "50%(name)s", now)
	if want := "[agent INFO 2026-11-20 18:00:01,023] 50%(name)s 100%\n"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}
