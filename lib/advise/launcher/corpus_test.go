package launcher

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
)

// TestCorpus holds the search against the ways in which sites describe GPUs.
func TestCorpus(t *testing.T) {
	text, err := os.ReadFile("testdata/corpus.txt")
	if err != nil {
		t.Fatal(err)
	}
	clusters, asked := 0, 0
	for part := range strings.SplitSeq(string(text), "\ncluster ") {
		name, rest, _ := strings.Cut(part, "\n")
		if strings.HasPrefix(name, "#") {
			continue
		}
		clusters++
		var nodes, partitions strings.Builder
		var known []string
		for line := range strings.Lines(rest) {
			f := strings.Fields(line)
			switch {
			case len(f) == 0:
			case f[0] == "=":
				spec, want, _ := strings.Cut(strings.TrimPrefix(line, "= "), " -> ")
				asked++
				t.Run(name+"/"+spec, func(t *testing.T) {
					s := &Search{Launchers: []*Launcher{Direct(gpu.Builtin())}, Ask: saying(t, nodes.String(), partitions.String(), "", "")}
					r, err := request.Parse(spec)
					if err != nil {
						t.Fatal(err)
					}
					rows, answer, err := s.Explain(context.Background(), r)
					if err != nil {
						t.Fatal(err)
					}
					found := "none"
					for _, row := range rows {
						if row.Verdict == Yes && found == "none" {
							found = row.Nodes()
						} else if row.Verdict == Yes {
							found += "," + row.Nodes()
						}
					}
					if want := strings.TrimSpace(want); !slices.Contains(strings.Split(found, ","), want) || want == "none" && answer != nil {
						t.Errorf("found %s, want %s", found, want)
					}
				})
			default:
				gres, features := "", ""
				if f[2] != "-" {
					gres = " Gres=" + f[2]
				}
				if f[3] != "-" {
					features = " AvailableFeatures=" + f[3] + " ActiveFeatures=" + f[3]
				}
				fmt.Fprintf(&nodes, "NodeName=%s CPUTot=32 RealMemory=256000%s%s State=IDLE Partitions=%s\n", f[0], gres, features, f[1])
				if !slices.Contains(known, f[1]) {
					known = append(known, f[1])
					fmt.Fprintf(&partitions, "PartitionName=%s State=UP\n", f[1])
				}
			}
		}
	}
	if clusters != 15 || asked < 45 {
		t.Errorf("%d clusters, %d requests", clusters, asked)
	}
}
