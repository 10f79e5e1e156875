package sbatch

// Form is how the value of an option is written.
type Form uint8

// The forms.
const (
	Flag     Form = iota // no value
	Text                 // anything
	Word                 // one of Definition.Words
	Count                // a whole number from 1
	Whole                // a whole number
	Range                // numbers of nodes: 4, 2-8
	Size                 // memory or disk, in MiB or with a unit
	Time                 // minutes, or HH:MM:SS and the like
	GPUs                 // [TYPE:]NUMBER or TYPE, separated by commas
	TaskGPUs             // [TYPE:]NUMBER: since 23.02, sbatch takes a type alone for no GPU, and more than one for the first
	GRES                 // NAME[:TYPE][:NUMBER], separated by commas
	TRES                 // as GRES, and cpu:NUMBER, license/NAME:NUMBER
)

// Use is who may set an option for a job.
type Use uint8

// The uses.
const (
	ByTask   Use = 1 << iota // a task, by ponos-submit --sbatch
	ByConfig                 // slurm.base, slurm.cpu and slurm.gpu of ponos.yaml
	ByDaemon                 // slurm.daemon of ponos.yaml
	ByClass                  // options that the pilots of a class have in common with its tasks
	ByPool                   // jobpool --alloc-sbatch
	ByPack                   // a task in a pilot: an Amount has all that the option requests

	never = Use(0)
	agent = ByDaemon // for the jobs of tasks, the agent sets it itself
	site  = ByConfig | ByDaemon | ByPool
	job   = site | ByTask
	class = job | ByClass
	pack  = job | ByPack
)

// Version is a release of Slurm, as 2205 for 22.05. 0 is any.
type Version int

// Definition is what is known of an option of sbatch.
type Definition struct {
	Name      string // the long one
	Short     byte   // 0: none
	Form      Form
	Optional  bool // the option may stand without a value
	Use       Use
	Allocates bool     // it changes which or how many resources a job gets
	Words     []string // of the form Word, in any case of letters
	Typed     string   // what its value is called, if people type the option most: ponos-submit has it as a flag
	Alias     string   // another long name
	Attribute string   // of PySlurm's JobSubmitDescription, where more than "_" and "-" differ
	Variable  string   // of the environment: every sbatch that knows the option reads the value from it, too
	Update    string   // the key of "scontrol update job="; "": a job that was submitted cannot change it
	Since     Version  // of Slurm
	Until     Version  // the last one that knows it
}

// Names that are no words of their own, for packages that set an option or ask for it.
const (
	CPUsPerGPU   = "cpus-per-gpu"
	CPUsPerTask  = "cpus-per-task"
	GPUsPerNode  = "gpus-per-node"
	JobName      = "job-name"
	MailType     = "mail-type"
	MailUser     = "mail-user"
	MemPerCPU    = "mem-per-cpu"
	MemPerGPU    = "mem-per-gpu"
	NoRequeue    = "no-requeue"
	OpenMode     = "open-mode"
	TasksPerNode = "ntasks-per-node"
)

