package slurm

import (
	"context"
	"io"
	"strings"
	"time"
)

// GroupLimits are the Grp limits, for all jobs of an association or of a QOS together. TRESMins
// and TRESRunMins are in minutes of a resource.
type GroupLimits struct {
	Jobs, JobsAccrue, Submit    Limit[int64]
	TRES, TRESMins, TRESRunMins TRES // without entries for unlimited resources
	Wall                        Limit[time.Duration]
}

// Association is an account, or a user in an account (and in one partition, if Partition is
// set), with its limits. The Max limits are the effective ones, as sacctmgr resolves
// inheritance. The Grp limits are those of this level only; each level above has its own.
type Association struct {
	Cluster, Account, User string // User is "" for the account itself
	Partition              string // "": all
	Parent                 string // the parent of an account
	DefaultQOS             string // "": none
	QOS                    []string
	Shares                 string

	Grp                           GroupLimits
	MaxJobs, MaxJobsAccrue        Limit[int64] // running, and gaining priority by age
	MaxSubmit                     Limit[int64] // pending and running
	MaxTRESPerJob, MaxTRESPerNode TRES
	MaxTRESMinsPerJob             TRES
	MaxTRESRunMins                TRES
	MaxWall                       Limit[time.Duration]
	MinPriority                   Limit[int64] // a job of lower priority waits
}

var associationColumns = []column[Association]{
	{"cluster", func(c *columns, i int, a *Association) { a.Cluster = c.text(i) }},
	{"account", func(c *columns, i int, a *Association) {
		a.Account = c.text(i)
		c.check(a.Account != "", i, "an account")
	}},
	{"user", func(c *columns, i int, a *Association) { a.User = c.text(i) }},
	{"partition", func(c *columns, i int, a *Association) { a.Partition = c.text(i) }},
	{"parentname", func(c *columns, i int, a *Association) { a.Parent = c.text(i) }},
	{"defaultqos", func(c *columns, i int, a *Association) { a.DefaultQOS = c.text(i) }},
	{"qos", func(c *columns, i int, a *Association) { a.QOS = names(c.text(i)) }},
	{"share", func(c *columns, i int, a *Association) { a.Shares = c.text(i) }},
	{"grpjobs", func(c *columns, i int, a *Association) { a.Grp.Jobs = c.count(i) }},
	{"grpjobsaccrue", func(c *columns, i int, a *Association) { a.Grp.JobsAccrue = c.count(i) }},
	{"grpsubmit", func(c *columns, i int, a *Association) { a.Grp.Submit = c.count(i) }},
	{"grptres", func(c *columns, i int, a *Association) { a.Grp.TRES = c.list(i) }},
	{"grptresmins", func(c *columns, i int, a *Association) { a.Grp.TRESMins = c.list(i) }},
	{"grptresrunmins", func(c *columns, i int, a *Association) { a.Grp.TRESRunMins = c.list(i) }},
	{"grpwall", func(c *columns, i int, a *Association) { a.Grp.Wall = c.wall(i) }},
	{"maxjobs", func(c *columns, i int, a *Association) { a.MaxJobs = c.count(i) }},
	{"maxjobsaccrue", func(c *columns, i int, a *Association) { a.MaxJobsAccrue = c.count(i) }},
	{"maxsubmit", func(c *columns, i int, a *Association) { a.MaxSubmit = c.count(i) }},
	{"maxtres", func(c *columns, i int, a *Association) { a.MaxTRESPerJob = c.list(i) }},
	{"maxtrespernode", func(c *columns, i int, a *Association) { a.MaxTRESPerNode = c.list(i) }},
	{"maxtresmins", func(c *columns, i int, a *Association) { a.MaxTRESMinsPerJob = c.list(i) }},
	{"maxtresrunmins", func(c *columns, i int, a *Association) { a.MaxTRESRunMins = c.list(i) }},
	{"maxwall", func(c *columns, i int, a *Association) { a.MaxWall = c.wall(i) }},
	{"minprio", func(c *columns, i int, a *Association) { a.MinPriority = c.count(i) }},
}

