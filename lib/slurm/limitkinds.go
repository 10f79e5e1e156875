package slurm

import (
	"regexp"
	"strings"
)

// LimitKind identifies one of Slurm's limits.
type LimitKind struct {
	OfQOS    bool   // of a QOS, not of an association
	Bound    string // Grp (all jobs together), Max or Min
	Resource string // jobs, accrue, submit, wall, or a TRES such as cpu, mem, gres/gpu:a100
	Unit     string // "", Minutes (used until now), RunMinutes (of running jobs)
	Per      string // "", Job, Node, User or Account
}

// Is reports whether reason may mean the limit k. A reason does not name the generic resource,
// license or burst buffer.
func (k LimitKind) Is(reason LimitKind) bool {
	resource := k.Resource
	if before, _, named := strings.Cut(resource, "/"); named {
		resource = before
	}
	k.Resource = resource
	return k == reason
}

// limitReason matches the codes of limits in the manual of squeue, such as QOSMaxGRESPerUser,
// AssocGrpCPUMinutesLimit and MaxMemoryPerAccount, which is a limit of a QOS.
var limitReason = regexp.MustCompile(`^(QOS|Assoc|)(Grp|Max|Min)` +
	`(BB|Billing|[Cc][Pp][Uu]|Energy|GRES|License|Memory|Mem|Nodes?|Unknown|SubmitJobs?|Jobs?|WallDuration|Wall)` +
	`(RunMinutes|RunMins|RunMin|Minutes|Mins|Min|)(Per(?:Job|Node|User|Account)|)(?:Limit|NotSatisfied|)$`)

// LimitOfReason returns the limit for which a job waits; false if the reason of squeue is not a
// limit.
func LimitOfReason(reason string) (LimitKind, bool) {
	m := limitReason.FindStringSubmatch(reason)
	if m == nil {
		return LimitKind{}, false
	}
	kind := LimitKind{OfQOS: m[1] != "Assoc", Bound: m[2], Per: strings.TrimPrefix(m[5], "Per")}
	switch what := strings.ToLower(strings.TrimSuffix(m[3], "s")); what {
	case "memory":
		kind.Resource = "mem"
	case "submitjob":
		kind.Resource = "submit"
	case "job":
		kind.Resource = "jobs"
	case "wallduration":
		kind.Resource = "wall"
	case "gre":
		kind.Resource = "gres"
	default:
		kind.Resource = what
	}
	switch {
	case strings.HasPrefix(m[4], "Run"):
		kind.Unit = "RunMinutes"
	case m[4] != "":
		kind.Unit = "Minutes"
	}
	// The reasons of minima do not say it, but a minimum is always for one job.
	if kind.Bound == "Min" {
		kind.Per = "Job"
	}
	return kind, m[1] != "" || kind.Per == "Account" || kind.Per == "User"
}
