package input

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/pool"
)

// The expected texts are what GNU parallel 20221122 makes with --plus of these.
func TestEdits(t *testing.T) {
	order := strings.Fields("{} {.} {/} {//} {/.} {..} {...} {+/} {+.} {+..} {+...} {/..} {/...}")
	for arg, want := range map[string]string{
		"a":           "<a><a><a><.><a><a><a><><><><><a><a>",
		"a.":          "<a.><a.><a.><.><a.><a.><a.><><><><><a.><a.>",
		".b":          "<.b><><.b><.><><.b><.b><><b><><><.b><.b>",
		"d/.b":        "<d/.b><d/><.b><d><><d/.b><d/.b><d><b><><><.b><.b>",
		"a/":          "<a/><a/><><.><><a/><a/><a><><><><><>",
		"/":           "</></><></><></></><><><><><><>",
		"":            "<><><><.><><><><><><><><><>",
		"a//b":        "<a//b><a//b><b><a><b><a//b><a//b><a/><><><><b><b>",
		"a.b/c":       "<a.b/c><a.b/c><c><a.b><c><a.b/c><a.b/c><a.b><b/c><><><c><c>",
		"x.y.z":       "<x.y.z><x.y><x.y.z><.><x.y><x><x.y.z><><z><y.z><><x><x.y.z>",
		"/x":          "</x></x><x></><x></x></x><><><><><x><x>",
		"d.e/":        "<d.e/><d.e/><><.><><d.e/><d.e/><d.e><e/><><><><>",
		"a b.c":       "<a b.c><a b><a b.c><.><a b><a b.c><a b.c><><c><><><a b.c><a b.c>",
		"./f.t":       "<./f.t><./f><f.t><.><f><./f.t><./f.t><.><t><><><f.t><f.t>",
		"a.b.c.d.e":   "<a.b.c.d.e><a.b.c.d><a.b.c.d.e><.><a.b.c.d><a.b.c><a.b><><e><d.e><c.d.e><a.b.c><a.b>",
		"dir/f.1.2.3": "<dir/f.1.2.3><dir/f.1.2><f.1.2.3><dir><f.1.2><dir/f.1><dir/f><dir><3><2.3><1.2.3><f.1><f>",
	} {
		var got string
		for _, p := range order {
			tmpl, err := newText("<"+p+">", syntax{})
			if err != nil {
				t.Fatal(err)
			}
			text, _, err := tmpl.fill([]string{arg}, 1)
			if err != nil {
				t.Fatal(err)
			}
			got += text
		}
		if got != want {
			t.Errorf("%q:\n got %s\nwant %s", arg, got, want)
		}
	}
}

func TestPlaces(t *testing.T) {
	s := syntax{names: []string{"a", "ab", "E-mail address"}}
	fields := []string{"x/1.c", "y/2.d", "z/3.e"}
	for word, want := range map[string]string{
		"{1}{2/}{3//}": "x/1.c2.dz", "{-1.}{-3/.}": "z/31", "{a}{ab/}{E-mail address.}": "x/1.c2.dz/3",
		"{#}{%}": "7{%}", "{}": "x/1.c y/2.d z/3.e", "{/}": "1.c 2.d 3.e", "{{1}}": "{x/1.c}", "${1}": "$x/1.c",
		"{print $1}": "{print $1}", "{,.bak}": "{,.bak}", "a{1,2}": "a{1,2}", "{": "{", "{}{": "x/1.c y/2.d z/3.e{", "{b}": "{b}", "{-}": "{-}", "{01}": "{01}",
		"{99999999}": "{99999999}", "": "",
	} {
		tmpl, err := newText(word, s)
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		if got, _, err := tmpl.fill(fields, 7); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", word, got, err, want)
		}
	}
	for word, want := range map[string]string{
		"{= s/a/b/ =}": "{= =}: Perl code is not supported", "x{=2 $_=1=}": "{= =}: Perl code is not supported",
		"{0}": "{0}: arguments are counted from 1",
	} {
		if _, err := newText(word, s); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", word, err, want)
		}
	}
	s.plus = true
	for _, word := range []string{"{0#}", "{:-x}", "{:2:3}", "{/a/b}", "{^a}", "{,,a}", "{choose_k}", "{2uniq}"} {
		if _, err := newText(word, s); err == nil || !strings.HasSuffix(err.Error(), ": unknown replacement string") {
			t.Errorf("--plus %s: %v", word, err)
		}
	}
	for word, want := range map[string]string{"{%.gz}": "x/a.tar", "{#x/}": "a.tar.gz", "{%.bz2}": "x/a.tar.gz", "{#a}": "x/a.tar.gz", "{#}{%}": "7{%}"} {
		tmpl, err := newText(word, s)
		if err != nil {
			t.Errorf("--plus %s: %v", word, err)
			continue
		}
		if got, _, err := tmpl.fill([]string{"x/a.tar.gz"}, 7); err != nil || got != want {
			t.Errorf("--plus %s: %q, %v; want %q", word, got, err, want)
		}
	}
	if _, err := newTemplate([]string{"echo", "{=", "$_++", "=}"}, syntax{}, false, true); err == nil {
		t.Error("Perl code in several words is taken")
	}
}

