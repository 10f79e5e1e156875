package input

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// Rows of tables, and the number of all tasks.
func TestTables(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		o          Options
		want       string // the commands, and what is wrong
	}{
		{"columns", "a,b\n\"x, \"\"y\"\"\",2\n", Options{CSV: true, Template: []string{"echo", "{2}", "{1}"}}, `echo b a|echo 2 x, "y"`},
		{"names", "n,m\r\n1,2\r\n", Options{CSV: true, Header: true, Template: []string{"echo", "{m}{n}"}}, "echo 21"},
		{"another separator", "a;b,c\n", Options{CSV: true, Columns: ";", Template: []string{"echo", "{2}"}}, "echo b,c"},
		{"a tab", "a b\tc\n", Options{CSV: true, Columns: `\t`, Template: []string{"echo", "{1}"}}, "echo a b"},
		{"blanks stay", " a , b \n", Options{CSV: true, Template: []string{"echo", "{2}."}}, "echo  b ."},
		{"a newline in a field", "\"a\nb\",c\nd,e\n", Options{CSV: true, Template: []string{"echo", "{2}{1}"}}, "echo ca\nb|echo ed"},
		{"an open quote", "\"a\nb", Options{CSV: true, Template: []string{"echo"}}, `error: --csv: a quote is not closed: "\"a\nb"`},
		{"a stray quote", "a\"b\"\n", Options{CSV: true, Template: []string{"echo"}}, `error: --csv: "a\"b\"": bare " in non-quoted-field`},
		{"a long separator", "a\n", Options{CSV: true, Columns: "ab", Template: []string{"echo"}}, `error: --colsep: "ab": with --csv, one character is expected`},
		{"commands", "a\n", Options{CSV: true}, "error: --csv: a command template is required"},
		{"a missing column", "a,b\nc\n", Options{CSV: true, Template: []string{"echo", "{2}"}}, `echo b|error: standard input:2: no column 2 in "c"`},

		{"the number of tasks", "a\nb\nc\n", Options{Plus: true, Template: []string{"echo", "{#}/{##}"}}, "echo 1/3|echo 2/3|echo 3/3"},
		{"of groups", "a\nb\nc\n", Options{Plus: true, Template: []string{"echo", "{##}", "{}"}, Group: Group{Max: 2}}, "echo 2 a b|echo 2 c"},
		{"of none", "", Options{Plus: true, Template: []string{"echo", "{##}"}}, ""},
	} {
		var got []string
		in := NewReader(strings.NewReader(tt.text), tt.o)
		for {
			task, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				got = append(got, fmt.Sprint("error: ", err))
				if !errors.As(err, new(*BadTask)) {
					break
				}
				continue
			}
			got = append(got, strings.ReplaceAll(task.Text, "\x00", " "))
		}
		if text := strings.Join(got, "|"); text != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, text, tt.want)
		}
	}
}
