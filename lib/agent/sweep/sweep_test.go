package sweep

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func check(name string) error {
	if name == "" || strings.ContainsAny(name, " {}$\x00") {
		return errors.New("invalid name")
	}
	return nil
}

func TestRead(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"p.tsv", "lr\tseed\n0.1\t1\n0.2\t2\n", "[lr seed] [[0.1 1] [0.2 2]]"},
		{"p.tsv", "\xef\xbb\xbflr\t seed \r\n0.1\t\"1\r\n\r\n\t\n0.2\t \n", "[lr seed] [[0.1 \"1] [0.2  ]]"},
		{"p.tsv", "lr\n0.1", "[lr] [[0.1]]"},
		{"p.csv", "lr,note\n0.1,\"a, b\"\n", "[lr note] [[0.1 a, b]]"},
		{"p.csv", "\xef\xbb\xbflr,seed\r\n1,2\r\n,\r\n3,\r\n, \r\n", "[lr seed] [[1 2] [3 ]]"},
		{"p.csv", "lr\n\"\"\n", "[lr] [[]]"},
		{"p.tsv", strings.Repeat("x\t", maxColumns) + "x\n", "error p.tsv:1: 257 columns, more than 256"},
		{"-", "lr,seed\n1,2\n", "[lr seed] [[1 2]]"},
		{"-", "lr\tx,y\n1\t2\n", "[lr x,y] [[1 2]]"},
		{"-", "{\"lr\": 1e-3, \"name\": \"a b\", \"on\": true}\n{\"on\":false,\"name\":\"\",\"lr\":2}\n", "[lr name on] [[1e-3 a b true] [2  false]]"},
		{"p.tsv", "", "error p.tsv: the file is empty"},
		{"p.tsv", "lr\n", "error p.tsv: no row follows the names of the columns"},
		{"p.tsv", "lr\tlr\n1\t2\n", "error p.tsv:1: duplicate column \"lr\""},
		{"p.tsv", "lr\tseed\n1\t2\n3\n", "error p.tsv:3: 1 field, expected 2: lr, seed"},
		{"p.tsv", "lr\tseed\n1\t2\t3\n", "error p.tsv:2: 3 fields, expected 2: lr, seed"},
		{"p.tsv", "lr\n\xff\n", "error p.tsv:2: not UTF-8"},
		{"p.tsv", "lr\na\x00\n", "error p.tsv:2: column lr: the value has a zero byte"},
		{"p.tsv", "lr\n1\n2\n3\n4\n", "error p.tsv:5: more than 3 rows"},
		{"p.tsv", "lr\n" + strings.Repeat("x", maxLine+1) + "\n", "error p.tsv:2: longer than 1 MiB"},
		{"p.csv", "lr,seed\n1,2\n\"3,4\n", "error p.csv:3: extraneous or missing \" in quoted-field"},
		{"p.csv", "lr,seed\n1\n", "error p.csv:2: 1 field, expected 2: lr, seed"},
		{"p.csv", "lr\n\xff\n", "error p.csv:2: not UTF-8"},
		{"p.jsonl", "[1]\n", "error p.jsonl:1: not a JSON object"},
		{"p.jsonl", "{\"a\":1}\n{\"a\":1\n", "error p.jsonl:2: invalid JSON: unexpected EOF"},
		{"p.jsonl", "{\"a\":1}\n{\"b\":1}\n", "error p.jsonl:2: \"a\" is missing"},
		{"p.jsonl", "{\"a\":1}\n{\"a\":1,\"b\":1}\n", "error p.jsonl:2: \"b\" is not in the first line, which has a"},
		{"p.jsonl", "{\"a\":1,\"a\":2}\n", "error p.jsonl:1: \"a\" is given twice"},
		{"p.jsonl", "{\"a\":null}\n", "error p.jsonl:1: parameter \"a\": expected a string, a number, true or false"},
		{"p.jsonl", "{\"a\":{}}\n", "error p.jsonl:1: parameter \"a\": expected a string, a number, true or false"},
		{"p.jsonl", "{\"a\":1} x\n", "error p.jsonl:1: something follows the object"},
		{"p.jsonl", "{}\n", "error p.jsonl:1: the object is empty"},
		{"p.jsonl", "{\"a b\":1}\n", "error p.jsonl:1: column 1: invalid name"},
	} {
		table, err := Read(tt.name, strings.NewReader(tt.text), 3, check)
		got := fmt.Sprint(table.Columns, table.Rows)
		if got = strings.Replace(got, "][", "] [", 1); err != nil {
			got = "error " + err.Error()
		}
		if got != tt.want {
			t.Errorf("%s %.60q:\n got %s\nwant %s", tt.name, tt.text, got, tt.want)
		}
	}
}