func TestSplit(t *testing.T) {
	for in, want := range map[string]string{
		"echo a":                  "[echo a]",
		"echo ::: a b":            "[echo] ::: [a b]",
		":::":                     "[] ::: []",
		"e {} ::: a :::+ b ::: c": "[e {}] ::: [a]; :::+ [b] linked; ::: [c]",
		"e :::: f g ::::+ - :::":  "[e] :::: f; :::: g; ::::+ - linked; ::: []",
		"e ::: :: : {}":           "[e] ::: [:: : {}]",
		"e ::::":                  "ERROR ::::: file name is missing",
		"e :::: ::: a":            "ERROR ::::: file name is missing",
		"e ::: a ::::+":           "ERROR ::::+: file name is missing",
		"e ::::: a":               `ERROR unknown separator ":::::"`,
		"e :::++ a":               "[e :::++ a]",
	} {
		template, sources, err := Split(strings.Fields(in))
		got := fmt.Sprint(template)
		for i, s := range sources {
			got += []string{" ", "; "}[min(i, 1)] + s.Mark + " "
			if s.IsFile {
				got += s.File
			} else {
				got += fmt.Sprint(s.Args)
			}
			if s.Link {
				got += " linked"
			}
		}
		if err != nil {
			got = "ERROR " + err.Error()
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", in, got, want)
		}
	}
}

