package arkindex_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/queue/arkindex"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

func TestRegisterOnce(t *testing.T) {
	b := setup(t, server.Options{})
	first, err := b.q.Register(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.another().Register(t.Context())
	if err != nil || again != first {
		t.Errorf("second process is %+v, %v; want %+v", again, err, first)
	}
	if first.Hostname != "login1" || first.Farm != server.FarmID || first.Agent == "" {
		t.Errorf("got %+v", first)
	}
	if n := len(b.server.Requests("CreateAgent")); n != 1 {
		t.Errorf("registered %d times", n)
	}
	var declared struct {
		GPUs []arkindex.GPU `json:"gpus"`
		CPUs int            `json:"cpu_cores"`
		Mode string         `json:"mode"`
	}
	b.server.Do(func(w *server.World) { err = json.Unmarshal(w.Agents[0].Declared, &declared) })
	if err != nil || len(declared.GPUs) != 1 || declared.CPUs != 4 || declared.Mode != "slurm" {
		t.Errorf("declared %+v, %v", declared, err)
	}
	info, err := os.Stat(b.cfg.IdentityFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("identity file: %v, %v; want mode 0600", info.Mode(), err)
	}
	contents, _ := os.ReadFile(b.cfg.IdentityFile)
	if bytes.Contains(contents, []byte(server.Seed)) {
		t.Error("identity file holds the seed")
	}
}

func TestRegisterRefused(t *testing.T) {
	b := setup(t, server.Options{}, func(c *arkindex.Config) { c.Seed = "not the seed of this farm" })
	_, err := b.q.Register(t.Context())
	b.refusal(err, "registering the agent: POST "+b.web.URL+"/api/v1/agent/: 403 Forbidden: The seed is not that of the farm.")
	if fault.HintOf(err) == "" {
		t.Error("no hint")
	}
	if len(b.waits) != 0 {
		t.Errorf("waited %v: a refusal is final", b.waits)
	}
}

// A changed seed, farm or instance makes another agent; the same ones do not.
func TestIdentityBelongsToItsFarm(t *testing.T) {
	b := setup(t, server.Options{})
	first, err := b.q.Register(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.server.Do(func(w *server.World) { w.Seed = "another seed of the farm" })
	b.cfg.Seed = "another seed of the farm"
	second, err := b.another().Register(t.Context())
	if err != nil || second.Agent == first.Agent {
		t.Errorf("agent %v, %v; want another than %v", second.Agent, err, first.Agent)
	}
	if err := os.WriteFile(b.cfg.IdentityFile, []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.another().Register(t.Context()); err != nil {
		t.Errorf("damaged identity file: %v", err)
	}
	if !strings.Contains(b.log.String(), "damaged") {
		t.Errorf("log says nothing of it: %s", b.log.String())
	}
}

func TestTokens(t *testing.T) {
	b := setup(t, server.Options{})
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	other := b.another()

	b.server.ExpireTokens(false)
	b.actions()
	if n := len(b.server.Requests("RefreshAgentToken")); n != 1 {
		t.Errorf("refreshed %d times; want once", n)
	}
	// The other process finds the new token in the file.
	if _, err := other.Actions(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if n := len(b.server.Requests("RefreshAgentToken")); n != 1 {
		t.Errorf("the other process refreshed too: %d", n)
	}

	b.server.ExpireTokens(true)
	b.actions()
	if n := len(b.server.Requests("CreateAgent")); n != 2 {
		t.Errorf("registered %d times; want twice", n)
	}
	if _, err := b.q.Task(t.Context(), id); err != nil {
		t.Errorf("after registering again, the task is: %v", err)
	}
	// Many at once renew once.
	b.server.ExpireTokens(false)
	b.server.Forget()
	errs := make(chan error)
	for range 10 {
		go func() { _, err := b.another().Actions(t.Context(), nil); errs <- err }()
	}
	for range 10 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := len(b.server.Requests("RefreshAgentToken")) + len(b.server.Requests("CreateAgent")); n != 1 {
		t.Errorf("ten processes renewed the token %d times", n)
	}
}

func TestRegisterReaches(t *testing.T) {
	b := setup(t, server.Options{})
	if _, err := b.q.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.web.Close()
	_, err := b.another().Register(t.Context())
	b.refusal(err, "connection refused")
}

func TestNewChecks(t *testing.T) {
	good := arkindex.Config{URL: "https://a.example.org/", FarmID: "f", Seed: "s", IdentityFile: "i"}
	for name, change := range map[string]func(*arkindex.Config){
		"scheme":   func(c *arkindex.Config) { c.URL = "ftp://a.example.org" },
		"host":     func(c *arkindex.Config) { c.URL = "arkindex.example.org" },
		"user":     func(c *arkindex.Config) { c.URL = "https://me:secret@a.example.org" },
		"farm":     func(c *arkindex.Config) { c.FarmID = "" },
		"seed":     func(c *arkindex.Config) { c.Seed = "" },
		"identity": func(c *arkindex.Config) { c.IdentityFile = "" },
	} {
		c := good
		change(&c)
		if _, err := arkindex.New(c); !fault.Is(err, fault.Usage) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := arkindex.New(good); err != nil {
		t.Error(err)
	}
}
