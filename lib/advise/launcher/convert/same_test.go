package convert

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
)

// TestSameAnswers checks, for random clusters that launchers.yaml can express completely, that
// the written file gives the same answers as Slurm itself.
func TestSameAnswers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("PONOS_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	found := 0
	for range 300 {
		text := ""
		for i := range 6 {
			text += fmt.Sprintf("NodeName=n%d CPUTot=%s RealMemory=%s State=IDLE Gres=%s AvailableFeatures=f%d%s Partitions=p%d,q%d\n", i, pick("4", "16", "64"), pick("8000", "64000"),
				pick("(null)", "gpu:4", "gpu:a100:4", "gpu:t4:2", "gpu:v100:2", "gpu:a100:2,gpu:t4:2", "gpu:big:8"), i, pick("", ",v100", ",GPU_MEM:80GB", ",gpuram48gb", ",2080ti"), r.IntN(3), r.IntN(2))
		}
		for _, name := range []string{"p0", "p1", "p2", "q0", "q1"} {
			text += "PartitionName=" + name + " State=" + pick("UP", "UP", "UP", "DOWN") + pick("", " MaxTime=1:00:00") + pick("", "", " MinNodes=2") + pick("", "", " MaxNodes=1") +
				pick("", "", " MaxCPUsPerNode=8", " OverSubscribe=EXCLUSIVE") + pick("", "", " MaxMemPerNode=10000") + "\n"
		}
		s, err := Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := Write(&out, s, Options{}); err != nil {
			t.Fatal(err)
		}
		written, err := file.Parse("launchers.yaml", []byte(out.String()), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, &out)
		}
		for range 6 {
			spec := pick("cuda()", "cuda(mem=20G)", "cuda(mem=40G)*2", "cuda(model=a100)", "cuda(model=[t4, v100])", "cuda(mem=60G)", "cuda(cc>=8.0)", "cpu(cores=10)", "cpu(mem=20G)", "gpu()*8") +
				pick("", " & duration=30min", " & duration=3h") + pick("", " & nodes=2")
			asked, err := request.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			direct := &launcher.Search{Launchers: []*launcher.Launcher{launcher.Direct(gpu.Builtin())}, Ask: func(context.Context, *launcher.Launcher) (*cluster.Snapshot, error) { return s, nil }}
			want, err := direct.Find(t.Context(), asked)
			if err != nil {
				t.Fatal(err)
			}
			got, err := (&launcher.Search{Launchers: launcher.New(written, gpu.Builtin())}).Find(t.Context(), asked)
			if err != nil {
				t.Fatal(err)
			}
			if (got == nil) != (want == nil) || got != nil && got.Partitions[0] != want.Partitions[0] {
				t.Fatalf("seed %d: %s\nof Slurm: %+v\nof the file: %+v\n%s\n%s", seed, spec, want, got, text, &out)
			}
			if got != nil {
				found++
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d were found", found)
	}
}
