package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// leaseFile has the time at which the leases of workers expire if there is no scheduler, in seconds
// since 1970.
const leaseFile = "lease"

// Lease records when the leases of workers expire if this scheduler is gone. It writes in place,
// which needs no free space on the disk.
func (j *Journal) Lease(until time.Time) error {
	if err := j.mine(); err != nil {
		return err
	}
	return j.writeLease(until)
}

func (j *Journal) writeLease(until time.Time) error {
	if j.lease == nil {
		var err error
		if j.lease, err = os.OpenFile(filepath.Join(j.Dir, leaseFile), os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			return err
		}
	}
	_, err := j.lease.WriteAt(fmt.Appendf(nil, "%019d\n", until.Unix()+1), 0)
	return err
}

// LeaseEnd returns when the leases of the previous scheduler's workers expire.
func LeaseEnd(dir string) time.Time {
	b, err := os.ReadFile(filepath.Join(dir, leaseFile))
	if err != nil {
		return time.Time{}
	}
	n, err := strconv.ParseInt(strings.TrimLeft(strings.TrimSpace(string(b)), "0"), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(n, 0)
}

// Orphans returns the workers that may still exist, by the keys of Entry.Worker.
func (h *History) Orphans() map[uint16]wire.Identity {
	out := map[uint16]wire.Identity{}
	if h == nil {
		return out
	}
	for i, w := range h.workers {
		if !w.gone {
			out[uint16(i+1)] = w.Identity
		}
	}
	return out
}

// knownWorker is a worker that the journal mentions.
type knownWorker struct {
	wire.Identity
	gone bool
}

func (w *knownWorker) is(o *wire.Identity) bool {
	if w.Session != o.Session || w.Node != o.Node || len(w.Processes) != len(o.Processes) {
		return false
	}
	return len(w.Processes) == 0 || w.Processes[0] == o.Processes[0]
}

// maxWorkers limits how many workers an entry can name.
const maxWorkers = 1<<16 - 1

// node handles a record of a node.
func (h *History) node(r *Record) {
	if r.Worker == nil {
		return
	}
	switch r.What {
	case Up:
		i := len(h.workers)
		if i == maxWorkers { // reuse the entry of one that has no tasks any more
			i = max(0, slices.IndexFunc(h.workers, func(w knownWorker) bool { return w.gone }))
			h.workers[i] = knownWorker{Identity: *r.Worker}
		} else {
			h.workers = append(h.workers, knownWorker{Identity: *r.Worker})
		}
		if h.current == nil {
			h.current = map[string]uint16{}
		}
		h.current[r.Node] = uint16(i + 1)
	case Gone:
		for i := range h.workers {
			if h.workers[i].is(r.Worker) {
				h.workers[i].gone = true
			}
		}
	}
}
