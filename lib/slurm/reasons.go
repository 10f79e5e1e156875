package slurm

import (
	"regexp"
	"strconv"
	"strings"
)

// Explanation is a plain text about why a job waits, and what the user can do.
type Explanation struct {
	Plain  string // a few words
	Advice string // what the user can do
}

// reasons maps the reason codes of squeue's manual to explanations.
var reasons = map[string]Explanation{
	"None":      {"not considered yet", "wait for the scheduler's next cycle"},
	"Priority":  {"jobs with a higher priority come first", "wait; a shorter time limit or fewer resources may fit into a hole (fairshare holes), another partition may be free (fairshare where)"},
	"Resources": {"next in line: waits for nodes to become free", "wait; with a shorter time limit or fewer resources it may start sooner (fairshare holes)"},
	"Cleaning":  {"its last run is still being cleaned up", "wait; it was requeued"},
	"Reserved":  {"kept for a job of higher priority", "wait"},

	"Dependency":                  {"waits for another job", "wait for that job, or change the dependency with scontrol update job=ID dependency="},
	"DependencyNeverSatisfied":    {"waits for a job that can no longer fulfil its condition", "it will never start: cancel it with scancel, or remove the dependency with scontrol update job=ID dependency="},
	"BeginTime":                   {"will start at a later time", "wait for the time given with --begin, or change it with scontrol update job=ID starttime=now"},
	"JobHeldUser":                 {"held by its owner", "release it"},
	"JobHeldAdmin":                {"held by an administrator", "ask the administrators"},
	"JobHoldMaxRequeue":           {"was requeued too often", "find out why it fails, then release it"},
	"SystemFailure":               {"a failure of Slurm, a file system or the network", "report it to the administrators; after the repair, release it"},
	"launch_failed_requeued_held": {"could not be launched on its nodes, and is held", "release it; if it happens again, report it to the administrators"},
	"RequeueHold":                 {"requeued and held", "release it"},
	"job_requeued_in_held_state":  {"requeued and held", "release it"},
	"SpecialExit":                 {"ended with a special exit status, and is held", "see its output, then release it"},

	"PartitionDown":            {"the partition is down", "wait, or choose another partition (fairshare where)"},
	"PartitionInactive":        {"the partition takes jobs but starts none", "wait, or choose another partition (fairshare where)"},
	"PartitionNodeLimit":       {"requests more nodes, or fewer, than the partition allows", "change the number of nodes with scontrol update job=ID numnodes=, or choose another partition"},
	"PartitionTimeLimit":       {"requests more time than the partition allows", "lower the limit with scontrol update job=ID timelimit=, or choose another partition"},
	"PartitionConfig":          {"requests something that the partition does not offer", "choose another partition (fairshare where)"},
	"AccountNotAllowed":        {"its account may not use the partition", "use another account or partition (fairshare where)"},
	"QOSNotAllowed":            {"its QoS may not be used there", "use another QoS or partition (fairshare where)"},
	"ReservationDeleted":       {"its reservation was deleted, and it is held", "take the reservation away, then release it"},
	"ReservationInvalid":       {"its reservation is not valid", "submit it again, with another reservation or without one"},
	"Reservation":              {"waits for its reservation to begin", "wait; scontrol show reservation shows when"},
	"ReqNodeNotAvail":          {"nodes it needs are down, drained or reserved", "wait, or do not request nodes by name; the reservation may end before its time limit does: a shorter limit may help"},
	"NodeDown":                 {"a node it needs is down", "wait, or do not request nodes by name"},
	"BadConstraints":           {"no node can fulfil its constraints", "it will never start: change or cancel it"},
	"InvalidAccount":           {"its account is not valid", "change it with scontrol update job=ID account="},
	"InvalidQOS":               {"its QoS is not valid", "change it with scontrol update job=ID qos="},
	"InactiveLimit":            {"reached the limit of inactivity", "cancel it and submit it again"},
	"Licenses":                 {"waits for licenses", "wait until others release theirs"},
	"NodeList":                 {"nodes it needs are in use or missing", "wait, or do not request nodes by name"},
	"FrontEndDown":             {"no front end can run it", "wait, and report it to the administrators"},
	"NonZeroExitCode":          {"its last run failed", "see its output"},
	"OutOfMemory":              {"its last run ran out of memory", "request more with --mem"},
	"Prolog":                   {"its prolog is still running", "wait"},
	"DeadLine":                 {"cannot meet its deadline", "it will never start: submit it with a later --deadline"},
	"BurstBufferResources":     {"waits for space in the burst buffer", "wait"},
	"BurstBufferStageIn":       {"its data is being staged in", "wait"},
	"BurstBufferOperation":     {"the burst buffer failed", "report it to the administrators"},
	"SchedDefer":               {"was submitted with --immediate, which this cluster delays", "wait"},
	"FedJobLock":               {"another cluster of the federation considers it", "wait"},
	"PowerNotAvail":            {"not enough power", "wait"},
	"PowerReserved":            {"the power is reserved", "wait"},
	"QOSUsageThreshold":        {"its QoS is over its threshold of usage", "wait until usage has decayed, or use another QoS"},
	"QOSTimeLimit":             {"its QoS has reached its limit of used time", "use another QoS, or wait until usage has decayed"},
	"QOSJobLimit":              {"its QoS has reached its limit of running jobs", "wait for jobs of the QoS to end"},
	"QOSResourceLimit":         {"its QoS has reached its limit of resources", "wait for jobs of the QoS to end, or use another QoS"},
	"AssociationJobLimit":      {"its account or user has reached the limit of running jobs", "wait for jobs of the account to end"},
	"AssociationResourceLimit": {"its account or user has reached the limit of resources", "wait for jobs of the account to end, or use another account"},
	"AssociationTimeLimit":     {"its account or user has reached the limit of used time", "use another account, or wait until usage has decayed"},
	"MaxRequeue":               {"was requeued too often", "find out why it fails, then release it"},
	"JobArrayTaskLimit":        {"the array has reached its own limit of running tasks", "wait, or raise the limit with scontrol update job=ARRAY arraytaskthrottle=N"},
	"MaxMemPerLimit":           {"requests more memory than the cluster or the partition allows on a node or for a CPU", "request less memory"},
	"MaxPoweredUpNodes":        {"as many nodes are powered up as the cluster allows", "wait until some are powered down"},
	"MpiPortsBusy":             {"the ports for MPI are in use on its nodes", "wait"},
	"NvidiaImexChannels":       {"the channels between GPUs of several nodes are in use", "wait until others end"},
	"AccountingPolicy":         {"a limit or rule of the accounting keeps it back", "wait, or use another account or QoS (fairshare where)"},
	"JobLaunchFailure":         {"its last run could not be launched", "wait; if it happens again, report it to the administrators"},
	"RaisedSignal":             {"its last run was ended by a signal", "see its output"},
	"TimeLimit":                {"its last run reached its time limit", "request more time"},
	"InvalidReason":            {"Slurm does not know why it waits", "wait, and report it to the administrators"},
	"InvaildReason":            {"Slurm does not know why it waits", "wait, and report it to the administrators"},
	"WaitingForScheduling":     {"not considered yet", "wait for the scheduler's next cycle"},
	"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": {
		"its nodes are down, drained, or kept for partitions that come first", "wait, or choose another partition (fairshare where)"},
}

