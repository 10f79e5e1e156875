package jobpool

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/pool/scheduler"
)

// runTool runs the tool with standard input.
func runTool(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"jobpool"}, args...), strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// alone makes a test independent of who runs it.
func alone(t *testing.T) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir()) // marks of prepared nodes stay there
	t.Chdir(t.TempDir())
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "JOBPOOL_") || strings.HasPrefix(name, "BASH_FUNC_") {
			t.Setenv(name, "") // to have it restored
			os.Unsetenv(name)
		}
	}
}

func TestCommandLine(t *testing.T) {
	alone(t)
	for name, text := range map[string]string{"f": "a\nb\n", "g": "c\nd\n", "h": "x y\n1 2\n"} {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ args, want string }{
		{"echo", "echo in"},
		{"-a f echo", "echo a|echo b"},
		{"-a f -a g echo", "echo a c|echo a d|echo b c|echo b d"},
		{"-a - -a f echo", "echo in a|echo in b"},
		{"-a f echo ::: 1", "echo a 1|echo b 1"},
		{"echo :::: f ::::+ g", "echo a c|echo b d"},
		{"--link echo ::: 1 2 3 :::: f", "echo 1 a|echo 2 b|echo 3 a"},
		{"--xapply echo ::: 1 :::: f", "echo 1 a|echo 1 b"},
		{"-d , echo ::: 1", "echo 1"},
		{"-N2 echo {2}{1} :::: f", "echo ba"},
		{"-n 2 echo :::: f", "echo a b"},
		{"-n0 echo :::: f", "echo|echo"},
		{"-L1 echo :::: f", "echo a|echo b"},
		{"-j1 -X echo x{}y :::: f", "echo xay xby"},
		{"-j1 -m echo x{}y :::: f", "echo xa by"},
		{"-j2 -m echo :::: f", "echo a|echo b"},
		{"-S 1/:,1/n1 -m echo :::: f", "echo a|echo b"},
		{"--xargs -s 9 echo :::: f", "echo a b"},
		{"--header : --colsep [[:blank:]] echo {y}{x} :::: h", "echo 21"},
		{"-I ,, echo ,,-{} ::: 1", "echo '1-{}'"},
		{"-E b echo :::: f", "echo a"},
		{"--plus echo {..} ::: a.b.c", "echo a"},
		{"--shell sh echo $A {} ::: b", "echo '$A' b"},
		{"-P 3 echo ::: 1", "echo 1"},
		{"--pipe wc -l", "wc -l"},
		{"--pipe -N1 -a f wc", "wc|wc"},
		{"--spreadstdin --block 2 --recend b -a f wc", "wc|wc"},
		{"-a f", "a|b"},
		{":::: f", "a|b"},
		{"::: a b ::: c", "a c|b c"},
	} {
		code, out, errs := runTool(t, "in\n", append([]string{"--dry-run"}, strings.Fields(tt.args)...)...)
		if got := strings.ReplaceAll(strings.TrimSuffix(out, "\n"), "\n", "|"); code != 0 || got != tt.want || errs != "" {
			t.Errorf("jobpool %s: %d\n got %s\nwant %s\n%s", tt.args, code, got, tt.want, errs)
		}
	}
	// The only line has the names of the columns.
	code, out, errs := runTool(t, "in\n", "--dry-run", "--header", ":", "-C", ".", "echo")
	if code != 0 || out != "" || errs != "jobpool: the input contains no arguments\n" {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
}

func TestBadCommandLine(t *testing.T) {
	alone(t)
	t.Setenv("BASH_FUNC_f%%", "() {  echo\n}")
	if err := os.WriteFile("f", []byte("a\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, want string }{
		{"echo ::::", "::::: file name is missing"},
		{"echo ::::: a", `unknown separator ":::::"` + "\nhint: use \":::\", \":::+\", \"::::\" or \"::::+\""},
		{"echo :::+ a", ":::+: no source before it to link to"},
		{"-a none echo", "--arg-file: open none: no such file or directory"},
		{"echo :::: none", "::::: open none: no such file or directory"},
		{"echo :::: - -", "standard input can be one source of arguments only"},
		{"echo {2} ::: a", "{2}: a task has 1 argument\nhint: split lines into columns with --colsep, or give several arguments to a task with --max-replace-args"},
		{"echo {0} ::: a", "{0}: arguments are counted from 1"},
		{"echo {= $_++ =} ::: a", "{= =}: Perl code is not supported\nhint: use {.}, {/}, {..} and the like, or edit the argument in a shell command"},
		{"--plus echo {uniq} ::: a", "{uniq}: unknown replacement string\nhint: edit the argument in a shell command"},
		{"echo {} | tr a-z A-Z ::: a", "\"|\" is an operator of the shell, and would be an argument of \"echo\"" +
			"\nhint: write the command line as one word: 'echo {} | tr a-z A-Z'; or take it as an argument with --quote"},
		{"-r false {}; echo {$x} > {}.out ::: a", "\"{};\" is an operator of the shell, and would be an argument of \"false\"" +
			"\nhint: write the command line as one word: " + `'false {}; echo '\''{$x}'\'' > {}.out'` + "; or take it as an argument with --quote"},
		{"--pipe wc && true", "\"&&\" is an operator of the shell, and would be an argument of \"wc\"" +
			"\nhint: write the command line as one word: 'wc && true'; or take it as an argument with --quote"},
		{"-C ( echo", "--colsep: error parsing regexp: missing closing ): `(`"},
		{"-C | echo", "--colsep: \"|\" matches the empty string\nhint: write \\| for a vertical bar and [*] for an asterisk"},
		{"-C , ", "--colsep: a command template is required"},
		{"--header 2 echo", `--header: invalid value "2": expected ":"`},
		{"-N2 -n2 echo", "--max-args and --max-replace-args cannot be combined"},
		{"-N x echo", `--max-replace-args: invalid number "x": expected a whole number from 0 on`},
		{"-L0 echo", `--max-lines: invalid number "0": expected a whole number from 1 on`},
		{"-m -X echo", "-X and -m cannot be combined"},
		{"-s 100 echo", "--max-chars requires one of -X, -m, --xargs"},
		{"-X -s 999999 echo", "--max-chars: 999999 is more than 126976"},
		{"-0 -d x echo", "--null and --delimiter cannot be combined"},
		{"-d xy echo", `--delimiter: invalid value "xy": expected one character`},
		{"--jsonl echo", "--jsonl cannot be combined with a template or arguments"},
		{"--results d -o files echo", "--results and --output files cannot be combined"},
		{"--results d.csv echo ::: 1", `--results: "` + mustGetwd(t) + `/d.csv": tables are not written` + "\nhint: name a directory"},
		{"--pipe", "--pipe: a command is required"},
		{"--pipe wc ::: a", "--pipe reads standard input or one file, not arguments"},
		{"--pipe wc {}", "--pipe: no argument to put in place of {}\nhint: the command reads its block from standard input"},
		{"--pipe --block 0 wc", `--block: invalid size "0": expected one from 1 byte to 512MiB`},
		{"--pipe --block -1 wc", `--block: invalid size "-1": expected a number and K, M, G, T, KiB, MiB, GiB or TiB`},
		{"--block 1k wc", "--block requires --pipe"},
		{"-j x echo", `--jobs: invalid number "x": expected a whole number, +N, -N or N%`},
		{"-j 0% echo", `--jobs: invalid percentage "0%": expected one from 1% on`},
		{"--nice 20 echo", "--nice: 20 is more than 19"},
		{"--timeout x% echo", `--timeout: invalid percentage "x%": expected one from 1% on`},
		{"--halt soon,done=101% echo", `--halt: "soon,done=101%" is not of the form now,fail=1, soon,fail=10% or soon,success=1`},
		{"--halt now,lost=1 echo", `--halt: "now,lost=1" is not of the form now,fail=1, soon,fail=10% or soon,success=1`},
		{"--halt 3 echo", `--halt: "3" is not of the form now,fail=1, soon,fail=10% or soon,success=1`},
		{"f ::: 1", `"f" is a function of bash, and commands are not run by bash` + "\nhint: use --shell bash"},
		{"serve --pipe", "serve: --pipe is for a run: tasks come from jobpool call"},
		{"--tmux echo", "unknown option --tmux\nhint: see \"jobpool --help\""},
		{"--cpus-per-task=2 echo", "unknown option --cpus-per-task\nhint: for the CPUs of each task, give --cpus N"},
		{"--partition gpu echo", "unknown option --partition\nhint: for the jobs of a pool, give --alloc-sbatch=--partition=VALUE"},
		{"--exclusive echo", "unknown option --exclusive\nhint: for the jobs of a pool, give --alloc-sbatch=--exclusive"},
	} {
		code, out, errs := runTool(t, "in\n", strings.Fields(tt.args)...)
		want := "jobpool: " + strings.ReplaceAll(tt.want, "\n", "\njobpool: ") + "\n"
		if code != 2 || out != "" || errs != want {
			t.Errorf("jobpool %s: %d\n got %swant %s", tt.args, code, errs, want)
		}
	}
	if entries, err := filepath.Glob(".jobpool"); err != nil || entries != nil {
		t.Errorf("something was run: %v, %v", entries, err)
	}
}

func mustGetwd(t *testing.T) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestJobs(t *testing.T) {
	for text, want := range map[string]int{"3": 3, "+2": 10, "-2": 6, "50%": 4, "200%": 16, "0": most, "+0": 8, "-20": -12} {
		v := &values{c: contextOf(t, "--jobs="+text)}
		j := v.jobs()
		n := j.fixed
		if j.of != nil {
			n = j.of(8)
		}
		if v.err != nil || n != want {
			t.Errorf("-j %s of 8 CPUs: %d, %v; want %d", text, n, v.err, want)
		}
	}
}

func TestHalt(t *testing.T) {
	for text, want := range map[string]scheduler.Halt{
		"never": {}, "0": {}, "1": {Fail: 1}, "2": {Now: true, Fail: 1}, "10%": {Percent: 10},
		"now,fail=3": {Now: true, Fail: 3}, "soon,fail=5%": {Percent: 5}, "now,success=1": {Now: true, Success: 1},
		"soon,success=50%": {SuccessPercent: 50}, "soon,done=2": {Done: 2}, "now,done=20%": {Now: true, DonePercent: 20},
	} {
		v := &values{c: contextOf(t, "--halt="+text)}
		if h := v.halt(); v.err != nil || h != want {
			t.Errorf("--halt %s: %+v, %v; want %+v", text, h, v.err, want)
		}
	}
}

// contextOf has the flags of a run set.
func contextOf(t *testing.T, args ...string) *cli.Context {
	t.Helper()
	set := flag.NewFlagSet("jobpool", flag.ContinueOnError)
	for _, f := range runFlags() {
		if err := f.Apply(set); err != nil {
			t.Fatal(err)
		}
	}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return cli.NewContext(cli.NewApp(), set, nil)
}
