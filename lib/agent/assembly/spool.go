package assembly

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// openSpool opens the spool of the configuration. An agent without any work so far may begin with a new one; others may not.
func openSpool(ctx context.Context, p *System, o Options) (opened, error) {
	dir := p.Config.SpoolDir()
	data, err := dataID(p.Config.DataDir)
	if err != nil {
		return opened{}, fault.Errorf(fault.Unavailable, "data_dir: %w", err)
	}
	var s *spool.Spool
	switch {
	case o.Create:
		if s, err = spool.Make(dir, clock.Now()); err == nil {
			p.places.Remember(dir, s.ID)
		}
	case data == "":
		s, err = spool.MakeOnce(p.places, dir, clock.Now())
	default:
		s, err = spool.Open(dir)
	}
	if err != nil {
		return opened{}, err
	}
	name, err := agentName(ctx, p)
	if err != nil {
		return opened{}, err
	}
	q, err := s.For(name)
	if err != nil {
		return opened{}, err
	}
	q.Leaves = func(e queue.Entry) string { return leaves(ctx, p.Config, p.mode.can(), e) }
	was, err := s.Agent(name)
	join := func(store *agent.Store, data string) error { return joinSpool(q, store, was, data, p.Config.Mode, o) }
	return opened{Queue: q, was: was, join: join}, err
}

// joinSpool records the agent in the spool, and the spool in the agent's state.
func joinSpool(q *spool.Queue, store *agent.Store, was queue.Beat, data, mode string, o Options) error {
	if err := rememberSpool(store, q.Spool); err != nil {
		return err
	}
	// Queried once, as a turn makes no further calls of Slurm.
	cache := filepath.Join(store.Dir, "agent."+mode)
	if b, err := os.ReadFile(cache); err != nil || strings.TrimSpace(string(b)) != q.Agent {
		if err := renameio.WriteFile(cache, []byte(q.Agent+"\n"), 0o600, renameio.WithTempDir(store.Dir)); err != nil {
			return err
		}
	}
	if o.Turns || was.Data != data {
		q.Beat = queue.Beat{
			Agent: q.Agent, Host: hostname(), PID: os.Getpid(), Start: command.StartOf(os.Getpid()),
			Mode: mode, Data: data, Dir: filepath.Dir(store.Dir), Every: o.Every.Seconds(),
		}
	}
	if o.Turns || was.Data == data {
		return nil
	}
	// The spool records where the agent keeps its state, even if no turn was taken.
	q.Beat.Seen = was.Seen
	return q.Remember()
}