// limitWords are what is limited, and the same as a word before "minutes".
var limitWords = map[string][2]string{
	"jobs": {"running jobs", ""}, "submit": {"jobs in the queue", ""}, "wall": {"time", ""}, "cpu": {"CPUs", "CPU"}, "gres": {"GPUs", "GPU"},
	"mem": {"memory", "memory"}, "node": {"nodes", "node"}, "license": {"licenses", "license"}, "bb": {"burst buffer", "burst buffer"},
	"billing": {"billing units", "billed"}, "energy": {"energy", "energy"}, "unknown": {"resources", "resource"},
}

// what is limited, in words.
func (k LimitKind) what() string {
	words := limitWords[k.Resource]
	switch k.Unit {
	case "Minutes":
		return words[1] + " minutes"
	case "RunMinutes":
		return words[1] + " minutes of running jobs"
	}
	return words[0]
}

// ReasonCode is the code of a reason, as the manual of squeue has it, without the details behind it. Of a job that was requeued and is
// held, squeue prints the words of the code, scontrol joins them.
func ReasonCode(reason string) string {
	code, _, _ := strings.Cut(reason, ",")
	code, _, _ = strings.Cut(strings.TrimSpace(code), ":")
	if joined := strings.ReplaceAll(code, " ", "_"); reasons[joined] != (Explanation{}) {
		return joined
	}
	return code
}

