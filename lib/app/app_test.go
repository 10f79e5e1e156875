package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/fault"
)

// tool prints what it was given.
func tool(action cli.ActionFunc) Tool {
	if action == nil {
		action = func(c *cli.Context) error {
			_, err := fmt.Fprintf(c.App.Writer, "all=%v num=%d out=%q args=%q\n", c.Bool("all"), c.Int("num"), c.String("output"), c.Args().Slice())
			return err
		}
	}
	return Tool{
		Name: "sq", Usage: "lists", ArgsUsage: "[ID...]", Action: action,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "all of it"},
			&cli.IntFlag{Name: "num", Aliases: []string{"n"}, Usage: "at most `N`"},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE`"},
		},
	}
}

func runTool(t Tool, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = t.Run(context.Background(), append([]string{"sq"}, args...), strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", `all=false num=0 out="" args=[]`},
		{"-n5 12 -a", `all=true num=5 out="" args=["12"]`},
		{"-an5", `all=true num=5 out="" args=[]`},
		{"12 --num=7 13", `all=false num=7 out="" args=["12" "13"]`},
		{"12 -o x -- -a", `all=false num=0 out="x" args=["12" "-a"]`},
		{"-n -5", `all=false num=-5 out="" args=[]`},
		{"help", `all=false num=0 out="" args=["help"]`},
		{"-", `all=false num=0 out="" args=["-"]`},
		{"-o - h", `all=false num=0 out="-" args=["h"]`},
	} {
		code, out, stderr := runTool(tool(nil), strings.Fields(tt.args)...)
		if code != 0 || strings.TrimSpace(out) != tt.want || stderr != "" {
			t.Errorf("sq %s: %d\n got %s\nwant %s\n%s", tt.args, code, out, tt.want, stderr)
		}
	}
	stop := tool(nil)
	stop.StopAtArg = true
	if _, out, _ := runTool(stop, "-a", "cmd", "-n5", "--", "-o"); strings.TrimSpace(out) != `all=true num=0 out="" args=["cmd" "-n5" "--" "-o"]` {
		t.Errorf("flags of the command are taken: %s", out)
	}
}

func TestUsageErrorsGoToStderr(t *testing.T) {
	for _, args := range []string{"--nope", "-n", "-n x", "-x5"} {
		code, out, stderr := runTool(tool(nil), strings.Fields(args)...)
		if code != 2 || out != "" || strings.Count(stderr, "\n") != 2 || !strings.HasPrefix(stderr, "sq: ") || !strings.Contains(stderr, "\nsq: hint: ") {
			t.Errorf("sq %s: %d\nstdout %q\nstderr %q", args, code, out, stderr)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	code, out, stderr := runTool(tool(nil), "--help")
	if code != 0 || stderr != "" || !strings.HasPrefix(out, "sq - lists\n\nusage: sq [OPTION...] [ID...]\n") || !strings.Contains(out, "-n, --num N") {
		t.Errorf("%d\n%s\n%s", code, out, stderr)
	}
	code, out, stderr = runTool(tool(nil), "-V")
	if code != 0 || stderr != "" || !strings.HasPrefix(out, "sq ") || strings.Count(out, "\n") != 1 {
		t.Errorf("%d\n%s\n%s", code, out, stderr)
	}
}

func TestErrorsBecomeStatusAndMessage(t *testing.T) {
	down := fault.Hint(fault.Errorf(fault.Unavailable, "squeue: no answer"), "is it up?")
	for _, tt := range []struct {
		err    error
		code   int
		stderr string
	}{
		{nil, 0, ""},
		{errors.New("no"), 1, "sq: no\n"},
		{fmt.Errorf("jobs: %w", down), 3, "sq: jobs: squeue: no answer\nsq: hint: is it up?\n"},
		{errors.Join(errors.New("one"), errors.New("two")), 1, "sq: one\nsq: two\n"},
		{fault.Exit(7, nil), 7, ""},
		{errors.New("bad \x1b[31mname"), 1, "sq: bad ?[31mname\n"},
	} {
		code, _, stderr := runTool(tool(func(*cli.Context) error { return tt.err }))
		if code != tt.code || stderr != tt.stderr {
			t.Errorf("%v: %d, %q; want %d, %q", tt.err, code, stderr, tt.code, tt.stderr)
		}
	}
}

func TestCommands(t *testing.T) {
	with := Tool{Name: "sq", Usage: "lists", Commands: []*cli.Command{{
		Name: "explain", Usage: "says why", Flags: []cli.Flag{&cli.BoolFlag{Name: "json"}},
		Action: func(c *cli.Context) error {
			_, err := fmt.Fprintf(c.App.Writer, "json=%v args=%q\n", c.Bool("json"), c.Args().Slice())
			return err
		},
	}}}
	if code, out, stderr := runTool(with, "explain", "a", "--json", "b"); code != 0 || out != "json=true args=[\"a\" \"b\"]\n" {
		t.Errorf("%d %s %s", code, out, stderr)
	}
	if code, _, stderr := runTool(with, "explian"); code != 2 || !strings.Contains(stderr, `did you mean "explain"?`) {
		t.Errorf("%d %s", code, stderr)
	}
	if code, _, stderr := runTool(with, "explain", "--jsn"); code != 2 || strings.Count(stderr, "\n") != 2 {
		t.Errorf("%d %s", code, stderr)
	}
	if code, _, stderr := runTool(with); code != 2 || !strings.Contains(stderr, "a command is missing") {
		t.Errorf("%d %s", code, stderr)
	}
}

func TestTable(t *testing.T) {
	table := Table{Header: []string{"jobID", "gpu.hours", "name"}, Right: []int{1}}
	table.Add("1", "10", "日本")
	table.Add("1234567", "5", "a\x1b[2Jb")
	var out bytes.Buffer
	if err := table.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := "JOBID    GPU.HOURS  NAME\n1               10  日本\n1234567          5  a?[2Jb\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
