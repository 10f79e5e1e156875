package find

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/market/vastai"
)

// Requests of lfind's language choose among offers as the market has them.
func TestFilters(t *testing.T) {
	offer := func(text string) vastai.Offer {
		t.Helper()
		var o vastai.Offer
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	offers := map[string]vastai.Offer{
		"4090":    offer(`{"id":1,"dph_total":1,"num_gpus":1,"gpu_name":"RTX 4090","gpu_ram":24564,"gpu_arch":"nvidia","compute_cap":890,"cpu_ram":64000,"cpu_cores_effective":16,"duration":90000}`),
		"2x4090":  offer(`{"id":2,"dph_total":1,"num_gpus":2,"gpu_name":"RTX 4090","gpu_ram":24564,"gpu_arch":"nvidia","compute_cap":890,"cpu_ram":257000,"cpu_cores_effective":32,"duration":900000}`),
		"a100-40": offer(`{"id":3,"dph_total":1,"num_gpus":1,"gpu_name":"A100 PCIE","gpu_ram":40960,"gpu_arch":"nvidia","compute_cap":800,"cpu_ram":257000,"cpu_cores_effective":32,"duration":900000}`),
		"h100":    offer(`{"id":4,"dph_total":1,"num_gpus":1,"gpu_name":"H100 SXM","gpu_ram":81559,"gpu_arch":"nvidia","compute_cap":900,"cpu_ram":257000,"cpu_cores_effective":32,"duration":900000}`),
		"mi300x":  offer(`{"id":5,"dph_total":1,"num_gpus":1,"gpu_name":"MI300X","gpu_ram":196608,"gpu_arch":"amd","cpu_ram":257000,"cpu_cores_effective":32,"duration":900000}`),
	}
	order := []string{"4090", "2x4090", "a100-40", "h100", "mi300x"}
	for spec, want := range map[string]string{
		"cuda()":                          "4090 a100-40 h100",
		"cuda(mem=24G)":                   "4090 a100-40 h100",
		"cuda(mem=24G) * 2":               "2x4090",
		"cuda(mem=40G)":                   "h100 a100-40",
		"cuda(model=a100)":                "a100-40",
		"cuda(model=rtx4090)":             "4090",
		"cuda(model=h100)":                "h100",
		"rocm()":                          "mi300x",
		"cuda(mem=80G)":                   "h100",
		"cuda(mem=24G) & cpu(mem=100G)":   "a100-40 h100",
		"cuda(mem=24G) & duration=2d":     "a100-40 h100",
		"cuda(mem=20G) & cpu(cores=24)":   "a100-40 h100",
		"cuda(model=rtx4090) * 2":         "2x4090",
		"gpu(mem=100G) & duration=1d":     "mi300x",
		"cuda(mem=79G) & cpu(mem=200G)":   "h100",
		"cuda(mem=14G) * 2 & duration=1h": "2x4090",
	} {
		filters, err := Filters(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		var got []string
		for _, name := range order {
			if !slices.ContainsFunc(filters, func(c vastai.Condition) bool { return !c.Holds(offers[name]) }) {
				got = append(got, name)
			}
		}
		have := map[string]bool{}
		for _, name := range strings.Fields(want) {
			have[name] = true
		}
		if len(got) != len(have) {
			t.Errorf("%s finds %v, want %s", spec, got, want)
		}
		for _, name := range got {
			if !have[name] {
				t.Errorf("%s finds %v, want %s", spec, got, want)
			}
		}
	}
	for spec, want := range map[string]string{
		"cuda(":                             "",
		"cpu(cores=4)":                      "only machines with GPUs",
		"cuda(mem=10G) | cuda(mem=20G)":     "expected one alternative",
		"cuda(model=rtx4909)":               `unknown GPU model "rtx4909"`,
		"cuda(mem=10G) & nodes=2":           "one rented machine",
		"cuda(mem=10G) & partition=gpu":     "use offer_filters",
		"mps()":                             "the market has no such GPUs",
		"cuda(mem=10G) & cuda(mem=24G) * 2": "GPUs of one kind",
	} {
		if _, err := Filters(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
}
