package arkindex

import (
	"context"
	"fmt"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// ModelArchive is the name of the file with a task's model: a tar.zst, or a
// single file.
const ModelArchive = "model.tar.zst"

// model adds the model that a task's environment names to its files, unless the
// definition itself brings files.
func (q *Queue) model(ctx context.Context, t *task.Task) error {
	version := t.Env["ARKINDEX_MODEL_VERSION"]
	if version == "" || len(t.Files) > 0 {
		return nil
	}
	var answer struct {
		URL flexible `json:"s3_url"`
	}
	c := call{op: "RetrieveModelVersion", path: map[string]string{"id": version}, as: asTask(*t)}
	if err := q.do(ctx, c, &answer); err != nil {
		return fmt.Errorf("model: %w", final(err))
	}
	if !webAddress(string(answer.URL)) {
		return fault.Errorf(fault.Unavailable, "model has no http or https URL")
	}
	t.Files = append(t.Files, task.File{Name: ModelArchive, URL: string(answer.URL)})
	return nil
}
