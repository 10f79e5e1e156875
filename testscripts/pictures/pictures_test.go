package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	names := map[string]bool{}
	var tools []string
	for _, s := range scenes {
		for _, tool := range s.tools {
			if !names[tool] {
				names[tool], tools = true, append(tools, tool)
			}
		}
	}
	harness.Main(m, nil, tools...)
}

// picture is what a test reads of an SVG.
type picture struct {
	Title string `xml:"title"`
	Desc  string `xml:"desc"`
}

func readPicture(t *testing.T, path string) (picture, string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var p picture
	if err := xml.Unmarshal(b, &p); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return p, string(b)
}

var (
	command  = regexp.MustCompile(`^\$ .`)
	header   = regexp.MustCompile(`^ *[A-Z][A-Z/ ]+$`)
	numbers  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+`)
	blanks   = regexp.MustCompile(` +`)
	existing = "man/pictures"
)

// lasting is what a picture shows that does not depend on when it was taken.
func lasting(s scene, p picture) string {
	var out []string
	for line := range strings.SplitSeq(p.Desc, "\n") {
		if s.same || command.MatchString(line) || header.MatchString(line) {
			out = append(out, strings.TrimSpace(blanks.ReplaceAllString(numbers.ReplaceAllString(line, "N"), " ")))
		}
	}
	return p.Title + "\n" + strings.Join(out, "\n")
}

// TestPicturesAreUpToDate plays the scenes again.
func TestPicturesAreUpToDate(t *testing.T) {
	harness.Programs(t, "tmux")
	for name, value := range harness.Cluster(t) {
		t.Setenv(name, value)
	}
	out := t.TempDir()
	if err := draw(harness.Bin, out, nil); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(harness.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenes {
		now, _ := readPicture(t, filepath.Join(out, s.name+".svg"))
		path := filepath.Join(existing, s.name+".svg")
		p, text := readPicture(t, filepath.Join(harness.Root(), path))
		if got, want := lasting(s, p), lasting(s, now); got != want {
			t.Errorf("%s is out of date, \"make pictures\" draws it anew:\n%s\n-- now:\n%s", path, got, want)
		}
		if n := strings.Count(lasting(s, p), "\n"); n < len(s.steps) {
			t.Errorf("%s: %d lines that last:\n%s", path, n, p.Desc)
		}
		if len(text) >= 60<<10 {
			t.Errorf("%s has %d bytes", path, len(text))
		}
		for _, private := range []string{host, harness.Root(), os.TempDir() + "/", "ponos-pictures", "root@"} {
			if strings.Contains(text, private) {
				t.Errorf("%s shows %q", path, private)
			}
		}
		if !strings.Contains(string(readme), "]("+path+")") {
			t.Errorf("README.md does not show %s", path)
		}
	}
}

// TestSVG draws colours, blanks and recordings.
func TestSVG(t *testing.T) {
	s := scene{title: "a < b", columns: 40, moves: true}
	text := svg(s, []frame{
		{0, []string{"$ one"}},
		{time.Second, []string{"$ one", "\x1b[1;31mred\x1b[0m  \x1b[38;5;208mx\x1b[0m  a  <b>\x1b[7m!\x1b[0m"}},
	})
	var p picture
	if err := xml.Unmarshal([]byte(text), &p); err != nil || p.Title != "a < b" || p.Desc != "$ one\nred  x  a  <b>!" {
		t.Fatalf("%+v, %v\n%s", p, err, text)
	}
	for _, want := range []string{
		`<text x="16.0" y="14" style="fill:#ff7b72" class="b">red</text>`, `<text x="58.0" y="14" style="fill:#ff8700">x</text>`,
		`<text x="108.4" y="14">&lt;b&gt;</text>`, `<rect x="133.6" width="8.4" height="19" fill="#e6edf3"/>`,
		"#f0{visibility:hidden}", "@keyframes k1{", "prefers-reduced-motion",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	s.moves = false
	if still := svg(s, []frame{{0, []string{"gone"}}, {0, []string{"stays"}}}); strings.Contains(still, "gone") || strings.Contains(still, "keyframes") {
		t.Error("a still has more than the last frame")
	}
}
