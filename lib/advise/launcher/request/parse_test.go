package request

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

func cuda(n int, mem int64) GPU { return GPU{Kind: CUDA, Count: n, Memory: mem} }

func TestParse(t *testing.T) {
	twoGPUs := Alternative{GPUs: []GPU{cuda(2, 4e9)}, Memory: 4e8, Cores: 4, Duration: 4 * day}
	for text, want := range map[string][]Alternative{
		"duration=4 d & cuda(mem=4G) * 2 & cpu(mem=400M, cores=4)":                   {twoGPUs},
		"duration=4 days & cuda(mem=4G) * 2 & cpu(mem=400M, cores=4)":                {twoGPUs},
		"duration = 4days\n&\tcuda ( mem = 4G )*2 & cpu( cores = 4 , mem=400M ) ":    {twoGPUs},
		"(duration=4d & (cuda(mem=4G)*2)) & cpu(mem=400M) & cpu(cores=4) # a remark": {twoGPUs},
		"duration=3-24:00:00 & cuda(mem=4GB)*2 & cpu(mem=0.4 g, cores=04)":           {twoGPUs},
		"cuda(mem=14G) * 2 & cpu(mem=7G)":                                            {{GPUs: []GPU{cuda(2, 14e9)}, Memory: 7e9, Cores: 1}},
		"cuda(mem=10G) & cpu(mem=7G)":                                                {{GPUs: []GPU{cuda(1, 10e9)}, Memory: 7e9, Cores: 1}},
		"cuda(mem=24G) * 2":                                                          {{GPUs: []GPU{cuda(2, 24e9)}}},
		"cuda(mem=8G) | mps(mem=8G)":                                                 {{GPUs: []GPU{cuda(1, 8e9)}}, {GPUs: []GPU{{Kind: MPS, Count: 1, Memory: 8e9}}}},
		"mps(mem=4G) * 2":                                                            {{GPUs: []GPU{{Kind: MPS, Count: 2, Memory: 4e9}}}},
		"gpu(mem=8G) * 4":                                                            {{GPUs: []GPU{{Kind: AnyGPU, Count: 4, Memory: 8e9}}}},
		"duration=2h & cpu(mem=32G, cores=4) & mps(mem=16G)": {{
			GPUs: []GPU{{Kind: MPS, Count: 1, Memory: 16e9}}, Memory: 32e9, Cores: 4, Duration: 2 * time.Hour}},
		"duration=40h & cpu(mem=700GiB) & cuda(mem=32GiB) * 2 | duration=50h & cpu(mem=700GiB) & cuda(mem=32GiB) * 4": {
			{GPUs: []GPU{cuda(2, 34359738368)}, Memory: 751619276800, Cores: 1, Duration: 144000 * time.Second},
			{GPUs: []GPU{cuda(4, 34359738368)}, Memory: 751619276800, Cores: 1, Duration: 180000 * time.Second}},
		"duration=04d":        {{Duration: 4 * day}},
		"duration=4 day":      {{Duration: 4 * day}},
		"duration=4 hour":     {{Duration: 4 * time.Hour}},
		"duration=4m":         {{Duration: 4 * time.Minute}},
		"duration=30 minutes": {{Duration: 30 * time.Minute}},
		"duration=90s":        {{Duration: 90 * time.Second}},
		"duration=1.5h":       {{Duration: 90 * time.Minute}},
		"duration=2 weeks":    {{Duration: 14 * day}},
		"duration=1d 12h":     {{Duration: 36 * time.Hour}},
		"duration=12:00:00":   {{Duration: 12 * time.Hour}},
		"cuda()":              {{GPUs: []GPU{cuda(1, 0)}}},
		"cuda() * 2 & cpu()":  {{GPUs: []GPU{cuda(2, 0)}, Cores: 1}},
		"cuda(mem=0)":         {{GPUs: []GPU{cuda(1, 0)}}},
		"cuda(mem=4G)*01":     {{GPUs: []GPU{cuda(1, 4e9)}}},
		"cuda(mem=4G)*3":      {{GPUs: []GPU{cuda(3, 4e9)}}},
		"cuda(mem=4G,mem=8G)": {{GPUs: []GPU{cuda(1, 8e9)}}},
		"cuda(mem=1T) & cuda(mem=4G) & cuda(mem=4G)":   {{GPUs: []GPU{cuda(2, 4e9), cuda(1, 1e12)}}},
		"cpu(mem=4G) & cpu(cores=4)":                   {{Memory: 4e9, Cores: 4}},
		"cpu(mem=4G,cores=8) & cpu(mem=8G,cores=4)":    {{Memory: 8e9, Cores: 8}},
		"cuda(model=a100, mem=40G)":                    {{GPUs: []GPU{{Kind: CUDA, Count: 1, Memory: 40e9, Models: []string{"a100"}}}}},
		"gpu(model=1g.10gb) & gpu(model=\"RTX 2080\")": {{GPUs: []GPU{{Kind: AnyGPU, Count: 1, Models: []string{"1g.10gb"}}, {Kind: AnyGPU, Count: 1, Models: []string{"RTX 2080"}}}}},
		"nodes=2 & partition!=gpu_spot & feature=a100": {{Nodes: 2, Where: []Condition{{"partition", true, "gpu_spot"}, {"feature", false, "a100"}}}},
		"qos=high & account != 'iea@a100'&host=n*":     {{Where: []Condition{{"qos", false, "high"}, {"account", true, "iea@a100"}, {"host", false, "n*"}}}},
		"cuda(mem=4G) & duration=1h | cuda(mem=8G) & duration=2h": {
			{GPUs: []GPU{cuda(1, 4e9)}, Duration: time.Hour}, {GPUs: []GPU{cuda(1, 8e9)}, Duration: 2 * time.Hour}},
		"(cuda(mem=40G) | cuda(mem=20G)*2) & (duration=1h | duration=2h)": {
			{GPUs: []GPU{cuda(1, 40e9)}, Duration: time.Hour}, {GPUs: []GPU{cuda(1, 40e9)}, Duration: 2 * time.Hour},
			{GPUs: []GPU{cuda(2, 20e9)}, Duration: time.Hour}, {GPUs: []GPU{cuda(2, 20e9)}, Duration: 2 * time.Hour}},
		"gpu(model=[h100, a100], mem=24G..40G)":                   {{GPUs: []GPU{{Kind: AnyGPU, Count: 1, Memory: 24e9, MaxMemory: 40e9, Models: []string{"a100", "h100"}}}}},
		"cuda(mem>=24G, model != t4) * 2":                         {{GPUs: []GPU{{Kind: CUDA, Count: 2, Memory: 24e9, NotModels: []string{"t4"}}}}},
		"cuda(mem<=40G)":                                          {{GPUs: []GPU{{Kind: CUDA, Count: 1, MaxMemory: 40e9}}}},
		"cuda(cc >= 8.0) & xpu(cc=8.0..8.9,mem=1G..40G)":          {{GPUs: []GPU{{Kind: CUDA, Count: 1, CC: 80}, {Kind: XPU, Count: 1, CC: 80, MaxCC: 89, Memory: 1e9, MaxMemory: 40e9}}}},
		"cuda(cc=9) & cuda(cc=9.0)":                               {{GPUs: []GPU{{Kind: CUDA, Count: 2, CC: 90, MaxCC: 90}}}},
		"cuda(cc<=8.9)":                                           {{GPUs: []GPU{{Kind: CUDA, Count: 1, MaxCC: 89}}}},
		"gres(shard) * 4 & gres(localtmp:nvme)*100 & gres(shard)": {{GRES: []Amount{{"shard", 5}, {"localtmp:nvme", 100}}}},
		"license(matlab) & licences(ansys@flex)*2":                {{Licenses: []Amount{{"matlab", 1}, {"ansys@flex", 2}}}},
		"disk=100G & tasks=4 & exclusive & preemptible = no":      {{Disk: 100e9, Tasks: 4, Exclusive: true, NotPreemptible: true}},
		"preemptible=yes & exclusive":                             {{Exclusive: true}},
		"cuda()*2 & cpus per gpu=4 & mem_per_gpu=16G":             {{GPUs: []GPU{cuda(2, 0)}, CPUsPerGPU: 4, MemPerGPU: 16e9}},
		"cpus_per_gpu = 4 & mem  per gpu = 16G":                   {{CPUsPerGPU: 4, MemPerGPU: 16e9}},
		"deadline=2026-12-24T18:00 & deadline=18:00":              {{Deadlines: []Deadline{{Clock: "2026-12-24T18:00:00"}, {Clock: "18:00:00"}}}},
		"deadline = 2026-12-24 # eve":                             {{Deadlines: []Deadline{{Clock: "2026-12-24T00:00:00"}}}},
		"deadline=2 days & nodes=1":                               {{Nodes: 1, Deadlines: []Deadline{{In: 48 * time.Hour}}}},
	} {
		got, err := Parse(text)
		if err != nil {
			t.Errorf("Parse(%q): %v", text, err)
			continue
		}
		if !reflect.DeepEqual(got.Alternatives, want) {
			t.Errorf("Parse(%q) =\n %+v; want\n %+v", text, got.Alternatives, want)
		}
		again, err := Parse(got.String())
		if err != nil || !reflect.DeepEqual(again.Alternatives, want) {
			t.Errorf("Parse(%q), written by String, =\n %+v, %v; want\n %+v", got, again.Alternatives, err, want)
		}
	}
}

