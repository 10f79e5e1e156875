package poll

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent"
)

func TestPace(t *testing.T) {
	const every = 10 * time.Second
	for _, tt := range []struct {
		last, every time.Duration
		room        agent.Room
		want        time.Duration
	}{
		{every, every, agent.Unlimited, every}, {time.Second, every, agent.Unlimited, every},
		{every, every, agent.SomeRoom, time.Second}, {time.Second, every, agent.NoRoom, 1250 * time.Millisecond},
		{8 * time.Second, every, agent.NoRoom, every}, {every, every, agent.NoRoom, every}, {time.Second, time.Second, agent.SomeRoom, time.Second},
	} {
		if got := pace(tt.last, tt.every, tt.room); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