// ReasonCodes splits what squeue prints for elements of an array in one row that wait for different things: a code for each. Any other
// reason is one.
func ReasonCodes(reason string) []string {
	if !severalCodes.MatchString(reason) {
		return []string{reason}
	}
	return strings.Split(reason, ",")
}

var severalCodes = regexp.MustCompile(`^\w+(,\w+)+$`)

// ExplainReason explains a reason as squeue prints it. An unknown reason is returned as it is
// printed.
func ExplainReason(reason string) Explanation {
	if e, ok := reasons[reason]; ok {
		return e
	}
	_, detail, _ := strings.Cut(reason, ",")
	code := ReasonCode(reason)
	if e, ok := reasons[code]; ok {
		if nodes, found := strings.CutPrefix(strings.TrimSpace(detail), "UnavailableNodes:"); found && nodes != "" {
			e.Plain += " (" + nodes + ")"
		}
		return e
	}
	if e, ok := explainLimit(code); ok {
		return e
	}
	if strings.HasPrefix(code, "Nodes required") {
		return reasons["Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"]
	}
	if reason == "" {
		return Explanation{"Slurm gives no reason", "wait for the scheduler's next cycle"}
	}
	return Explanation{reason, "see JOB REASON CODES in man squeue"}
}

func explainLimit(code string) (Explanation, bool) {
	kind, ok := LimitOfReason(code)
	if !ok {
		return Explanation{}, false
	}
	whose, advice := "its account", "wait for jobs of the account to end, or use another account"
	if kind.OfQOS {
		whose, advice = "its QoS", "wait for jobs of the QoS to end, or use another QoS (fairshare where)"
	}
	what := kind.what()
	switch {
	case kind.Bound == "Min":
		return Explanation{"requests less of " + what + " than " + whose + " demands", "request more: with this request it will never start"}, true
	case kind.Resource == "wall" && kind.Bound == "Max":
		return Explanation{"requests more time than " + whose + " allows a job", "lower the limit with scontrol update job=ID timelimit="}, true
	case kind.Per == "Job":
		return Explanation{"requests more " + what + " than " + whose + " allows a job", "request less: with this request it will never start"}, true
	case kind.Per == "Node":
		text := "requests more " + what + " on a node than " + whose + " allows a job"
		return Explanation{text, "request less: with this request it will never start"}, true
	case kind.Per == "User":
		return Explanation{"its user has reached a limit of " + whose + ": " + what, advice}, true
	case kind.Per == "Account":
		return Explanation{"its account has reached a limit of its QoS: " + what, advice}, true
	}
	return Explanation{whose + " has reached its limit: " + what, advice}, true
}

// briefly maps the most frequent reasons to at most 24 characters.
var briefly = map[string]string{
	"Priority": "others come first", "Resources": "next: waits for nodes",
	"Dependency": "waits for another job", "DependencyNeverSatisfied": "never: its job failed",
	"BeginTime": "begins later", "JobHeldUser": "held by its owner", "JobHeldAdmin": "held by an admin",
	"ReqNodeNotAvail": "nodes down or reserved", "Reservation": "reservation not begun",
	"PartitionTimeLimit": "too long for partition", "PartitionNodeLimit": "too many or few nodes", "PartitionConfig": "partition lacks it",
	"BadConstraints": "never: no such node", "JobArrayTaskLimit": "the array's own limit",
	"PartitionInactive": "partition starts none",
}

