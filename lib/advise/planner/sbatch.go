package planner

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// shortOptions are those of sbatch that matter to a forecast.
var shortOptions = map[string]string{
	"-A": "account", "-C": "constraint", "-G": "gpus", "-J": "job-name", "-L": "licenses", "-N": "nodes", "-c": "cpus-per-task",
	"-n": "ntasks", "-p": "partition", "-q": "qos", "-t": "time", "-w": "nodelist", "-x": "exclude", "-a": "array",
}

// maxScript limits how much of a script is read.
const maxScript = 1 << 20

// Options are the options of a command line and, where it names a script, of the
// script; those of the command line come first. Numbers keep their values as they are.
func Options(args []string) (sbatch.Options, error) {
	given, script := optionsIn(args)
	if script == "" || script == "-" {
		return given, nil
	}
	f, err := os.Open(script)
	if errors.Is(err, fs.ErrNotExist) {
		return given, nil // sbatch looks in PATH as well, and is asked first
	}
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxScript)
	for read := 0; lines.Scan() && read < maxScript; read += len(lines.Bytes()) {
		text := strings.TrimSpace(lines.Text())
		if text != "" && !strings.HasPrefix(text, "#") {
			break // sbatch stops at the first command
		}
		if rest, ok := strings.CutPrefix(text, "#SBATCH"); ok {
			words := strings.Fields(rest)
			if at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); at >= 0 {
				words = words[:at]
			}
			inScript, _ := optionsIn(words)
			for _, o := range inScript {
				if !given.Has(o.Name) {
					given = append(given, o)
				}
			}
		}
	}
	return given, lines.Err()
}

// optionsIn are the options among words, and the first word that is none.
func optionsIn(words []string) (options sbatch.Options, script string) {
	for i := 0; i < len(words); i++ {
		word := words[i]
		if !strings.HasPrefix(word, "-") || word == "-" {
			return options, word
		}
		name, value, joined := strings.Cut(word, "=")
		if long, ok := strings.CutPrefix(name, "--"); ok {
			if !joined && TakesValue(word) && i+1 < len(words) {
				i++
				value = words[i]
			}
			options = options.With(sbatch.Option{Name: long, Value: strings.Trim(value, `"'`), Bare: value == ""})
			continue
		}
		if len(word) < 2 {
			continue
		}
		long, known := shortOptions[word[:2]]
		switch {
		case len(word) > 2:
			value = word[2:]
		case TakesValue(word) && i+1 < len(words):
			i++
			value = words[i]
		}
		if known {
			options = options.With(sbatch.Option{Name: long, Value: strings.Trim(value, `"'`)})
		}
	}
	return options, ""
}

// JobFor is the job that options of sbatch request in a partition, as it would wait in the
// queue after its submission.
func (n *Planner) JobFor(
	ctx context.Context, a *Asker, user string, options sbatch.Options, p *slurm.Partition, qos string,
) (forecast.Job, error) {
	asked, _ := admission.JobOf(options)
	model := admission.Cluster{Partitions: n.Partitions, Config: n.Config, User: user}
	model.Known.Config = true
	need := model.Need(p, asked)
	account, _ := n.Account(user, p) // sbatch is the judge of whether it may be used
	job := forecast.Job{
		Label: "this job", Name: options.Value("job-name"), User: user,
		Account: cmp.Or(options.Value("account"), account), QOS: cmp.Or(qos, cmp.Or(options.Value("qos"), "normal")),
		Partition: p.Name, Submit: n.Now.Unix(), Accrue: n.Now.Unix(), Nodes: int(max(1, asked.Nodes)),
		Need: forecast.Resources{CPUs: float64(need.CPUs), MemMB: float64(need.MemMB), GPUs: float64(need.GPUs)}, Whole: asked.Exclusive,
		Features: options.Value("constraint"), Licenses: asked.Licenses, Tasks: 1, Throttle: -1,
	}
	if !n.MemoryCounts() {
		job.Need.MemMB = 0
	}
	job.Required, _ = hostlist.Expand(options.Value("nodelist"))
	job.Excluded, _ = hostlist.Expand(options.Value("exclude"))
	for kind := range asked.GPUTypes {
		job.GPUType = kind
	}
	limit := asked.Time
	if limit == 0 {
		limit = p.DefaultTime
	}
	if limit == 0 || limit == slurm.Unlimited || p.MaxTime > 0 && p.MaxTime != slurm.Unlimited && limit > p.MaxTime {
		limit = p.MaxTime
	}
	if job.Limit = int64(limit / time.Second); limit == slurm.Unlimited || limit <= 0 {
		job.Limit = forecast.Forever
	}
	var err error
	if job.Priority, err = n.expectedPriority(ctx, a, &job, p); err != nil {
		return job, err
	}
	return n.World.Bound(job), nil
}

