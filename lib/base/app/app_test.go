package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
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

func TestWrongFlagsAreToldAsTheyWereTyped(t *testing.T) {
	for args, want := range map[string]string{
		"--outptu x": "sq: unknown option --outptu\nsq: hint: did you mean --output?\n",
		"-x":         "sq: unknown option -x\nsq: hint: see \"sq --help\"\n",
		"-n":         "sq: option -n needs a value\nsq: hint: see \"sq --help\"\n",
		"--num x":    "sq: option --num: invalid value \"x\": expected a whole number\nsq: hint: see \"sq --help\"\n",
		"--all=x":    "sq: option --all: unexpected value \"x\"\nsq: hint: see \"sq --help\"\n",
	} {
		if code, _, stderr := runTool(tool(nil), strings.Fields(args)...); code != 2 || stderr != want {
			t.Errorf("sq %s: %d\n got %s\nwant %s", args, code, stderr, want)
		}
	}
}

// TestHelpFitsAScreen has a tool with more options than fit.
func TestHelpFitsAScreen(t *testing.T) {
	many := tool(nil)
	many.Description, many.Examples = "First.\n\nSecond.", "sq 12"
	for i := range 30 {
		many.Flags = append(many.Flags, &cli.BoolFlag{Name: fmt.Sprintf("flag%d", i), Usage: "does it"})
	}
	_, short, _ := runTool(many, "--help")
	if strings.Count(short, "\n") != height || !strings.HasSuffix(short, "\n\nmore: sq --help-all, man sq\n") ||
		strings.Contains(short, "Second.") || strings.Contains(short, "examples:") || strings.Contains(short, "flag29") {
		t.Errorf("got\n%s", short)
	}
	_, all, _ := runTool(many, "--help-all")
	for _, want := range []string{"First.", "Second.", "--flag29  ", "-n, --num N", "-V, --version", "\nexamples:\n  sq 12\n"} {
		if !strings.Contains(all, want) {
			t.Errorf("--help-all leaves out %q:\n%s", want, all)
		}
	}
	many.Brief = map[string][]string{"": {"flag29", "num"}}
	if _, short, _ = runTool(many, "--help"); !strings.Contains(short, "common options:\n      --flag29  does it\n  -n, --num N   at most N\n\nmore: ") {
		t.Errorf("got\n%s", short)
	}
	_, description, _ := runTool(many, "--describe")
	if !strings.Contains(description, `"help-all"`) {
		t.Error("--describe does not know --help-all")
	}
	if _, description, _ = runTool(tool(nil), "--describe"); strings.Contains(description, "help-all") {
		t.Error("a tool whose help fits a screen tells --help-all")
	}
}

