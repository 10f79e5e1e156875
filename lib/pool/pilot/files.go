package pilot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// Dir is the directory of the pilots in a run directory.
const Dir = "pilots"

// Pool is the configuration that all pilots of a run read.
type Pool struct {
	ID      string   `json:"id"`  // tells the jobs of this run from all others
	Run     string   `json:"run"` // the run directory: see Copied
	Inode   uint64   `json:"inode"`
	Call    string   `json:"call"` // tells the schedulers that follow each other from those of a run that was resumed
	Args    []string `json:"args"` // of the scheduler
	Dir     string   `json:"dir"`  // where it was called
	Stdin   bool     `json:"stdin"`
	Options []string `json:"sbatch"`
	MaxJobs int      `json:"max_jobs"` // pending or running
	Linger  float64  `json:"linger"`   // seconds that a job may be idle
	Here    bool     `json:"here"`     // the scheduler runs where jobpool was called, and not in a pilot
	// Name and Mark are the name and the comment of its jobs; "": those of jobpool.
	Name string `json:"name,omitempty"`
	Mark string `json:"mark,omitempty"`
	// Excluded are hosts that the next jobs do not get.
	Excluded []Excluded `json:"excluded,omitempty"`
}

// Excluded is a host that is excluded from jobs, and why, until a time.
type Excluded struct {
	Host  string    `json:"host"`
	Why   string    `json:"why"`
	Until time.Time `json:"until"`
}

// Exclusion is for how long a host is excluded that was at fault: it may be repaired.
const Exclusion = time.Hour

// Excludes returns the hosts that are excluded at that time.
func (p *Pool) Excludes(now time.Time) []Excluded {
	return slices.DeleteFunc(slices.Clone(p.Excluded), func(x Excluded) bool { return !now.Before(x.Until) })
}

// Exclude excludes one more host.
func (p *Pool) Exclude(x Excluded, now time.Time) {
	others := slices.DeleteFunc(p.Excludes(now), func(o Excluded) bool { return o.Host == x.Host })
	p.Excluded = append(others, x)
}

// Node is a node of a pilot that runs.
type Node struct {
	Job   string `json:"job"`
	Start int    `json:"start,omitempty"` // of the job: 0, and one more with each requeue
	First bool   `json:"first,omitempty"` // it is that of the batch script, which knows the end of the job
	Name  string `json:"node"`
	CPUs  int    `json:"cpus,omitempty"`  // of the job there; 0: not known
	Nodes int    `json:"nodes,omitempty"` // of the job; 0: not known
	// Mem is the memory of the job there, and MemPerGPU that for each GPU, in bytes; 0: that of the machine.
	Mem       int64     `json:"mem,omitempty"`
	MemPerGPU int64     `json:"mem_per_gpu,omitempty"`
	Socket    string    `json:"socket"`
	End       time.Time `json:"end,omitzero"`   // of the job: see Nodes
	Life      float64   `json:"life,omitempty"` // seconds that the job had when it began; 0: not known, or no end
}

// Label is the name of the node in the pool, where a machine may be that of several jobs.
func (n *Node) Label() string {
	if n.Start > 0 {
		return fmt.Sprintf("%s@%s.%d", n.Name, n.Job, n.Start)
	}
	return n.Name + "@" + n.Job
}

func path(run string, name ...string) string {
	return filepath.Join(append([]string{run, Dir}, name...)...)
}

// Input is the file of the tasks.
func Input(run string) string { return path(run, "input") }

func write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return renameio.WriteFile(name, append(b, '\n'), 0o600)
}

// Save writes the configuration of the pilots.
func Save(run string, p *Pool) error {
	if err := os.MkdirAll(path(run), 0o700); err != nil {
		return err
	}
	return write(path(run, "pool.json"), p)
}

// Place returns where a run directory is. A path may have changed since jobs were submitted, or differ
// between hosts, but then the directory has the same inode.
func Place(run string) (dir string, inode uint64, err error) {
	if dir, err = filepath.Abs(run); err != nil {
		return "", 0, err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(run, &st); err != nil {
		return "", 0, &fs.PathError{Op: "stat", Path: run, Err: err}
	}
	return dir, st.Ino, nil
}

// Copied reports whether a run directory is a copy of that for which the configuration was written, whose
// jobs work there.
func (p *Pool) Copied(run string) bool {
	dir, inode, err := Place(run)
	return err == nil && p.Run != "" && p.Run != dir && p.Inode != inode
}

// Disown removes what jobs of the original have left in a copy of a run directory: their nodes, and the
// marks of those that are to end.
func Disown(run string) error {
	entries, err := os.ReadDir(path(run))
	for _, e := range entries {
		if name := e.Name(); strings.Contains(name, "@") && strings.HasSuffix(name, ".json") ||
			strings.HasSuffix(name, ".leave") || strings.HasSuffix(name, ".drain") {
			err = errors.Join(err, remove(path(run, name)))
		}
	}
	return err
}

// Load reads it.
func Load(run string) (*Pool, error) {
	b, err := os.ReadFile(path(run, "pool.json"))
	if err != nil {
		return nil, err
	}
	p := new(Pool)
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("%s: %w", path(run, "pool.json"), err)
	}
	return p, nil
}

func (n *Node) file(run string) string { return path(run, n.Job+"@"+n.Name+".json") }

// Announce makes a node known to the scheduler.
func Announce(run string, n Node) error { return write(n.file(run), n) }

// Withdraw reverses Announce, and removes what [Writable] has left.
func Withdraw(run string, n Node) {
	_ = os.Remove(n.file(run))
	_ = os.Remove(path(run, n.Job+".probe"))
}

