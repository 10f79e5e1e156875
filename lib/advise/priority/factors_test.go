package priority

import (
	"math"
	"reflect"
	"testing"
)

// Job 7 of the captured queue, in gpu: what sprio printed, and squeue's priority.
func TestComponents(t *testing.T) {
	w := Weights{Age: 1000, FairShare: 10000, JobSize: 500, Partition: 1000, QOS: 2000, TRES: map[string]float64{"cpu": 100, "mem": 100, "gres/gpu": 500}}
	components := Components(w, Reading{0, 0}, Reading{}, Reading{1, 10000}, Reading{0.2357143, 118}, Reading{0.5, 500}, Reading{0.1, 200},
		map[string]Reading{"cpu": {0.125, 12}, "mem": {0.03125, 3}, "gres/gpu": {1, 500}}, 0, 50)
	near(t, "sum", Sum(components), 11283, 1)
	near(t, "job size", components[2].Share, 117.857, 0.001)
	if !components[6].IsTRES() || components[0].IsTRES() {
		t.Error("which are TRES")
	}
	if (Weights{}).Zero() != true || w.Zero() {
		t.Error("zero weights")
	}
	near(t, "never below 1", Sum([]Part{{Share: -500}}), 1, 0)
	near(t, "never above 32 bits", Sum([]Part{{Share: 1e12}}), math.MaxUint32, 0)
	near(t, "huge weights keep to the printed number", Refine(0.1234567*1e9, 123456789), 123456788.5, 0)
}

func TestFactors(t *testing.T) {
	near(t, "age", Age(43200, 86400), 0.5, 0)
	near(t, "old", Age(1e9, 86400), 1, 0)
	near(t, "not yet", Age(-5, 86400), 0, 0)
	near(t, "size, one CPU of 28 on one node of 5", JobSize(1, 1, 5, 28, 60, SizeOptions{}), 0.1178571, 1e-7)
	near(t, "size, six CPUs on two nodes", JobSize(2, 6, 5, 28, 60, SizeOptions{}), 0.3071429, 1e-7)
	near(t, "favour small", JobSize(1, 1, 5, 28, 60, SizeOptions{FavorSmall: true}), (0.8+27.0/28)/2, 1e-12)
	near(t, "relative to time", JobSize(1, 7, 5, 28, 60, SizeOptions{RelativeToTime: true}), 7.0/60/28, 1e-12)
	near(t, "no cluster", JobSize(1, 1, 0, 0, 60, SizeOptions{}), 0, 0)
	near(t, "normal", Normal(10, 20), 0.5, 0)
	near(t, "TRES", TRES(3, 16), 0.1875, 0)
}

func TestLost(t *testing.T) {
	mine := []Part{{Name: "age", Share: 10}, {Name: "qos", Share: 200}, {Name: "tres:cpu", Share: 5}, {Name: "tres:mem", Share: 5}}
	theirs := []Part{{Name: "age", Share: 30}, {Name: "qos", Share: 100}, {Name: "tres:cpu", Share: 500}}
	want := []Deficit{{"tres", 490}, {"age", 20}, {"qos", -100}}
	if got := Lost(mine, theirs); !reflect.DeepEqual(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

func TestTimeToGain(t *testing.T) {
	if s, ok := TimeToGain(100, 0, 1000, 86400); !ok || s != 8640 {
		t.Error(s, ok)
	}
	if _, ok := TimeToGain(100, 0.95, 1000, 86400); ok {
		t.Error("age is nearly spent")
	}
	if _, ok := TimeToGain(100, 0, 0, 86400); ok {
		t.Error("age does not count")
	}
}

// A job that is submitted has a priority as whole as those that wait: it comes behind the ones that are like it.
func TestExpectedIsWhole(t *testing.T) {
	w := Weights{FairShare: 10000, JobSize: 500, TRES: map[string]float64{"cpu": 100}}
	got := Expected(w, Ask{FairShare: 0.4, Nodes: 1, CPUs: 3, ClusterNodes: 5, ClusterCPUs: 28, TRES: map[string]float64{"cpu": 3}, InPartition: map[string]float64{"cpu": 8}})
	if got < 4000 || got != float64(int64(got)) {
		t.Error(got)
	}
}