func TestOneOf(t *testing.T) {
	with := tool(nil)
	with.Flags = append(with.Flags,
		OneOf(&cli.StringFlag{Name: "kind", Usage: "a `KIND`", Value: "big"}, "big", "small"),
		SomeOf(&cli.StringFlag{Name: "where", Usage: "`PLACES`"}, "here", "there"))
	for args, want := range map[string]string{
		"":                   "",
		"--kind small":       "",
		"--where here,there": "",
		"--kind smal":        "sq: --kind: invalid value \"smal\": expected one of big, small\nsq: hint: did you mean \"small\"?\n",
		"--small":            "sq: unknown option --small\nsq: hint: did you mean --kind small?\n",
		"--there":            "sq: unknown option --there\nsq: hint: did you mean --where there?\n",
		"--where here,x":     "sq: --where: invalid value \"x\": expected one of here, there\n",
		"--kind=":            "sq: --kind: invalid value \"\": expected one of big, small\n",
	} {
		code, _, stderr := runTool(with, strings.Fields(args)...)
		if stderr != want || (code == 2) != (want != "") {
			t.Errorf("sq %s: %d, %q; want %q", args, code, stderr, want)
		}
	}
	_, description, _ := runTool(with, "--describe")
	if flat := strings.Join(strings.Fields(description), " "); !strings.Contains(flat, `"words": [ "big", "small" ]`) || !strings.Contains(flat, `"list": true`) {
		t.Errorf("--describe does not tell the words:\n%s", description)
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
		Name: "explain", Usage: "says why", ArgsUsage: "WORD...", Flags: []cli.Flag{&cli.BoolFlag{Name: "json"}},
		Action: func(c *cli.Context) error {
			_, err := fmt.Fprintf(c.App.Writer, "json=%v args=%q\n", c.Bool("json"), c.Args().Slice())
			return err
		},
	}}}
	if code, out, stderr := runTool(with, "explain", "a", "--json", "b"); code != 0 || out != "json=true args=[\"a\" \"b\"]\n" {
		t.Errorf("%d %s %s", code, out, stderr)
	}
	// Flags of the tool itself that the command has, too.
	with.Flags = []cli.Flag{&cli.BoolFlag{Name: "json"}, &cli.StringFlag{Name: "from", Aliases: []string{"f"}}}
	for _, args := range [][]string{{"--json", "explain", "a"}, {"-f", "x", "--json", "explain", "a"}, {"--json=true", "-fx", "explain", "a"}} {
		if code, out, stderr := runTool(with, args...); code != 0 || out != "json=true args=[\"a\"]\n" {
			t.Errorf("%q: %d %s %s", args, code, out, stderr)
		}
	}
	with.Flags = nil
	if code, _, stderr := runTool(with, "explian"); code != 2 || !strings.Contains(stderr, `did you mean "explain"?`) {
		t.Errorf("%d %s", code, stderr)
	}
	if code, _, stderr := runTool(with, "--explain", "x"); code != 2 || !strings.Contains(stderr, `did you mean "sq explain"?`) {
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
	table := Table{Header: []string{"JobID", "GPU h", "NAME", "none"}, Right: []string{"GPU h", "NAME"}, Omit: []string{"none"}}
	table.Add("1", "10", "日本", "")
	table.Add("1234567", "5", "a\x1b[2Jb", "")
	table.Add("", "", "e\u0301", "")
	var out bytes.Buffer
	if err := table.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := "JobID    GPU h    NAME\n1           10    日本\n1234567      5  a?[2Jb\n                     e\u0301\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTableFitsATerminal(t *testing.T) {
	why := "the partition is for the accounts csi only, and yours are research and others"
	table := Table{
		Header: []string{"TASK", "PARTITION", "HAS", "CPUS", "WHY"}, Right: []string{"CPUS"},
		Drop: []string{"HAS", "CPUS"}, Whole: []string{"TASK"},
	}
	table.Add("01a1faf1-7e44-7767-b4cb-443504a8c347", "a_partition_with_a_long_name", "8 CPUs, 4 x a100", "16", why)
	table.Add("2", "日本語日本語日本語日本語", "nothing", "1", "")
	for _, room := range []int{200, 120, 100, 80, 60} {
		var out bytes.Buffer
		if err := table.PrintWithin(&out, room); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		for line := range strings.Lines(text) {
			if w := twwidth.Width(strings.TrimRight(line, "\n")); w > room {
				t.Errorf("%d columns: %d wide: %q", room, w, line)
			}
		}
		if !strings.Contains(text, "01a1faf1-7e44-7767-b4cb-443504a8c347") {
			t.Errorf("%d columns: the id is cut:\n%s", room, text)
		}
		if left := strings.Contains(text, "also shows: has"); left != (room < 120) || left == strings.Contains(text, "a100") {
			t.Errorf("%d columns: left out: %v\n%s", room, left, text)
		}
		for word := range strings.FieldsSeq(why) {
			if !strings.Contains(text, word) {
				t.Errorf("%d columns: %q is lost:\n%s", room, word, text)
			}
		}
	}
	table = Table{Header: []string{"TASK", "COMMAND"}, OneLine: true}
	table.Add("1", strings.Repeat("x ", 100))
	t.Setenv("TERM", "")
	for locale, mark := range map[string]string{"C.UTF-8": "…", "C": "+"} {
		t.Setenv("LC_ALL", locale)
		var out bytes.Buffer
		if err := table.PrintWithin(&out, 40); err != nil || strings.Count(out.String(), "\n") != 2 || !strings.HasSuffix(out.String(), mark+"\n") {
			t.Errorf("%s: %v\n%s", locale, err, out.String())
		}
	}
}

func TestTableLeavesOutItsLastNumber(t *testing.T) {
	table := Table{Header: []string{"GROUP", "TASKS", "FAILED", "STOPPED"}, Right: []string{"TASKS", "FAILED", "STOPPED"}, Drop: []string{"STOPPED"}}
	table.Add("a-long-name", "12", "3", "0")
	var out strings.Builder
	if err := table.PrintWithin(&out, 28); err != nil {
		t.Fatal(err)
	}
	if want := "GROUP        TASKS  FAILED\na-long-name     12       3\n\"| less -S\" also shows:\nstopped\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTooManyArguments(t *testing.T) {
	done := func(*cli.Context) error { return nil }
	tool := Tool{Name: "tool", Commands: []*cli.Command{
		{Name: "none", Action: done}, {Name: "one", ArgsUsage: "[FILE]", Action: done}, {Name: "any", ArgsUsage: "FILE...", Action: done},
	}}
	for args, want := range map[string]string{
		"none": "", "one a": "", "any a b c": "", "none a": `tool: unexpected argument "a"`, "one a b": `tool: unexpected argument "b"`,
	} {
		var stderr strings.Builder
		code := tool.Run(t.Context(), append([]string{"tool"}, strings.Fields(args)...), nil, io.Discard, &stderr)
		if got := strings.TrimSpace(stderr.String()); got != want || (code == 2) != (want != "") {
			t.Errorf("%s: %d %q, want %q", args, code, got, want)
		}
	}
}
