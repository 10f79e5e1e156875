package request

import (
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	names := func(field string) []string {
		return map[string][]string{"model": {"a100", "h100"}, "partition": {"gpu", "cpu"}, "license": {"matlab"}}[field]
	}
	for text, want := range map[string]string{
		"cu":                             "cuda(; cuda()",
		"  mp":                           "  mps(;   mps()",
		"gp":                             "gpu(; gpu()",
		"excl":                           "exclusive",
		"cuda(":                          "cuda(mem=; cuda(mem>=; cuda(mem<=; cuda(model=; cuda(model!=; cuda(cc=; cuda(cc>=; cuda(cc<=",
		"cuda(mem=40G, mo":               "cuda(mem=40G, model=; cuda(mem=40G, model!=",
		"cuda(mem=4":                     "cuda(mem=4G; cuda(mem=4M; cuda(mem=4T",
		"cuda(mem>=4G":                   "cuda(mem>=4G",
		"cuda(mem=":                      "",
		"cuda(model=a":                   "cuda(model=a100",
		"cuda(model!=[a100, h":           "cuda(model!=[a100, h100",
		"cuda(model=[a100] ":             "",
		"cuda(model=[a100], c":           "cuda(model=[a100], cc=; cuda(model=[a100], cc>=; cuda(model=[a100], cc<=",
		"cpu(co":                         "cpu(cores=; cpu(cores=4",
		"preempt":                        "preemptible=no; preemptible=yes",
		"cpu(cores=4":                    "",
		"cuda() ":                        "",
		"cuda() & dur":                   "cuda() & duration=; cuda() & duration=4h",
		"cuda()&duration=4":              "cuda()&duration=4min; cuda()&duration=4h; cuda()&duration=4d",
		"duration=4m":                    "duration=4min",
		"(cuda() | cp":                   "(cuda() | cpu(; (cuda() | cpu(); (cuda() | cpus_per_gpu=; (cuda() | cpus_per_gpu=4",
		"partition!=g":                   "partition!=gpu",
		"license(":                       "license(matlab)",
		"preemptible=":                   "preemptible=no; preemptible=yes",
		"host=":                          "",
		"nonsense":                       "",
		")":                              "",
		"":                               "",
		strings.Repeat("(", 40) + "cuda": strings.Repeat("(", 40) + "cuda(; " + strings.Repeat("(", 40) + "cuda()",
	} {
		got := strings.Join(Complete(text, names), "; ")
		if text == "" {
			if n := len(Complete(text, names)); n < len(terms) {
				t.Errorf("%d terms", n)
			}
		} else if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