// TestParsePublic parses requests from public sources.
func TestParsePublic(t *testing.T) {
	for _, text := range []string{
		"duration=4 days & cuda(mem=24G) * 2", "duration=2 days & cuda(mem=24G)", "duration=2 days & cpu(mem=2G)",
		"duration=6 days & cpu(mem=4G, cores=8)", "duration=2 days & cpu(cores=8)", "duration=1h & cpu(cores=5)",
		"duration=1h & cuda(mem=4G)*1 & cpu(cores=4)", "duration=3h & cuda(mem=4G)*1 & cpu(cores=2)", "duration=2d & cuda(mem=12G)",
		"duration=8h & cuda(mem=12G)", "duration=1 days & cuda(mem=12G)", "duration=3h & gpu(mem=4G)*1 & cpu(cores=2)",
		"duration=40h & cpu(mem=700GiB) & cuda(mem=32GiB) * 8", "duration=2h & gpu(mem=4GiB)",
		"duration=4h & cuda(mem=8GiB) | duration=4h & mps(mem=8GiB)", "duration=1h & cuda(mem=32G) * 1 & cpu(cores=8)",
	} {
		if r, err := Parse(text); err != nil || len(r.Warnings) > 0 {
			t.Errorf("Parse(%q): %v, warnings %v", text, err, r.Warnings)
		}
	}
}

