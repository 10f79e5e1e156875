package admission

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// JobOf is what options of sbatch request, and the partitions that they name. What no rule
// of this model depends on is left out, as is a value that cannot be read: sbatch says so.
func JobOf(options sbatch.Options) (j Job, partitions []string) {
	text := options.Value
	number := func(name string) int64 {
		first, _, _ := strings.Cut(text(name), "-") // a range of nodes: the fewest
		n, err := strconv.ParseInt(first, 10, 32)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	if p := text("partition"); p != "" {
		partitions = strings.Split(p, ",")
	}
	j = Job{
		Account: text("account"), QOS: text("qos"), Reservation: text("reservation"),
		Nodes: number("nodes"), Tasks: number("ntasks-per-node"), CPUsPerTask: number("cpus-per-task"),
	}
	if tasks := number("ntasks"); tasks > 0 && j.Tasks == 0 {
		j.Tasks = (tasks-1)/max(1, j.Nodes) + 1
	}
	if d, err := slurm.ParseDuration(text("time")); err == nil {
		j.Time = d
	}
	if mem, err := slurm.ParseMemory(text("mem")); err == nil {
		j.MemMB = int64(mem)
	}
	j.Exclusive = options.Has("exclusive")
	gpus := func(list string) {
		for word := range strings.SplitSeq(list, ",") {
			name, count, counted := strings.Cut(word, ":")
			n, err := strconv.ParseInt(count, 10, 32)
			if !counted {
				if n, err = strconv.ParseInt(name, 10, 32); err == nil {
					name = ""
				} else {
					n, err = 1, nil
				}
			}
			if err != nil || n <= 0 || word == "" {
				continue
			}
			if j.GPUs += n; name != "" {
				if j.GPUTypes == nil {
					j.GPUTypes = map[string]int64{}
				}
				j.GPUTypes[name] += n
			}
		}
	}
	gpus(text("gpus-per-node"))
	if j.GPUs == 0 && j.Nodes <= 1 {
		gpus(text("gpus"))
	}
	for word := range strings.SplitSeq(text("gres"), ",") {
		word = strings.TrimPrefix(word, "gres:")
		if of, ok := strings.CutPrefix(word, "gpu:"); ok {
			gpus(of)
		} else if word == "gpu" {
			gpus("1")
		}
	}
	for word := range strings.FieldsFuncSeq(text("licenses"), func(r rune) bool { return r == ',' || r == ';' }) {
		name, count, _ := strings.Cut(strings.Replace(word, "=", ":", 1), ":")
		n, err := strconv.ParseInt(count, 10, 32)
		if err != nil {
			n = 1
		}
		if j.Licenses == nil {
			j.Licenses = map[string]int64{}
		}
		j.Licenses[name] += n
	}
	return j, partitions
}

// CheckIn returns the rules that keep a job out of all of some partitions; of the
// default one, if none is named. There are none if one of them would take the job or
// if that is not known, unless EnforcePartLimits asks that all of them do.
func (c *Cluster) CheckIn(j Job, partitions []string) []Finding {
	if len(partitions) == 0 {
		i := slices.IndexFunc(c.Partitions, func(p slurm.Partition) bool { return p.Default })
		if i < 0 {
			return nil
		}
		partitions = []string{c.Partitions[i].Name}
	}
	all := c.Known.Config && strings.EqualFold(c.Config.Get("EnforcePartLimits"), "ALL")
	var findings []Finding
	taken := false
	for _, name := range partitions {
		j.Partition = name
		found := c.Check(j)
		if all && slices.ContainsFunc(found, func(f Finding) bool { return f.Verdict == No && !f.Waits }) {
			return found
		}
		taken = taken || Of(found) != No
		findings = append(findings, found...)
	}
	if taken {
		return nil
	}
	return findings
}
