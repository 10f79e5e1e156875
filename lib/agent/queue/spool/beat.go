package spool

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// beatPace is the shortest interval between two writes of the file.
const beatPace = 10 * time.Second

// Alive records that the agent takes turns.
func (q *Queue) Alive() error {
	now := q.now().UTC()
	if q.Beat.Agent == "" {
		return nil
	}
	if since := now.Sub(q.beaten); !q.beaten.IsZero() && since >= 0 && since < beatPace {
		return nil
	}
	q.Beat.Seen = now
	if _, err := q.leave(q.Beat, false); err != nil {
		return err
	}
	q.beaten = now
	return nil
}

// SignOff records that the agent has been ended, unless another process has taken its place.
func (q *Queue) SignOff() error {
	last, err := q.Spool.Agent(q.Beat.Agent)
	if err != nil || last.Agent == "" || last.Host != q.Beat.Host || last.PID != q.Beat.PID {
		return err
	}
	last.Ended = true
	_, err = q.leave(last, false)
	return err
}

// Remember records where the agent keeps its data, without recording a turn. The tools of a pipeline
// begin at the same time: what one of them has recorded meanwhile, such as its turn, is not
// overwritten.
func (q *Queue) Remember() error {
	made, err := q.leave(q.Beat, true)
	if made || err != nil {
		return err
	}
	b := q.Beat
	last, err := q.Spool.Agent(b.Agent)
	if err == nil && last.Data == b.Data {
		return nil
	}
	if err == nil && last.Seen.After(b.Seen) {
		b.Seen = last.Seen
	}
	_, err = q.leave(b, false)
	return err
}

// leave writes the file of an agent; a fresh one only if there is none.
func (q *Queue) leave(b queue.Beat, fresh bool) (written bool, err error) {
	path, temp := q.path(agentsDir, b.Agent+".json"), q.path(tmpDir, "agent-"+uuid.NewString())
	text, err := json.Marshal(b)
	if err == nil { // in a spool of an earlier version, the directory is not there
		if err = os.Mkdir(q.path(agentsDir, ""), 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	text = append(text, '\n')
	switch {
	case err != nil:
	case !fresh:
		err = renameio.WriteFile(path, text, 0o600, renameio.WithTempDir(q.path(tmpDir, "")))
	default:
		if err = os.WriteFile(temp, text, 0o600); err == nil {
			defer os.Remove(temp)
			if err = os.Link(temp, path); errors.Is(err, fs.ErrExist) {
				return false, nil
			}
		}
	}
	if err != nil {
		return false, fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return true, nil
}

// Agent returns the last heartbeat of an agent; the zero value if there is none.
func (s *Spool) Agent(name string) (queue.Beat, error) {
	beats, err := s.Agents()
	for _, b := range beats {
		if b.Agent == name {
			return b, err
		}
	}
	return queue.Beat{}, err
}

// Agents returns the last heartbeats of all agents, running or not. One that this host knows to be killed has ended.
func (s *Spool) Agents() ([]queue.Beat, error) {
	entries, err := os.ReadDir(s.path(agentsDir, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	var beats []queue.Beat
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if _, err := task.ParseID(name); !ok || err != nil {
			continue
		}
		var b queue.Beat
		text, err := os.ReadFile(s.path(agentsDir, e.Name()))
		if err == nil && json.Unmarshal(text, &b) == nil && b.Agent == name {
			b.Ended = b.Ended || killed(b)
			beats = append(beats, b)
		}
	}
	return beats, nil
}

// killed reports whether the process that takes the turns of an agent was on this host, and is gone.
func killed(b queue.Beat) bool {
	host, err := os.Hostname()
	return err == nil && b.Host == host && b.Every > 0 && b.Start != "" && command.StartOf(b.PID) != b.Start
}