// QOS is a quality of service, with its limits.
type QOS struct {
	Name           string
	Priority       int64
	Flags          List // such as DenyOnLimit, OverPartQOS, PartitionTimeLimit
	Preempt        List // QOS whose jobs it preempts
	PreemptMode    string
	GraceTime      time.Duration
	UsageFactor    float64
	UsageThreshold float64

	Grp                                             GroupLimits
	MaxJobsPerUser, MaxJobsPerAccount               Limit[int64]
	MaxJobsAccruePerUser, MaxJobsAccruePerAccount   Limit[int64]
	MaxSubmitPerUser, MaxSubmitPerAccount           Limit[int64]
	MaxTRESPerJob, MaxTRESPerNode                   TRES
	MaxTRESPerUser, MaxTRESPerAccount               TRES
	MaxTRESMinsPerJob                               TRES
	MaxTRESRunMinsPerUser, MaxTRESRunMinsPerAccount TRES
	MinTRESPerJob                                   TRES
	MaxWall                                         Limit[time.Duration]
	MinPriority                                     Limit[int64]
}

// Is reports whether the QOS has a flag, such as DenyOnLimit.
func (q *QOS) Is(flag string) bool { return q.Flags.Has(flag) }

// sacctmgr has known these names since 20.11.
var qosColumns = []column[QOS]{
	{"name", func(c *columns, i int, q *QOS) { q.Name = c.text(i); c.check(q.Name != "", i, "the name of a QOS") }},
	{"priority", func(c *columns, i int, q *QOS) { q.Priority = int64(c.optional(i)) }},
	{"flags", func(c *columns, i int, q *QOS) { q.Flags = List(c.text(i)) }},
	{"preempt", func(c *columns, i int, q *QOS) { q.Preempt = List(c.text(i)) }},
	{"preemptmode", func(c *columns, i int, q *QOS) { q.PreemptMode = c.text(i) }},
	{"gracetime", func(c *columns, i int, q *QOS) { q.GraceTime = c.limit(i) }},
	{"usagefactor", func(c *columns, i int, q *QOS) { q.UsageFactor = c.float(i) }},
	{"usagethreshold", func(c *columns, i int, q *QOS) { q.UsageThreshold = c.float(i) }},
	{"grpjobs", func(c *columns, i int, q *QOS) { q.Grp.Jobs = c.count(i) }},
	{"grpjobsaccrue", func(c *columns, i int, q *QOS) { q.Grp.JobsAccrue = c.count(i) }},
	{"grpsubmit", func(c *columns, i int, q *QOS) { q.Grp.Submit = c.count(i) }},
	{"grptres", func(c *columns, i int, q *QOS) { q.Grp.TRES = c.list(i) }},
	{"grptresmins", func(c *columns, i int, q *QOS) { q.Grp.TRESMins = c.list(i) }},
	{"grptresrunmins", func(c *columns, i int, q *QOS) { q.Grp.TRESRunMins = c.list(i) }},
	{"grpwall", func(c *columns, i int, q *QOS) { q.Grp.Wall = c.wall(i) }},
	{"maxjobspu", func(c *columns, i int, q *QOS) { q.MaxJobsPerUser = c.count(i) }},
	{"maxjobspa", func(c *columns, i int, q *QOS) { q.MaxJobsPerAccount = c.count(i) }},
	{"maxjobsaccruepu", func(c *columns, i int, q *QOS) { q.MaxJobsAccruePerUser = c.count(i) }},
	{"maxjobsaccruepa", func(c *columns, i int, q *QOS) { q.MaxJobsAccruePerAccount = c.count(i) }},
	{"maxsubmitpu", func(c *columns, i int, q *QOS) { q.MaxSubmitPerUser = c.count(i) }},
	{"maxsubmitpa", func(c *columns, i int, q *QOS) { q.MaxSubmitPerAccount = c.count(i) }},
	{"maxtres", func(c *columns, i int, q *QOS) { q.MaxTRESPerJob = c.list(i) }},
	{"maxtrespernode", func(c *columns, i int, q *QOS) { q.MaxTRESPerNode = c.list(i) }},
	{"maxtrespu", func(c *columns, i int, q *QOS) { q.MaxTRESPerUser = c.list(i) }},
	{"maxtrespa", func(c *columns, i int, q *QOS) { q.MaxTRESPerAccount = c.list(i) }},
	{"maxtresmins", func(c *columns, i int, q *QOS) { q.MaxTRESMinsPerJob = c.list(i) }},
	{"maxtresrunminspu", func(c *columns, i int, q *QOS) { q.MaxTRESRunMinsPerUser = c.list(i) }},
	{"maxtresrunminspa", func(c *columns, i int, q *QOS) { q.MaxTRESRunMinsPerAccount = c.list(i) }},
	{"mintres", func(c *columns, i int, q *QOS) { q.MinTRESPerJob = c.list(i) }},
	{"maxwall", func(c *columns, i int, q *QOS) { q.MaxWall = c.wall(i) }},
	{"minprio", func(c *columns, i int, q *QOS) { q.MinPriority = c.count(i) }},
}

