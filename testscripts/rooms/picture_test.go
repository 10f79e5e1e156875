package rooms

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const picture = "man/pictures/rooms.svg"

// A row of the picture is a line of the first list of CONTRIBUTING.md, with all rooms within that one.
type row struct {
	name    string
	pure    bool
	imports []int // other rows, in their order
}

// rowOf returns the name of the row of a room: that of lib/queue for lib/queue/spool.
func rowOf(name string) string {
	parts := strings.Split(name, "/")
	if parts[0] == "cmd" || parts[1] == "tool" {
		return strings.Join(append(parts[:len(parts)-1:len(parts)-1], "<tool>"), "/")
	}
	return strings.Join(parts[:2], "/")
}

// rows returns the rows that import something or are imported, top down.
func rows(t *testing.T) []row {
	t.Helper()
	imported, pure := map[string][]string{}, map[string]bool{}
	for _, r := range list(t) {
		from := rowOf(r.name)
		if _, known := imported[from]; !known {
			imported[from], pure[from] = nil, true
		}
		pure[from] = pure[from] && r.pure
		for _, name := range r.rooms {
			if to := rowOf(name); to != from {
				imported[from] = append(imported[from], to)
			}
		}
	}
	var names []string
	for _, line := range block(t, "## Rooms") {
		name, _, _ := strings.Cut(line, " ")
		if _, known := imported[name]; known {
			names = append(names, name)
		}
	}
	if len(names) != len(imported) {
		t.Fatalf("CONTRIBUTING.md describes %d of %d rooms", len(names), len(imported))
	}
	all := make([]row, len(names))
	for i, name := range names {
		all[i] = row{name: name, pure: pure[name]}
		for to, other := range names {
			if slices.Contains(imported[name], other) {
				all[i].imports = append(all[i].imports, to)
			}
		}
		if len(all[i].imports) > 0 && all[i].imports[0] < i {
			t.Errorf("an arrow from %s points up, to %s", name, names[all[i].imports[0]])
		}
	}
	return all
}

// Lengths in pixels. The rooms are the steps of a stair: behind each is a line to the dots above what
// it imports, and from there down.
const (
	step   = 22
	left   = 150 // of the first arrow
	top    = 40
	letter = 7.3
)

var colours = []string{"#1f6feb", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#6e5a00"}

// draw returns the picture as SVG.
func draw(rows []row) string {
	x := func(i int) int { return left + i*step }
	y := func(i int) int { return top + i*step }
	colour := func(i int) string { return colours[i%len(colours)] }
	width, height := x(len(rows)), y(len(rows))
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" font-family="monospace" font-size="12">
<title>The rooms of CONTRIBUTING.md, and what each may import</title>
<rect width="%[1]d" height="%[2]d" fill="#ffffff"/>
`, width, height, width)
	for i := range rows {
		if i%2 == 1 {
			fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%d" height="%d" fill="#f3f4f6"/>`+"\n", x(i), y(i)-step/2, width-x(i), step)
		}
	}
	highest := make([]int, len(rows)) // row that imports it, 0 if none does
	for i := len(rows) - 1; i >= 0; i-- {
		for _, to := range rows[i].imports {
			highest[to] = i
		}
	}
	for i, r := range rows {
		if len(r.imports) > 0 {
			fmt.Fprintf(&s, `<path d="M%d %dH%d" stroke="#8c959f" fill="none"/>`+"\n", x(i), y(i), x(r.imports[len(r.imports)-1]))
		}
	}
	for i := range rows {
		if at := highest[i]; at < i && slices.Contains(rows[at].imports, i) {
			tip := y(i) - step/2 + 3
			fmt.Fprintf(&s, `<path d="M%d %dV%d" stroke="%s" stroke-width="1.5" fill="none"/>`+"\n", x(i), y(at), tip-5, colour(i))
			fmt.Fprintf(&s, `<path d="M%d %dl-4 -7h8z" fill="%s"/>`+"\n", x(i), tip, colour(i))
		}
	}
	for i, r := range rows {
		for _, to := range r.imports {
			fmt.Fprintf(&s, `<circle cx="%d" cy="%d" r="3.5" fill="%s"/>`+"\n", x(to), y(i), colour(to))
		}
		name, fill := strings.TrimPrefix(r.name, "lib/"), "#ffffff"
		if r.pure {
			fill = "#dafbe1"
		}
		wide := int(letter*float64(len(name))) + 10
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="%s" stroke="%s"/>`, x(i)+8-wide, y(i)-step/2+3, wide, step-6, fill, colour(i))
		fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", x(i)+3, y(i)+4, html.EscapeString(name))
	}
	for i, text := range []string{
		"A room may import what its line has a dot for: from there, an arrow",
		"goes down to the imported room. No arrow goes up. Rooms within a",
		"room are drawn as one. Green rooms are pure: no files, no network,",
		"no clock, no goroutines.",
	} {
		fmt.Fprintf(&s, `<text x="20" y="%d" font-size="13">%s</text>`+"\n", height*3/4+i*20, text)
	}
	return s.String() + "</svg>\n"
}

func TestThePictureShowsTheList(t *testing.T) {
	all := rows(t)
	made := draw(all)
	file := filepath.Join(root, picture)
	if is, err := os.ReadFile(file); err == nil && string(is) == made {
		return
	}
	if !*update {
		t.Fatalf("%s does not show the list of CONTRIBUTING.md: run \"make rooms\"", picture)
	}
	if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
		t.Fatal(err)
	}
}
