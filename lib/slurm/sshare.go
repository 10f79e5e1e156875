package slurm

import (
	"io"
	"strconv"
	"strings"
)

// Share is a row of sshare: an account, or a user in an account. The rows of a
// tree come in order, each below its parent.
type Share struct {
	Depth     int // 0 is the root
	Account   string
	User      string // empty for an account
	Partition string // where the association is for one partition only

	RawShares float64
	Parent    bool // the shares are the parent's ("parent")

	NormShares, RawUsage, NormUsage, EffectiveUsage float64

	FairShare  float64 // 0 to 1
	HasFactor  bool    // accounts have none
	LevelFS    float64 // may be infinite; Fair Tree only
	HasLevelFS bool

	GrpTRESMins, TRESRunMins string
}

var shareColumns = []string{
	"Account", "User", "Partition", "RawShares", "NormShares", "RawUsage", "NormUsage", "EffectvUsage", "FairShare", "LevelFS",
	"GrpTRESMins", "TRESRunMins",
}

// ShareArgs are sshare's arguments for the rows of ParseShares.
func ShareArgs() []string {
	return []string{"--noheader", "--parsable", "--all", "--format=" + strings.Join(shareColumns, ",")}
}

// ParseShares reads sshare's rows.
func ParseShares(r io.Reader) ([]Share, error) {
	c := newColumns("sshare", r, "|", shareColumns)
	b := c.cells
	var rows []Share
	for c.next() {
		optional := func(i int) (float64, bool) {
			if len(b[i]) == 0 {
				return 0, false
			}
			return c.float(i, b[i]), true
		}
		account := string(b[0])
		s := Share{
			Account: strings.TrimLeft(account, " "), User: c.text(b[1]), Partition: c.word(b[2]),
			GrpTRESMins: c.text(b[10]), TRESRunMins: c.text(b[11]),
		}
		s.Depth = len(account) - len(s.Account)
		if s.Parent = string(b[3]) == "parent"; !s.Parent {
			s.RawShares, _ = optional(3)
		}
		s.NormShares, _ = optional(4)
		s.RawUsage, _ = optional(5)
		s.NormUsage, _ = optional(6)
		s.EffectiveUsage, _ = optional(7)
		s.FairShare, s.HasFactor = optional(8)
		s.LevelFS, s.HasLevelFS = optional(9)
		if s.Account == "" {
			c.bad(0, b[0], "an account")
		}
		if len(rows) == 0 && s.Depth != 0 || len(rows) > 0 && s.Depth > rows[len(rows)-1].Depth+1 {
			c.bad(0, b[0], "an account at a place in the tree that follows from the row before")
		}
		if c.err != nil {
			return nil, c.err
		}
		rows = append(rows, s)
	}
	return rows, c.err
}

// Name is user@account, or the account.
func (s *Share) Name() string {
	if s.User == "" {
		return s.Account
	}
	return s.User + "@" + s.Account
}

// SharesText is the raw shares as sshare prints them.
func (s *Share) SharesText() string {
	if s.Parent {
		return "parent"
	}
	return strconv.FormatFloat(s.RawShares, 'f', -1, 64)
}
