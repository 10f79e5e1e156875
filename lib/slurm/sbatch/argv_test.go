package sbatch

import (
	"slices"
	"strings"
	"testing"
)

func TestArgv(t *testing.T) {
	for _, c := range []struct{ line, options, command string }{
		{"-p gpu -c4 --mem 8G run.sh --mem=1G", "--partition=gpu --cpus-per-task=4 --mem=8G", "run.sh --mem=1G"},
		{"-Hsv -N 2 -- -x", "--hold --oversubscribe --verbose --nodes=2", "-x"},
		{"--exclusive run.sh", "--exclusive", "run.sh"},
		{"--nice=5 --nice", "--nice", ""},
		{"-k run.sh", "--no-kill", "run.sh"},
		{"--part=gpu --gpus 2 --gpus=a100:1", "--partition=gpu --gpus=a100:1", ""},
		{"--time 5 : --time=6 --mem=1G : -n 2 run.sh a", "--time=5 : --time=6 --mem=1G : --ntasks=2", "run.sh a"},
		{"--of-a-plugin=3 --wrap=true", "--of-a-plugin=3 --wrap=true", ""},
		{"--wait - x", "--wait", "- x"},
		{"--cluster=a", "--clusters=a", ""},
	} {
		l, err := Argv(strings.Fields(c.line))
		var jobs []string
		for _, j := range l.Jobs {
			jobs = append(jobs, j.String())
		}
		if got := strings.Join(jobs, " : "); err != nil || got != c.options || strings.Join(l.Command, " ") != c.command {
			t.Errorf("%s: %s, %q, %v", c.line, got, l.Command, err)
		}
	}
	for line, want := range map[string]string{
		"--mem": "--mem lacks a value", "-c": "-c lacks a value", "--requ=1 --re": "--re is ambiguous", "-Z": "-Z is not an option",
		"--hold=1": "--hold takes no value", "--no": "--no is ambiguous",
	} {
		if _, err := Argv(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestScript(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{"#!/bin/sh\n#SBATCH -t 5 --mem=1G # of all\n\n  # a comment\n#SBATCH --qos=q\ntrue\n#SBATCH --time=6\n", "--time=5 --mem=1G --qos=q"},
		{"#!/bin/sh\n  #SBATCH --time=5\n##SBATCH --time=6\n#SBATCH\t--mem=2G\n", "--mem=2G"},
		{"#SBATCH --comment='a b' --job-name=\"x\\\"y\" --wckey=a\\ b\n", `--comment=a b --job-name=x"y --wckey=a b`},
		{"#SBATCH --wckey=a#b --time=5\n", "--wckey=a"},
		{"#SBATCH --time=5 \"\" --mem=1G\n", "--time=5"},
		{"#SLURM --time=5\n", "--time=5"},
		{"#SBATCH -N 1 -t 5\n#SBATCH hetjob\n#SBATCH -N 2\n", "--nodes=1 --time=5 : --nodes=2"},
		{"#SBATCH -t5\n#SBATCH -t6", "--time=6"},
		{"true\n#SBATCH -t5\n", ""},
		{"#SBATCH -t5\r\n", "--time=5"},
		{"", ""},
	} {
		all, err := Script(c.script)
		var jobs []string
		for _, j := range all {
			jobs = append(jobs, j.String())
		}
		if got := strings.Join(jobs, " : "); err != nil || got != c.want {
			t.Errorf("%q: %s, %v; want %s", c.script, got, err, c.want)
		}
	}
	for script, want := range map[string]string{
		"#SBATCH --mem\n": "--mem lacks a value", "\n#SBATCH --comment='a\n": "line 2: unmatched '", "#SBATCH time=5\n": `"time=5" in #SBATCH`,
		"#SBATCH -t 5 : -N 2\n": "unexpected ':'", "#SBATCHMAN\n": `"MAN" in #SBATCH`,
	} {
		if _, err := Script(script); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", script, err)
		}
	}
}

func FuzzArgv(f *testing.F) {
	for _, seed := range []string{"-p\ngpu\nx.sh", "--mem\n8G\n:\n-N2", "-Hsc4", "--\n-x", "--no\n", "-", "--exclusive\n--nice=3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Argv(strings.Split(text, "\n"))
		if err != nil {
			return
		}
		var args []string
		for i, options := range l.Jobs {
			if i > 0 {
				args = append(args, ":")
			}
			args = append(args, options.Args()...)
		}
		if again, err := Argv(args); err != nil || len(again.Command) > 0 || !slices.EqualFunc(again.Jobs, l.Jobs, slices.Equal) {
			t.Errorf("%q: %v, and their arguments are %v, %v", text, l, again, err)
		}
	})
}

func FuzzScript(f *testing.F) {
	for _, seed := range []string{"#!/bin/sh\n#SBATCH -t5\ntrue\n", "#SBATCH hetjob\n", "#SBATCH --comment='a b' \"\"\\", "#SBATCH :", "#SBATCH\\ -t"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Script(text)
		if err != nil || len(all) != 1 {
			return
		}
		var lines []string
		for _, o := range all[0] {
			if strings.ContainsAny(o.Value, "\n\t\v\f\r") || strings.ContainsAny(o.Name, "\"'\\# \t\v\f\r") || o.Value == "" && o.Arg() != "--"+o.Name {
				return
			}
			lines = append(lines, o.Directive())
		}
		if again, err := Script(strings.Join(lines, "\n")); err != nil || !slices.Equal(again[0], all[0]) {
			t.Errorf("%q: %+v, and its lines are %+v, %v", text, all, again, err)
		}
	})
}
