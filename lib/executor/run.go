package executor

import (
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// Suspended is a time between two ticks that only a suspended process lets pass.
const Suspended = 10 * time.Second

// Run runs a command to its end, and is the owner that o lacks. Its error says that it could not be started.
func Run(o Options, c *Command) (*End, error) {
	told, handle := make(chan Event, 2), o.Handle
	o.Handle = func(e Event) *Command {
		if handle != nil {
			handle(e)
		}
		told <- e
		return nil
	}
	o.Suspended = Suspended
	e := New(o)
	defer e.Close()
	e.Start(c)
	ticks := time.NewTicker(Period)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			e.Tick(clock.Now())
		case t := <-told:
			if t.Err != nil || t.End != nil {
				return t.End, t.Err
			}
		}
	}
}
