package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// Asker asks one cluster.
type Asker struct {
	Slurm *slurm.Client
	User  string // "": asks "id"
	Now   func() time.Time
}

// Ask runs scontrol and sacctmgr side by side. Without nodes and partitions there
// is no answer; without accounting there is one with a Note. Hidden partitions are
// left out.
func (a Asker) Ask(ctx context.Context) (*Snapshot, error) {
	s := &Snapshot{Time: a.Now(), User: a.User}
	var wait sync.WaitGroup
	var nodesErr, partitionsErr, accountingErr error
	wait.Go(func() {
		nodes, err := a.Slurm.Nodes(ctx)
		s.Groups, nodesErr = GroupNodes(nodes), err
	})
	wait.Go(func() {
		if s.Partitions, partitionsErr = a.Slurm.Partitions(ctx); partitionsErr != nil {
			return
		}
		s.Partitions = slices.DeleteFunc(s.Partitions, func(p slurm.Partition) bool { return p.Hidden })
		if slices.ContainsFunc(s.Partitions, func(p slurm.Partition) bool { return p.AllowGroups != nil }) {
			if out, err := a.id(ctx, "-Gn"); err == nil {
				s.UserGroups = strings.Fields(out)
			}
		}
	})
	wait.Go(func() { accountingErr = a.accounting(ctx, s) })
	wait.Wait()
	for _, err := range []error{nodesErr, partitionsErr} {
		if err != nil {
			return nil, err
		}
	}
	if accountingErr != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.Associations, s.QOS, s.DefaultAccount = nil, nil, ""
		if !errors.Is(accountingErr, slurm.ErrNoAccounting) {
			s.Note = fmt.Sprintf("accounts and QoS are not known: %v", accountingErr)
		}
	}
	return s, nil
}

// id asks who asks, on the machine where Slurm is asked.
func (a Asker) id(ctx context.Context, option string) (string, error) {
	there := slurm.Client{Run: a.Slurm.Run, Timeout: a.Slurm.Timeout, Env: a.Slurm.Env}
	out, err := there.Output(ctx, 0, "id", option)
	return strings.TrimSpace(string(out)), err
}

// accounting asks what the user may charge, and what the QoS allow.
func (a Asker) accounting(ctx context.Context, s *Snapshot) (err error) {
	if s.User == "" {
		if s.User, err = a.id(ctx, "-un"); err != nil {
			return err
		}
	}
	var wait sync.WaitGroup
	var errs [3]error
	wait.Go(func() { s.Associations, errs[0] = a.Slurm.Associations(ctx, s.User) })
	wait.Go(func() { s.DefaultAccount, errs[1] = a.Slurm.DefaultAccount(ctx, s.User) })
	wait.Go(func() { s.QOS, errs[2] = a.Slurm.QOS(ctx) })
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return a.oneCluster(ctx, s)
}

// oneCluster keeps the accounts of this cluster where slurmdbd serves several.
func (a Asker) oneCluster(ctx context.Context, s *Snapshot) error {
	other := func(m slurm.Association) bool { return m.Cluster != s.Associations[0].Cluster }
	if !slices.ContainsFunc(s.Associations, other) {
		return nil
	}
	config, err := a.Slurm.Config(ctx)
	if err != nil {
		return err
	}
	name := config.Get("ClusterName")
	s.Associations = slices.DeleteFunc(s.Associations, func(m slurm.Association) bool { return m.Cluster != name })
	return nil
}
