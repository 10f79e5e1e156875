package core

import (
	"testing"
	"time"
)

// A task is cut off by SIGTERM if it ends after it or up to a moment before, and by SIGUSR1 around it.
func TestSignaledCuts(t *testing.T) {
	at := time.Unix(1e9, 0)
	for _, tt := range []struct {
		ended      time.Duration
		term, usr1 bool
	}{{-time.Second, false, false}, {-200 * time.Millisecond, true, true}, {time.Second, true, true}, {time.Minute, true, false}} {
		ended := at.Add(tt.ended)
		if got := (signaled{term: at}).cuts(ended); got != tt.term {
			t.Errorf("SIGTERM cuts a task that ends after %v: %v", tt.ended, got)
		}
		if got := (signaled{usr1: at}).cuts(ended); got != tt.usr1 {
			t.Errorf("SIGUSR1 cuts a task that ends after %v: %v", tt.ended, got)
		}
		if (signaled{}).cuts(ended) {
			t.Error("no signal cuts a task")
		}
	}
}
