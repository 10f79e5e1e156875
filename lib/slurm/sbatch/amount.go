package sbatch

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/hostlist"
)

// Amount is what a job gets, as far as its options say. Slurm may add to it: more nodes, where the job
// does not fit on fewer, whole cores, and the defaults of a partition.
type Amount struct {
	Nodes     int64 // at least
	MostNodes int64 // 0: no limit
	Tasks     int64
	PerTask   int64 // CPUs of a task; 0: not set, which is one
	PerNode   int64 // tasks of a node; 0: not set
	CPUs      int64 // of the job
	Default   bool  // no option says how many CPUs: it is one for each task
	MemMB     int64 // of the job; 0: a default of the cluster
	AllMemory bool  // of each node
	Exclusive bool  // whole nodes: all CPUs and GPUs of each
	GPUs      int64 // of the job
	NodeGPUs  int64 // of each node, where the options say that; 0: Slurm spreads those of the job
	// Uneven: Slurm may give one node more of the tasks, and of the GPUs that it spreads, than another.
	Uneven bool
	// Since is the version from which Slurm derives tasks and GPUs from each other in this way: older ones give the job fewer.
	// 0: all do.
	Since Version
	// Kinds has the GPUs of the job by their type, "" those of any.
	Kinds map[string]int64
	// Others has other GRES of each node by name, such as shard.
	Others map[string]int64
	// Licenses has those of the job by name.
	Licenses map[string]int64
}

// Node is what each node gets if the job is spread evenly over the fewest.
func (a *Amount) Node() Amount {
	n := *a
	n.Nodes, n.MostNodes = 1, 1
	split := func(total int64) int64 { return ceil(total, max(1, a.Nodes)) }
	n.Tasks, n.CPUs, n.MemMB, n.GPUs = split(a.Tasks), split(a.CPUs), split(a.MemMB), split(a.GPUs)
	if a.PerNode > 0 {
		n.Tasks = a.PerNode
	}
	n.Kinds = map[string]int64{}
	for kind, count := range a.Kinds {
		n.Kinds[kind] = split(count)
	}
	return n
}

func ceil(total, parts int64) int64 {
	if total <= 0 {
		return 0
	}
	return (total-1)/parts + 1
}

// most is the largest number that a count may be: products of three stay numbers.
const most = 1 << 20

const gpu = "gpu"

// derives is the first version after 20.11 that was tried.
const derives Version = 2205

// Amount returns what options request. The error says which value cannot be read.
func (o Options) Amount() (Amount, error) {
	r := reader{options: o}
	a := Amount{PerTask: r.count(CPUsPerTask), PerNode: r.count(TasksPerNode), Exclusive: o.Has("exclusive")}
	if how := o.Value("exclusive"); how != "" && !strings.EqualFold(how, "exclusive") && !strings.EqualFold(how, "allocation") {
		a.Exclusive = false
	}
	r.nodes(&a)
	perJob, perNode, perTask := r.devices("gpus"), r.devices(GPUsPerNode, "gres"), r.devices("gpus-per-task", "tres-per-task")
	if cpus := perTask["cpu"][""]; cpus > 0 && a.PerTask == 0 {
		a.PerTask = cpus
	}
	a.Others = map[string]int64{}
	for name, kinds := range perNode {
		if name != gpu && total(kinds) > 0 {
			a.Others[name] = total(kinds)
		}
	}
	fixed := (a.Nodes > 0 || o.Has("extra-node-info")) && (a.MostNodes == a.Nodes || a.MostNodes == 0)
	r.tasks(&a, fixed, perJob[gpu], perNode[gpu], perTask[gpu])
	a.Kinds = map[string]int64{}
	add := func(kinds map[string]int64, times int64) {
		for kind, n := range kinds {
			if n > 0 {
				a.Kinds[kind] = max(a.Kinds[kind], n*times)
			}
		}
	}
	add(perJob[gpu], 1)
	add(perNode[gpu], a.Nodes)
	a.NodeGPUs = total(perNode[gpu])
	add(perTask[gpu], a.Tasks)
	add(r.devices("gpus-per-socket")[gpu], a.Nodes*max(1, r.count("sockets-per-node")))
	if per := r.perGPU(); per > 0 && len(a.Kinds) == 0 && (fixed || o.Has("ntasks")) {
		a.Kinds[""], a.Since = a.Tasks/per, derives
	}
	a.GPUs = total(a.Kinds)
	a.Uneven = a.PerNode == 0 && !a.Exclusive && max(a.Tasks, a.GPUs) > a.Nodes && (o.Has("ntasks") || o.Has("gpus"))
	r.cpus(&a)
	says := []string{
		CPUsPerTask, CPUsPerGPU, "mincpus", "ntasks", TasksPerNode, "ntasks-per-gpu", "ntasks-per-tres", "cores-per-socket",
		"extra-node-info", "overcommit",
	}
	a.Default = a.PerTask == 0 && !slices.ContainsFunc(says, o.Has)
	r.memory(&a)
	a.Licenses = licenses(o.Value("licenses"))
	return a, r.err
}

