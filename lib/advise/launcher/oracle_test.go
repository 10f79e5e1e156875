package launcher

import (
	"math/rand/v2"
	"path"
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// described is a file of randomFile with unique features, parsed without any code of the
// search.
type described struct {
	Slurm []struct {
		Configuration struct {
			MaxDuration string `yaml:"max_duration"`
			GPU         struct {
				Ratio float64 `yaml:"min_mem_ratio"`
			}
		}
		QOS map[string]struct {
			MaxDuration string `yaml:"max_duration"`
			MinGPU      int    `yaml:"min_gpu"`
		}
		Partitions map[string]struct {
			QOS   []string
			Nodes []struct {
				Features, Hosts []string
				Configuration   struct {
					CPU struct {
						Cores  int
						Memory string
					}
					GPU *struct {
						Count  int
						Memory string
						Type   string `yaml:"gres_type"`
					}
					MaxDuration string `yaml:"max_duration"`
				}
			}
		}
	}
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	if s == "" {
		return 0
	}
	d, err := unit.Duration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func size(t *testing.T, s string) int64 {
	t.Helper()
	if s == "" {
		return 0
	}
	n, err := unit.Size(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// placeExists tries each group of nodes with each QoS.
func placeExists(t *testing.T, text string, a request.Alternative) bool {
	t.Helper()
	var d described
	if err := yaml.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	e := d.Slurm[0]
	gpus := 0
	for _, w := range a.GPUs {
		gpus += w.Count
	}
	for name, p := range e.Partitions {
		for _, n := range p.Nodes {
			c := n.Configuration
			if c.CPU.Cores > 0 && a.Cores > c.CPU.Cores || size(t, c.CPU.Memory) > 0 && a.Memory > size(t, c.CPU.Memory) {
				continue
			}
			fits := true
			if gpus > 0 {
				fits = c.GPU != nil && gpus <= c.GPU.Count
				for _, w := range a.GPUs {
					fits = fits && w.Memory <= size(t, c.GPU.Memory) && (w.Memory == 0 || float64(w.Memory) >= float64(size(t, c.GPU.Memory))*e.Configuration.GPU.Ratio-1) &&
						(len(w.Models) == 0 || c.GPU.Type == w.Models[0])
				}
			}
			hosts, err := hostlist.Expand(n.Hosts[0])
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range a.Where {
				is := func(values []string) bool {
					found := slices.ContainsFunc(values, func(v string) bool { ok, _ := path.Match(w.Pattern, v); return ok })
					return found != w.Not
				}
				switch w.Field {
				case "partition":
					fits = fits && is([]string{name})
				case "feature":
					fits = fits && is(n.Features)
				case "host":
					fits = fits && slices.ContainsFunc(hosts, func(h string) bool { return is([]string{h}) })
				default:
					t.Fatalf("condition on %q", w.Field)
				}
			}
			if !fits {
				continue
			}
			limit := duration(t, e.Configuration.MaxDuration)
			if own := duration(t, c.MaxDuration); own > 0 {
				limit = own
			}
			if len(p.QOS) == 0 && (limit == 0 || a.Duration <= limit) {
				return true
			}
			for _, q := range p.QOS {
				most := limit
				if own := duration(t, e.QOS[q].MaxDuration); own > 0 {
					most = own
				}
				if (most == 0 || a.Duration <= most) && gpus >= e.QOS[q].MinGPU {
					return true
				}
			}
		}
	}
	return false
}

// TestOracle checks that the search finds something exactly where trying all combinations does.
func TestOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	places := 0
	for range rounds {
		text, spec := randomFile(r, true), randomRequest(r)
		asked := parse(t, spec)
		if asked.Alternatives[0].Nodes > 1 {
			continue
		}
		want := placeExists(t, text, asked.Alternatives[0])
		answer, err := (&Search{Launchers: load(t, text)}).Find(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		if want {
			places++
		}
		if want != (answer != nil) {
			t.Fatalf("%s\nrequest %s\nthere is a place: %v; found %v", text, spec, want, answer)
		}
	}
	if places < rounds/10 || places > rounds*9/10 {
		t.Errorf("%d of %d requests have a place", places, rounds)
	}
}