func TestOption(t *testing.T) {
	const others = "; --set NAME=VALUE sets other options of sbatch"
	for _, c := range []struct{ argument, next, hint string }{
		{"--gres=gpu:1", "", "write gpu() * 1"},
		{"--gres", "gpu:a100:2", "write gpu(model=a100) * 2"},
		{"--gres=gpu", "", "write gpu() * 1"},
		{"--gres=shard:2", "", "write gres(NAME) * N; GPUs are gpu() * N"},
		{"--licenses=matlab:2", "", "write license(NAME) * N"},
		{"--gpus", "2", "write gpu() * 2"},
		{"-G2", "cuda()", "write gpu() * 2"},
		{"--gpus-per-node=a100:4", "", "write gpu(model=a100) * 4"},
		{"--gpus", "", "write gpu() * 1"},
		{"--mem=8G", "", "main memory is written cpu(mem=8GiB), that of a GPU cuda(mem=8GiB)" + others},
		{"--mem", "8000", "main memory is written cpu(mem=8000MiB), that of a GPU cuda(mem=8000MiB)" + others},
		{"--mem-per-cpu=2G", "", "write cpu(mem=SIZE) for the memory of each node" + others},
		{"--mem-per-gpu=2gb", "", "write mem_per_gpu=2GiB" + others},
		{"--tmp=50G", "", "write disk=50GiB" + others},
		{"--time=2h", "", "write duration=2h" + others},
		{"--time", "120", "write duration=120min" + others},
		{"-t", "1-12:00:00", "write duration=1-12:00:00" + others},
		{"--cpus-per-task=8", "", "write cpu(cores=8)" + others},
		{"-c", "8", "write cpu(cores=8)" + others},
		{"-n", "3", "write tasks=3" + others},
		{"-N", "2-4", "write nodes=2" + others},
		{"--partition=x", "", "write partition=x" + others},
		{"--partition=x,y", "", "write partition=NAME" + others},
		{"-p", "", "write partition=NAME" + others},
		{"--constraint=a&b", "", "write feature=NAME" + others},
		{"--exclude=n1", "", "write host!=n1" + others},
		{"--exclusive", "cuda()", "write exclusive"},
		{"--mail-type=END", "", "in lfind, write --set mail-type=END"},
		{"--comment", "a b", "in lfind, write --set 'comment=a b'"},
		{"--requeue", "cuda()", "in lfind, write --set requeue"},
		{"--nonsense", "x", ""},
		{"--verbos", "x", ""},
		{"-8", "x", ""},
		{"-", "", ""},
	} {
		if got := Option(c.argument, c.next); got != c.hint {
			t.Errorf("Option(%q, %q) = %q, want %q", c.argument, c.next, got, c.hint)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ text, where, message, hint string }{
		{"", "1:1", "the request is empty", `for example "cuda(mem=14G) * 2 & duration=4h"`},
		{" \n ", "2:2", "the request is empty", `for example "cuda(mem=14G) * 2 & duration=4h"`},
		{"# only a remark", "1:16", "the request is empty", `for example "cuda(mem=14G) * 2 & duration=4h"`},
		{"cuda(mem=4Go)", "1:11", `unknown unit "Go"`, `did you mean "G"?`},
		{"cuda(mem=4X)", "1:11", `unknown unit "X"`, ""},
		{"cuda(mem=.)", "1:10", `invalid size "."`, ""},
		{"cuda(mem=4G", "1:12", "the request ends here", ""},
		{"cuda", "1:5", `expected "("`, "write cuda()"},
		{"cuda(mem)", "1:9", `unexpected ")": expected "=" or ">=" or "<="`, ""},
		{"cuda(mem=4G,)", "1:13", `unexpected ")": expected mem=..., model=... or cc=...`, ""},
		{"cuda(cores=2)", "1:6", `cuda() has no "cores"`, "write cpu(cores=2)"},
		{"gpu:a100:2", "1:4", `unexpected ":"`, "write gpu(model=a100) * 2"},
		{"gpu:2", "1:4", `unexpected ":"`, "write gpu() * 2"},
		{"--gres=gpu:1", "1:1", `unexpected "--gres"`, "write gpu() * 1"},
		{"--gres=gpu:a100:2", "1:1", `unexpected "--gres"`, "write gpu(model=a100) * 2"},
		{"--time=4h", "1:1", `unexpected "--time"`, "write duration=4h; --set NAME=VALUE sets other options of sbatch"},
		{"cuda(40G)", "1:6", `unexpected "40G"`, "write cuda(mem=40G)"},
		{"cuda(a100)", "1:6", `cuda() has no "a100"`, "write cuda(model=a100)"},
		{"cuda(vram=40G)", "1:6", `cuda() has no "vram"`, "write cuda(mem=40G)"},
		{"cpu(ram=4G)", "1:5", `cpu() has no "ram"`, "write cpu(mem=4G)"},
		{"cpu(4)", "1:5", `unexpected "4"`, "write cpu(cores=4)"},
		{"cuda(mem>40G)", "1:9", `unexpected ">"`, "write >=40G"},
		{"mig(1g.5gb)", "1:1", `unknown word "mig"`, "write slice(), slice(mem=10G) or slice(model=1g.10gb)"},
		{"cuda(mem=40)", "1:10", "the memory 40 has no unit", "write mem=40G"},
		{"slice() * 2", "1:1", "2 slices of GPUs and 1 task on each node", "write tasks=2, or request whole GPUs: cuda()"},
		{"cuda(model=1g.5gb) * 3 & tasks=2", "1:1", "3 slices of GPUs", "write tasks=3, or request whole GPUs: cuda()"},
		{"cuda() & gres(shard) * 2", "1:1", "GPUs and gres shard in one job", "request the GPUs alone, or gres(shard) alone"},
		{"cuda(MEM=4G)", "1:6", `cuda() has no "MEM"`, `did you mean "mem"?`},
		{"CUDA(mem=4G)", "1:1", `unknown word "CUDA"`, `did you mean "cuda"?`},
		{"duration=1h & cudda(mem=4G)", "1:15", `unknown word "cudda"`, `did you mean "cuda"?`},
		{"duration=1h &\n  partiton=x", "2:3", `unknown word "partiton"`, `did you mean "partition"?`},
		{"2 gpus", "1:1", "unexpected number", "write gpu() * 2"},
		{"2xA100", "1:1", "unexpected number", "write cuda(model=A100) * 2"},
		{"3 x a100", "1:1", "unexpected number", "write cuda(model=a100) * 3"},
		{"8 cores", "1:1", "unexpected number", "write cpu(cores=8)"},
		{"3 nodes", "1:1", "unexpected number", "write nodes=3"},
		{"6 tasks", "1:1", "unexpected number", "write tasks=6"},
		{"2 hours", "1:1", "unexpected number", "write duration=2hours"},
		{"32GB", "1:1", "unexpected number", "main memory is written cpu(mem=32GB), that of a GPU cuda(mem=32GB)"},
		{"1g.10gb", "1:1", "unexpected number", "write slice(model=1g.10gb)"},
		{"nvidia_a100_1g.10gb", "1:1", "unknown word", "write slice(model=nvidia_a100_1g.10gb)"},
		{"gpu", "1:4", "the request ends here", "write gpu()"},
		{"cuda * 2", "1:6", "unexpected", "write cuda()"},
		{"shard", "1:1", "unknown word", "write gres(shard) * 1"},
		{"node=gpu1", "1:1", "unknown word", "write nodes=2 for their number, host=NAME for one"},
		{"cuda(sm_80)", "1:6", "has no", "write cuda(cc>=8.0)"},
		{"cuda(sm=80)", "1:6", "has no", "write cuda(cc>=8.0)"},
		{"cuda(cc=80)", "1:9", "invalid compute capability", "write 8.0"},
		{"cuda(cc>=120)", "1:10", "invalid compute capability", "write 12.0"},
		{"2*cuda(mem=4G)", "1:1", "unexpected number", "write the number of GPUs at the end: cuda(mem=4G) * 2"},
		{"cuda(mem=4G) * 2 * 3", "1:18", `unexpected "*"`, "the number of GPUs is given once"},
		{"cpu(mem=4G)*2", "1:12", `unexpected "*"`, "the number of CPUs is written cpu(cores=4)"},
		{"cuda(mem=4G)*-1", "1:14", `unexpected "-1"`, ""},
		{"cuda(mem=4G)*0", "1:14", "0 GPUs: expected at least 1", ""},
		{"cuda(mem=4G)*99999999", "1:14", "too many GPUs", ""},
		{"cuda() && cpu()", "1:9", `unexpected "&"`, `terms are joined by a single "&"`},
		{"cuda() || cpu()", "1:9", `unexpected "|"`, `an alternative is written with a single "|"`},
		{"cuda() &", "1:9", "the request ends here", ""},
		{"| cuda()", "1:1", `unexpected "|"`, ""},
		{"cuda() cpu()", "1:8", `unexpected "cpu": expected "&", "|" or the end`, `terms are joined by "&"`},
		{"(cuda()", "1:8", `expected "&", "|" or ")"`, ""},
		{"cuda())", "1:7", `unexpected ")"`, ""},
		{"duration=4", "1:11", "the duration 4 has no unit", "4h is hours, 4min minutes"},
		{"duration=2months", "1:11", `unknown unit "months"`, "a month has no fixed length: write days or weeks; minutes are 2min"},
		{"duration=4 dayz", "1:12", `unknown unit "dayz"`, `did you mean "day"?`},
		{"duration=1:2:3:4", "1:10", "invalid duration", ""},
		{"duration=99999999999999999d", "1:10", "too long", ""},
		{"duration 4h", "1:10", `unexpected "4h"`, ""},
		{"nodes=0", "1:7", "0 nodes", ""},
		{"partition=", "1:11", "expected the name of a partition", ""},
		{"partition='x", "1:11", "the quote is not closed", ""},
		{"partition<x", "1:10", `unexpected "<"`, "write ="},
		{"cuda(model=)", "1:12", "expected a model", ""},
		{"cuda(mem=40G..24G)", "1:10", "the range of memory ends before it begins", ""},
		{"cuda(mem!=40G)", "1:9", `unexpected "!=": expected "=" or ">=" or "<="`, ""},
		{"cuda(cc>=eight)", "1:10", "expected a compute capability", ""},
		{"cuda(cc=9.0..8.0)", "1:9", "ends before it begins", ""},
		{"cuda(model=[a100,)", "1:18", "expected a model", ""},
		{"cuda(model=[a100", "1:17", `expected "," or "]"`, ""},
		{"gres()", "1:6", "expected the name of a gres", ""},
		{"gres(gpu:a100)", "1:6", "GPUs are requested separately", "write gpu(), or gpu(model=a100) * 2"},
		{"gres(shard:2)", "1:6", "has a number in it", "write gres(shard) * 2"},
		{"preemptible=maybe", "1:13", `unexpected "maybe": expected no or yes`, ""},
		{"deadline=25:00", "1:10", `invalid time "25:00"`, ""},
		{"deadline=", "1:10", "expected a number and a unit", ""},
		{"time=4h", "1:1", `unknown word "time"`, "write duration=4h"},
		{"mem=4G", "1:1", `unknown word "mem"`, "main memory is written cpu(mem=4G), that of a GPU cuda(mem=4G)"},
		{"cpus=4", "1:1", `unknown word "cpus"`, "write cpu(cores=4)"},
		{"cpu>4", "1:4", `unexpected ">"`, "write cpu(cores=4)"},
		{"gpu>=3", "1:4", `unexpected ">"`, "write gpu() * 3 for their number, gpu(model=a100) for a model"},
		{"gpu=2", "1:4", `unexpected "="`, "write gpu() * 2 for their number, gpu(model=a100) for a model"},
		{"gres=gpu:2", "1:5", `unexpected "="`, "write gpu() * 2"},
		{"gres=shard:2", "1:5", `unknown word "gres"`, "write gres(NAME) * N; GPUs are gpu() * N"},
		{"gres/gpu:a100=2", "1:5", `unexpected "/gpu"`, "write gpu(model=a100) * 2"},
		{"vram=40G", "1:1", `unknown word "vram"`, "write cuda(mem=40G)"},
		{"ram=4G", "1:1", `unknown word "ram"`, "write cpu(mem=4G)"},
		{"cpu=8", "1:4", `unexpected "="`, "write cpu(cores=8)"},
		{"cpu(mem>4G)", "1:8", `unexpected ">"`, "write =: what is requested is a lower bound"},
		{"nodes>2", "1:6", `unexpected ">"`, "write =: what is requested is a lower bound"},
		{"h100*2", "1:1", `unknown word "h100"`, "write cuda(model=h100) * 2"},
		{"a100", "1:1", `unknown word "a100"`, "write cuda(model=a100)"},
		{"cuda()x2", "1:7", `unexpected "x2"`, "write * 2"},
		{"cuda(), cpu()", "1:7", `unexpected ","`, `terms are joined by "&"`},
		{"gpu(2)", "1:5", `unexpected "2"`, "write gpu() * 2 for a number of GPUs, gpu(mem=2G) for their memory"},
		{"shard:2", "1:1", `unknown word "shard"`, "write gres(shard) * 2"},
		{"--gres gpu:1", "1:1", `unexpected "--gres"`, "write gpu() * 1"},
		{"-G 2", "1:1", `unexpected "-G"`, "write gpu() * 2"},
		{"-p gpu", "1:1", `unexpected "-p"`, "write partition=gpu; --set NAME=VALUE sets other options of sbatch"},
		{"-C a100", "1:1", `unexpected "-C"`, "write feature=a100; --set NAME=VALUE sets other options of sbatch"},
		{"a100:2", "1:1", `unknown word "a100"`, "write cuda(model=a100) * 2"},
		{"cuda(model=a100:2)", "1:12", `invalid model "a100:2"`, "write the number at the end: cuda(model=a100) * 2"},
		{"cuda() and cpu()", "1:8", `unexpected "and"`, `terms are joined by "&"`},
		{"cuda() OR cpu()", "1:8", `unexpected "or"`, `alternatives are separated by "|"`},
		{"duration=4mo", "1:11", `unknown unit "mo"`, "a month has no fixed length: write days or weeks; minutes are 4min"},
		{"cuda() & \u202egpu()", "1:10", `unexpected "\u202e"`, ""},
		{"cuda(mem=99999999999999999999999999999999T)", "1:10", "invalid size", ""},
		{strings.Repeat("(", 40) + "cuda()", "1:33", "parentheses inside", ""},
		{strings.Repeat("(cuda()|cpu())&", 9) + "cuda()", "1:121", "more than 256 alternatives", ""},
	} {
		_, err := Parse(c.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("Parse(%q): %v; want an Error", c.text, err)
			continue
		}
		line, column, _ := e.place()
		if got := fmt.Sprintf("%d:%d", line, column); got != c.where || !strings.Contains(err.Error(), c.message) || c.hint != e.Hint {
			t.Errorf("Parse(%q): %v\nhint %q; want %s, %q, hint %q", c.text, err, e.Hint, c.where, c.message, c.hint)
		}
	}
	for _, text := range []string{strings.Repeat(" ", maxText+1), "cuda(\xff)"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("Parse(%.10q) = nil; want an error", text)
		}
	}
}

