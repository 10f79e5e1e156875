package cluster

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Asker asks one cluster.
type Asker struct {
	Slurm *slurm.Client
	Dir   string // directory of Slurm's commands; "": as in PATH
	User  string // "": asks "id"
	Now   func() time.Time
}

// timeout bounds each command; accounting, which can be done without, has less.
const (
	timeout           = time.Minute
	accountingTimeout = 15 * time.Second
)

func (a Asker) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	limit := timeout
	if name == "sacctmgr" {
		limit = accountingTimeout
	}
	return a.Slurm.Output(ctx, limit, a.program(name), args...)
}

func (a Asker) program(name string) string {
	if a.Dir != "" && name != "id" {
		return path.Join(a.Dir, name)
	}
	return name
}

// Ask runs scontrol and sacctmgr side by side. Without nodes and partitions there
// is no answer; without accounting there is one with a Note.
func (a Asker) Ask(ctx context.Context) (*Snapshot, error) {
	s := &Snapshot{Time: a.Now(), User: a.User}
	var wait sync.WaitGroup
	var nodesErr, partitionsErr, accountingErr error
	wait.Go(func() {
		var read slurm.NodesWriter
		_, err := a.Slurm.Command(ctx, command.Cmd{Name: a.program("scontrol"), Args: slurm.NodesArgs(), Stdout: &read, Timeout: timeout})
		if err != nil {
			nodesErr = err
			return
		}
		nodes, err := read.Nodes()
		s.Groups, nodesErr = GroupNodes(nodes), err
	})
	wait.Go(func() {
		out, err := a.output(ctx, "scontrol", slurm.PartitionsArgs()...)
		if err != nil {
			partitionsErr = err
			return
		}
		if s.Partitions, partitionsErr = slurm.ParsePartitions(bytes.NewReader(out)); partitionsErr != nil {
			return
		}
		if slices.ContainsFunc(s.Partitions, func(p slurm.Partition) bool { return p.AllowGroups != nil }) {
			if out, err := a.output(ctx, "id", "-Gn"); err == nil {
				s.UserGroups = strings.Fields(string(out))
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
		s.Memberships, s.QOS, s.DefaultAccount = nil, nil, ""
		s.Note = fmt.Sprintf("accounts and QoS are not known: %v", accountingErr)
	}
	return s, nil
}

// accounting asks what the user may charge, and what the QoS allow.
func (a Asker) accounting(ctx context.Context, s *Snapshot) error {
	if s.User == "" {
		out, err := a.output(ctx, "id", "-un")
		if err != nil {
			return err
		}
		s.User = strings.TrimSpace(string(out))
	}
	var wait sync.WaitGroup
	var errs [3]error
	ask := func(i int, args []string, parse func(*bytes.Reader) error) {
		wait.Go(func() {
			out, err := a.output(ctx, "sacctmgr", args...)
			if err == nil {
				err = parse(bytes.NewReader(out))
			}
			errs[i] = err
		})
	}
	ask(0, slurm.MembershipsArgs(s.User), func(r *bytes.Reader) (err error) {
		s.Memberships, err = slurm.ParseMemberships(r)
		return err
	})
	ask(1, slurm.DefaultAccountArgs(s.User), func(r *bytes.Reader) (err error) {
		s.DefaultAccount, err = slurm.ParseDefaultAccount(r)
		return err
	})
	ask(2, slurm.QOSRulesArgs(), func(r *bytes.Reader) (err error) {
		s.QOS, err = slurm.ParseQOSRules(r)
		return err
	})
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
	other := func(m slurm.Membership) bool { return m.Cluster != s.Memberships[0].Cluster }
	if !slices.ContainsFunc(s.Memberships, other) {
		return nil
	}
	out, err := a.output(ctx, "scontrol", "show", "config")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) == "ClusterName" {
			name := strings.TrimSpace(value)
			s.Memberships = slices.DeleteFunc(s.Memberships, func(m slurm.Membership) bool { return m.Cluster != name })
			return nil
		}
	}
	return nil
}
