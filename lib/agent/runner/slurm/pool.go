package slurm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/task"
)

// Short tasks run in the jobs of a pool. Tasks with the same options are a class, which has a run of jobpool that stays open. A task
// is put into the run by a file, and a start of it is a job of its own, PILOT.SEQ, in which the owner link of the record decides
// whether the command begins. The pool hands a task out again after a loss: that start finds the link. So nothing that the pool
// believes begins a command twice; what follows on a loss, the rules of the task decide.
//
//	note in the task's directory ──► addition in RUN/in ──► RUN/added ──► start: link of the owner, journal ──► end in the journal
//
// What the record cannot have, as the command was killed with its job script, the run's journal says.

// Packing configures how short tasks run in pilots.
type Packing struct {
	On       bool   // start short tasks so; those that were started so are seen and stopped in any case
	Dir      string // of the runs
	Former   string // of the classes of a version before
	State    string // identity of the state directory
	Programs *program.Store
}

// packs are the packed tasks of an agent.
type packs struct {
	Packing
	tasks string // the parent of the directories of tasks
}

// Pack has short tasks run in pilots. Where that is off, tasks that do are still seen.
func (r *Runner) Pack(p Packing) {
	if p.Programs == nil {
		p.Programs = &program.Store{}
	}
	p.Programs.Named = p.named
	r.packs = &packs{p, r.Tasks}
	r.options.packed = r.packs.runs
}

const (
	packMark  = "PONOS_PACK="
	pilotName = "ponos.pack" // of jobs; names of the jobs of tasks begin differently
	// maxPacked is how many tasks are started together.
	maxPacked = 1000
	// spare is how much sooner than its job the last task of a pilot ends.
	spare = 30 * time.Second

	noteFile  = "pack.json" // in the directory of a task
	endFile   = "pack-end." // followed by the job: why it was ended in its pilot
	triesFile = "tries.json"
	readFile  = "read.json"
	runsFile  = "runs.ndjson"
	ticket    = "pack." // begins the job of a task that no pilot has begun
)

// pilots describes the pilots of a class.
type pilots struct {
	Options []string // of sbatch
	CPUs    int
	GPUs    int
	Mem     int64 // bytes; 0: unknown
	Time    time.Duration
	Linger  time.Duration
	Program string
}

// note is what a task's directory has about its place in a pool.
type note struct {
	Class   string        `json:"class"`
	Offer   string        `json:"offer"` // the key of the addition
	Key     string        `json:"key"`   // of the task
	Attempt int           `json:"attempt"`
	At      time.Time     `json:"at"`
	Name    string        `json:"name"` // of the job that the task would have
	CPUs    int           `json:"cpus"`
	GPUs    int           `json:"gpus,omitempty"`
	Mem     int64         `json:"mem,omitempty"` // bytes; 0: no limit
	Limit   time.Duration `json:"limit"`
}

func (n *note) job() string { return ticket + n.Key }

func readNote(dir string) (n note, ok bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, noteFile))
	if errors.Is(err, fs.ErrNotExist) {
		return n, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return note{}, false, err
	}
	return n, n.Offer != "" && n.Class == filepath.Base(n.Class), nil // else one of a version before
}

func writeJSON(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, name), b, 0o600, renameio.WithTempDir(dir))
}

// isPacked reports whether a job is that of a packed task: PILOT.N, or that of one which waits.
func isPacked(job string) bool { return strings.Contains(job, ".") }

func isTicket(job string) bool { return strings.HasPrefix(job, ticket) }

// pilotOf returns the pilot of a packed task's job; "" before one has begun it.
func pilotOf(job string) string {
	at := strings.LastIndexByte(job, '.')
	if at < 0 || isTicket(job) {
		return ""
	}
	return job[:at]
}

func (p *packs) run(class string) string { return filepath.Join(p.Dir, class) }

func (p *packs) dir(id task.ID) string { return filepath.Join(p.tasks, string(id)) }

func (p *packs) classes() ([]string, error) { return entries(p.Dir) }

func entries(dir string) (names []string, err error) {
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names, err
}

// named returns the digests of the programs that pilots run.
func (p Packing) named() (digests []string, err error) {
	classes, err := entries(p.Dir)
	for _, class := range classes {
		if b, err := os.ReadFile(filepath.Join(p.Dir, class, "bin", "program")); err == nil {
			digests = append(digests, string(b))
		}
	}
	former, err2 := filepath.Glob(filepath.Join(p.Former, "*", "pilot.json"))
	for _, name := range former {
		var was struct{ Program string }
		if b, err := os.ReadFile(name); err == nil && json.Unmarshal(b, &was) == nil {
			digests = append(digests, was.Program)
		}
	}
	return digests, errors.Join(err, err2)
}

// mark returns the beginning of the comments of this agent's pilots: the identity of the state
// directory, and a hash of its path, which a directory in its place has as well.
func (p *packs) mark() string {
	sum := sha256.Sum256([]byte(p.Former))
	return packMark + p.State + "." + hex.EncodeToString(sum[:4]) + "."
}