func TestErrorShowsTheLine(t *testing.T) {
	_, err := Parse("duration=1h &\n\tcuda(mem=4Go) * 2\n& cpu()")
	want := "request:2:12: unknown unit \"Go\": expected K, M, G, T, KiB, MiB, GiB or TiB\n   cuda(mem=4Go) * 2\n             ^"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestErrorIsVisible checks that no text of a request reaches the terminal as a control
// sequence.
func TestErrorIsVisible(t *testing.T) {
	_, err := Parse("cuda(\x1b[31m\u202emem=4Go)")
	if err == nil || strings.ContainsFunc(err.Error(), func(r rune) bool { return r == 0x1b || r == 0x202e }) {
		t.Errorf("%q", err)
	}
	if want := "\n  cuda(?[31m?mem=4Go)\n       ^"; !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%q; want %q", err, want)
	}
}

func TestResolved(t *testing.T) {
	for text, want := range map[string][2]int64{
		"cuda()*3 & cpus per gpu=4 & mem per gpu=16G":                        {12, 48e9},
		"cuda()*2 & cpus per gpu=4 & tasks=4 & cpu(cores=1)":                 {2, 0},
		"cuda()*2 & cpus per gpu=4 & cpu(cores=16,mem=64G) & mem per gpu=1G": {16, 64e9},
		"cpus per gpu=4 & mem per gpu=16G":                                   {0, 0},
	} {
		r, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if a := r.Alternatives[0].Resolved(); int64(a.Cores) != want[0] || a.Memory != want[1] {
			t.Errorf("%s: %d cores, %d bytes; want %v", text, a.Cores, a.Memory, want)
		}
	}
}

