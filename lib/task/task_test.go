package task

import (
	"strings"
	"testing"
)

func TestParseID(t *testing.T) {
	for _, good := range []string{"b1e7c1f0-0000-4000-8000-00000000000a", "7", "a_b"} {
		if id, err := ParseID(good); err != nil || string(id) != good {
			t.Errorf("ParseID(%q) = %q, %v", good, id, err)
		}
	}
	for _, bad := range []string{"", "../../x", "-rf", "_a", "a/b", "a b", "a\nb", "é", ".", strings.Repeat("a", 65)} {
		if _, err := ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) is accepted", bad)
		}
	}
}

func TestParseLine(t *testing.T) {
	line, err := ParseLine([]byte(`{"action":"kill_task","id":"a-1","slug":"x","requires_gpu":true,"new":1}`))
	if err != nil || line.Action == nil {
		t.Fatalf("%+v, %v", line, err)
	}
	if got, want := *line.Action, (Action{Kind: Stop, ID: "a-1", Slug: "x", RequiresGPU: true}); got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
	for _, other := range []string{"", "  ", `{"event":"started","id":"a"}`, `{"x":1}`, `{"event":"failed","action":"start"}`} {
		if line, err := ParseLine([]byte(other)); err != nil || line.Action != nil {
			t.Errorf("%q: %+v, %v; want neither action nor error", other, line, err)
		}
	}
	for raw, want := range map[string]string{
		"start a":                           "not a JSON object",
		`[1]`:                               "not a JSON object",
		`{"action":`:                        "not a record",
		`{"action":"start"}`:                "no id",
		`{"action":"start","id":"../../x"}`: "task id",
		`{"action":"explode","id":"a"}`:     "neither start nor stop",
		`{"action":"start","id":5}`:         "not a record",
		"{\"action\":\"start\",\"id\":\"a\xff\"}":        "not a JSON object",
		`{"action":"start","id":"a","x":"` + long + `"}`: "longer than",
	} {
		if _, err := ParseLine([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error %v; want %q", raw, err, want)
		}
	}
}

var long = strings.Repeat("x", MaxLine)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"a\nb\x1b[31mc": "a b [31mc",
		"\xff":          "?",
		"日本":            "日本",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q; want %q", in, got, want)
		}
	}
	if got := Clean(strings.Repeat("é", 300)); len(got) > 210 {
		t.Errorf("%d bytes are kept", len(got))
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"action":"start","id":"a-1","slug":"x\ny"}`))
	f.Add([]byte(`{"event":"started","id":"a"}`))
	f.Add([]byte("\x00{"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		line, err := ParseLine(raw)
		if err != nil && line.Action != nil {
			t.Errorf("%q: both an error and an action", raw)
		}
		if a := line.Action; a != nil {
			if _, err := ParseID(string(a.ID)); err != nil || a.Kind != Start && a.Kind != Stop {
				t.Errorf("%q: bad action %+v", raw, a)
			}
		}
	})
}

func TestCleanAddress(t *testing.T) {
	for address, want := range map[string]string{
		"https://example.org/x.git":              "https://example.org/x.git",
		"https://oauth2:s3cret@example.org/x@y":  "https://example.org/x@y",
		"https://s3cret:%zz@example.org":         "https://example.org", // no URL, but it may be what somebody meant
		"ssh://git@example.org:22/x":             "ssh://example.org:22/x",
		"git@example.org:x.git":                  "git@example.org:x.git",
		"/srv/x.git":                             "/srv/x.git",
		"ftp://u:s3cret@a@example.org/x\ny\x1b[": "ftp://example.org/x y [",
	} {
		if got := CleanAddress(address); got != want {
			t.Errorf("CleanAddress(%q) = %q; want %q", address, got, want)
		}
	}
}

func TestSomeOf(t *testing.T) {
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{[]string{"a"}, "a"}, {[]string{"a", "b", "c"}, "a, b, c"}, {[]string{"a", "b", "c", "d", "e"}, "a, b, c and 2 more"},
		{[]string{"a\x1b[2J"}, "a [2J"},
	} {
		if got := SomeOf(tt.names); got != tt.want {
			t.Errorf("%q: %q; want %q", tt.names, got, tt.want)
		}
	}
}
