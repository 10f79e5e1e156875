package slurm

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Share is a row of sshare: an account, or a user in an account. Each row comes after its
// parent.
type Share struct {
	Depth     int // 0: the root
	Account   string
	User      string // "" for an account
	Partition string // of an association for one partition

	RawShares float64
	Parent    bool // the shares are those of the parent ("parent")

	NormShares, RawUsage, NormUsage, EffectiveUsage float64

	FairShare  float64 // 0 to 1
	HasFactor  bool    // false for accounts
	LevelFS    float64 // may be infinite; Fair Tree only
	HasLevelFS bool

	GrpTRESMins, TRESRunMins string
}

var shareColumns = []column[Share]{
	{"Account", func(c *columns, i int, s *Share) {
		account := string(c.cells[i])
		s.Account = strings.TrimLeft(account, " ")
		s.Depth = len(account) - len(s.Account)
		c.check(s.Account != "", i, "an account")
	}},
	{"User", func(c *columns, i int, s *Share) { s.User = c.text(i) }},
	{"Partition", func(c *columns, i int, s *Share) { s.Partition = c.word(i) }},
	{"RawShares", func(c *columns, i int, s *Share) {
		if s.Parent = string(c.cells[i]) == "parent"; !s.Parent {
			s.RawShares = c.float(i)
		}
	}},
	{"NormShares", func(c *columns, i int, s *Share) { s.NormShares = c.float(i) }},
	{"RawUsage", func(c *columns, i int, s *Share) { s.RawUsage = c.float(i) }},
	{"NormUsage", func(c *columns, i int, s *Share) { s.NormUsage = c.float(i) }},
	{"EffectvUsage", func(c *columns, i int, s *Share) { s.EffectiveUsage = c.float(i) }},
	{"FairShare", func(c *columns, i int, s *Share) { s.FairShare, s.HasFactor = c.float(i), len(c.cells[i]) > 0 }},
	{"LevelFS", func(c *columns, i int, s *Share) { s.LevelFS, s.HasLevelFS = c.level(i), len(c.cells[i]) > 0 }},
	{"GrpTRESMins", func(c *columns, i int, s *Share) { s.GrpTRESMins = c.text(i) }},
	{"TRESRunMins", func(c *columns, i int, s *Share) { s.TRESRunMins = c.text(i) }},
}

// Shares returns the tree of associations, in sshare's order.
func (c *Client) Shares(ctx context.Context) ([]Share, error) {
	form := c.barred("sshare")
	return stream(ctx, c, func(r io.Reader) ([]Share, error) { return parseShares(r, form, shareColumns) }, "sshare",
		"--noheader", "--parsable", "--all", "--format="+strings.Join(columnNames(shareColumns), ","))
}

func parseShares(r io.Reader, form layout, asked []column[Share]) ([]Share, error) {
	var tree []Share
	var accounts []string // above the row, by depth
	err := rows(r, form, asked, func(s *Share) error {
		if above := len(tree) - 1; above < 0 && s.Depth != 0 || above >= 0 && s.Depth > tree[above].Depth+1 {
			return parseError("sshare", len(tree)+1, "Account %q is not below the account of the row before", s.Account)
		}
		accounts = accounts[:min(s.Depth, len(accounts))]
		if s.User != "" && s.Depth > 0 && !slices.Contains(accounts[max(0, len(accounts)-1):], s.Account) {
			return parseError("sshare", len(tree)+1, "user %q of account %q is not below it", s.User, s.Account) // its row was left out
		}
		if s.User == "" {
			accounts = append(accounts, s.Account)
		}
		tree = append(tree, *s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sole(form.command, tree, func(s *Share) string { return s.Account + "|" + s.User + "|" + s.Partition }, form.odd)
}

// Name returns user@account, or the account.
func (s *Share) Name() string {
	if s.User == "" {
		return s.Account
	}
	return s.User + "@" + s.Account
}

// SharesText returns the raw shares as sshare prints them.
func (s *Share) SharesText() string {
	if s.Parent {
		return "parent"
	}
	return strconv.FormatFloat(s.RawShares, 'f', -1, 64)
}
