package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestStyle compares the column "here" of the table in CONTRIBUTING.md with what the program counts now. A number
// may differ by 5 %, or by one unit of its last digit; rows 6 and 7 are exact, because they are promises.
func TestStyle(t *testing.T) {
	f, err := measure(harness.Root())
	if err != nil {
		t.Fatal(err)
	}
	perLine := func(n int) float64 { return float64(n) / float64(f.lines) }
	mean, most, long := f.lengths()
	for row, now := range map[string]string{
		"2 functions: mean, 95 %, over 80 lines":            fmt.Sprintf("%.1f, %d, %.1f %%", mean, most, long),
		"3 files over 500 lines":                            fmt.Sprintf("%d of %d", f.longFiles, f.files),
		"4 exported names with a comment":                   fmt.Sprintf("%d %%", f.commented()),
		"5 package variables for 1,000 lines":               fmt.Sprintf("%.1f", 1000*perLine(f.variables)),
		"6 calls of `panic`":                                strconv.Itoa(f.panics),
		"7 packages that run programs":                      fmt.Sprintf("%d: %s", len(f.exec), packages(f.exec)),
		"8 fuzz targets; lines of tests for a line of code": fmt.Sprintf("%d; %.1f", f.fuzz, perLine(f.testLines)),
	} {
		here := column(t, row)
		if exact := row[0] == '6' || row[0] == '7'; here != now && (exact || !near(here, now)) {
			t.Errorf("CONTRIBUTING.md, %q: here %q, now %q", row, here, now)
		}
	}
}

// packages names packages as the table does.
func packages(dirs map[string]bool) string {
	var names []string
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		names = append(names, "`"+strings.TrimPrefix(dir, harness.Root()+"/")+"`")
	}
	return strings.Join(names, ", ")
}

// column returns the last cell of a row.
func column(t *testing.T, row string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(), "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, " | "); strings.TrimPrefix(cells[0], "| ") == row {
			return strings.TrimSuffix(strings.TrimSpace(cells[len(cells)-1]), " |")
		}
	}
	t.Fatalf("CONTRIBUTING.md has no row %q", row)
	return ""
}

var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// near reports whether two cells have the same text, and numbers that differ by no more than 5 % or a unit of the
// last digit.
func near(a, b string) bool {
	if number.ReplaceAllString(a, "") != number.ReplaceAllString(b, "") {
		return false
	}
	others := number.FindAllString(b, -1)
	for i, text := range number.FindAllString(a, -1) {
		x, err := strconv.ParseFloat(text, 64)
		y, err2 := strconv.ParseFloat(others[i], 64)
		unit := 1.0
		if _, decimals, found := strings.Cut(text, "."); found {
			unit = math.Pow10(-len(decimals))
		}
		if err != nil || err2 != nil || math.Abs(x-y) > max(0.05*x, unit)+1e-9 {
			return false
		}
	}
	return true
}

func TestNear(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		near bool
	}{
		{"14 of 496", "14 of 496", true}, {"14 of 496", "15 of 520", true}, {"14 of 496", "16 of 496", false},
		{"14 of 496", "14 of 522", false}, {"15.8, 45, 0.7 %", "16.5, 47, 0.8 %", true}, {"15.8, 45, 0.7 %", "15.8, 45, 0.9 %", false},
		{"94 %", "88 %", false}, {"94 %", "94", false},
	} {
		if near(tt.a, tt.b) != tt.near {
			t.Errorf("%q, %q: %v", tt.a, tt.b, !tt.near)
		}
	}
}
