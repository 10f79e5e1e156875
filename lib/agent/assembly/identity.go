package assembly

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// Directories that may be mounted have an identity, which their users remember: an empty or different
// directory in their place is an error, and never taken for a new one.

// Places returns what the user's tools remember of directories. The first record that cannot be
// written is reported, as a missing directory is then taken for a new one.
func Places(stderr io.Writer, tool string) place.Memory {
	var once sync.Once
	return place.Memory{Dir: config.PlacesDir(), Failed: func(err error) {
		once.Do(func() {
			app.Report(stderr, tool, fault.Hint(fmt.Errorf("warning: the identity of a directory is not recorded: %w", err),
				"an empty mount point in its place would count as new; make the directory of the record writable"))
		})
	}}
}

// dataFile is the identity of a data_dir.
const dataFile = "data.id"

// dataID returns the identity of a data_dir, "" if it has none.
func dataID(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, dataFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

// makeDataID creates a data_dir with an identity.
func makeDataID(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := lock.WriteNew(filepath.Join(dir, dataFile), []byte(uuid.NewString()+"\n")); err != nil {
		return "", err
	}
	return dataID(dir)
}

// identifyData returns the identity of the agent's data_dir. Was is what the spool
// remembers of an agent of this name. Create allows a new data_dir in place of one that
// is remembered.
func (p *System) identifyData(was queue.Beat, create bool) (string, error) {
	dir := p.Config.DataDir
	before, id, err := was.Data, "", error(nil)
	if before == "" {
		before, err = p.places.Identity(dir)
	}
	if err == nil { // afterwards, as another tool of a pipeline may create it now, and remembers it then
		id, err = dataID(dir)
	}
	if err == nil && before != "" && id != before && !create {
		what := "it is empty or not mounted"
		if id != "" {
			what = "it is data_dir " + id
		}
		when := ""
		if !was.Seen.IsZero() {
			when = ", last at " + was.Seen.Local().Format(time.DateTime)
		}
		return "", fault.Hint(
			fault.Errorf(fault.Unavailable, "data_dir %q: %s; this agent has worked with data_dir %s%s", dir, what, before, when),
			"mount it; if it is lost, run ponos-setup, which accepts this one and finds the tasks again")
	}
	if err == nil && id == "" {
		id, err = makeDataID(dir)
	}
	if err != nil {
		return "", fault.Errorf(fault.Unavailable, "data_dir: %w", err)
	}
	p.places.Remember(dir, id)
	return id, nil
}

const (
	// stateFile, in a data_dir, is the identity of its state directory.
	stateFile = "state.id"
	// absentFile counts the checks in which it was missing.
	absentFile = "state.absent"
)

// findState makes sure that the state directory is the one that was in the data_dir before, or that
// there was none. Create allows a new one at once; otherwise a missing one is only replaced after
// several checks over some minutes.
func (p *System) findState(create bool) error {
	dir, state := p.Config.DataDir, p.Config.StateDir()
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	was := strings.TrimSpace(string(b))
	id := ""
	if err == nil {
		id, err = agent.StateID(state)
	}
	counted := filepath.Join(dir, absentFile)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fault.Errorf(fault.Unavailable, "state directory: %w", err)
	case id == was || create:
		if err := os.Remove(counted); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.Errorf(fault.Unavailable, "data_dir: %w", err)
		}
		return nil
	case id != "":
		return fault.Hint(
			fault.Errorf(fault.Unavailable, "state directory %q: it is %s; this agent has worked with %s", state, id, was),
			"restore that one, or run ponos-setup to accept this one")
	}
	var a task.Absence
	b, err = os.ReadFile(counted)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Errorf(fault.Unavailable, "data_dir: %w", err)
	}
	if err != nil || json.Unmarshal(b, &a) != nil {
		a = task.Absence{}
	}
	before := a
	if a = a.Again(clock.Now().UTC()); a != before {
		if b, err = json.Marshal(a); err == nil {
			err = renameio.WriteFile(counted, append(b, '\n'), 0o600, renameio.WithTempDir(dir))
		}
		if err != nil {
			return fault.Errorf(fault.Unavailable, "data_dir: %w", err)
		}
	}
	if a.Fact() {
		return nil
	}
	return fault.Hint(fault.Errorf(fault.Unavailable, "state directory %q: it is missing or not mounted", state),
		"if it is lost, ponos-setup creates a new one and finds the tasks again; so does a turn after some minutes")
}

// rememberState records which state directory is in the data_dir.
func (p *System) rememberState(store *agent.Store) error {
	path := filepath.Join(p.Config.DataDir, stateFile)
	if b, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(b)) == store.ID() {
		return nil
	}
	err := renameio.WriteFile(path, []byte(store.ID()+"\n"), 0o600, renameio.WithTempDir(p.Config.DataDir))
	if err == nil {
		err = os.Remove(filepath.Join(p.Config.DataDir, absentFile))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Errorf(fault.Unavailable, "data_dir: %w", err)
	}
	return nil
}

// remembered is the spool for which an agent works.
type remembered struct {
	ID  string `json:"id"`
	Dir string `json:"dir"`
}

// rememberSpool makes sure that a spool is the one for which the agent has worked, or records that it
// works for this one from now on. An agent without tasks may change its spool.
func rememberSpool(store *agent.Store, s *spool.Spool) error {
	path := filepath.Join(store.Dir, "spool.json")
	var was remembered
	b, err := os.ReadFile(path)
	if err == nil && json.Unmarshal(b, &was) == nil && was.ID != s.ID {
		ids, err := store.IDs()
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			return fault.Hint(
				fault.Errorf(fault.Unavailable, "spool %q is spool %s; this agent has %d tasks of spool %s (%q)",
					s.Dir, s.ID, len(ids), was.ID, was.Dir),
				"mount that spool; or give this one a data_dir of its own")
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now := remembered{s.ID, s.Dir}
	if now == was {
		return nil
	}
	if b, err = json.Marshal(now); err != nil {
		return err
	}
	return renameio.WriteFile(path, append(b, '\n'), 0o600, renameio.WithTempDir(store.Dir))
}

// View returns what the agent of a configuration knows, whether it runs or not.
func View(c config.Config) (agent.View, error) {
	if err := c.CheckWriters(); err != nil {
		return agent.View{}, err
	}
	v, err := agent.ReadView(c.StateDir())
	if errors.Is(err, fs.ErrNotExist) {
		err = fault.Hint(fmt.Errorf("state directory %q: it does not exist or is not mounted", c.StateDir()), "ponos-setup creates it")
	}
	return v, fault.Wrap(fault.Unavailable, err)
}
