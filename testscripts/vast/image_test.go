package vast

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	arkindex "github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

// What an image runs by itself is asked of its registry: a task without a command runs
// that, and one with a command keeps the image's entrypoint, as in docker.
func TestImageRunsWhatItWould(t *testing.T) {
	t.Parallel()
	hash := func(s string) string { sum := sha256.Sum256([]byte(s)); return "sha256:" + hex.EncodeToString(sum[:]) }
	config := `{"config":{"Entrypoint":["env","WAY=entrypoint"],"Cmd":["sh","-c","echo by $WAY and command"]}}`
	manifest := fmt.Sprintf(`{"config":{"digest":%q}}`, hash(config))
	var down atomic.Bool
	var asked atomic.Int64
	images := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/manifests/1") {
			asked.Add(1)
		}
		switch {
		case down.Load():
			rw.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/v2/team/worker/manifests/1":
			fmt.Fprint(rw, manifest)
		case r.URL.Path == "/v2/team/worker/blobs/"+hash(config):
			fmt.Fprint(rw, config)
		default:
			rw.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(images.Close)
	host := strings.TrimPrefix(images.URL, "http://")
	w := newWorld(t, options{via: "api", extra: "  image_lookup: true\n  commands: {'named*': sh -c 'echo by configuration'}\n"})
	w.offers(5)
	add := func(slug, image string, command ...string) {
		spec := &arkindex.Task{Slug: slug, Image: host + image, RequiresGPU: true}
		if len(command) > 0 {
			spec.Command, _ = json.Marshal(command)
		}
		if err := w.queue.Add(arkindex.Spec{Tasks: []*arkindex.Task{spec}}); err != nil {
			t.Fatal(err)
		}
	}
	down.Store(true)
	add("bare", "/team/worker:1")
	add("own", "/team/worker:1", "sh", "-c", "echo own by $WAY")
	add("named-x", "/team/worker:1")
	add("missing", "/team/worker:2")
	out, _, _ := w.run(turn)
	if !strings.Contains(out, "image "+host+"/team/worker:1: registry "+host+": status 503 (set image_lookup: false to skip this)") || strings.Count(out, `"event":"deferred"`) != 3 {
		t.Errorf("%s", out)
	}
	// Who waits for the registry does not ask it at each turn.
	for range 3 {
		w.run(turn)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the registry was asked %d times", n)
	}
	down.Store(false)
	if err := os.Remove(filepath.Join(w.dir, "data/state/vast/images.json")); err != nil { // a minute later
		t.Fatal(err)
	}
	w.settled("bare", "own", "named-x", "missing")
	for slug, want := range map[string]string{
		"bare": "by entrypoint and command\n", "own": "own by entrypoint\n", "named-x": "by configuration\n",
		"missing": "image " + host + "/team/worker:2: the registry does not provide the image: " + host + ": status 404",
	} {
		if log := string(w.queue.Log(slug)); !strings.Contains(log, want) {
			t.Errorf("%s is %s\n%s", slug, w.state(slug), log)
		}
	}
	// One manifest tells both what an image runs and where to look for its programs:
	// registries count them.
	if n := asked.Load(); n != 2 {
		t.Errorf("the registry was asked %d times", n)
	}
	if n := len(w.market.Instances()); n != 3 || w.state("missing") != "error" {
		t.Errorf("%d instances; missing is %s", n, w.state("missing"))
	}
	w.check("bare", "own", "named-x")
}
