package arkindex

import "testing"

func TestMachine(t *testing.T) {
	h := machine()
	if h.CPUs < 1 || h.RAM < 1<<20 || h.GPUs == nil {
		t.Errorf("this machine has %+v", h)
	}
	cpu, ram := machineLoad()
	if cpu < 0 || cpu > 1 || ram <= 0 || ram > 1 {
		t.Errorf("load %v, memory %v; want shares", cpu, ram)
	}
	for x, want := range map[float64]float64{-1: 0, 0.004: 0, 0.126: 0.13, 7: 1} {
		if got := share(x); got != want {
			t.Errorf("share(%v) = %v; want %v", x, got, want)
		}
	}
}
