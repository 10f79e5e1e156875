package fairshare

import (
	"bytes"
	"math"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"
)

// TestExposition compares the text of metrics with that of the library of Prometheus.
func TestExposition(t *testing.T) {
	odd := "a \\ b \"c\"\nd é"
	metrics := []metric{
		{"ponos_b", "help " + odd, []string{"user", odd, "account", ""}, 0.1},
		{"ponos_a", "first", nil, 1},
		{"ponos_b", "help " + odd, []string{"user", "x", "account", "y"}, -1e300},
		{"ponos_c", "", []string{"n", "1"}, math.Inf(1)},
		{"ponos_c", "", []string{"n", "2"}, math.Inf(-1)},
		{"ponos_c", "", []string{"n", "3"}, math.NaN()},
		{"ponos_c", "", []string{"n", "4"}, 123456789},
		{"ponos_c", "", []string{"n", "5"}, 1e21},
	}
	for _, cluster := range []string{"", "c1"} {
		var want bytes.Buffer
		for _, name := range []string{"ponos_a", "ponos_b", "ponos_c"} {
			family := &dto.MetricFamily{Name: proto.String(name), Type: dto.MetricType_GAUGE.Enum()}
			for _, m := range metrics {
				if m.name != name {
					continue
				}
				family.Help = proto.String(m.help)
				sample := &dto.Metric{Gauge: &dto.Gauge{Value: proto.Float64(m.value)}}
				if cluster != "" {
					sample.Label = append(sample.Label, &dto.LabelPair{Name: proto.String("cluster"), Value: proto.String(cluster)})
				}
				for i := 0; i < len(m.labels); i += 2 {
					sample.Label = append(sample.Label, &dto.LabelPair{Name: proto.String(m.labels[i]), Value: proto.String(m.labels[i+1])})
				}
				family.Metric = append(family.Metric, sample)
			}
			if _, err := expfmt.MetricFamilyToText(&want, family); err != nil {
				t.Fatal(err)
			}
		}
		if got := exposition(cluster, metrics); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("got\n%swant\n%s", got, want.Bytes())
		}
	}
}
