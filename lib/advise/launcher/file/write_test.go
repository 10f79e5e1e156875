package file

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestWritten checks that what is written is read as the same.
func TestWritten(t *testing.T) {
	e := Entry{
		Kind: Slurm, ID: "no", Connector: "local", Tags: []string{"a b", "x"}, Weight: 0, UseFeatures: true, UseHosts: true, UseMemory: true,
		QOS: []QOS{{Name: "t3", MaxDuration: 20 * time.Hour}, {Name: "t4", MinGPU: 2}, {Name: "plain"}},
		Partitions: []Partition{
			{Name: "gpu", QOS: []string{"t3", "t4"}, Accounts: []string{"lab@a100"}, Configuration: Configuration{MaxDuration: 100 * time.Hour}, MinNodes: 2, MaxNodes: 4,
				Nodes: []Nodes{
					{Features: []string{"a100", "it's"}, Hosts: []string{"g1", "g2", "g7"}, Configuration: Configuration{
						CPU:  CPU{Cores: 8, Memory: 16000 << 20},
						GPUs: []GPU{{Model: "a100_1g.5gb", GRES: "a100_1g.5gb", Count: 7, Memory: 5 << 30}, {Kind: "rocm", Model: "mi250", Count: 1}},
					}},
					{Count: 3},
				}},
			{Name: "1.5", Disabled: true, Preemptible: true, Exclusive: true},
		},
	}
	comment := Comments{Disabled: "for\nothers", Partition: "more"}
	var b strings.Builder
	if err := Write(&b, &e, func(int) Comments { return comment }); err != nil {
		t.Fatal(err)
	}
	f, err := Parse(Name, []byte(b.String()), nil, nil)
	if err != nil || len(f.Entries) != 1 {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	got := f.Entries[0]
	got.Pos, got.Weight = Pos{}, 0
	for i := range got.QOS {
		got.QOS[i].Pos = Pos{}
	}
	for i := range got.Partitions {
		p := &got.Partitions[i]
		p.Pos = Pos{}
		for j := range p.Nodes {
			p.Nodes[j].Pos = Pos{}
		}
	}
	if !reflect.DeepEqual(got, e) {
		t.Errorf("got %+v\nwant %+v\nof\n%s", got, e, b.String())
	}
	if strings.Count(b.String(), "# for?others\n") != 1 || strings.Count(b.String(), "# more\n") != 2 {
		t.Errorf("comments in\n%s", b.String())
	}
}