func TestSources(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return name
	}
	ab, cd := file("ab", "a\nb\n"), file("cd", "c\r\n\nd")
	stop := "b"
	for _, tt := range []struct {
		name, words string
		o           Options
		want        string // texts, a blank for each NUL
	}{
		{"files", ":::: " + ab + " " + cd, Options{}, "x a c|x a |x a d|x b c|x b |x b d"},
		{"linked", "::: 1 2 3 ::::+ " + ab, Options{}, "x 1 a|x 2 b"},
		{"all linked", "::: 1 2 3 :::: " + ab, Options{Link: true}, "x 1 a|x 2 b|x 3 a"},
		{"linked and combined", "::: a b :::+ 1 2 ::: X Y", Options{}, "x a 1 X|x a 1 Y|x b 2 X|x b 2 Y"},
		{"standard input in front", ":::: - ::: 1 2", Options{}, "x in 1 1|x in 1 2|x in 2 1|x in 2 2"},
		{"standard input behind", "::: 1 2 :::: -", Options{}, "x 1 in 1|x 1 in 2|x 2 in 1|x 2 in 2"},
		{"nothing to combine", "::: a b :::", Options{}, ""},
		{"nothing in front", "::: ::: a b", Options{}, ""},
		{"nothing to link", ":::: " + ab + " :::+", Options{}, ""},
		{"eof", ":::: " + ab, Options{EOF: &stop}, "x a"},
		{"blanks", ":::: " + cd, Options{}, "x c|x |x d"},
		{"no blanks", ":::: " + cd, Options{SkipBlank: true}, "x c|x d"},
		{"header", "::: h 1 2 ::: g 3", Options{Header: true, Template: []string{"{g}{h}"}}, "31|32"},
		{"header of a file", ":::: " + ab + " ::: g 3", Options{Header: true, Template: []string{"{g}{a}{1}"}}, "3bb"},
		{"columns", ":::: " + file("t1", "1 ,2\n 3,,4\n"), Options{Columns: ",+"}, "x 1 2|x 3 4"},
		{"columns untrimmed", ":::: " + file("t2", "1 ,2\n"), Options{Columns: ",", Trim: "n", Template: []string{"x", "<{1}>"}}, "x <1 >"},
		{"named columns", ":::: " + file("t3", "one two\n1 2\n"), Options{Columns: " ", Header: true, Template: []string{"{two}", "{one}"}}, "2 1"},
		{"commands", "::: true ::: 1", Options{Template: []string{}}, "true 1"},
		{"in words", "::: a ::: b", Options{Template: []string{"x", "-{}-"}}, "x -a b-"},
		{"quoted", "::: 'a ::: b", Options{Template: []string{"x ; {}"}}, `x ; ''\''a' b`},
		{"quoted words", "::: a;", Options{Template: []string{"f", "$x", "", "-{}"}, Shell: true}, `f '$x' '' -'a;'`},
		{"-n", "::: 1 2 3 4 5", Options{Group: Group{Max: 2}}, "x 1 2|x 3 4|x 5"},
		{"-N of two sources", "::: A B ::: C", Options{Group: Group{Max: 2}, Template: []string{"{4}{3}{2}{1}"}}, "CBCA"},
		{"-N with places", "::: 1 2 3", Options{Group: Group{Max: 2}, Template: []string{"x", "{2}", "{1}-{2}"}}, "x 2 1-2|x 3-"},
		{"-N0", "::: 1 2", Options{Group: Group{None: true}}, "x|x"},
		{"-L", ":::: " + file("t4", "a \nb\nc\nd\n"), Options{Group: Group{Lines: 2}}, "x a b c|x d"},
		{"-m", "::: 1 2 3 4 5", Options{Group: Group{Fill: true, Spread: 2}, Template: []string{"x", "-{}-"}}, "x -1 2 3-|x -4 5-"},
		{"-X", "::: 1 2 3", Options{Group: Group{Fill: true, Spread: 1, Context: true}, Template: []string{"x", "-{}-", "y"}}, "x -1- -2- -3- y"},
		{"-X for the shell", "::: 1 2", Options{Group: Group{Fill: true, Context: true}, Template: []string{"x -{}-  | y"}}, "x -1- -2-  | y"},
		{"-s", "::: 111 222 333", Options{Group: Group{Fill: true, Chars: 12}}, "x 111 222|x 333"},
		{"results", "::: a/b ::: ..", Options{Results: "/r"}, `x a/b .. [/r/1/a\_b/2/\../stdout /r/1/a\_b/2/\../stderr /r/1/a\_b/2/\../seq]`},
		{"results by name", "::: h a", Options{Results: "/r/", Header: true}, `x a [/r/h/a/stdout /r/h/a/stderr /r/h/a/seq]`},
		{"results in a place", "::: a", Options{Results: "/r_{}"}, `x a [/r_a /r_a.err /r_a.seq]`},
		{"results in a directory", "::: a", Options{Results: "/r_{}/"}, `x a [/r_a/stdout /r_a/stderr /r_a/seq]`},
		{"two of standard input", ":::: - -", Options{}, "OPEN standard input can be one source of arguments only"},
		{"no such file", ":::: " + dir + "/none", Options{}, "OPEN ::::: open " + dir + "/none: no such file or directory"},
		{"link to nothing", ":::+ a", Options{}, "OPEN :::+: no source before it to link to"},
		{"bad columns", "::: a", Options{Columns: "("}, "OPEN --colsep: error parsing regexp: missing closing ): `(`"},
		{"empty columns", "::: a", Options{Columns: "|"}, `OPEN --colsep: "|" matches the empty string`},
		{"no such argument", "::: a", Options{Template: []string{"{2}"}}, "OPEN {2}: a task has 1 argument"},
		{"no such argument from the end", "::: a ::: b", Options{Template: []string{"{-3}"}}, "OPEN {3}: a task has 2 arguments"},
		{"no such argument of a group", "::: a", Options{Template: []string{"{3}"}, Group: Group{Max: 2}}, "OPEN {3}: a task has 2 arguments"},
		{"table of results", "::: a", Options{Results: "/r.csv"}, `OPEN --results: "/r.csv": tables are not written`},
		{"long line", "::: " + strings.Repeat("y", 90), Options{Group: Group{Fill: true, Chars: 20}}, "ERROR argument \"" + strings.Repeat("y", 80) + "\"... makes a command longer than 20 bytes"},
		{"no such column", ":::: " + ab, Options{Columns: ",", Template: []string{"{2}"}}, "BAD " + ab + ":1: no column 2 in \"a\"|BAD " + ab + ":2: no column 2 in \"b\""},
	} {
		o := tt.o
		if o.Base = base(); o.Template == nil {
			o.Template = []string{"x"}
		}
		if got := texts(t, o, strings.Fields(tt.words)...); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// texts reads all tasks and shows what they are.
func texts(t *testing.T, o Options, words ...string) string {
	t.Helper()
	_, sources, err := Split(words)
	if err != nil {
		t.Fatal(err)
	}
	in, err := Open(strings.NewReader("in 1\nin 2\n"), sources, o)
	if err != nil {
		return "OPEN " + err.Error()
	}
	var out []string
	for {
		task, err := in.Next()
		var bad *BadTask
		switch {
		case errors.Is(err, io.EOF):
			return strings.Join(out, "|")
		case errors.As(err, &bad):
			out = append(out, "BAD "+err.Error())
			continue
		case err != nil:
			return "ERROR " + err.Error()
		}
		text := strings.ReplaceAll(task.Text, "\x00", " ")
		if task.Extra != nil {
			text += " " + fmt.Sprint(task.Extra.Files)
		}
		out = append(out, text)
	}
}

// What a command without a template cannot have is refused.
func TestCommandsHaveNoArguments(t *testing.T) {
	for _, o := range []Options{{Columns: ","}, {Header: true}, {Group: Group{Max: 2}}, {Mark: ",,"}, {Trim: "l"}, {Link: true}} {
		if _, err := Open(strings.NewReader(""), nil, o); err == nil || !strings.HasSuffix(err.Error(), ": a command template is required") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestDirectivesAreDataOfATemplate(t *testing.T) {
	o := Options{Name: "x", Base: base(), Template: []string{"echo"}}
	if got, want := show(NewReader(strings.NewReader("#JOBPOOL cpus=2\n#JOBPOOL foo\n"), o)), "1 \"echo\\x00#JOBPOOL cpus=2\"\n2 \"echo\\x00#JOBPOOL foo\"\n"; got != want {
		t.Errorf("got %s", got)
	}
}

func TestBlocks(t *testing.T) {
	records := "/foo, bar/, /baz, qux/, "
	for _, tt := range []struct {
		name, in string
		cut      Cut
		want     string // blocks with "|" between
	}{
		{"lines", "1\n2\n3\n4\n5\n", Cut{Size: 5, End: "\n"}, "1\n2\n|3\n4\n|5\n"},
		{"a long line", "11111\n2\n", Cut{Size: 2, End: "\n"}, "11111\n|2\n"},
		{"no end", "1\n2", Cut{Size: 100, End: "\n"}, "1\n2"},
		{"nothing", "", Cut{Size: 100, End: "\n"}, ""},
		{"records", "1\n2\n3\n", Cut{Size: 1, Records: 2, End: "\n"}, "1\n2\n|3\n"},
		{"lines of records", "1\n2\n3\n4\n5\n6\n7\n", Cut{Size: 1, Records: 2, Lines: 2, End: "\n"}, "1\n2\n3\n4\n|5\n6\n7\n"},
		{"blocks of lines", "1\n2\n3\n4\n5\n", Cut{Size: 7, Lines: 2, End: "\n"}, "1\n2\n|3\n4\n|5\n"},
		{"header", "h\n1\n2\n3\n", Cut{Size: 4, End: "\n", Header: true}, "h\n1\n2\n|h\n3\n"},
		{"header only", "h\n", Cut{Size: 4, End: "\n", Header: true}, ""},
		{"anywhere", "12345", Cut{Size: 2}, "12|34|5"},
		{"end", records, Cut{Size: 1, Records: 1, End: ", "}, "/foo, |bar/, |/baz, |qux/, "},
	} {
		o := Options{Name: "x", Base: base(), Template: []string{"cat", "{#}"}}
		b, err := NewBlocks(strings.NewReader(tt.in), tt.cut, o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			task, err := b.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || task.Text != fmt.Sprintf("cat\x00%d", len(got)+1) || !task.Spec.Argv {
				t.Fatalf("%s: %+v, %v", tt.name, task, err)
			}
			got = append(got, task.Extra.Stdin)
		}
		if got := strings.Join(got, "|"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, o := range []Options{{}, {Template: []string{"wc", "{}"}}} {
		if _, err := NewBlocks(strings.NewReader(""), Cut{Size: 1, End: "\n"}, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// Whatever the words are, Split loses none and invents none.
func FuzzSplit(f *testing.F) {
	f.Add("echo ::: a b :::+ c")
	f.Add("e :::: f g ::::+ -")
	f.Add("::: :::: ::::: :::+")
	f.Add("e ::::  f")
	f.Fuzz(func(t *testing.T, text string) {
		words := strings.Split(text, " ")
		template, sources, err := Split(words)
		if err != nil {
			return
		}
		back := slices.Clone(template)
		for i, s := range sources {
			if i == 0 || s.Mark != sources[i-1].Mark || !s.IsFile || sources[i-1].File == "" {
				back = append(back, s.Mark)
			}
			if s.IsFile {
				back = append(back, s.File)
			}
			back = append(back, s.Args...)
		}
		// Two marks of files in a row are as good as one.
		compact := slices.CompactFunc(slices.Clone(back), func(a, b string) bool { return a == b && strings.HasPrefix(a, "::::") })
		want := slices.CompactFunc(slices.Clone(words), func(a, b string) bool { return a == b && strings.HasPrefix(a, "::::") })
		drop := func(w []string) []string {
			return slices.DeleteFunc(w, func(s string) bool { return strings.HasPrefix(s, "::::") })
		}
		if !slices.Equal(drop(compact), drop(want)) {
			t.Fatalf("%q became %q", words, back)
		}
	})
}

// Braces that are no replacement string stay as they are, and whatever an argument is,
// nothing else of the command changes.
func FuzzPlaces(f *testing.F) {
	f.Add("{}{1.}{-1/}{+..}{#}{name}", "a/b.c", false)
	f.Add("{= $_++ =}{##}{:-x}", "", true)
	f.Add("{{}}${1}{", "x y", false)
	f.Fuzz(func(t *testing.T, word, arg string, plus bool) {
		if word == "" || strings.IndexByte(word+arg, 0) >= 0 {
			return
		}
		s := syntax{names: []string{"name"}, plus: plus}
		pieces, err := s.parse(word)
		if err != nil {
			return
		}
		var text strings.Builder
		places := 0
		for _, p := range pieces {
			if p.place != nil {
				places++
			}
			text.WriteString(p.text)
		}
		if places == 0 && text.String() != word {
			t.Fatalf("%q became %q", word, text.String())
		}
		tmpl, err := newTemplate([]string{"x", word}, s, false, true)
		if err != nil {
			return
		}
		tmpl.short = true
		got, argv, err := tmpl.fill([]string{arg}, 1)
		if err != nil || !argv || !strings.HasPrefix(got, "x") || strings.Count(got, "\x00") > 2 {
			t.Fatalf("%q with %q: %q, %v", word, arg, got, err)
		}
	})
}

// Blocks put together are the input.
func FuzzBlocks(f *testing.F) {
	f.Add("1\n2\n3\n", int64(3), 0, 0, "\n")
	f.Add("a,/b,/c", int64(1), 1, 0, ",")
	f.Add("1\n2\n3\n", int64(1), 0, 2, "\n")
	f.Fuzz(func(t *testing.T, text string, size int64, n, lines int, end string) {
		if size < 1 || size > 1<<16 || n < 0 || n > 100 || lines < 0 || lines > 100 {
			return
		}
		b, err := NewBlocks(strings.NewReader(text), Cut{Size: size, Records: n, Lines: lines, End: end}, Options{Base: pool.Spec{}, Template: []string{"x"}})
		if err != nil {
			return
		}
		var got strings.Builder
		for {
			task, err := b.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || task.Extra.Stdin == "" {
				t.Fatalf("%+v, %v", task, err)
			}
			got.WriteString(task.Extra.Stdin)
		}
		if got.String() != text {
			t.Fatalf("%q became %q", text, got.String())
		}
	})
}
