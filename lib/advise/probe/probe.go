package probe

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
)

// Script is the program, for sh, that records what the node has on which it runs. It takes the directory as an
// argument, and without one that of the user.
//
//go:embed probe.sh
var Script string

// Stale is the age from which on facts are marked: nodes are rebuilt, and MIG is configured anew.
const Stale = 180 * 24 * time.Hour

// Fresh is the age up to which ponos-task does not probe a node again.
const Fresh = 30 * 24 * time.Hour

// Older reports whether what was found at a time is older than an age. What lies more than a day ahead is: its clock was wrong.
func Older(at, now time.Time, age time.Duration) bool { return now.Sub(at) > age || Ahead(at, now) }

// Ahead reports whether a time was told by a clock that was wrong.
func Ahead(at, now time.Time) bool { return at.Sub(now) > 24*time.Hour }

// Device is a GPU, or a slice of one, as its driver reports it.
type Device struct {
	Vendor gpu.Vendor
	Name   string
	Slice  string         // the profile; "": a whole GPU
	Memory int64          // bytes; 0: not known
	CC     gpu.Capability // 0: not known
}

// Facts are what one node has.
type Facts struct {
	Node      string
	Time      time.Time
	Devices   []Device // that the job of the probe saw
	Installed []string // the names of all GPUs, as the kernel knows them; none: not known
	Disk      int64    // bytes of /tmp; 0: not known
}

// Dirs are the directories of facts: that of the user, and that of the site.
func Dirs() []string {
	return []string{filepath.Join(place.UserStateDir(), "nodes"), "/etc/ponos/nodes"}
}

// Stamp changes whenever a file in one of the directories comes or goes.
func Stamp(dirs []string) string {
	var b strings.Builder
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil {
			fmt.Fprintf(&b, "%d ", info.Sys().(*syscall.Stat_t).Mtim.Nano())
		}
	}
	return b.String()
}

// Load returns the facts of a cluster by node; of several about one node the newest. What cannot be used is told in
// problems.
func Load(dirs []string, cluster string) (facts map[string]Facts, problems []string) {
	facts = map[string]Facts{}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = trusted(dir)
		}
		if err != nil {
			problems = append(problems, "facts of nodes: "+fault.Text(err))
			continue
		}
		for _, e := range entries {
			node, of, _ := strings.Cut(e.Name(), "@")
			if of != cluster || node == "" || node[0] == '.' {
				continue
			}
			f, err := read(filepath.Join(dir, e.Name()))
			if err != nil {
				problems = append(problems, "facts of nodes: "+fault.Text(err))
				continue
			}
			if f.Node = node; f.Time.After(facts[node].Time) || facts[node].Node == "" {
				facts[node] = f
			}
		}
	}
	return facts, problems
}

// Recorded returns when a node was recorded in a directory, or the zero time.
func Recorded(dir, node, cluster string) time.Time {
	f, err := read(filepath.Join(dir, node+"@"+cluster))
	if err != nil {
		return time.Time{}
	}
	return f.Time
}

// trusted refuses what another user than root could have written.
func trusted(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return writers(path, info)
}

// writers words for facts what place.Trusted refuses.
func writers(path string, info fs.FileInfo) error {
	if err := place.Trusted(path, info, os.Geteuid()); err != nil {
		return fmt.Errorf("not used: %w", err)
	}
	return nil
}

const maxFile = 64 << 10

func read(path string) (Facts, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return Facts{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Facts{}, err
	}
	if !info.Mode().IsRegular() {
		return Facts{}, fmt.Errorf("%s: not a file", path)
	}
	if err := writers(path, info); err != nil {
		return Facts{}, err
	}
	facts, err := Parse(io.LimitReader(f, maxFile))
	if err != nil {
		return Facts{}, fmt.Errorf("%s: %w", path, err)
	}
	return facts, nil
}