// Most returns what options request if the job gets as many nodes as they allow.
func (o Options) Most() (Amount, error) {
	a, err := o.Amount()
	if err == nil && a.MostNodes > a.Nodes {
		return o.With(Option{Name: "nodes", Value: strconv.FormatInt(a.MostNodes, 10)}).Amount()
	}
	return a, err
}

// reader reads values, and keeps the first error.
type reader struct {
	options Options
	err     error
}

func (r *reader) fail(name, value string) {
	if r.err == nil {
		r.err = fmt.Errorf("option %q: %q cannot be counted", name, value)
	}
}

// count returns a number, 0 if the option is not given.
func (r *reader) count(name string) int64 {
	text, given := r.options.Get(name)
	if !given {
		return 0
	}
	n, ok := scaled(text, 1)
	if !ok {
		r.fail(name, text)
	}
	return n
}

// scaled reads a number, with k, m, g, t and p for powers of a unit; 1: without them.
func scaled(text string, unit int64) (int64, bool) {
	text = strings.TrimPrefix(text, "+")
	scale := int64(1)
	if last := len(text) - 1; unit > 1 && last > 0 {
		if at := strings.IndexByte("kmgtp", text[last]|0x20); at >= 0 {
			for range at + 1 {
				scale *= unit
			}
			text = text[:last]
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n * scale, err == nil && n >= 0 && n <= math.MaxInt32 && n*scale <= most<<20
}

// nodes reads a number of nodes, or the least and the most.
func nodes(text string) (least, upper int64, ok bool) {
	from, to, isRange := strings.Cut(text, "-")
	switch {
	case !isRange:
		to = from
	case from == "":
		from = "1"
	}
	least, ok = scaled(from, 1000)
	upper, ok2 := scaled(to, 1000)
	return least, upper, ok && ok2 && upper >= 1 && upper <= most && least <= upper
}

// nodes reads how many nodes a job has.
func (r *reader) nodes(a *Amount) {
	text, given := r.options.Get("nodes")
	switch {
	case given:
		var ok bool
		if a.Nodes, a.MostNodes, ok = nodes(text); !ok {
			r.fail("nodes", text)
			a.Nodes, a.MostNodes = 1, 0
		}
	case r.options.Has("nodelist"):
		if names, err := hostlist.Expand(r.options.Value("nodelist")); err == nil {
			slices.Sort(names)
			a.Nodes = int64(len(slices.Compact(names)))
		}
	}
}

// tasks sets how many tasks a job has, and how many nodes, where GPUs say so.
func (r *reader) tasks(a *Amount, fixed bool, perJob, perNode, perTask map[string]int64) {
	said := r.count("ntasks")
	switch {
	case said > 0 && a.Nodes > said:
		a.Nodes, a.MostNodes = said, said
	case said > 0 && a.MostNodes > said:
		a.MostNodes = said
	}
	if said > 0 && a.PerNode > 0 {
		if spread := ceil(said, a.PerNode); a.MostNodes == 0 || spread <= a.MostNodes {
			a.Nodes = max(a.Nodes, spread)
		}
	}
	for kind, n := range perJob { // they have to add up, or sbatch refuses them
		if perNode[kind] > 0 {
			a.Nodes = ceil(n, perNode[kind])
			a.MostNodes = a.Nodes
		}
		if perTask[kind] > 0 && said == 0 {
			said, a.Since = n/perTask[kind], derives
		}
	}
	a.Nodes = max(1, a.Nodes)
	if layout := r.layout(); layout > 0 && fixed && said == 0 && a.PerNode == 0 {
		said = a.Nodes * layout
	}
	switch gpus := max(total(perJob), total(perNode)*a.Nodes); {
	case r.perGPU() > 0 && gpus > 0:
		a.Tasks = gpus * r.perGPU()
	case said > 0:
		a.Tasks = said
	case r.perGPU() > 0 && fixed:
		a.Tasks = a.Nodes * r.perGPU()
	case a.PerNode > 0:
		a.Tasks = a.PerNode * a.Nodes
	default:
		a.Tasks = a.Nodes
	}
}

func (r *reader) perGPU() int64 { return max(r.count("ntasks-per-gpu"), r.count("ntasks-per-tres")) }

// layout is how many threads of a node the options about its sockets name; 0: there are none.
func (r *reader) layout() int64 {
	sockets, cores, threads := r.count("sockets-per-node"), r.count("cores-per-socket"), r.count("threads-per-core")
	if text, given := r.options.Get("extra-node-info"); given {
		for i, field := range strings.SplitN(text, ":", 3) {
			field, _, _ = strings.Cut(field, "-")
			n, ok := scaled(field, 1)
			if !ok && field != "*" {
				r.fail("extra-node-info", text)
			}
			*[]*int64{&sockets, &cores, &threads}[i] = n
		}
	}
	if sockets+cores+threads == 0 {
		return 0
	}
	return max(1, sockets) * max(1, cores) * max(1, threads)
}

// cpus sets the CPUs of a job.
func (r *reader) cpus(a *Amount) {
	perTask := max(1, a.PerTask)
	if a.CPUs = a.Tasks * perTask; a.Tasks > 1 || a.PerNode > 1 && !r.options.Has("ntasks") { // there may be one task by the GPUs
		a.CPUs = max(a.Tasks, a.Nodes*a.PerNode) * perTask
	}
	if r.options.Has("overcommit") {
		a.CPUs = max(a.Nodes, perTask)
	}
	a.CPUs = max(a.CPUs, a.Nodes*r.count("mincpus"), a.Nodes, a.GPUs*r.count(CPUsPerGPU))
}

// memory sets the memory of a job.
func (r *reader) memory(a *Amount) {
	for i, name := range []string{"mem", MemPerCPU, MemPerGPU} {
		times := []int64{a.Nodes, a.CPUs, a.GPUs}[i]
		text, given := r.options.Get(name)
		if !given {
			continue
		}
		mb, ok := Megabytes(text)
		switch {
		case !ok:
			r.fail(name, text)
		case mb == 0:
			a.AllMemory = name != MemPerGPU
		case times > 0 && mb > math.MaxInt64/times:
			r.fail(name, text)
		default:
			a.MemMB = mb * times
		}
	}
}

// Megabytes reads a size as sbatch does, in MiB: whole numbers, K rounded up.
func Megabytes(text string) (int64, bool) {
	if !forms[Size].MatchString(text) {
		return 0, false
	}
	text = strings.TrimRight(strings.ToLower(text), "b")
	digits := strings.TrimRight(text, "kmgt")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64>>30 {
		return 0, false
	}
	switch text[len(digits):] {
	case "k":
		n = ceil(n, 1024)
	case "g":
		n <<= 10
	case "t":
		n <<= 20
	}
	return n, true
}

// devices reads GPUs, GRES or TRES of some options: how many by name and type, "" without one. Of several
// items of one type, the largest counts.
func (r *reader) devices(options ...string) map[string]map[string]int64 {
	found := map[string]map[string]int64{}
	for _, option := range options {
		text := r.options.Value(option)
		for item := range strings.SplitSeq(text, ",") {
			name, kind, count, ok := device(byName[option].Form, item)
			if !ok {
				r.fail(option, text)
			}
			if found[name] == nil {
				found[name] = map[string]int64{}
			}
			found[name][kind] = max(found[name][kind], count)
		}
	}
	delete(found, "")
	return found
}

// device reads an item of a list of GPUs, GRES or TRES: "2", "a100" and "a100:2" of a list of GPUs, "gpu", "gpu:2",
// "gpu:a100" and "gpu:a100:2" of a list of GRES.
func device(form Form, item string) (name, kind string, count int64, ok bool) {
	if item == "" || form == GRES && strings.EqualFold(item, "none") { // sbatch takes none of GPUs for a type
		return "", "", 0, true
	}
	item = strings.ReplaceAll(item, "=", ":")
	item = strings.TrimPrefix(strings.TrimPrefix(item, "gres/"), "gres:")
	words := strings.Split(item, ":")
	if form != GPUs && form != TaskGPUs {
		name, words = words[0], words[1:]
	} else if name = gpu; words[0] == gpu {
		words = words[1:]
	}
	count = 1
	if last := len(words) - 1; last >= 0 {
		n, isNumber := scaled(words[last], 1024)
		switch {
		case isNumber:
			count, words = n, words[:last]
		case last > 0:
			return name, "", 0, false
		}
	}
	if len(words) > 1 {
		return name, "", 0, false
	}
	return name, strings.Join(words, ""), count, true
}

// GPUs reports whether an option requests GPUs or shares of them, which exclude each other.
func (o Option) GPUs() bool {
	d := byName[o.Name]
	if d == nil || d.Form < GPUs || d.Form > TRES {
		return false
	}
	return slices.ContainsFunc(strings.Split(o.Value, ","), func(item string) bool {
		of, _, _, _ := device(d.Form, item)
		return isGPU(of)
	})
}

func isGPU(name string) bool { return name == gpu || name == "shard" || name == "mps" }

// Times returns an option that requests GPUs of one kind for another number of them.
func (o Option) Times(n int64) Option {
	form := byName[o.Name].Form
	_, kind, _, _ := device(form, o.Value)
	if kind != "" {
		kind += ":"
	}
	if form == GRES || form == TRES {
		kind = "gpu:" + kind
	}
	return Option{Name: o.Name, Value: kind + strconv.FormatInt(n, 10)}
}

// WithoutPlace returns the options without those that choose the nodes, the memory and the GPUs of a job, for one whose place
// is found anew. What keeps a job from nodes stays, and what else than GPUs an option requests.
func (o Options) WithoutPlace() Options {
	var kept Options
	for _, e := range o {
		rest, left := e.withoutGPUs()
		switch e.Name {
		case "partition", "constraint", "prefer", "nodelist", "reservation", "mem", MemPerCPU, MemPerGPU:
		default:
			if left {
				kept = append(kept, rest)
			}
		}
	}
	return kept
}

// withoutGPUs returns the option without its GPUs, and whether anything is left.
func (o Option) withoutGPUs() (Option, bool) {
	if !o.GPUs() {
		return o, true
	}
	form := byName[o.Name].Form
	o.Value = strings.Join(slices.DeleteFunc(strings.Split(o.Value, ","), func(item string) bool {
		of, _, _, _ := device(form, item)
		return isGPU(of)
	}), ",")
	return o, o.Value != ""
}

func total(kinds map[string]int64) (n int64) {
	for _, count := range kinds {
		n += count
	}
	return n
}

// licenses reads NAME, NAME:COUNT and NAME=COUNT, separated by commas or semicolons.
func licenses(text string) map[string]int64 {
	found := map[string]int64{}
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' }) {
		name, count, _ := strings.Cut(strings.Replace(word, "=", ":", 1), ":")
		n, err := strconv.ParseInt(count, 10, 32)
		if err != nil {
			n = 1
		}
		found[name] += n
	}
	return found
}