// expectedPriority is what priority Slurm would give a job: by its factors, where they
// count, or else the lowest, after all that wait.
func (n *Planner) expectedPriority(ctx context.Context, a *Asker, j *forecast.Job, p *slurm.Partition) (float64, error) {
	if !n.Config.Multifactor() {
		lowest := 1e9
		for i := range n.Jobs {
			if n.Jobs[i].Pending() && n.Jobs[i].Priority > 0 {
				lowest = min(lowest, float64(n.Jobs[i].Priority))
			}
		}
		return lowest - 1, nil
	}
	ask := priority.Ask{
		Nodes: float64(j.Nodes), CPUs: float64(j.Nodes) * j.Need.CPUs, ClusterNodes: float64(len(n.Nodes)),
		LimitMinutes: float64(j.Limit) / 60,
		Size: priority.SizeOptions{
			FavorSmall: n.Config.Get("PriorityFavorSmall") == "Yes", RelativeToTime: n.Config.PriorityFlag("SMALL_RELATIVE_TO_TIME"),
		},
		JobFactor: float64(p.JobFactor), InPartition: p.TRES,
		TRES: map[string]float64{
			"cpu": float64(j.Nodes) * j.Need.CPUs, "mem": float64(j.Nodes) * j.Need.MemMB,
			"gres/gpu": float64(j.Nodes) * j.Need.GPUs, "node": float64(j.Nodes),
		},
	}
	for i := range n.Nodes {
		ask.ClusterCPUs += float64(n.Nodes[i].CPUs)
	}
	for i := range n.Partitions {
		ask.LargestJobFactor = max(ask.LargestJobFactor, float64(n.Partitions[i].JobFactor))
	}
	for i := range n.QOS {
		if ask.LargestQOS = max(ask.LargestQOS, float64(n.QOS[i].Priority)); n.QOS[i].Name == j.QOS {
			ask.QOS = float64(n.QOS[i].Priority)
		}
	}
	if n.sharesCount() {
		if n.Shares == nil {
			if err := a.shares(&n.Shares)(ctx); err != nil {
				return 0, err
			}
			if n.Shares == nil {
				n.Shares = []slurm.Share{} // they have been asked for
			}
		}
		for _, s := range n.Shares {
			if s.User == j.User && (s.Account == j.Account || j.Account == "") && s.HasFactor {
				ask.FairShare = s.FairShare
			}
		}
	}
	return priority.Expected(Weights(n.Config), ask), nil
}

// Weights are the weights of the factors.
func Weights(c slurm.Config) priority.Weights {
	return priority.Weights{
		Age: c.Weight("Age"), Assoc: c.Weight("Assoc"), FairShare: c.Weight("FairShare"), JobSize: c.Weight("JobSize"),
		Partition: c.Weight("Partition"), QOS: c.Weight("QOS"), TRES: c.TRESWeights(),
	}
}

// flagsAlone are sbatch's options without a value; any other one takes the next
// argument, unless it is joined to its value.
var flagsAlone = []string{
	"--consolidate-segments", "--contiguous", "--exclusive", "--get-user-env", "--help", "--hold", "--ignore-pbs", "--nice",
	"--no-kill", "--no-requeue", "--oom-kill-step", "--overcommit", "--oversubscribe", "--parsable", "--propagate", "--quiet",
	"--reboot", "--requeue", "--resv-ports", "--spread-job", "--spread-segments", "--stepmgr", "--test-only", "--usage",
	"--use-min-nodes", "--verbose", "--version", "--wait",
	"-H", "-k", "-O", "-Q", "-s", "-v", "-W", "-h", "-V",
}

// TakesValue reports whether an argument is an option of sbatch whose value is the next argument.
func TakesValue(arg string) bool {
	long := strings.HasPrefix(arg, "--")
	if long && (len(arg) == 2 || strings.Contains(arg, "=")) || !long && (len(arg) != 2 || arg[0] != '-') {
		return false
	}
	return !slices.Contains(flagsAlone, arg)
}
