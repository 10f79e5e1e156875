package assembly

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent"
)

func TestPace(t *testing.T) {
	const every = 10 * time.Second
	for _, tt := range []struct {
		last, every, took time.Duration
		room              agent.Room
		want              time.Duration
	}{
		{every, every, 0, agent.Unlimited, every}, {time.Second, every, 0, agent.Unlimited, every}, {every, every, 0, agent.NoRoom, every},
		{every, every, 0, agent.SomeRoom, time.Second}, {time.Second, every, 0, agent.NoRoom, 1250 * time.Millisecond},
		{8 * time.Second, every, 0, agent.NoRoom, every}, {time.Second, time.Second, 0, agent.SomeRoom, time.Second},
		{time.Second, every, time.Second, agent.SomeRoom, 4 * time.Second}, {time.Second, every, time.Second, agent.NoRoom, 4 * time.Second},
		{time.Second, every, time.Minute, agent.SomeRoom, every}, {time.Second, every, time.Minute, agent.Unlimited, every},
	} {
		if got := pace(tt.last, tt.every, tt.took, tt.room); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
