package answers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

// Cluster returns the answers of the cluster of the tests, Slurm 22.05.8, as its user alice got them.
// Dir has the captured files: lib/slurm/testdata/22.05.8.
func Cluster(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	lines := map[string]string{
		"scontrol show config": "ClusterName = testbed\nSLURM_VERSION = 22.05.8\nAccountingStorageType = accounting_storage/slurmdbd\n" +
			"AccountingStorageEnforce = associations,limits,qos\nEnforcePartLimits = NO\n",
		"scontrol --oneliner show licenses":          "No licenses configured in Slurm.\n",
		"scontrol --all --oneliner show reservation": "No reservations in the system\n",
		"id -un": "alice\n",
		"id -Gn": "users\n",
	}
	for line, name := range map[string]string{
		"scontrol --all --oneliner --details show node": "show_nodes_oneline.txt",
		"scontrol --all --oneliner show partitions":     "show_partitions_oneline.txt",
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		lines[line] = string(b)
	}
	for name, ask := range map[string]func(*slurm.Client) error{
		"associations-alice": func(c *slurm.Client) error { _, err := c.Associations(tb.Context(), "alice"); return err },
		"":                   func(c *slurm.Client) error { _, err := c.Associations(tb.Context(), ""); return err },
		"qos":                func(c *slurm.Client) error { _, err := c.QOS(tb.Context()); return err },
		"user":               func(c *slurm.Client) error { _, err := c.DefaultAccount(tb.Context(), "alice"); return err },
	} {
		a := asked{lines: lines}
		if name != "" { // the user sees no limits of accounts
			a.capture = filepath.Join(dir, name+captures.Extension)
		}
		if err := ask(&slurm.Client{Run: a}); err != nil {
			tb.Fatal(err)
		}
	}
	return lines
}

// asked answers with a capture, or with nothing, and keeps the answer by its command line.
type asked struct {
	lines   map[string]string
	capture string
}

func (a asked) Run(_ context.Context, c command.Cmd) (command.Result, error) {
	var text strings.Builder
	if a.capture != "" {
		if err := captures.Replay(&text, a.capture, c.Name, c.Args...); err != nil {
			return command.Result{}, err
		}
	}
	a.lines[c.Name+" "+strings.Join(c.Args, " ")] = text.String()
	_, err := c.Stdout.Write([]byte(text.String()))
	return command.Result{}, err
}
