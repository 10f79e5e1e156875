package lfind

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// explained is what "lfind explain --json" prints.
type explained struct {
	Request      string       `json:"request"`
	Alternatives []string     `json:"alternatives"`
	Answer       *found       `json:"answer"`
	Candidates   []explainRow `json:"candidates"`
}

type explainRow struct {
	Alternative int               `json:"alternative"`
	Launcher    string            `json:"launcher"`
	Kind        file.Kind         `json:"kind"`
	Partition   string            `json:"partition,omitempty"`
	QOS         string            `json:"qos,omitempty"`
	Account     string            `json:"account,omitempty"`
	Defaults    []string          `json:"defaults,omitempty"`
	Nodes       string            `json:"nodes,omitempty"`
	Features    []string          `json:"features,omitempty"`
	Has         string            `json:"has,omitempty"`
	KnownBy     []string          `json:"known_by,omitempty"`
	Verdict     launcher.Verdict  `json:"verdict"`
	Class       string            `json:"class,omitempty"`
	Billed      float64           `json:"billed,omitempty"`
	Reasons     []launcher.Reason `json:"reasons"`
}

func (s *session) explain(c *cli.Context) error {
	r, err := s.request(c)
	if err != nil {
		return err
	}
	f, search, err := s.load(c)
	if err != nil {
		return err
	}
	rows, answer, searchErr := search.Explain(c.Context, r)
	if c.Err() != nil {
		return searchErr
	}
	if c.Bool("json") {
		e := explained{Request: r.String(), Alternatives: []string{}, Candidates: []explainRow{}}
		for _, a := range r.Alternatives {
			e.Alternatives = append(e.Alternatives, a.String())
		}
		for _, row := range rows {
			if row.Reasons == nil {
				row.Reasons = []launcher.Reason{}
			}
			row.Alternative++
			e.Candidates = append(e.Candidates, explainRow{
				row.Alternative, row.Launcher, row.Kind, row.Partition, row.QOS, row.Account, row.Defaults,
				row.Nodes(), row.Features, row.Has(), row.KnownBy(), row.Verdict, row.Class, row.Billed, row.Reasons,
			})
		}
		if answer != nil {
			d := describe(f, answer, nil)
			e.Answer = &d
		}
		err = app.PrintJSON(s.stdout, e)
	} else if c.Bool("all") {
		err = s.explainTable(len(r.Alternatives) > 1, rows, answer)
	} else {
		err = s.explainShort(len(r.Alternatives) > 1, rows, answer)
	}
	switch {
	case err != nil:
		return err
	case searchErr != nil:
		return unreachable(f, searchErr)
	case answer == nil:
		return fault.Hint(fault.Errorf(fault.Failed, "nothing matches %s", r), search.Misspelt(r))
	}
	return nil
}

func (s *session) explainTable(alternatives bool, rows []launcher.Row, answer *launcher.Answer) error {
	t := app.Table{
		Header: []string{"ALT", "LAUNCHER", "PARTITION", "QOS", "ACCOUNT", "NODES", "HAS", "MATCH", "CLASS", "BILLED", "WHY"},
		Right:  []string{"ALT", "BILLED"}, Drop: []string{"HAS", "NODES"},
	}
	if !alternatives {
		t.Omit = []string{"ALT"}
	}
	for _, row := range rows {
		why := make([]string, len(row.Reasons))
		for i, r := range row.Reasons {
			why[i] = r.Text()
		}
		t.Add(strconv.Itoa(row.Alternative+1),
			row.Launcher, dash(row.Partition), byDefault(row, "qos", row.QOS), byDefault(row, "account", row.Account),
			dash(shorten(row.Nodes())), dash(row.Has()), string(row.Verdict), dash(row.Class), billed(row), strings.Join(why, "; "))
	}
	if err := t.Print(s.stdout); err != nil {
		return err
	}
	if answer == nil {
		return nil
	}
	_, err := fmt.Fprintf(s.stdout, "\n%s\n", app.Sanitize(chosen(answer)))
	return err
}

