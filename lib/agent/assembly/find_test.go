package assembly

import (
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/task"
)

// What tasks need whose queue does not say.
func TestRequestsBySlugs(t *testing.T) {
	c := config.Config{Requests: config.Requests{"*": "cpu(cores=1)", "train-*": "cuda()", "train-big": "cuda() * 2"}}
	for slug, want := range map[string]string{"train-big": "cuda() * 2", "train-1": "cuda()", "other": "cpu(cores=1)", "": "cpu(cores=1)"} {
		if got := requestOf(c, task.Task{Slug: slug}); got.Find != want {
			t.Errorf("%s: %+v", slug, got)
		}
	}
	own := task.Request{Sbatch: []string{"mem=1G"}}
	if got := requestOf(c, task.Task{Slug: "train-1", Request: own}); got.Find != "" || len(got.Sbatch) != 1 {
		t.Errorf("%+v", got)
	}
	if got := requestOf(config.Config{}, task.Task{Slug: "x"}); !got.IsZero() {
		t.Errorf("%+v", got)
	}
}