// Nodes returns the nodes that were announced. A file that cannot be read is left out: it is read
// again. The end of a job, which may change, is what its first node says.
func Nodes(run string) ([]Node, error) {
	if _, err := os.ReadDir(path(run)); err != nil {
		return nil, err // which is not the same as none
	}
	names, err := filepath.Glob(path(run, "*@*.json"))
	if err != nil {
		return nil, err
	}
	var out []Node
	for _, name := range names {
		b, err := os.ReadFile(name)
		var n Node
		if err == nil && json.Unmarshal(b, &n) == nil && n.Job != "" && n.Name != "" {
			out = append(out, n)
		}
	}
	for _, first := range out {
		for i := range out {
			if first.First && out[i].Job == first.Job && out[i].Start == first.Start {
				out[i].End = first.End
			}
		}
	}
	return out, nil
}

// Dismiss lets a pilot end.
func Dismiss(run, job string) error { return os.WriteFile(path(run, job+".leave"), nil, 0o600) }

// Dismissed reports whether a pilot is to end.
func Dismissed(run, job string) bool {
	_, err := os.Stat(path(run, job+".leave"))
	return err == nil
}

// Drain lets the pilots at all nodes of a job drain these: srun would signal the tasks as well.
func Drain(run, job string) error { return os.WriteFile(path(run, job+".drain"), nil, 0o600) }

// Drained reports whether the nodes of a job are drained.
func Drained(run, job string) bool {
	_, err := os.Stat(path(run, job+".drain"))
	return err == nil
}

// Writable reports, as an error, why a run directory cannot be written at this time.
func Writable(run, job string) error {
	name := path(run, job+".probe")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 64<<10)) // more than fits in what the files there have left of their last blocks
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return remove(name)
}

// SetOver records, for all pilots, that the run has ended with that status.
func SetOver(run string, status int) error {
	return renameio.WriteFile(path(run, "over"), []byte(strconv.Itoa(status)+"\n"), 0o600)
}

// Over reports whether the run has ended, and with which status.
func Over(run string) (int, bool) {
	b, err := os.ReadFile(path(run, "over"))
	if err != nil {
		return 0, false
	}
	status, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return status, err == nil
}

// Begin removes the marks of Dismiss and Drain: a job that was requeued has the same id.
func Begin(run, job string) error {
	return errors.Join(remove(path(run, job+".leave")), remove(path(run, job+".drain")))
}

// Logs is the directory of what the connections to nodes say, in a run directory.
const Logs = "nodes"

// Restarts returns how often a job was requeued and has begun again, by the logs of its nodes; see Label.
func Restarts(run, job string) (restarts int) {
	logs, _ := filepath.Glob(filepath.Join(run, Logs, "*@"+job+".*.log"))
	for _, name := range logs {
		_, start, _ := strings.Cut(strings.TrimSuffix(filepath.Base(name), ".log"), "@"+job+".")
		n, _ := strconv.Atoi(start)
		restarts = max(restarts, n)
	}
	return restarts
}

// keptFiles is how many files of jobs that have ended are kept in a directory: a run may have new jobs for years.
const keptFiles = 100

// forget removes the oldest logs and marks of jobs that Slurm does not have any more.
func forget(run string, l Listing) {
	alive := slices.Concat(l.Ending, l.Cancelled)
	for _, job := range l.Have {
		alive = append(alive, job.ID)
	}
	for _, dir := range []string{path(run), filepath.Join(run, Logs)} {
		type file struct {
			name string
			at   time.Time
		}
		var left []file
		entries, _ := os.ReadDir(dir) // else another time
		for _, e := range entries {
			suffix := filepath.Ext(e.Name())
			job := strings.TrimSuffix(e.Name(), suffix)
			if _, after, node := strings.Cut(job, "@"); node { // see Label
				job, _, _ = strings.Cut(after, ".")
			}
			info, err := e.Info()
			if err != nil || !slices.Contains([]string{".log", ".leave", ".drain"}, suffix) ||
				strings.Trim(job, "0123456789") != "" || slices.Contains(alive, job) {
				continue
			}
			left = append(left, file{filepath.Join(dir, e.Name()), clock.Modified(info)})
		}
		slices.SortFunc(left, func(a, b file) int { return b.at.Compare(a.at) })
		for _, f := range left[min(keptFiles, len(left)):] {
			_ = os.Remove(f.name)
		}
	}
}

// Reopen lets pilots work again, and schedulers start tasks. With retry, the next scheduler runs failed
// tasks again.
func Reopen(run string, retry bool) error {
	if err := errors.Join(remove(path(run, "closed")), remove(path(run, "over"))); err != nil || !retry {
		return err
	}
	return os.WriteFile(path(run, "retry"), nil, 0o600)
}

// Retry reports whether the scheduler that starts now is to run failed tasks again.
func Retry(run string) bool {
	_, err := os.Stat(path(run, "retry"))
	return err == nil
}

// TakeRetry is called when the journal has that they run again: the schedulers after that one know it
// from there.
func TakeRetry(run string) error { return remove(path(run, "retry")) }

// SetClosed records why a run starts nothing more, for the schedulers that follow: v as JSON.
func SetClosed(run string, v any) error { return write(path(run, "closed"), v) }

// Closed reads into v what SetClosed has recorded, and reports whether it has.
func Closed(run string, v any) (bool, error) {
	b, err := os.ReadFile(path(run, "closed"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	return err == nil, err
}

func remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
