package arkindex

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// identity is the identity of the agent at the instance, and the content of the identity file. It
// belongs to one instance, farm and seed.
type identity struct {
	URL      string `json:"url"`
	Farm     string `json:"farm_id"`
	Seed     string `json:"seed_sha256"`
	Agent    string `json:"agent_id"`
	Hostname string `json:"hostname"`
	Access   string `json:"access_token"`
	Refresh  string `json:"refresh_token,omitempty"`
}

// maxIdentity limits what is read of the identity file.
const maxIdentity = 1 << 20

// lockTime is how long another process may take to renew the token before this
// one does it as well. The lock is a courtesy: where the file system has none,
// two processes register at worst.
const lockTime = 30 * time.Second

// Register makes the agent known, unless the identity file shows that it is. In any case it requests
// the OpenAPI document of the instance, which shows whether it can be reached. The other operations
// also work without it.
func (q *Queue) Register(ctx context.Context) (queue.Identity, error) {
	err := q.repeat(ctx, q.base.Host, func() error { return q.reach(ctx) })
	if err != nil {
		return queue.Identity{}, fault.Wrap(fault.Unavailable, err)
	}
	id, err := q.me(ctx)
	if err != nil {
		return queue.Identity{}, fault.Wrap(fault.Unavailable, err)
	}
	return queue.Identity{Agent: id.Agent, Hostname: id.Hostname, Farm: id.Farm}, nil
}

// reach renews the OpenAPI document. Only an unreachable instance is an error: it may have no such
// document.
func (q *Queue) reach(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.schema == nil {
		q.schema = q.cachedSchema(q.cfg.Now())
	}
	if err := q.fetchSchema(ctx, q.cfg.Now()); passing(err) {
		return err
	}
	return nil
}

// me returns the identity from memory, the file or, as a last resort, the instance.
func (q *Queue) me(ctx context.Context) (identity, error) {
	q.mu.Lock()
	id := q.identity
	q.mu.Unlock()
	if id.Access != "" {
		return id, nil
	}
	return q.renew(ctx, "")
}

// renew replaces a token that the instance has refused; "" if there is none.
func (q *Queue) renew(ctx context.Context, refused string) (identity, error) {
	q.openapi(ctx)
	waiting, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	if held, err := lock.Wait(waiting, q.cfg.IdentityFile+".lock"); err == nil {
		defer held.Close()
	} else if ctx.Err() != nil {
		return identity{}, context.Cause(ctx)
	} else {
		q.log.Debug("identity file is not locked", "error", err)
	}
	id, err := q.readIdentity()
	if err != nil {
		return identity{}, err
	}
	mine := id.URL == q.origin() && id.Farm == q.cfg.FarmID && id.Seed == q.seedSum() && id.Agent != ""
	switch {
	case mine && id.Access != "" && id.Access != refused:
		q.remember(id)
		return id, nil
	case mine && id.Refresh != "" && refused != "":
		fresh, err := q.refresh(ctx, id)
		if err == nil {
			return fresh, q.keep(fresh)
		}
		if code := status(err); code < 400 || code >= 500 || code == http.StatusTooManyRequests {
			return identity{}, err
		}
		q.log.Debug("token is not refreshed, registering again", "error", err)
	}
	if !mine {
		// Without the file, the tasks still belong to the agent that had it.
		id = identity{}
		if id.Agent, err = q.cfg.Memory.Identity(q.remembered()); err != nil {
			return identity{}, fault.Errorf(fault.Unavailable, "the agent's id: %w", err)
		}
	}
	fresh, err := q.create(ctx, id.Agent)
	if err != nil {
		return identity{}, err
	}
	if id.Agent != "" && id.Agent != fresh.Agent {
		q.log.Warn("the queue knows this agent by another id now, and may give its tasks to others", "before", id.Agent, "now", fresh.Agent)
	}
	return fresh, q.keep(fresh)
}

// refresh asks for a new access token.
func (q *Queue) refresh(ctx context.Context, id identity) (identity, error) {
	var answer tokens
	body := map[string]string{"refresh": id.Refresh}
	if err := q.do(ctx, call{op: opRefresh, body: body, as: nobody}, &answer); err != nil {
		return identity{}, fmt.Errorf("refreshing the agent's token: %w", err)
	}
	if answer.access() == "" {
		return identity{}, fmt.Errorf("refreshing the agent's token: answer has none")
	}
	id.Access = answer.access()
	if r := answer.refresh(); r != "" {
		id.Refresh = r
	}
	return id, nil
}

