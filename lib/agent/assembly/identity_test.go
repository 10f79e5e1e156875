package assembly

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// The tools of a pipeline begin at the same time: each takes the data_dir that one of them creates, and none for a lost one.
func TestDataDirIsMadeByOneOfMany(t *testing.T) {
	dir := t.TempDir()
	for round := range 100 {
		p := &System{Config: config.Config{DataDir: filepath.Join(dir, fmt.Sprint(round))}, places: place.Memory{Dir: dir}}
		var ids [8]string
		var errs [8]error
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() { ids[i], errs[i] = p.identifyData(queue.Beat{}, false) })
		}
		wg.Wait()
		for i := range ids {
			if errs[i] != nil || ids[i] == "" || ids[i] != ids[0] {
				t.Fatalf("round %d: %q, %v; another one has %q", round, ids[i], errs[i], ids[0])
			}
		}
	}
}
