package submit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/sweep"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// result is an error with its hint, or what there is without one.
func result(got string, err error) string {
	if err == nil {
		return got
	}
	if !fault.Is(err, fault.Usage) {
		return fmt.Sprintf("kind %d: %v", fault.KindOf(err), err)
	}
	return strings.TrimSuffix(fmt.Sprintf("error %v; %s", err, fault.HintOf(err)), "; ")
}

func TestCombinations(t *testing.T) {
	const none = `error no command follows the lists of values; put it after "--": ::: lr=0.1 lr=0.2 -- ./train --lr {lr}`
	for args, want := range map[string]string{
		"":                          "[] []",
		"./train ::: 1":             "[] [./train ::: 1]",
		"::: a b -- ./train {1}":    "[[a b]] [./train {1}]",
		"::: a ::: b -- x -- ::: y": "[[a] [b]] [x -- ::: y]",
		"::: -- x":                  "[[]] [x]", // refused with the table
		"::: a --":                  "[[a]] []", // refused without an image
		":::":                       none,
		"::: a b":                   none,
		"::: -1 -n --lr=1 -- x":     "[[-1 -n --lr=1]] [x]", // values of programs
		"::: --wait -- x":           `error "--wait": options come before the lists of values; for the value --wait, name the list: NAME=--wait`,
		"::: --slug=x -- x":         `error "--slug=x": options come before the lists of values; for the value --slug=x, name the list: NAME=--slug=x`,
		"::: v=--wait -- x":         "[[v=--wait]] [x]",
	} {
		lists, words, err := combinations(strings.Fields(args))
		if got := result(fmt.Sprint(lists, words), err); got != want {
			t.Errorf("%s: %s; want %s", args, got, want)
		}
	}
}

