package progress

import (
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	for _, x := range []struct {
		perSecond float64
		want      string
	}{
		{0, "0 tasks/h"}, {0.001, "3.6 tasks/h"}, {0.05, "3.0 tasks/min"}, {0.5, "30 tasks/min"}, {5.981, "6.0 tasks/s"}, {9.97, "10 tasks/s"},
		{12345.6, "12346 tasks/s"},
	} {
		if got := Rate(x.perSecond); got != x.want {
			t.Errorf("%g: %s, want %s", x.perSecond, got, x.want)
		}
	}
	for d, want := range map[time.Duration]string{4010 * time.Millisecond: "4s", 59600 * time.Millisecond: "60s", 90 * time.Second: "1m30s"} {
		if got := Left(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