// Brief returns the reason in at most 24 characters, for narrow screens. For rare reasons, that
// is the beginning of Explain's text.
func (j *Job) Brief() string {
	code := ReasonCode(j.Reason)
	text, ok := briefly[code]
	switch {
	case code == "Reservation" && j.Reservation == "":
		return "nodes are reserved"
	case ok:
		return text
	case strings.HasPrefix(code, "Nodes required"):
		return "nodes down or kept"
	}
	if kind, limited := LimitOfReason(code); limited {
		what, _, _ := strings.Cut(kind.what(), " of ")
		if kind.OfQOS {
			return "QoS limit: " + what
		}
		return "account limit: " + what
	}
	return j.Explain().Plain
}

// WillNeverStart reports whether a job with this reason cannot start until the job or a limit
// is changed.
func WillNeverStart(reason string) bool {
	switch code := ReasonCode(reason); code {
	case "DependencyNeverSatisfied", "BadConstraints", "PartitionTimeLimit", "PartitionNodeLimit",
		"InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed", "DeadLine", "MaxMemPerLimit", "ReservationInvalid",
		"PartitionConfig":
		return true
	default:
		kind, limited := LimitOfReason(code)
		return limited && (kind.Bound == "Min" || kind.Per == "Node") || strings.Contains(code, "PerJob")
	}
}

// Explain explains why a job waits, by its reason and its request.
func (j *Job) Explain() Explanation {
	e := ExplainReason(j.Reason)
	switch code, detail, _ := strings.Cut(j.Reason, ","); {
	case code == "Reservation" && j.Reservation == "":
		e = Explanation{
			"others have reserved nodes that it could use",
			"wait; a time limit that ends before the reservation begins may help (scontrol show reservation)",
		}
	case code == "ReqNodeNotAvail" && j.ReqNodes == "":
		e = Explanation{
			"the nodes that it could use are down, drained or reserved",
			"wait until nodes come back, or choose another partition (fairshare where)",
		}
		if _, nodes, ok := strings.Cut(detail, "UnavailableNodes:"); ok && nodes != "" {
			e.Plain += " (" + nodes + ")"
		}
	}
	e.Advice = strings.NewReplacer("ID", j.Target(), "ARRAY", strconv.FormatUint(j.ArrayID, 10)).Replace(e.Advice)
	return e
}

// Target is what scontrol update takes for the job, or for the tasks of an array that wait: without the array's limit, and of a list
// that squeue has cut, the whole array.
func (j *Job) Target() string {
	tasks, _, _ := strings.Cut(j.Label, "%")
	switch {
	case strings.Contains(tasks, "..."):
		return strconv.FormatUint(j.ArrayID, 10)
	case tasks != j.Label:
		return tasks + "]"
	}
	return j.Label
}

// Considered reports whether the scheduler considers a pending job: it is not held, and does
// not wait for a time, another job or its own reservation. Without a reservation of its own,
// the reason "Reservation" means that nodes are reserved for others.
func (j *Job) Considered() bool {
	switch ReasonCode(j.Reason) {
	case "Reservation":
		return j.Reservation == ""
	case "Dependency", "DependencyNeverSatisfied", "BeginTime":
		return false
	}
	return !j.Held()
}

// Held reports whether a pending job waits until somebody releases it.
func (j *Job) Held() bool {
	switch ReasonCode(j.Reason) {
	case "JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "SpecialExit", "RequeueHold", "job_requeued_in_held_state", "launch_failed_requeued_held":
		return true
	}
	return false
}

// Competes reports whether a pending job competes for nodes: the scheduler considers it, and no
// limit, license or array throttle holds it back.
func (j *Job) Competes() bool {
	code := ReasonCode(j.Reason)
	switch code {
	case "Licenses", "JobArrayTaskLimit", "AssociationJobLimit", "AssociationResourceLimit", "AssociationTimeLimit",
		"QOSJobLimit", "QOSResourceLimit", "QOSTimeLimit", "QOSUsageThreshold":
		return false
	}
	if _, limited := LimitOfReason(code); limited {
		return false
	}
	return j.Considered() && !WillNeverStart(j.Reason)
}
