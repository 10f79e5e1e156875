package app

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestFlagLine(t *testing.T) {
	for want, f := range map[string]cli.Flag{
		"-j, --jobs N\tstart N at a time (4)":        &cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Value: 4, Usage: "start `N` at a time"},
		"    --gpu\tneeds a GPU":                     &cli.BoolFlag{Name: "gpu", Usage: "needs a GPU"},
		"-a, --after ID\tafter ID (may be repeated)": &cli.StringSliceFlag{Name: "after", Aliases: []string{"a"}, Usage: "after `ID` (may be repeated)"},
		"    --every DURATION\tevery DURATION (10s)": &cli.StringFlag{Name: "every", Value: "10s", Usage: "every `DURATION`"},
		"    --cpus VALUE\tCPUs":                     &cli.IntFlag{Name: "cpus", Usage: "CPUs"},
		"-x VALUE\tno long name":                     &cli.StringFlag{Name: "x", Usage: "no long name"},
		"-q, --quiet, --silent\tsay nothing":         &cli.BoolFlag{Name: "quiet", Aliases: []string{"q", "silent"}, Usage: "say nothing"},
	} {
		if got := flagLine(f); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	words := strings.Repeat("word ", 20)
	got := wrap("title " + words + "\n  -c, --config FILE  read " + words + "\n")
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, " ") && len(strings.TrimRight(line, "\n")) > width {
			t.Errorf("too long: %q", line)
		}
	}
	if !strings.Contains(got, "\n                     word") {
		t.Errorf("what follows is not below the meaning:\n%s", got)
	}
	if joined := strings.Join(strings.Fields(got), " "); strings.Count(joined, "word") != 40 {
		t.Errorf("words are lost: %s", got)
	}
	if long := "  " + strings.Repeat("x", 100) + "  y\n"; wrap(long) != long {
		t.Errorf("a name that fills the line is broken: %q", wrap(long))
	}
}