// table has all options of sbatch from 20.11 to 26.05. Its order is that in which options are
// printed: what people look for first, and then the others.
var table = []Definition{
	{Name: "nodes", Short: 'N', Form: Range, Use: pack, Allocates: true, Update: "NumNodes"},
	{
		Name: "time", Short: 't', Form: Time, Use: pack, Typed: "TIME",
		Attribute: "time-limit", Variable: "SBATCH_TIMELIMIT", Update: "TimeLimit",
	},
	{Name: "account", Short: 'A', Form: Text, Use: class, Typed: "ACCOUNT", Variable: "SBATCH_ACCOUNT", Update: "Account"},
	{Name: "qos", Short: 'q', Form: Text, Use: class, Typed: "QOS", Variable: "SBATCH_QOS", Update: "QOS"},
	{
		Name: "partition", Short: 'p', Form: Text, Use: class, Typed: "PARTITIONS", Allocates: true,
		Attribute: "partitions", Variable: "SBATCH_PARTITION", Update: "Partition",
	},
	{
		Name: "constraint", Short: 'C', Form: Text, Use: class, Typed: "FEATURES", Allocates: true,
		Attribute: "features", Variable: "SBATCH_CONSTRAINT", Update: "Features",
	},
	{
		Name: "mem", Form: Size, Use: pack, Typed: "SIZE", Allocates: true,
		Attribute: "memory-per-node", Variable: "SBATCH_MEM_PER_NODE", Update: "MinMemoryNode",
	},
	{Name: "exclude", Short: 'x', Form: Text, Use: class, Allocates: true, Attribute: "excluded-nodes", Update: "ExcNodeList"},
	{Name: MemPerGPU, Form: Size, Use: pack, Allocates: true, Attribute: "memory-per-gpu", Variable: "SBATCH_MEM_PER_GPU"},
	{Name: CPUsPerTask, Short: 'c', Form: Count, Use: pack, Typed: "N", Allocates: true},
	{Name: TasksPerNode, Form: Count, Use: job, Allocates: true, Alias: "tasks-per-node"},
	{Name: "nodelist", Short: 'w', Form: Text, Use: class, Allocates: true, Attribute: "required-nodes", Update: "ReqNodeList"},
	{Name: "gpus", Short: 'G', Form: GPUs, Use: pack, Typed: "GPUS", Allocates: true, Variable: "SBATCH_GPUS"},
	{Name: GPUsPerNode, Form: GPUs, Use: pack, Allocates: true, Variable: "SBATCH_GPUS_PER_NODE"},
	{Name: "gres", Form: GRES, Use: pack, Typed: "GRES", Allocates: true, Attribute: "gres-per-node", Variable: "SBATCH_GRES"},
	{Name: "tmp", Form: Size, Use: job, Allocates: true, Update: "MinTmpDiskNode"},
	{Name: "licenses", Short: 'L', Form: Text, Use: job, Update: "Licenses"},
	{
		Name: "exclusive", Form: Word, Optional: true, Use: job, Allocates: true, Variable: "SBATCH_EXCLUSIVE",
		Words: []string{"exclusive", "oversubscribe", "user", "mcs", "topo", "allocation"},
	},
	{Name: "deadline", Form: Text, Use: job, Attribute: "deadline-time", Update: "Deadline"},

	{Name: "acctg-freq", Form: Text, Use: job, Attribute: "accounting-gather-frequency", Variable: "SBATCH_ACCTG_FREQ"},
	{Name: "array", Short: 'a', Form: Text, Use: never, Variable: "SBATCH_ARRAY_INX"},
	{Name: "autocomplete", Form: Text, Use: never, Since: 2302},
	{Name: "batch", Form: Text, Use: job, Variable: "SBATCH_BATCH"},
	{Name: "bb", Form: Text, Use: job, Attribute: "burst-buffer", Variable: "SBATCH_BURST_BUFFER"},
	{Name: "bbf", Form: Text, Use: site},
	{Name: "begin", Short: 'b', Form: Text, Use: job, Attribute: "begin-time", Update: "StartTime"},
	{Name: "chdir", Short: 'D', Form: Text, Use: agent | ByPool, Attribute: "working-directory", Update: "WorkDir"},
	{Name: "cluster-constraint", Form: Text, Use: job, Variable: "SBATCH_CLUSTER_CONSTRAINT"},
	{Name: "clusters", Short: 'M', Form: Text, Use: never, Alias: "cluster", Variable: "SBATCH_CLUSTERS"},
	{Name: "comment", Form: Text, Use: never, Update: "Comment"},
	{Name: "consolidate-segments", Form: Flag, Use: site, Allocates: true, Variable: "SBATCH_CONSOLIDATE_SEGMENTS", Since: 2511},
	{Name: "container", Form: Text, Use: site, Variable: "SBATCH_CONTAINER", Since: 2108},
	{Name: "container-id", Form: Text, Use: site, Variable: "SBATCH_CONTAINER_ID", Since: 2302},
	{Name: "container-type", Form: Text, Use: site, Variable: "SBATCH_CONTAINER_TYPE", Since: 2605},
	{Name: "context", Form: Text, Use: site, Since: 2108},
	{Name: "contiguous", Form: Flag, Use: job, Allocates: true, Update: "Contiguous"},
	{
		Name: "core-spec", Short: 'S', Form: Whole, Use: job, Allocates: true,
		Attribute: "core-reservation-count", Variable: "SBATCH_CORE_SPEC",
	},
	{Name: "cores-per-socket", Form: Count, Use: job, Allocates: true},
	{Name: "cpu-freq", Form: Text, Use: job, Attribute: "cpu-frequency", Variable: "SBATCH_CPU_FREQ_REQ"},
	{Name: CPUsPerGPU, Form: Count, Use: pack, Allocates: true, Variable: "SBATCH_CPUS_PER_GPU"},
	{Name: "delay-boot", Form: Text, Use: job, Variable: "SBATCH_DELAY_BOOT", Update: "DelayBoot"},
	{Name: "dependency", Short: 'd', Form: Text, Use: job, Attribute: "dependencies", Update: "Dependency"},
	{Name: "distribution", Short: 'm', Form: Text, Use: job, Variable: "SBATCH_DISTRIBUTION"},
	{Name: "error", Short: 'e', Form: Text, Use: agent | ByPool, Attribute: "standard-error"},
	{Name: "export", Form: Text, Use: site, Attribute: "environment", Variable: "SBATCH_EXPORT"},
	{Name: "export-file", Form: Text, Use: site},
	{Name: "external", Form: Flag, Use: never, Since: 2505},
	{Name: "extra", Form: Text, Use: job, Update: "Extra", Since: 2302},
	{Name: "extra-node-info", Short: 'B', Form: Text, Use: job, Allocates: true},
	{Name: "get-user-env", Form: Text, Optional: true, Use: never, Variable: "SBATCH_GET_USER_ENV"},
	{Name: "gid", Form: Text, Use: never},
	{Name: "gpu-bind", Form: Text, Use: job, Variable: "SBATCH_GPU_BIND"},
	{Name: "gpu-freq", Form: Text, Use: job, Variable: "SBATCH_GPU_FREQ"},
	{Name: "gpus-per-socket", Form: GPUs, Use: job, Allocates: true, Variable: "SBATCH_GPUS_PER_SOCKET"},
	{Name: "gpus-per-task", Form: TaskGPUs, Use: pack, Allocates: true, Variable: "SBATCH_GPUS_PER_TASK"},
	{Name: "gres-flags", Form: Text, Use: job, Variable: "SBATCH_GRES_FLAGS"},
	{Name: "help", Short: 'h', Form: Flag, Use: never},
	{Name: "hint", Form: Text, Use: job, Allocates: true, Variable: "SBATCH_HINT"},
	{Name: "hold", Short: 'H', Form: Flag, Use: site},
	{Name: "ignore-pbs", Form: Flag, Use: site, Variable: "SBATCH_IGNORE_PBS"},
	{Name: "input", Short: 'i', Form: Text, Use: agent | ByPool, Attribute: "standard-in"},
	{Name: JobName, Short: 'J', Form: Text, Use: agent, Attribute: "name", Variable: "SBATCH_JOB_NAME", Update: "JobName"},
	{Name: "kill-on-invalid-dep", Form: Word, Use: site, Words: []string{"yes", "no"}},
	{Name: MailType, Form: Text, Use: job, Attribute: "mail-types", Update: "MailType"},
	{Name: MailUser, Form: Text, Use: job, Update: "MailUser"},
	{Name: "mcs-label", Form: Text, Use: job},
	{Name: "mem-bind", Form: Text, Use: job, Variable: "SBATCH_MEM_BIND"},
	{
		Name: MemPerCPU, Form: Size, Use: pack, Allocates: true,
		Attribute: "memory-per-cpu", Variable: "SBATCH_MEM_PER_CPU", Update: "MinMemoryCPU",
	},
	{Name: "mem-update", Form: Text, Use: site, Since: 2605},
	{Name: "mincpus", Form: Count, Use: job, Allocates: true, Update: "MinCPUsNode"},
	{Name: "network", Form: Text, Use: job, Variable: "SBATCH_NETWORK"},
	{Name: "nice", Form: Whole, Optional: true, Use: class, Update: "Nice"},
	{Name: "no-kill", Short: 'k', Form: Word, Optional: true, Use: site, Words: []string{"set", "off"}, Variable: "SBATCH_NO_KILL"},
	{Name: NoRequeue, Form: Flag, Use: class, Variable: "SBATCH_NO_REQUEUE"},
	{Name: "nvmps", Form: Text, Optional: true, Use: job}, // of a plugin
	{Name: "nodefile", Short: 'F', Form: Text, Use: site, Allocates: true},
	{Name: "ntasks", Short: 'n', Form: Count, Use: pack, Typed: "N", Allocates: true, Update: "NumTasks"},
	{Name: "ntasks-per-core", Form: Count, Use: job, Allocates: true},
	{Name: "ntasks-per-gpu", Form: Count, Use: job, Allocates: true},
	{Name: "ntasks-per-socket", Form: Count, Use: job, Allocates: true},
	{Name: "ntasks-per-tres", Form: Count, Use: site, Allocates: true},
	{Name: "oom-kill-step", Form: Word, Optional: true, Use: site, Words: []string{"0", "1"}, Since: 2411},
	{Name: OpenMode, Form: Text, Use: agent, Attribute: "log-files-open-mode", Variable: "SBATCH_OPEN_MODE"},
	{Name: "output", Short: 'o', Form: Text, Use: agent, Attribute: "standard-output"},
	{Name: "overcommit", Short: 'O', Form: Flag, Use: job, Allocates: true, Variable: "SBATCH_OVERCOMMIT"},
	{Name: "oversubscribe", Short: 's', Form: Flag, Use: job, Allocates: true, Attribute: "shared"},
	{Name: "parsable", Form: Flag, Use: never},
	{Name: "power", Form: Text, Use: job, Variable: "SBATCH_POWER", Until: 2311},
	{Name: "prefer", Form: Text, Use: class, Update: "Prefer", Since: 2205},
	{Name: "priority", Form: Text, Use: job, Attribute: "site-factor", Update: "Priority"},
	{Name: "profile", Form: Text, Use: job, Variable: "SBATCH_PROFILE"},
	{Name: "propagate", Form: Text, Optional: true, Use: site},
	{Name: "quiet", Short: 'Q', Form: Flag, Use: never},
	{Name: "reboot", Form: Flag, Use: site, Update: "Reboot"},
	{
		Name: "requeue", Form: Word, Optional: true, Use: class, Words: []string{"expedite"}, Attribute: "is-requeueable",
		Variable: "SBATCH_REQUEUE", Update: "Requeue",
	},
	{
		Name: "reservation", Form: Text, Use: class, Allocates: true,
		Attribute: "reservations", Variable: "SBATCH_RESERVATION", Update: "ReservationName",
	},
	{Name: "resources", Form: Text, Use: site, Allocates: true, Since: 2511},
	{Name: "resv-ports", Form: Whole, Optional: true, Use: site, Since: 2405},
	{Name: "segment", Form: Whole, Use: job, Allocates: true, Since: 2405},
	{Name: "signal", Form: Text, Use: job, Variable: "SBATCH_SIGNAL"},
	{Name: "sockets-per-node", Form: Count, Use: job, Allocates: true},
	{Name: "spread-job", Form: Flag, Use: job, Allocates: true, Variable: "SBATCH_SPREAD_JOB"},
	{Name: "spread-segments", Form: Flag, Use: site, Allocates: true, Variable: "SBATCH_SPREAD_SEGMENTS", Since: 2511},
	{Name: "stepmgr", Form: Flag, Use: job, Since: 2405},
	{Name: "switches", Form: Text, Use: job, Allocates: true, Variable: "SBATCH_REQ_SWITCH", Update: "Switches"},
	{Name: "test-only", Form: Flag, Use: never},
	{Name: "thread-spec", Form: Count, Use: job, Allocates: true, Attribute: "thread-reservation-count", Variable: "SBATCH_THREAD_SPEC"},
	{Name: "threads-per-core", Form: Count, Use: job, Allocates: true},
	{Name: "time-min", Form: Time, Use: job, Attribute: "time-limit-min", Update: "TimeMin"},
	{Name: "tres-bind", Form: Text, Use: job, Variable: "SBATCH_TRES_BIND", Since: 2311},
	{Name: "tres-per-task", Form: TRES, Use: job, Allocates: true, Variable: "SBATCH_TRES_PER_TASK", Since: 2302},
	{Name: "uid", Form: Text, Use: never},
	{Name: "usage", Form: Flag, Use: never},
	{Name: "use-min-nodes", Form: Flag, Use: job, Allocates: true, Variable: "SBATCH_USE_MIN_NODES"},
	{Name: "verbose", Short: 'v', Form: Flag, Use: never},
	{Name: "version", Short: 'V', Form: Flag, Use: never},
	{Name: "wait", Short: 'W', Form: Flag, Use: never, Variable: "SBATCH_WAIT"},
	{Name: "wait-all-nodes", Form: Word, Use: site, Words: []string{"0", "1"}, Variable: "SBATCH_WAIT_ALL_NODES"},
	{Name: "wckey", Form: Text, Use: class, Variable: "SBATCH_WCKEY", Update: "WCKey"},
	{Name: "wrap", Form: Text, Use: never},
}

