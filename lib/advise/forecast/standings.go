package forecast

import (
	"math"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Standings are the associations by their fair share, and how it will develop.
type Standings struct {
	Rows  []slurm.Share
	Nodes []*priority.Node // of each row
	// Trusted is false where the algorithm is not one that we know; Differs has the rows of
	// which our arithmetic does not make Slurm's factor, as when Slurm hides some of the
	// tree from us. Nothing is predicted for those.
	Trusted bool
	Differs []bool
	config  slurm.Config
}

// NewStandings computes the factors of sshare's rows again.
func NewStandings(c slurm.Config, rows []slurm.Share) *Standings {
	s := &Standings{
		Rows: rows, Nodes: ShareTree(rows), Trusted: len(rows) > 0 && !c.PriorityFlag("DEPTH_OBLIVIOUS"),
		Differs: make([]bool, len(rows)), config: c,
	}
	if len(rows) == 0 {
		return s
	}
	ShareAlgorithm(c)(s.Nodes[0])
	for i, r := range rows {
		if r.HasFactor && r.User != "" && math.Abs(r.FairShare-s.Nodes[i].Factor) > 0.005 {
			s.Differs[i] = true
		}
	}
	return s
}

// Predicts reports whether the factor of a row can be predicted.
func (s *Standings) Predicts(i int) bool { return s.Trusted && !s.Differs[i] }

// Outlook is how a user's factor will develop.
type Outlook struct {
	Rank, Users int           // by the factor, from 1
	Recovery    time.Duration // until the factor is a half again, if the user runs nothing
	Recovers    bool
}

// Outlook is that of a row.
func (s *Standings) Outlook(i int) Outlook {
	var o Outlook
	for j, r := range s.Rows {
		if r.User == "" {
			continue
		}
		o.Users++
		if r.FairShare > s.Rows[i].FairShare && j != i {
			o.Rank++
		}
	}
	o.Rank++
	if !s.Predicts(i) {
		return o
	}
	var mine []*priority.Node
	for j, r := range s.Rows {
		if r.User == s.Rows[i].User {
			mine = append(mine, s.Nodes[j])
		}
	}
	halfLife := s.config.Duration("PriorityDecayHalfLife")
	o.Recovery, o.Recovers = priority.Recovery(s.Nodes[0], s.Nodes[i], mine, 0.5, halfLife, ShareAlgorithm(s.config))
	return o
}

// NextReset is when all usage is next set to nothing (PriorityUsageResetPeriod): at the
// midnight at which the day, week, month, quarter or year begins.
func NextReset(c slurm.Config, now time.Time) (at time.Time, period string, ok bool) {
	y, m, d := now.Date()
	day := func(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, now.Location()) }
	period = strings.ToLower(c.Get("PriorityUsageResetPeriod"))
	switch period {
	case "daily":
		return day(y, m, d+1), period, true
	case "weekly":
		return day(y, m, d+7-int(now.Weekday())), period, true
	case "monthly":
		return day(y, m+1, 1), period, true
	case "quarterly":
		return day(y, (m-1)/3*3+4, 1), period, true
	case "yearly":
		return day(y+1, 1, 1), period, true
	}
	return time.Time{}, "", false
}
