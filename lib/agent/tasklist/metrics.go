package tasklist

import (
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/metrics"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// Metrics reads the metrics of the tasks of a spool.
type Metrics struct {
	spool queue.Client
	dirs  map[string]string // the data_dir of each agent that takes turns here
}

// OpenMetrics reads where the agents of a spool have their tasks.
func OpenMetrics(s queue.Client) Metrics {
	m := Metrics{spool: s, dirs: map[string]string{}}
	beats, _ := s.Agents() // problems with the spool are reported elsewhere
	for _, b := range beats {
		m.dirs[b.Agent] = b.Dir
	}
	return m
}

// Running are the metrics of a task that has not ended.
func (m Metrics) Running(t queue.Summary) (metrics.Values, error) {
	dir := m.dirs[t.Agent]
	if dir == "" {
		return nil, nil
	}
	return metrics.Read(config.TaskDirs(dir, string(t.ID))...)
}

// Ended are the metrics of a task that has ended: in its artifacts, and what was kept of its working directory.
func (m Metrics) Ended(e queue.Entry) (metrics.Values, error) {
	if e.Kept == "" {
		return metrics.Read(m.spool.Artifacts(e.ID))
	}
	return metrics.Read(m.spool.Artifacts(e.ID), e.Kept)
}
