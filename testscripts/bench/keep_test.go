package bench

import (
	"os"
	"testing"
)

func TestKeep(t *testing.T) {
	dir := os.Getenv("KEEP")
	if dir == "" {
		return
	}
	w := newWorldIn(t, manyTasks, dir)
	w.poll(true)
}