// sacctmgr runs sacctmgr show and parses these columns. Rows with the same key are not believed; nil: each row is.
func sacctmgr[R any](ctx context.Context, c *Client, asked []column[R], key func(*R) string, what ...string) ([]R, error) {
	args := append(append([]string{"--noheader", "--parsable", "show"}, what...), "format="+strings.Join(columnNames(asked), ","))
	form := c.barred("sacctmgr show " + what[0])
	return stream(ctx, c, func(r io.Reader) ([]R, error) {
		all, err := tableOf(r, form, asked)
		if err != nil || key == nil {
			return all, err
		}
		return sole(form.command, all, key, form.odd)
	}, "sacctmgr", args...)
}

// tableOf parses rows into a slice.
func tableOf[R any](r io.Reader, form layout, asked []column[R]) ([]R, error) {
	var all []R
	if err := rows(r, form, asked, collect(&all)); err != nil {
		return nil, err
	}
	return all, nil
}

// Associations returns the associations of a user on all clusters of the database or, for user
// "", those of the accounts themselves. The error is ErrNoAccounting if the cluster keeps no
// accounts.
func (c *Client) Associations(ctx context.Context, user string) ([]Association, error) {
	key := func(a *Association) string {
		return strings.Join([]string{a.Cluster, a.Account, a.User, a.Partition}, "|")
	}
	return sacctmgr(ctx, c, associationColumns, key, "associations", "user="+user)
}

// QOS returns every quality of service.
func (c *Client) QOS(ctx context.Context) ([]QOS, error) {
	return sacctmgr(ctx, c, qosColumns, func(q *QOS) string { return q.Name }, "qos")
}

var userColumns = []column[string]{
	{"user", func(*columns, int, *string) {}},
	{"defaultaccount", func(c *columns, i int, account *string) { *account = c.text(i) }},
}

// DefaultAccount returns the account that is charged for jobs without --account; "" if the user
// has none.
func (c *Client) DefaultAccount(ctx context.Context, user string) (string, error) {
	found, err := sacctmgr(ctx, c, userColumns, nil, "user", user)
	if len(found) == 0 {
		return "", err
	}
	return found[0], nil
}

var levelColumns = []column[string]{
	{"user", func(*columns, int, *string) {}},
	{"adminlevel", func(c *columns, i int, level *string) { *level = c.text(i) }},
}

// Operator reports whether a user has the rights of an operator or administrator, to whom Slurm shows
// all jobs. A coordinator sees those of some accounts.
func (c *Client) Operator(ctx context.Context, user string) (bool, error) {
	found, err := sacctmgr(ctx, c, levelColumns, nil, "user", user)
	return len(found) > 0 && found[0] != "" && found[0] != "None", err
}
