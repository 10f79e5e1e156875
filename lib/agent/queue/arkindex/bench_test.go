package arkindex_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/arkindex"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

// bench is a server and an agent's queue before it.
type bench struct {
	*testing.T
	server *server.Server
	web    *httptest.Server
	cfg    arkindex.Config
	q      *arkindex.Queue
	now    time.Time // of the agent
	waits  []time.Duration
	log    bytes.Buffer
}

func setup(t *testing.T, opt server.Options, change ...func(*arkindex.Config)) *bench {
	t.Helper()
	s, err := server.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, server: s, now: clock.Now()}
	b.web = httptest.NewServer(s)
	b.web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(b.web.Close)
	b.cfg = arkindex.Config{
		URL: b.web.URL, FarmID: server.FarmID, Seed: server.Seed, Mode: "slurm", Hostname: "login1",
		IdentityFile:   filepath.Join(t.TempDir(), "identity.json"),
		LogContentType: arkindex.DefaultLogContentType, DeclareGPU: true,
		Hardware: &arkindex.Hardware{CPUs: 4, RAM: 1 << 30},
		Load:     func() (float64, float64) { return 0.25, 0.5 },
		Logger:   slog.New(slog.NewTextHandler(&b.log, nil)),
		Now:      func() time.Time { return b.now },
		Sleep: func(ctx context.Context, d time.Duration) error {
			b.waits = append(b.waits, d)
			return ctx.Err()
		},
	}
	for _, f := range change {
		f(&b.cfg)
	}
	b.q = b.another()
	return b
}

// another is a further process of the same agent.
func (b *bench) another() *arkindex.Queue {
	b.Helper()
	q, err := arkindex.New(b.cfg)
	if err != nil {
		b.Fatal(err)
	}
	return q
}

func (b *bench) add(tasks ...*server.Task) []task.ID {
	b.Helper()
	b.addSpec(server.Spec{Tasks: tasks})
	var ids []task.ID
	for _, t := range tasks {
		ids = append(ids, task.ID(t.ID))
	}
	return ids
}

func (b *bench) addSpec(spec server.Spec) {
	b.Helper()
	if err := b.server.Add(spec); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) actions() []task.Action {
	b.Helper()
	actions, err := b.q.Actions(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	return actions
}

func (b *bench) agent() (id string) {
	b.server.Do(func(w *server.World) { id = w.Agents[0].ID })
	return id
}

func (b *bench) history(id string) string {
	t, _ := b.server.Task(id)
	return strings.Join(t.History, ",")
}

func (b *bench) report(id task.ID, state task.State) error {
	return b.q.Report(b.Context(), id, task.Report{State: state})
}

// refusal checks that err is one of the queue, in one line and without a secret.
func (b *bench) refusal(err error, want string) {
	b.Helper()
	switch {
	case err == nil:
		b.Fatalf("no error; want %q", want)
	case !fault.Is(err, fault.Unavailable):
		b.Errorf("error %q is of kind %d; want Unavailable", err, fault.KindOf(err))
	case !strings.Contains(err.Error(), want):
		b.Errorf("error %q; want %q in it", err, want)
	}
	b.oneLine(err)
}

func (b *bench) oneLine(err error) {
	b.Helper()
	text := err.Error()
	if strings.ContainsAny(text, "\n\r\x00") || len(text) > 1000 {
		b.Errorf("error is no line: %q", text)
	}
	if strings.Contains(text, server.Seed) || strings.Contains(text, "X-Amz") {
		b.Errorf("error holds a secret: %q", text)
	}
	b.server.Do(func(w *server.World) {
		for _, a := range w.Agents {
			for _, t := range a.Access {
				if strings.Contains(text, t.Value) {
					b.Errorf("error holds a token: %q", text)
				}
			}
		}
		for _, t := range w.Tasks {
			if t.Token != "" && strings.Contains(text, t.Token) {
				b.Errorf("error holds a task's token: %q", text)
			}
		}
	})
}

func (b *bench) download(get func(to *os.File) error) string {
	b.Helper()
	f, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := get(f); err != nil {
		b.Fatal(err)
	}
	contents, err := os.ReadFile(f.Name())
	if err != nil {
		b.Fatal(err)
	}
	return string(contents)
}