// Parse reads the lines of a file.
func Parse(r io.Reader) (Facts, error) {
	var f Facts
	var gpus []Device
	enabled := map[string]bool{} // names of GPUs in MIG mode
	of := ""
	text, err := io.ReadAll(r)
	if err != nil {
		return f, err
	}
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if rest = strings.TrimSpace(rest); rest == "" {
			continue
		}
		switch word {
		case "date":
			at, err := time.Parse(time.RFC3339, rest)
			if err != nil {
				return f, fmt.Errorf("invalid date %.40q", rest)
			}
			f.Time = at
		case string(gpu.NVIDIA), string(gpu.AMD), string(gpu.Intel):
			d, mig := device(gpu.Vendor(word), rest)
			if d.Name == "" && d.Memory == 0 { // the driver said nothing
				continue
			}
			if mig {
				enabled[d.Name] = true
			} else {
				gpus = append(gpus, d)
			}
		case "of":
			of = rest
		case "slice":
			f.Devices = append(f.Devices, Device{Vendor: gpu.NVIDIA, Name: of, Slice: rest})
		case "installed":
			f.Installed = append(f.Installed, rest)
		case "disk":
			if mib, err := strconv.ParseInt(rest, 10, 40); err == nil {
				f.Disk = max(0, mib) << 20
			}
		}
	}
	if f.Time.IsZero() {
		return f, errors.New("no line with a date")
	}
	// A driver that does not tell the mode lists a sliced GPU beside its slices.
	for _, d := range gpus {
		sliced := false
		for _, s := range f.Devices {
			sliced = sliced || s.Slice != "" && s.Name == d.Name && len(enabled) == 0
		}
		if !sliced {
			f.Devices = append(f.Devices, d)
		}
	}
	if len(f.Devices) == 0 && len(f.Installed) == 0 {
		return f, errors.New("no GPU in it")
	}
	return f, nil
}

// device reads NAME, MIB, MODE, CC; mig reports that the GPU is one that slices are made of.
func device(vendor gpu.Vendor, text string) (d Device, mig bool) {
	fields := strings.Split(text, ",")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	d = Device{Vendor: vendor, Name: fields[0]}
	for i, field := range fields[1:] {
		switch i {
		case 0:
			if mib, err := strconv.ParseInt(field, 10, 32); err == nil && mib > 0 {
				d.Memory = mib << 20
			}
		case 1:
			mig = field == "Enabled"
		default:
			d.CC, _ = gpu.ParseCapability(field)
		}
	}
	return d, mig
}

// kinds are the GPUs without their numbers.
func (f *Facts) kinds() map[string]bool {
	all := map[string]bool{}
	for _, d := range f.Devices {
		all[d.Name+" "+d.Slice] = true
	}
	if len(f.Devices) == 0 {
		for _, name := range f.Installed {
			all[name+" "] = true
		}
	}
	return all
}

// Like reports whether two nodes may have the same GPUs: each probe may have seen a part of them.
func (f *Facts) Like(other *Facts) bool {
	for k := range f.kinds() {
		if other.kinds()[k] {
			return true
		}
	}
	return false
}

// Better reports whether facts tell more than others of the same kind of node: more GPUs, or the same later.
func (f *Facts) Better(than *Facts) bool {
	if a, b := len(f.Devices), len(than.Devices); a != b {
		return a > b
	}
	return f.Time.After(than.Time)
}

// All returns the GPUs of a node that has count of them, and whether the probe saw all: by what the kernel has, if the job
// saw fewer. Slices are known only as far as they were seen.
func (f *Facts) All(count int) (devices []Device, complete bool) {
	if len(f.Devices) >= count || len(f.Installed) != count {
		return f.Devices, len(f.Devices) == count
	}
	for _, name := range f.Installed {
		d := Device{Vendor: gpu.NVIDIA, Name: name}
		for _, seen := range f.Devices {
			switch {
			case seen.Slice != "": // the GPUs are not what jobs get
				return f.Devices, false
			case seen.Name == name:
				d = seen
			}
		}
		devices = append(devices, d)
	}
	return devices, true
}
