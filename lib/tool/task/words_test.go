package task

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// No task is missing whose beginning is typed, however many others there are.
func TestTaskWords(t *testing.T) {
	all := []queue.Summary{
		{ID: "01a20103-99ea-754e-afc2-aaaa1d831b5b", Slug: "lr-0.1", Group: "lr", State: task.Failed, Retried: true},
		{ID: "01a20103-99ea-754e-afc2-bbbb1d831b5c", Slug: "lr-0.1", Group: "lr", State: task.Running, RetryOf: "01a20103-99ea-754e-afc2-aaaa1d831b5b"},
		{ID: "01a20103-99ea-754e-afc2-ccccdddd0000", Slug: "$(rm x)", Group: "x", State: task.Completed},
	}
	for i := range 3 * maxWords {
		id := task.ID(fmt.Sprintf("01b20103-99ea-754e-afc2-9999%08d", i))
		all = append(all, queue.Summary{ID: id, Slug: fmt.Sprintf("many-%d", i), Group: "lr", State: task.Completed})
	}
	for beginning, want := range map[string]string{
		"lr":                       "lr-0.1\trunning",
		"1d83":                     "1d831b5c\tlr-0.1, running",
		"dddd":                     "dddd0000\t$(rm x), completed",
		"01a20103-99ea-754e-afc2-": "01a20103-99ea-754e-afc2-bbbb1d831b5c\tlr-0.1, running\n01a20103-99ea-754e-afc2-ccccdddd0000\t$(rm x), completed",
		"many-77":                  "",
		"none":                     "",
	} {
		got := taskWords(all, beginning)
		if want == "" && beginning != "none" {
			if len(got) != 11 || !slices.Contains(got, "many-77\tcompleted") { // 77, and 770 to 779
				t.Errorf("%s: %d words", beginning, len(got))
			}
			continue
		}
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%s: %q; want %q", beginning, text, want)
		}
	}
	if got := taskWords(all, ""); len(got) != maxWords || got[0] != "lr-0.1\trunning" || got[2] != fmt.Sprintf("many-%d\tcompleted", 3*maxWords-1) {
		t.Errorf("%d words, %q", len(got), got[:3])
	}
	if got := strings.Join(groupWords(all, "l"), "; "); got != "lr\t6001 tasks: 1 running, 6000 completed" {
		t.Error(got)
	}
}
