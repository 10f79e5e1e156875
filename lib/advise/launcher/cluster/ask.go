package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Asker queries one cluster.
type Asker struct {
	Slurm *slurm.Client
	User  string // "": the output of id -un
	Now   func() time.Time
}

// Ask runs scontrol and sacctmgr in parallel. If nodes or partitions cannot be listed, that is
// the error; other missing answers are named in Note. Hidden partitions are left out.
func (a Asker) Ask(ctx context.Context) (*Snapshot, error) {
	s := &Snapshot{Time: a.Now(), User: a.User}
	var wait sync.WaitGroup
	var nodesErr, partitionsErr, accountingErr, configErr, licensesErr, reservationsErr error
	wait.Go(func() {
		nodes, err := a.Slurm.Nodes(ctx)
		s.Groups, nodesErr = GroupNodes(nodes), err
	})
	wait.Go(func() {
		if s.Partitions, partitionsErr = a.Slurm.Partitions(ctx); partitionsErr != nil {
			return
		}
		s.Partitions = slices.DeleteFunc(s.Partitions, func(p slurm.Partition) bool { return p.Hidden })
		if slices.ContainsFunc(s.Partitions, func(p slurm.Partition) bool { return p.AllocNodes != "" }) {
			if out, err := a.there().Output(ctx, "hostname"); err == nil {
				s.Host = strings.TrimSpace(string(out))
			}
		}
	})
	wait.Go(func() {
		s.Config, configErr = a.Slurm.Config(ctx)
		s.Known.Config = configErr == nil
	})
	wait.Go(func() {
		s.Licenses, licensesErr = a.Slurm.Licenses(ctx)
		s.Known.Licenses = licensesErr == nil
	})
	wait.Go(func() {
		s.Reservations, reservationsErr = a.Slurm.Reservations(ctx)
		s.Known.Reservations = reservationsErr == nil
	})
	wait.Go(func() { accountingErr = a.accounting(ctx, s) })
	wait.Wait()
	for _, err := range []error{nodesErr, partitionsErr} {
		if err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(s.Partitions, func(p slurm.Partition) bool { return p.AllowGroups != nil }) ||
		slices.ContainsFunc(s.Reservations, func(r slurm.Reservation) bool { return r.Groups != nil }) {
		if out, err := a.id(ctx, "-Gn"); err == nil {
			s.UserGroups, s.Known.Groups = strings.Fields(out), true
		}
	}
	s.Known.Accounting = accountingErr == nil || errors.Is(accountingErr, slurm.ErrNoAccounting)
	if accountingErr != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.Associations, s.QOS, s.Accounts, s.DefaultAccount = nil, nil, nil, ""
	}
	if errors.Is(accountingErr, slurm.ErrNoAccounting) {
		accountingErr = nil
	}
	var notes []string
	for _, f := range []struct {
		what string
		err  error
	}{
		{"accounts and QoS are", accountingErr}, {"the configuration is", configErr},
		{"licenses are", licensesErr}, {"reservations are", reservationsErr},
	} {
		if f.err != nil {
			notes = append(notes, fmt.Sprintf("%s not known: %s", f.what, fault.Text(f.err)))
		}
	}
	s.Note = strings.Join(notes, "; ")
	return s, nil
}

// there returns a client for programs that are not Slurm's, on the host where Slurm is queried.
func (a Asker) there() *slurm.Client {
	return &slurm.Client{Run: a.Slurm.Run, Soon: a.Slurm.Soon, Env: a.Slurm.Env}
}

// id runs id(1) on the host where Slurm is queried.
func (a Asker) id(ctx context.Context, option string) (string, error) {
	out, err := a.there().Output(ctx, "id", option)
	return strings.TrimSpace(string(out)), err
}

// accounting queries the accounts that the user may charge and the limits of the QoS.
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
	wait.Go(func() {
		if accounts, err := a.Slurm.Associations(ctx, ""); err == nil { // some sites show only the user's own
			s.Accounts, s.Known.Accounts = accounts, true
		}
	})
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return a.oneCluster(ctx, s)
}

// oneCluster removes the accounts of other clusters where slurmdbd serves several. On a cluster that is not that of the
// host, no account is taken for the default.
func (a Asker) oneCluster(ctx context.Context, s *Snapshot) error {
	all := append(slices.Clone(s.Associations), s.Accounts...)
	if a.Slurm.Cluster != "" {
		s.DefaultAccount = "" // it may be that of another cluster
	} else if !slices.ContainsFunc(all, func(m slurm.Association) bool { return m.Cluster != all[0].Cluster }) {
		return nil
	}
	config, err := a.Slurm.Config(ctx)
	if err != nil {
		return err
	}
	name := config.Get("ClusterName")
	elsewhere := func(m slurm.Association) bool { return m.Cluster != name }
	s.Associations, s.Accounts = slices.DeleteFunc(s.Associations, elsewhere), slices.DeleteFunc(s.Accounts, elsewhere)
	return nil
}