func billed(row launcher.Row) string {
	if row.Class == "" {
		return "-"
	}
	return launcher.FormatBilled(row.Billed)
}

// chosen is the answer in one line.
func chosen(answer *launcher.Answer) string {
	what := answer.Options.String()
	if answer.Local() {
		what = "this machine"
		if e := answer.Launcher.Entry; e.Connector != "local" {
			what = "over " + e.Connector
		}
	}
	return answer.Launcher.Name + ": " + what
}

// byDefault puts what need not be asked for into parentheses.
func byDefault(row launcher.Row, what, name string) string {
	if slices.Contains(row.Defaults, what) {
		return "(" + name + ")"
	}
	return dash(name)
}

// shorten keeps a long node list from filling the terminal.
func shorten(nodes string) string {
	const limit = 40
	if len(nodes) <= limit {
		return nodes
	}
	return nodes[:limit-3] + "..."
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// listRow is one launcher of "lfind list --json".
type listRow struct {
	Launcher   string         `json:"launcher"`
	Kind       file.Kind      `json:"kind"`
	Weight     float64        `json:"weight"`
	Tags       []string       `json:"tags"`
	Connector  string         `json:"connector"`
	Hostname   string         `json:"hostname,omitempty"`
	Disabled   bool           `json:"disabled"`
	QuerySlurm bool           `json:"query_slurm"`
	Partitions []string       `json:"partitions"`
	Tokens     map[string]int `json:"tokens,omitempty"`
	Has        string         `json:"has"`
	Error      string         `json:"error,omitempty"`
	File       string         `json:"file,omitempty"`
	Line       int            `json:"line,omitempty"`
}

// list prints the launchers in the order in which they are tried. Those that ask
// Slurm are listed with what it said.
func (s *session) list(c *cli.Context) error {
	f, search, err := s.load(c)
	if err != nil {
		return err
	}
	all := []listRow{}
	var failed error
	for _, l := range search.Launchers {
		info, err := search.Inspect(c.Context, l)
		if c.Err() != nil {
			return err
		}
		if info.Skipped {
			continue
		}
		e := l.Entry
		d := listRow{
			Launcher: l.Name, Kind: e.Kind, Weight: e.Weight, Tags: orEmpty(e.Tags),
			Connector: e.Connector, Hostname: launcher.Hostname(f, e.Connector), Disabled: e.Disabled,
			QuerySlurm: e.QuerySlurm, Partitions: orEmpty(info.Partitions), Has: info.Has, File: f.Path, Line: e.Line,
		}
		if err != nil {
			d.Error, failed = fault.Text(err), err
		}
		for _, t := range e.Tokens {
			if d.Tokens == nil {
				d.Tokens = map[string]int{}
			}
			d.Tokens[t.ID] = t.Count
		}
		all = append(all, d)
	}
	if c.Bool("json") {
		err = app.PrintJSON(s.stdout, all)
	} else {
		t := app.Table{
			Header: []string{"LAUNCHER", "KIND", "WEIGHT", "TAGS", "CONNECTOR", "PARTITIONS", "HAS", "LINE"},
			Right:  []string{"WEIGHT", "LINE"}, Drop: []string{"CONNECTOR", "WEIGHT"},
		}
		for _, d := range all {
			has := d.Has
			switch {
			case d.Disabled:
				has = "disabled"
			case d.Error != "":
				has = "Slurm could not be asked"
			}
			line := "-"
			if d.Line > 0 {
				line = strconv.Itoa(d.Line)
			}
			t.Add(d.Launcher, string(d.Kind), strconv.FormatFloat(d.Weight, 'g', -1, 64), dash(strings.Join(d.Tags, ",")), d.Connector,
				dash(shorten(strings.Join(d.Partitions, ","))), dash(has), line)
		}
		err = t.Print(s.stdout)
	}
	if err == nil && failed != nil {
		return unreachable(f, failed)
	}
	return err
}