// pair are two options that say the same in different ways: of a configuration and a task, the later
// one replaces the earlier.
type pair struct {
	a, b    string
	refused Version // since when sbatch refuses them together; 0: the last one counts
}

var pairs = []pair{
	{"mem", MemPerCPU, 2011}, {"mem", MemPerGPU, 2011}, {MemPerCPU, MemPerGPU, 2011},
	{"core-spec", "thread-spec", 2108}, {CPUsPerTask, CPUsPerGPU, 2205}, {"exclusive", "oversubscribe", 2302},
	{"requeue", NoRequeue, 0}, {"bb", "bbf", 2011},
	{"ntasks-per-gpu", TasksPerNode, 2011}, {"ntasks-per-gpu", "gpus-per-task", 2011}, {"ntasks-per-gpu", "gpus-per-socket", 2011},
	{"ntasks-per-gpu", "tres-per-task", 2302}, {"ntasks-per-tres", "tres-per-task", 2302},
	{"ntasks-per-tres", TasksPerNode, 2011}, {"ntasks-per-tres", "gpus-per-task", 2011}, {"ntasks-per-tres", "gpus-per-socket", 2011},
	{GPUsPerNode, "gres", 2605}, // for gres of GPUs
}

// byName has the table by long name and alias, shorts by letter, attributes by PySlurm's name.
var byName, shorts, attributes = index()

func index() (byName map[string]*Definition, shorts map[byte]*Definition, attributes map[string]*Definition) {
	byName, shorts, attributes = map[string]*Definition{}, map[byte]*Definition{}, map[string]*Definition{}
	for i := range table {
		d := &table[i]
		byName[d.Name] = d
		if d.Alias != "" {
			byName[d.Alias] = d
		}
		if d.Short != 0 {
			shorts[d.Short] = d
		}
		if d.Attribute != "" {
			attributes[d.Attribute] = d
		}
	}
	return byName, shorts, attributes
}
