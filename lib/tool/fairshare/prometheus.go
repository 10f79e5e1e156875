package fairshare

import (
	"bytes"
	"sort"

	"github.com/google/renameio/v2"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"

	"github.com/ponos-tools/ponos/lib/fault"
)

// metric is a gauge with one sample.
type metric struct {
	name, help string
	labels     []string // name, value, name, value, …
	value      float64
}

// writeMetrics replaces file in one step, so that a collector never reads half of
// it. It is readable for everyone, as the collector is another user.
func writeMetrics(file, cluster string, metrics []metric) error {
	families := map[string]*dto.MetricFamily{}
	var names []string
	for _, m := range metrics {
		family, ok := families[m.name]
		if !ok {
			family = &dto.MetricFamily{Name: proto.String(m.name), Help: proto.String(m.help), Type: dto.MetricType_GAUGE.Enum()}
			families[m.name] = family
			names = append(names, m.name)
		}
		sample := &dto.Metric{Gauge: &dto.Gauge{Value: proto.Float64(m.value)}}
		if cluster != "" {
			sample.Label = append(sample.Label, &dto.LabelPair{Name: proto.String("cluster"), Value: proto.String(cluster)})
		}
		for i := 0; i+1 < len(m.labels); i += 2 {
			sample.Label = append(sample.Label, &dto.LabelPair{Name: proto.String(m.labels[i]), Value: proto.String(m.labels[i+1])})
		}
		family.Metric = append(family.Metric, sample)
	}
	sort.Strings(names)
	var text bytes.Buffer
	for _, name := range names {
		if _, err := expfmt.MetricFamilyToText(&text, families[name]); err != nil {
			return err
		}
	}
	if err := renameio.WriteFile(file, text.Bytes(), 0o644); err != nil {
		return fault.Errorf(fault.Failed, "writing the metrics: %w", err)
	}
	return nil
}
