package lfind

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/probe"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// probed is one row of "lfind probe --json".
type probed struct {
	Launcher   string      `json:"launcher"`
	Nodes      string      `json:"nodes"`
	Count      int         `json:"count"`
	Partitions []string    `json:"partitions"`
	GPUs       []probedGPU `json:"gpus"`
	Args       []string    `json:"args,omitempty"`
	Why        string      `json:"why,omitempty"`
	Job        string      `json:"job,omitempty"`
}

type probedGPU struct {
	Count   int        `json:"count"`
	Type    string     `json:"type,omitempty"`
	Is      string     `json:"is,omitempty"`
	KnownBy []string   `json:"known_by,omitempty"`
	Unknown string     `json:"unknown,omitempty"`
	Probed  *time.Time `json:"probed,omitempty"`
	Old     bool       `json:"old,omitempty"`
}

// probe lists the nodes whose GPUs are not known, or submits a job to one of each kind.
func (s *session) probe(c *cli.Context) error {
	if c.Bool("script") {
		_, err := io.WriteString(s.stdout, probe.Script)
		return err
	}
	f, search, err := s.load(c)
	if err != nil {
		return err
	}
	surveyed, err := search.Survey(c.Context)
	if err != nil {
		if err = unreachable(f, err); surveyed == nil {
			return err
		}
		s.note(c, "warning: %v", fault.Text(err))
	}
	rows := []probed{}
	var failed error
	left := 0
	for _, n := range surveyed {
		if !n.Open() && !c.Bool("all") {
			continue
		}
		row := probed{
			Launcher: n.Launcher.Name, Nodes: n.Hosts, Count: n.Count, Partitions: n.Partitions, Why: n.Why,
		}
		for _, g := range n.GPUs {
			d := probedGPU{Count: g.Count, Type: g.Type, Is: g.Is, KnownBy: g.Sources, Unknown: g.Unknown, Old: g.Old}
			if !g.Probed.IsZero() {
				d.Probed = &g.Probed
			}
			row.GPUs = append(row.GPUs, d)
		}
		if n.Probe != nil {
			row.Args = n.Probe.Options.Args()
		}
		if n.Open() && c.Bool("submit") {
			if n.Probe == nil {
				left++
			} else if row.Job, err = s.submitProbe(c, launcher.Hostname(f, n.Launcher.Entry.Connector), n.Probe); err != nil {
				if c.Err() != nil {
					return err
				}
				app.Report(s.stderr, "lfind", fmt.Errorf("nodes %s: %w", n.Hosts, err))
				row.Why, failed = fault.Text(err), err
			}
		}
		rows = append(rows, row)
	}
	if c.Bool("json") {
		err = app.PrintJSON(s.stdout, rows)
	} else {
		err = s.probeTable(rows, c.Bool("submit"))
	}
	switch {
	case err != nil:
		return err
	case failed != nil:
		return fault.Exit(int(fault.Unavailable), nil)
	case left > 0:
		return fault.Errorf(fault.Failed, "nodes to which you cannot submit a job: %d of the kinds listed", left)
	}
	return nil
}

func (s *session) probeTable(rows []probed, submitted bool) error {
	t := app.Table{Header: []string{"LAUNCHER", "NODES", "PARTITIONS", "GPUS", "KNOWN BY", "UNKNOWN", "JOB"}, Drop: []string{"PARTITIONS"}}
	if !submitted {
		t.Header[6] = "PROBE"
	}
	if !slices.ContainsFunc(rows, func(row probed) bool { return row.Launcher != rows[0].Launcher }) {
		t.Omit = []string{"LAUNCHER"}
	}
	for _, row := range rows {
		var gpus, by, open []string
		for _, g := range row.GPUs {
			text := strconv.Itoa(g.Count)
			if g.Type != "" && !strings.HasPrefix(g.Is, g.Type+" ") {
				text += " " + g.Type
			}
			text = strings.TrimSpace(text + " " + g.Is)
			addTo(&gpus, text)
			for _, source := range g.KnownBy {
				addTo(&by, source)
			}
			addTo(&open, g.Unknown)
			if g.Old {
				addTo(&open, "old")
			}
		}
		how := strings.Join(row.Args, " ")
		switch {
		case row.Why != "":
			how = row.Why
		case submitted:
			how = row.Job
		}
		t.Add(row.Launcher, shorten(row.Nodes), shorten(strings.Join(row.Partitions, ",")), strings.Join(gpus, ", "),
			dash(strings.Join(by, "; ")), dash(strings.Join(open, ", ")), dash(how))
	}
	return t.Print(s.stdout)
}

// submitProbe submits the script with the options of an answer, and returns the id of the job.
func (s *session) submitProbe(c *cli.Context, host string, a *launcher.Answer) (string, error) {
	client := slurm.Client{Run: launcher.Runner(host, command.System), Dir: a.Launcher.Entry.Path}
	out, err := client.Command(c.Context, command.Cmd{
		Name: "sbatch", Args: append([]string{"--parsable", "--job-name=lfind-probe", "--output=/dev/null"}, a.Options.Args()...),
		Stdin: strings.NewReader(probe.Script), Env: os.Environ(),
	})
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(out)), ";")
	if id == "" {
		return "", errors.New("sbatch printed no job id")
	}
	return id, nil
}

func addTo(list *[]string, word string) {
	if word != "" && !slices.Contains(*list, word) {
		*list = append(*list, word)
	}
}