func TestDeadline(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		d    Deadline
		want string
	}{
		{Deadline{In: 2 * time.Hour}, "2026-11-20T20:30:00"}, {Deadline{Clock: "19:00:00"}, "2026-11-20T19:00:00"},
		{Deadline{Clock: "18:30:00"}, "2026-11-21T18:30:00"}, {Deadline{Clock: "2026-12-24T00:00:00"}, "2026-12-24T00:00:00"},
	} {
		if got := c.d.At(now).Format("2006-01-02T15:04:05"); got != c.want {
			t.Errorf("%+v: %s; want %s", c.d, got, c.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	r, err := Parse("cuda() &\n cpu(mem=400, cores=4)")
	if err != nil || r.Alternatives[0].Memory != 400 {
		t.Fatalf("%+v, %v", r, err)
	}
	want := []string{
		"request:2:10: memory 400 has no unit and is taken as bytes; did you mean 400G?",
	}
	if len(r.Warnings) != 1 || r.Warnings[0].String() != want[0] {
		t.Errorf("got %v; want %v", r.Warnings, want)
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"gpu", "gpu", true}, {"gpu", "gpu_small", false}, {"gpu*", "gpu_small", true}, {"*", "", true}, {"*", "x", true},
		{"*small", "gpu_small", true}, {"g?u", "gpu", true}, {"g?u", "gu", false}, {"*a*b*", "xaxbx", true}, {"*a*b", "xaxbx", false},
		{"", "", true}, {"?", "", false}, {"[a]", "a", false},
	} {
		if got := (Condition{Pattern: c.pattern}).Matches(c.name); got != c.want {
			t.Errorf("%q matches %q: %v; want %v", c.pattern, c.name, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"duration=4 days & cuda(mem=4G) * 2 & cpu(mem=400M, cores=4)", "(cuda() | gpu(model=a100)) & nodes=2", "partition!=x & feature=\"a b\"",
		"duration=1-12:00:00", "mps(mem=1.5GiB) | rocm()", "cuda(mem=4Go)", "((((", "duration=1d 12h # x\n& qos=a*?",
		"gres(shard)*4 & license(m)*2 & disk=1T & tasks=2 & exclusive & preemptible=no & cpus per gpu=4 & mem per gpu=1G & deadline=18:00",
		"gpu(model!=[a,\"b c\"], mem=1G..2G, cc=8.0..9.0) & deadline=2026-12-24T18:00 & deadline=2d",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			if err.Error() == "" || strings.Count(err.Error(), "\n") > 2 {
				t.Errorf("Parse(%q): %q", text, err)
			}
			return
		}
		again, err := Parse(r.String())
		if err != nil || !reflect.DeepEqual(again.Alternatives, r.Alternatives) {
			t.Errorf("Parse(%q) = %+v, but of what String wrote, %q: %+v, %v", text, r.Alternatives, r, again.Alternatives, err)
		}
	})
}
