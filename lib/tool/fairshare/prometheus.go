package fairshare

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
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
	if err := renameio.WriteFile(file, exposition(cluster, metrics), 0o644); err != nil {
		return fault.Errorf(fault.Failed, "writing the metrics: %w", err)
	}
	return nil
}

// exposition is the text format of Prometheus 0.0.4, the families by name. A test holds it
// against the library of Prometheus, which would add its protocol buffers to the program.
func exposition(cluster string, metrics []metric) []byte {
	sorted := slices.Clone(metrics)
	slices.SortStableFunc(sorted, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	help, value := strings.NewReplacer(`\`, `\\`, "\n", `\n`), strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	var text bytes.Buffer
	for i, m := range sorted {
		if i == 0 || m.name != sorted[i-1].name {
			fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %[1]s gauge\n", m.name, help.Replace(m.help))
		}
		labels := m.labels
		if cluster != "" {
			labels = append([]string{"cluster", cluster}, labels...)
		}
		text.WriteString(m.name)
		for i := 0; i+1 < len(labels); i += 2 {
			fmt.Fprintf(&text, `%c%s="%s"`, "{,"[min(i, 1)], labels[i], value.Replace(labels[i+1]))
		}
		if len(labels) > 1 {
			text.WriteByte('}')
		}
		text.WriteString(" " + strconv.FormatFloat(m.value, 'g', -1, 64) + "\n")
	}
	return text.Bytes()
}
