package slurm

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
)

// maxRuns is how large the file of what tasks have used may become; that before it is kept as well.
const maxRuns = 1 << 20

func keepRuns(run string, lines []usage.Run) error {
	if len(lines) == 0 {
		return nil
	}
	path := filepath.Join(run, pilot.Dir, runsFile)
	if info, err := os.Stat(path); err == nil && info.Size() > maxRuns {
		if err := renameio.WriteFile(path+".1", nil, 0o600); err == nil {
			b, _ := os.ReadFile(path)
			if err := errors.Join(renameio.WriteFile(path+".1", b, 0o600), os.Remove(path)); err != nil {
				return err
			}
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for i := range lines {
		line, err := json.Marshal(&lines[i])
		if err != nil {
			return errors.Join(err, f.Close())
		}
		_, _ = w.Write(append(line, '\n'))
	}
	return errors.Join(w.Flush(), f.Close())
}

// runs returns how tasks have run in pilots since a time. Damaged lines are left out.
func (p *packs) runs(since time.Time) (all []usage.Run, err error) {
	classes, err := p.classes()
	for _, class := range classes {
		for _, name := range []string{runsFile + ".1", runsFile} {
			b, readErr := os.ReadFile(filepath.Join(p.run(class), pilot.Dir, name))
			if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
				err = errors.Join(err, readErr)
			}
			for line := range strings.Lines(string(b)) {
				var r usage.Run
				if json.Unmarshal([]byte(line), &r) == nil && plausible(&r) && r.End >= since.Unix() {
					all = append(all, r)
				}
			}
		}
	}
	return all, err
}

// plausible reports whether a task can have run so. What is learned from damaged records would
// apply to all later tasks of that name.
func plausible(r *usage.Run) bool {
	return r.Name != "" && r.Start > 0 && r.End >= r.Start && r.Limit > 0 && r.CPUs > 0 && r.Elapsed >= 0 && r.CPUSeconds >= 0 &&
		r.MemMB >= 0 && r.PeakMB < 1<<30
}