func TestLists(t *testing.T) {
	for _, tt := range []struct{ words, want string }{
		{"lr=1 lr=2 ::: seed=3 seed=4", "[lr seed] [[1 3] [1 4] [2 3] [2 4]]"},
		{"1 2 ::: a", "[1 2] [[1 a] [2 a]]"},
		{"a b=1", "[1] [[a] [b=1]]"},
		{"=1 =2", "[1] [[=1] [=2]]"},
		{"lr=1 2", "error list 1: \"2\" does not begin with \"lr=\", as the values before it"},
		{"lr=1 ::: lr=2", "error duplicate column \"lr\""},
		{"1 ::: ", "error list 2 has no values"},
		{"1 2 3 ::: 1 2 3", "error more than 8 combinations"},
	} {
		var lists [][]string
		for _, l := range strings.Split(tt.words, ":::") {
			lists = append(lists, strings.Fields(l))
		}
		tables, err := Lists(lists, check)
		var all Table
		if err == nil {
			all, err = Product(tables, 8)
		}
		got := fmt.Sprint(all.Columns, all.Rows)
		if got = strings.Replace(got, "][", "] [", 1); err != nil {
			got = "error " + err.Error()
		}
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.words, got, tt.want)
		}
	}
}

func TestTemplate(t *testing.T) {
	columns, row := []string{"lr", "seed", "1"}, []string{"0.1", "{lr}", "one"}
	for word, want := range map[string]string{
		"":                     "",
		"plain":                "plain",
		"{lr}":                 "0.1",
		"--lr={lr},{seed}-{1}": "--lr=0.1,{lr}-one",
		"{{lr}}":               "{lr}",
		"{{{lr}}}":             "{{lr}}",
		"{":                    "{",
		"{}":                   "{}",
		"{ print $1 }":         "{ print $1 }",
		"a{b c}{lr}":           "a{b c}0.1",
		"{{lr}":                "{0.1",
		"{lr}}":                "0.1}",
		"{lrr}":                "error unknown column {lrr}; did you mean {lr}?",
		"{other}":              "error unknown column {other}; the columns are lr, seed, 1",
	} {
		tpl, err := Parse(word, columns, check)
		got := ""
		if got = tpl.Fill(row); err != nil {
			got = "error " + err.Error()
		}
		if got != want {
			t.Errorf("%q: %q; want %q", word, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("p.tsv", "lr\tseed\n0.1\t1\n")
	f.Add("p.csv", "lr,note\n0.1,\"a, b\"\n")
	f.Add("p.jsonl", "{\"a\":1}\n{\"a\":\"x\"}\n")
	f.Fuzz(func(t *testing.T, name, text string) {
		table, err := Read(name, strings.NewReader(text), 100, check)
		if err != nil {
			return
		}
		if len(table.Rows) == 0 || len(table.Rows) > 100 {
			t.Errorf("%d rows", len(table.Rows))
		}
		for _, row := range table.Rows {
			if len(row) != len(table.Columns) {
				t.Errorf("columns %q, row %q", table.Columns, row)
			}
		}
	})
}

// What is put in is not read as a template again, and nothing else of the word changes.
func FuzzTemplate(f *testing.F) {
	f.Add("a{lr}b{{lr}}", "{lr}")
	f.Fuzz(func(t *testing.T, word, value string) {
		tpl, err := Parse(word, []string{"lr"}, check)
		if err != nil {
			return
		}
		if !strings.Contains(word, "{lr}") && tpl.Fill([]string{value}) != tpl.Fill([]string{""}) {
			t.Errorf("%q has no placeholder, and becomes %q", word, tpl.Fill([]string{value}))
		}
		if !strings.Contains(word, "{") && tpl.Fill([]string{value}) != word {
			t.Errorf("%q becomes %q", word, tpl.Fill([]string{value}))
		}
		if tpl.Uses(0) && !strings.Contains(tpl.Fill([]string{value}), value) {
			t.Errorf("%q: %q is not in %q", word, value, tpl.Fill([]string{value}))
		}
	})
}