// create registers the agent, under its known id if it has one.
func (q *Queue) create(ctx context.Context, agent string) (identity, error) {
	var hardware Hardware
	if q.cfg.Hardware != nil {
		hardware = *q.cfg.Hardware
	} else {
		hardware = machine()
	}
	if hardware.GPUs == nil {
		hardware.GPUs = []GPU{}
	}
	if q.cfg.DeclareGPU && len(hardware.GPUs) == 0 {
		// The same name each time, or the farm would seem to grow.
		id := uuid.NewSHA1(uuid.NameSpaceURL, []byte(q.cfg.FarmID+"/"+q.cfg.Hostname))
		hardware.GPUs = []GPU{{ID: id.String(), Name: "by " + firstOf(q.cfg.Mode, "the runner")}}
	}
	body := registration{
		ID: agent, FarmID: q.cfg.FarmID, Seed: q.cfg.Seed,
		Hostname: q.cfg.Hostname, Mode: q.cfg.Mode, Hardware: hardware,
	}
	var answer struct {
		ID flexible `json:"id"`
		tokens
	}
	if err := q.do(ctx, call{op: "CreateAgent", body: body, as: nobody}, &answer); err != nil {
		err = fmt.Errorf("registering the agent: %w", err)
		if code := status(err); code >= 400 && code < 500 {
			err = fault.Hint(err, "are url, farm_id and seed those of a farm of this instance?")
		}
		return identity{}, err
	}
	if answer.ID == "" || answer.access() == "" {
		return identity{}, fault.Errorf(fault.Unavailable, "registering the agent: answer has no id or no token")
	}
	return identity{
		URL: q.origin(), Farm: q.cfg.FarmID, Seed: q.seedSum(),
		Agent: string(answer.ID), Hostname: q.cfg.Hostname,
		Access: answer.access(), Refresh: answer.refresh(),
	}, nil
}

type registration struct {
	ID       string `json:"id,omitempty"`
	FarmID   string `json:"farm_id"`
	Seed     string `json:"seed"`
	Hostname string `json:"hostname"`
	Mode     string `json:"mode,omitempty"`
	Hardware
}

// Tokens have different names in registration and refresh, and in different versions.
type tokens struct {
	AccessToken  string `json:"access_token"`
	Access       string `json:"access"`
	Token        string `json:"token"`
	RefreshToken string `json:"refresh_token"`
	Refresh      string `json:"refresh"`
}

func (t tokens) access() string  { return firstOf(t.AccessToken, t.Access, t.Token) }
func (t tokens) refresh() string { return firstOf(t.RefreshToken, t.Refresh) }

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// keep writes the identity to its file, and remembers it even if that fails.
func (q *Queue) keep(id identity) error {
	q.remember(id)
	contents, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(q.cfg.IdentityFile, append(contents, '\n'), 0o600); err != nil {
		return fault.Errorf(fault.Failed, "keeping the agent's identity: %w", err)
	}
	q.cfg.Memory.Remember(q.remembered(), id.Agent)
	return nil
}

// remembered is the key under which the agent's id is remembered.
func (q *Queue) remembered() string {
	return "arkindex " + q.origin() + " " + q.cfg.FarmID + " " + q.cfg.IdentityFile
}

func (q *Queue) remember(id identity) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.identity = id
}

// readIdentity reads the identity file. A missing or useless file is not an error: the agent
// registers again.
func (q *Queue) readIdentity() (identity, error) {
	info, err := os.Stat(q.cfg.IdentityFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return identity{}, nil
	case err != nil:
		return identity{}, fault.Errorf(fault.Failed, "reading the agent's identity: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxIdentity:
		return identity{}, fault.Errorf(fault.Failed, "reading the agent's identity: %q is not an identity file", q.cfg.IdentityFile)
	}
	contents, err := os.ReadFile(q.cfg.IdentityFile)
	if err != nil {
		return identity{}, fault.Errorf(fault.Failed, "reading the agent's identity: %w", err)
	}
	var id identity
	if json.Unmarshal(contents, &id) != nil {
		q.log.Warn("identity file is damaged, registering again", "file", q.cfg.IdentityFile)
		return identity{}, nil
	}
	return id, nil
}

func (q *Queue) seedSum() string {
	sum := sha256.Sum256([]byte(q.cfg.FarmID + "\x00" + q.cfg.Seed))
	return hex.EncodeToString(sum[:])
}

// secrets returns the credentials that must not appear in messages.
func (q *Queue) secrets() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return []string{q.cfg.Seed, q.identity.Access, q.identity.Refresh}
}
