package vast

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	arkindex "github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// A real worker bootstraps itself from exactly what an instance is given: it fetches
// its parent's artifacts and its model, and publishes what it has made.
func TestRealWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api"})
	w.offers(2)
	raw := func(v string) json.RawMessage { return json.RawMessage(v) }
	version := arkindex.NewID()
	run := &arkindex.WorkerRun{ID: arkindex.NewID(), Slug: "greet", ModelVersion: version, Settings: []arkindex.Setting{
		{Key: "greeting", Value: raw(`"Grüß \"Gott\""`)}, {Key: "rate", Value: raw("1e-05")},
	}}
	elements := `[{"id": "00000000-0000-4000-8000-000000000001", "name": "page 1", "type": "page"}]`
	run.Elements = []string{"00000000-0000-4000-8000-000000000001"}
	parent := arkindex.NewID()
	python := filepath.Join(harness.Venv(t, harness.Packages{Name: "arkindex", File: "testscripts/arkindex/worker/requirements.txt"}), "bin/python3")
	command, _ := json.Marshal([]string{python, "-c", "import sys; from ponos_test_worker.greet import main; sys.argv[0] = 'worker'; main()", "--closing", "it's \"fine\""})
	err := w.queue.Add(arkindex.Spec{
		WorkerRuns: []*arkindex.WorkerRun{run},
		Elements:   []*arkindex.Element{{ID: run.Elements[0], Type: "page", Name: "element 1"}},
		Models:     map[string]string{version: "models/m.tar.zst"},
		Archives:   map[string]map[string]string{"models/m.tar.zst": {"weights.bin": "weights"}},
		Storage:    map[string]string{"ponos-artifacts/" + parent + "/elements.json": elements},
		Tasks: []*arkindex.Task{
			{ID: parent, Slug: "elements", State: "completed", Artifacts: []*arkindex.Artifact{{ID: arkindex.NewID(), Path: "elements.json", Size: int64(len(elements)), ContentType: "application/json"}}},
			{Slug: "greet", WorkerRun: run.ID, Parents: []string{"elements"}, RequiresGPU: true, Image: "registry.example.org/greet:1", Command: command, Env: map[string]string{"ARKINDEX_MODEL_VERSION": version}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.settled("greet")
	log := string(w.queue.Log("greet"))
	if got := w.state("greet"); got != "completed" || !strings.Contains(log, `Grüß "Gott", page 1, it's "fine"!`) || strings.Contains(log, "already been setup") {
		t.Errorf("greet is %s\n%s", got, log)
	}
	if got := string(w.queue.Artifact("greet", "greetings.txt")); got != "Grüß \"Gott\", page 1, it's \"fine\"!\n" {
		t.Errorf("the worker has published %q", got)
	}
	i := w.market.Instances()[0]
	if i.Env["TASK_BOOTSTRAP"] != "true" || i.Env["TASK_PARENTS"] != `{"`+parent+`":"elements"}` {
		t.Errorf("TASK_BOOTSTRAP %q, TASK_PARENTS %q", i.Env["TASK_BOOTSTRAP"], i.Env["TASK_PARENTS"])
	}
	w.check("greet")
}
