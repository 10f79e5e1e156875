package tasklist

import (
	"errors"
	"fmt"
	"time"

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/queue/spool"
	"github.com/ponos-tools/ponos/lib/task"
)

// NoAgent is an error if no agent takes turns in the spool, or nil.
func NoAgent(s *spool.Spool) error {
	last, alive, err := s.LastSeen()
	if err != nil || alive {
		return nil // what is wrong with the spool is told elsewhere
	}
	text := "no agent has taken a turn in this spool"
	if !last.Seen.IsZero() {
		seen := last.Seen.Local()
		format := time.TimeOnly
		if now := clock.Now().Local(); seen.YearDay() != now.YearDay() || seen.Year() != now.Year() {
			format = time.DateTime
		}
		text = fmt.Sprintf("no agent has taken a turn since %s (%s on host %s)", seen.Format(format), task.Clean(last.Agent), task.Clean(last.Host))
	}
	return fault.Hint(errors.New(text), "start it: ponos-poll --every 10s | ponos-stop | ponos-start")
}
