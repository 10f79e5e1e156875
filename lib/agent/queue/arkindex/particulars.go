package arkindex

import (
	"encoding/json"
	"os"
	"slices"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/task"
)

// maxParticulars limits the file of particulars.
const maxParticulars = 32 << 20

// particularsFile caches what is known of tasks that are to be started. An action is repeated until
// its task runs, which may take hours on Slurm; without the file, each turn from cron would request
// each definition again.
func (q *Queue) particularsFile() string { return q.cfg.IdentityFile + ".tasks.json" }

// loadParticulars reads the file, once. It only saves requests, so all of its errors are ignored.
func (q *Queue) loadParticulars() {
	q.tasksMu.Lock()
	defer q.tasksMu.Unlock()
	if q.read {
		return
	}
	q.read = true
	info, err := os.Stat(q.particularsFile())
	if err != nil || info.Size() > maxParticulars {
		return
	}
	contents, err := os.ReadFile(q.particularsFile())
	if err != nil {
		return
	}
	var file struct {
		URL   string        `json:"url"`
		Tasks []task.Action `json:"tasks"`
	}
	if json.Unmarshal(contents, &file) != nil || file.URL != q.origin() {
		return
	}
	for _, a := range file.Tasks {
		id, err := task.ParseID(string(a.ID))
		if err != nil {
			continue
		}
		if k := q.tasks[id]; k.action == nil {
			k.action = &a
			q.tasks[id] = k
		}
	}
	q.kept = file.Tasks
}

// keepParticulars writes the file if the set of tasks that are to be started has changed.
func (q *Queue) keepParticulars(actions []task.Action) {
	var tasks []task.Action
	for _, a := range actions {
		if a.Kind == task.Start && q.recall(a.ID).action != nil {
			tasks = append(tasks, a)
		}
	}
	q.tasksMu.Lock()
	defer q.tasksMu.Unlock()
	if slices.Equal(tasks, q.kept) {
		return
	}
	contents, err := json.Marshal(map[string]any{"url": q.origin(), "tasks": tasks})
	if err == nil {
		err = renameio.WriteFile(q.particularsFile(), contents, 0o600)
	}
	if err != nil {
		q.log.Debug("details of the tasks are not saved", "error", err)
		return
	}
	q.kept = tasks
}