func TestTasks(t *testing.T) {
	long := strings.Repeat("x", shortName)
	table := func(columns string, rows ...string) (table sweep.Table) {
		table.Columns = strings.Split(columns, "|")
		for _, r := range rows {
			table.Rows = append(table.Rows, strings.Split(r, "|"))
		}
		return table
	}
	two := table("lr|seed", "0.1|1", "0.2|2")
	for _, tt := range []struct {
		name  string
		e     queue.Entry
		table sweep.Table
		named bool
		want  string
	}{
		{"names of the parameters", queue.Entry{Command: []string{"t", "{lr}", "{seed}"}}, two, false, "lr-0.1_seed-1:t,0.1,1 lr-0.2_seed-2:t,0.2,2"},
		{"a name of the user", queue.Entry{Command: []string{"t", "{lr}"}, Slug: "s{seed}"}, two, true, "s1:t,0.1 s2:t,0.2 unused seed"},
		{"a name without placeholders", queue.Entry{Command: []string{"t", "{lr}{seed}"}, Slug: "s"}, two, true, "s:t,0.11 s:t,0.22"},
		{"values are not templates", queue.Entry{Command: []string{"t", "{a}"}}, table("a|b", "{b}|1"), false, "a-{b}_b-1:t,{b} unused b"},
		{"a long name is a number", queue.Entry{Command: []string{"t", "{a}"}, Slug: "t"}, table("a", "x", long), false, "a-x:t,x t-2:t," + long},
		{"so is one with a control character", queue.Entry{Command: []string{"t", "{a}"}, Slug: "t"}, table("a", "x\ny"), false, "t-1:t,x\ny"},
		{"no placeholder is part of a number", queue.Entry{Command: []string{"{a}", "{b}"}, Slug: "{a}"}, table("a|b", "x|"+long), false, "task-1:x," + long},
		{"a program in the table", queue.Entry{Command: []string{"bin/{p}"}}, table("p", "a", "b"), false, "p-a:bin/a p-b:bin/b"},
		{"a request only", queue.Entry{Command: []string{"t"}, Request: task.Request{Sbatch: []string{"mem={gb}G"}}}, table("gb", "1", "2", "1"), false,
			"gb-1:t gb-2:t gb-1:t mem=1G mem=2G"},
		{"no row needs what another has", queue.Entry{Command: []string{"t"}, Request: task.Request{Find: "{f}"}}, table("f", "cpu(mem=1G)", ""), false,
			"f-cpu(mem=1G):t f-:t cpu(mem=1G) "},

		{"no placeholder", queue.Entry{Command: []string{"t"}, Slug: "{lr}"}, two, true,
			"error the command has no placeholder: all tasks would be the same; put the value of a column into it, as in --lr {lr}"},
		{"an unknown column", queue.Entry{Command: []string{"t", "{x}"}}, two, false,
			"error command: unknown column {x}; the columns are lr, seed; to pass a word in braces to the command, double them: {{word}}"},
		{"a bad request in the second row", queue.Entry{Command: []string{"t"}, Request: task.Request{Find: "cpu(mem={m})"}}, table("m", "1G", "lots"), false,
			`error row 2: --find: request:1:9: unexpected "lots": expected a size, such as 14G
  cpu(mem=lots)
          ^`},
		{"an empty request in --sbatch", queue.Entry{Command: []string{"t"}, Request: task.Request{Sbatch: []string{"{o}"}}}, table("o", ""), false,
			`error row 1: --sbatch: sbatch has no option "": expected a long option for resources, such as mem=8G`},
		{"an empty name", queue.Entry{Command: []string{"t", "{a}"}, Slug: "{a}"}, table("a", "1", ""), true, "error --name: row 2: the name is empty"},
		{"an empty program", queue.Entry{Command: []string{"{a}", "x"}}, table("a", "1", ""), false, "error row 2: the first word of the command, its program, is empty"},
		{"a command line in the table", queue.Entry{Command: []string{"{a}"}}, table("a", "true", "echo hello"), false,
			`error row 2: the command "echo hello" is one word with spaces in it, and runs without a shell; ` +
				`leave the quotes out, or run a shell: -- sh -c 'echo hello'`},
		{"a large value", queue.Entry{Command: []string{"t", "{a}"}}, table("a", strings.Repeat("x", 1<<17)), false, "error row 1: parameter a: the value is longer than 65536 bytes"},
	} {
		tt.e.Group = "g"
		all, requests, unused, err := tasks(tt.e, tt.table, tt.named)
		var words []string
		for _, e := range all {
			if e.Group != "g" || len(e.Parameters) != len(tt.table.Columns) {
				t.Errorf("%s: %+v", tt.name, e)
			}
			words = append(words, e.Slug+":"+strings.Join(e.Command, ","))
		}
		for _, r := range slices.DeleteFunc(requests, func(r task.Request) bool { return len(requests) == 1 && r.IsZero() }) {
			words = append(words, r.Find+strings.Join(r.Sbatch, ","))
		}
		if len(unused) > 0 {
			words = append(words, "unused", strings.Join(unused, ","))
		}
		if got := result(strings.Join(words, " "), err); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

func TestNewGroup(t *testing.T) {
	for _, tt := range []struct{ slug, key, want string }{
		{"train", "", "train-......"},
		{"lr-{lr}_s-{seed}", "", "lr-_s-......"},
		{"{lr}", "", "......"},
		{"../a b/é\x1b", "", "a-b-......"},
		{"x", "sweep-1", "sweep-1"},
		{"x", "a key", "x-......"},
		{strings.Repeat("x", 300), "", strings.Repeat("x", 40) + "-......"},
	} {
		first, err := NewGroup(tt.slug, tt.key)
		if err != nil || queue.CheckGroup(first) != nil {
			t.Errorf("%q, %q: %q, %v", tt.slug, tt.key, first, err)
		}
		shape := first
		if strings.HasSuffix(tt.want, "......") && len(first) >= 6 {
			shape = first[:len(first)-6] + "......"
		}
		second, _ := NewGroup(tt.slug, tt.key)
		if shape != tt.want || (first == second) != (tt.key != "") {
			t.Errorf("%q, %q: %q and %q; want %q", tt.slug, tt.key, first, second, tt.want)
		}
	}
}

func FuzzNewGroup(f *testing.F) {
	f.Add("train", "")
	f.Add("-_.{a}", "a key")
	f.Fuzz(func(t *testing.T, slug, key string) {
		group, err := NewGroup(slug, key)
		if err != nil || group == "" || queue.CheckGroup(group) != nil {
			t.Errorf("%q, %q: %q, %v", slug, key, group, err)
		}
	})
}

// A list with one value that looks like several is said.
func TestOneValue(t *testing.T) {
	for list, want := range map[string]string{
		"seed=1..5":       "error warning: seed=1..5 is one value; for a task for each, give seed={1..5}, which bash expands",
		"{1..5}":          "error warning: {1..5} is one value; for a task for each, give {1..5}, which bash expands",
		"1-3":             "error warning: 1-3 is one value; for a task for each, give {1..3}, which bash expands",
		"lr=0.1,0.2":      "error warning: lr=0.1,0.2 is one value; for a task for each, give lr=0.1 lr=0.2",
		"x={a,b c,d,e}":   "error warning: x={a,b c,d,e} is one value; for a task for each, give x=a 'x=b c' x=d ...",
		"lr=0.1":          "",
		"data=a,":         "",
		"date=2026-11-28": "",
		"file=a-b.txt":    "",
	} {
		got := ""
		for _, w := range oneValue([][]string{{list}, {"a,b", "c"}}) {
			got += result("", fault.Wrap(fault.Usage, w))
		}
		if got != want {
			t.Errorf("%s: %s; want %s", list, got, want)
		}
	}
}
