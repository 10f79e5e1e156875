package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// TestLookup holds what names mean: the bounds of the memory in MiB, how many
// models they can be, and who makes them.
func TestLookup(t *testing.T) {
	for _, c := range []struct {
		name        string
		least, most int64
		models      int
		vendor      Vendor
		whole       bool
	}{
		{"a100", 40960, 81920, 5, NVIDIA, true},
		{"NVIDIA A100-SXM4-40GB", 40960, 40960, 1, NVIDIA, true},
		{"nvidia_a100_80gb_pcie", 81920, 81920, 1, NVIDIA, true},
		{"nvidia_a100-sxm4-80gb", 81920, 81920, 1, NVIDIA, true},
		{"A100-40G", 40960, 40960, 2, NVIDIA, true},
		{"a100_40", 40960, 40960, 2, NVIDIA, true},
		{"A100-SXM-80GB", 81920, 81920, 1, NVIDIA, true},
		{"a10080gb", 81920, 81920, 2, NVIDIA, true},
		{"A100 SXM4", 40960, 81920, 2, NVIDIA, true},
		{"A100 PCIE", 40960, 81920, 2, NVIDIA, true},
		{"a10g", 23028, 23028, 1, NVIDIA, true},
		{"a10", 23028, 23028, 1, NVIDIA, true},
		{"gh200_480gb", 97871, 97871, 1, NVIDIA, true},
		{"nvidia_gh200_480gb", 97871, 97871, 1, NVIDIA, true},
		{"nvidia_h100_80gb_hbm3", 81559, 81559, 1, NVIDIA, true},
		{"h100_64gb", 65247, 65247, 1, NVIDIA, true},
		{"a100l", 81920, 81920, 2, NVIDIA, true},
		{"teslav100", 16384, 32768, 6, NVIDIA, true},
		{"h100-47", 47 * 950e6 >> 20, 47 * 950e6 >> 20, 5, NVIDIA, true},
		{"a100-20", 20 * 950e6 >> 20, 20 * 950e6 >> 20, 5, NVIDIA, true},
		{"h100-96", 95830, 95830, 2, NVIDIA, true},
		{"rtx3090-2", 24576, 24576, 1, NVIDIA, false},
		{"H100 SXM", 81559, 81559, 1, NVIDIA, true},
		{"h100", 81559, 95830, 5, NVIDIA, true},
		{"h100_nvl", 95830, 95830, 1, NVIDIA, true},
		{"H200 NVL", 143771, 143771, 1, NVIDIA, true},
		{"h20", 97871, 143771, 2, NVIDIA, true},
		{"h800", 81559, 95830, 3, NVIDIA, true},
		{"l20", 46068, 46068, 1, NVIDIA, true},
		{"gb200", 189471, 189471, 1, NVIDIA, true},
		{"rtx2080", 8192, 8192, 1, NVIDIA, true},
		{"2080ti", 11264, 11264, 1, NVIDIA, true},
		{"RTX_2080_Ti", 11264, 11264, 1, NVIDIA, true},
		{"geforce_rtx_2080_ti", 11264, 11264, 1, NVIDIA, true},
		{"geforce_gtx_1080", 8192, 8192, 1, NVIDIA, true},
		{"3090", 24576, 24576, 1, NVIDIA, true},
		{"rtx_3060", 12288, 12288, 1, NVIDIA, true},
		{"rtx3080", 10240, 12288, 2, NVIDIA, true},
		{"RTX 2060", 6144, 6144, 1, NVIDIA, true},
		{"RTX 4070", 12282, 12282, 1, NVIDIA, true},
		{"RTX 4070S Ti", 16376, 16376, 1, NVIDIA, true},
		{"RTX 5080", 16303, 16303, 1, NVIDIA, true},
		{"rtx_a2000", 6138, 12282, 2, NVIDIA, true},
		{"a4500", 20470, 20470, 1, NVIDIA, true},
		{"rtx_a6000", 49140, 49140, 1, NVIDIA, true},
		{"rtx6000", 23040, 49140, 2, NVIDIA, true},
		{"RTX 6000Ada", 49140, 49140, 1, NVIDIA, true},
		{"quadro_rtx_6000", 23040, 23040, 1, NVIDIA, true},
		{"Q RTX 8000", 46080, 46080, 1, NVIDIA, true},
		{"RTX PRO 6000", 97887, 97887, 3, NVIDIA, true},
		{"RTX PRO 6000 WS", 97887, 97887, 1, NVIDIA, true},
		{"v100", 16384, 32768, 6, NVIDIA, true},
		{"V100S_PCIE", 32768, 32768, 1, NVIDIA, true},
		{"tesla_v100-sxm2-32gb", 32768, 32768, 1, NVIDIA, true},
		{"v100sxm2", 16384, 32768, 2, NVIDIA, true},
		{"t4", 15360, 15360, 1, NVIDIA, true},
		{"k80", 11441, 11441, 1, NVIDIA, true},
		{"titanx", 12288, 12288, 2, NVIDIA, true},
		{"titan_rtx", 24576, 24576, 1, NVIDIA, true},
		{"rtx2080ti_22g", 22e9 >> 20, 22e9 >> 20, 1, NVIDIA, true}, // a card with more memory than any that is sold
		{"rtx_4090_laptop_gpu", 0, 0, 0, "", false},
		{"1g.10gb", 9728, 9728, 0, "", true},
		{"a100_1g.5gb", 4864, 4864, 5, NVIDIA, true},
		{"nvidia_a100_80gb_pcie_3g.40gb", 40192, 40192, 1, NVIDIA, true},
		{"mi250x", 65520, 65520, 1, AMD, true},
		{"amd_instinct_mi300a", 131072, 131072, 1, AMD, true},
		{"MI300X", 196592, 196592, 1, AMD, true},
		{"mi50", 16368, 32752, 2, AMD, true},
		{"max1550", 65536, 65536, 1, Intel, true},
		{"tesla", 0, 0, 0, "", false},
		{"gpu", 0, 0, 0, "", false},
		{"", 0, 0, 0, "", false},
		{"big", 0, 0, 0, "", false},
		{"a1234", 0, 0, 0, "", false},
		{"h100_rack7", 81559, 95830, 5, NVIDIA, false},
	} {
		m := Builtin().Lookup(c.name)
		if m.Least>>20 != c.least || m.Most>>20 != c.most || len(m.Models) != c.models || m.Vendor() != c.vendor || m.Whole != c.whole {
			t.Errorf("Lookup(%q): %d to %d MiB, %d models of %q, whole %v; want %v\n%v", c.name, m.Least>>20, m.Most>>20, len(m.Models), m.Vendor(), m.Whole, c, m.Models)
		}
	}
}

// TestEveryName holds that each name of the catalogue means its model, in each of
// the ways in which drivers and Slurm write it.
func TestEveryName(t *testing.T) {
	if _, err := parseTable(builtin); err != nil {
		t.Fatal(err)
	}
	c := Builtin()
	if n := len(c.Models()); n < 240 {
		t.Errorf("%d models", n)
	}
	for _, m := range c.Models() {
		lower := strings.ToLower(m.Name)
		for _, name := range []string{m.Name, lower, strings.ReplaceAll(lower, " ", "_"), strings.TrimPrefix(m.Name, "NVIDIA "), strings.TrimPrefix(m.Name, "AMD ")} {
			found := c.Lookup(name)
			short := strings.HasPrefix(m.Name, "NVIDIA ") && !strings.HasPrefix(name, "N") && !strings.HasPrefix(name, "n")
			one := slices.IndexFunc(found.Models, func(x Model) bool { return x.Name == m.Name })
			if one < 0 || len(found.Models) != 1 && !short || found.Least > m.Memory || found.Most < m.Memory || !found.Whole {
				t.Errorf("Lookup(%q) = %+v", name, found)
			}
		}
		for _, a := range m.Aliases {
			if found := c.Lookup(a); !slices.ContainsFunc(found.Models, func(x Model) bool { return x.Name == m.Name }) {
				t.Errorf("Lookup(%q) is not %s: %+v", a, m.Name, found)
			}
		}
		if m.Memory < 1<<30 || m.Year < 2012 || m.Year > 2026 || (m.Vendor == NVIDIA) != (m.CC >= 30) {
			t.Errorf("%+v", m)
		}
	}
}

// TestPublishedFigures holds a sample to the sources that the package names: MiB of
// memory and tenths of the compute capability.
func TestPublishedFigures(t *testing.T) {
	c := Builtin()
	for name, want := range map[string][2]int64{
		"NVIDIA H200": {143771, 90}, "NVIDIA H100 80GB HBM3": {81559, 90}, "NVIDIA A100-SXM4-80GB": {81920, 80}, "NVIDIA A100-SXM4-40GB": {40960, 80},
		"NVIDIA A10": {23028, 86}, "NVIDIA L40S": {46068, 89}, "NVIDIA L4": {23034, 89}, "Tesla T4": {15360, 75},
		"NVIDIA GeForce RTX 5090": {32607, 120}, "NVIDIA GeForce RTX 3090": {24576, 86},
	} {
		i := slices.IndexFunc(c.Models(), func(m Model) bool { return m.Name == name })
		if i < 0 || c.Models()[i].Memory != want[0]<<20 || int64(c.Models()[i].CC) != want[1] {
			t.Errorf("%s: want %v", name, want)
		}
	}
	// VRAM in GiB as AMD lists it; the driver keeps a few MiB.
	for name, gib := range map[string]int64{"MI355X": 288, "MI350X": 288, "MI325X": 256, "MI300X": 192, "MI300A": 128, "MI250X": 64, "MI210": 64, "MI100": 32} {
		i := slices.IndexFunc(c.Models(), func(m Model) bool { return strings.HasSuffix(m.Name, " "+name) })
		if i < 0 || c.Models()[i].Memory > gib<<30 || c.Models()[i].Memory < gib<<30-64<<20 {
			t.Errorf("%s: want about %d GiB", name, gib)
		}
	}
	for name, cc := range map[string]Capability{
		"GB10": 121, "GB300": 103, "B200": 100, "GH200 480GB": 90, "A40": 86, "A30": 80, "RTX A6000": 86, "RTX 6000 Ada Generation": 89, "Tesla V100-PCIE-16GB": 70,
		"Tesla P100-PCIE-16GB": 60, "Tesla P40": 61, "Tesla M60": 52, "Tesla K80": 37, "Tesla K40m": 35, "Quadro RTX 8000": 75,
	} {
		i := slices.IndexFunc(c.Models(), func(m Model) bool { return strings.TrimPrefix(m.Name, "NVIDIA ") == name })
		if i < 0 || c.Models()[i].CC != cc {
			t.Errorf("%s: want compute capability %v", name, cc)
		}
	}
}

func TestIs(t *testing.T) {
	for _, c := range []struct {
		name, model string
		want        Answer
	}{
		{"a100", "a100", Yes}, {"nvidia_a100-sxm4-40gb", "a100", Yes}, {"a100", "a100-sxm4-80gb", Unknown}, {"a100", "h100", No}, {"a10", "a100", No},
		{"V100S_PCIE", "v100s", Yes}, {"rtx2080ti", "2080ti", Yes}, {"tesla", "a100", Unknown}, {"big", "big", Yes}, {"big", "small", No},
		{"a100", "small", No}, {"big", "a100", Unknown}, {"a100_1g.5gb", "a100", Yes}, {"1g.5gb", "1g.5gb", Yes}, {"rtx6000", "rtx6000ada", Unknown},
		{"h100", "1g.10gb", No}, {"", "a100", Unknown}, {"", "big", Unknown}, {"V100S_PCIE", "tesla", Yes}, {"titanx", "geforce", Unknown}, {"1g.10gb", "a100", Unknown},
		{"a100fat", "a100", Yes}, {"a100fat", "a100fat", Yes}, {"a100", "a100fat", No}, {"a100fat", "a100-80gb", Unknown}, {"", "a100fat", Unknown}, {"h100", "h100_rack7", No},
		{"a100_1g.5gb", "1g.5gb", Yes}, {"a100_1g.5gb", "2g.10gb", No},
	} {
		if got := Builtin().Is(c.name, c.model); got != c.want {
			t.Errorf("Is(%q, %q) = %v; want %v", c.name, c.model, got, c.want)
		}
	}
}

// TestFeatures holds what the features of a node tell of its GPUs.
func TestFeatures(t *testing.T) {
	for features, want := range map[string]string{
		"v100": "v100", "skylake,GPU_GEN:VLT,GPU_SKU:V100S_PCIE,IB:EDR": "Tesla V100S-PCIE-32GB", "2080ti,rack7": "NVIDIA GeForce RTX 2080 Ti",
		"gpu_a100,ib": "a100", "a100,nvidia_a100_80gb_pcie": "NVIDIA A100 80GB PCIe", "a100,h100": "", "ib,rack7,amd": "", "": "", "gpu:t4": "Tesla T4", "a100-rack3": "",
	} {
		if got := Builtin().Features(strings.Split(features, ",")).Label(); got != want {
			t.Errorf("Features(%s) = %q; want %q", features, got, want)
		}
	}
	a100 := Builtin().Lookup("a100")
	if m := a100.OfSize(80e9); m.Least != 81920<<20 || len(m.Models) != 2 {
		t.Errorf("a100 of 80 GB: %+v", m)
	}
	if m := a100.OfSize(16e9); len(m.Models) != len(a100.Models) {
		t.Errorf("a100 of 16 GB: %+v", m)
	}
}

// TestNarrow holds how features decide between the candidates of a type.
func TestNarrow(t *testing.T) {
	for _, c := range []struct {
		kind, features string
		mib            int64 // 0: not decided
	}{
		{"a100", "gpu80", 81920}, {"a100", "vram80", 81920}, {"a100", "80gb", 81920}, {"a100", "a100-80g", 81920}, {"a100", "GPU_MEM:80GB", 81920},
		{"a100", "A100_SXM4_80GB", 81920}, {"a100", "A100-40G", 40960}, {"a100", "40gb,nvlink", 40960}, {"a100", "gpu_memory_80g", 81920}, {"a100", "GPU_MEM:80", 81920},
		{"a100", "a100-80gb", 81920}, {"a100", "a100-sxm4-80gb", 81920}, {"a100", "A100_80GB_PCIe", 81920}, {"a100", "gpu-80gb", 81920}, {"a100", "gpuram80gb", 81920},
		{"a100", "GPUM80G", 81920}, {"a100", "p4d.24xlarge", 40960}, {"a100", "p4de.24xlarge", 81920}, {"a100", "Standard_ND96amsr_A100_v4", 81920},
		{"", "p4d.24xlarge", 40960}, {"", "g6.xlarge,dynamic", 23034}, {"", "p3.2xlarge", 16384}, {"", "p3dn.24xlarge", 32768}, {"", "a2-ultragpu-8g", 81920},
		{"v100", "gpu32", 32768}, {"v100", "v100-16g", 16384}, {"v100", "nvidia,cuda,vram32", 32768}, {"h100", "80gb", 81559}, {"h100", "h100_nvl", 95830}, {"h100", "vram94", 95830},
		{"a100", "mem80gb", 0}, {"a100", "rack80", 0}, {"a100", "GPU4", 0}, {"a100", "16gb", 0}, {"a100", "h100", 0}, {"a100", "ib,amd,80", 0}, {"a100", "40gb,80gb", 0}, {"a100", "80gb,gpu80", 81920},
		{"a100", "sxm4-80gb", 81920}, {"a100", "hbm2e_80gb", 81920}, {"a100", "gpu_80g_ib", 81920}, {"a100", "ampere80", 81920}, {"a100", "gpu_mem_81920", 81920},
		{"a100", "gpumem81920mb", 81920}, {"a100", "gpumodel:a100_80g", 81920}, {"ampere", "A100x80", 81920}, {"", "gputype_v100,gpu32", 32768},
		{"v100", "gpu16", 0}, {"rtx3080", "cuda12", 0}, {"rtx3080", "cuda_12", 0}, {"", "hopper", 0}, {"", "gpu_node_64g", 0}, {"a100", "sm_80", 0},
	} {
		e := Builtin().Narrow(Builtin().Lookup(c.kind), strings.Split(c.features, ","), nil)
		if got := e.Least >> 20; e.Least == e.Most && got != c.mib || e.Least != e.Most && c.mib != 0 {
			t.Errorf("%q with %s: %d to %d MiB, want %d", c.kind, c.features, e.Least>>20, e.Most>>20, c.mib)
		}
	}
	if e := Builtin().Narrow(Match{}, []string{"GPU_CC:8.0", "GPU_GEN:AMP", "GPU_SKU:A100_SXM4", "GPU_MEM:80GB"}, nil); !slices.Equal(e.By, []string{"GPU_SKU:A100_SXM4", "GPU_MEM:80GB"}) {
		t.Errorf("by %q", e.By)
	}
	if e := Builtin().Narrow(Builtin().Lookup("a100"), []string{"h100"}, nil); len(e.Contradicts) != 1 {
		t.Errorf("%+v", e)
	}
	for f, want := range map[string]bool{"sxm5-80gb": true, "gpu_mem_81920": true, "mem81920": false, "cuda80": false, "gpuram48gb": true, "GPU_MEM:80GB": true, "vram24": true, "gpu80": false, "80gb": false, "GPUM24G": true, "GPU2": false, "RTX2080": false, "cpu80": false} {
		if _, sure := Builtin().FeatureSize(f); sure != want {
			t.Errorf("FeatureSize(%s): sure %v", f, sure)
		}
	}
}

// TestPlaces holds what the names of partitions decide.
func TestPlaces(t *testing.T) {
	for _, c := range []struct{ kind, features, places, want string }{
		{"", "", "gpu_mi300", "mi300"}, {"", "", "accelerated-h100", "h100"}, {"", "", "gpu-a100-80gb,all", "a100"}, {"", "", "gpuA40x4", "NVIDIA A40"}, {"", "", "a100_normal_q", "a100"},
		{"", "", "dev_gpu_4_v100s", "Tesla V100S-PCIE-32GB"}, {"", "", "gpu_t4_long", "Tesla T4"}, {"", "ib", "kit-rtx-a5000", "NVIDIA RTX A5000"}, {"", "", "gpu_ampere", "ampere"},
		{"", "", "project-a2", ""}, {"", "", "ampere", "ampere"}, {"", "", "turing", ""}, {"", "", "ampere-cpus", ""}, {"", "", "room-1080", ""}, {"", "", "ica100", "a100"},
		{"", "", "eth100", ""}, {"", "", "area100", ""}, {"", "", "north200", ""}, {"", "", "r2a100", ""}, {"", "", "t4_dev_q", "Tesla T4"}, {"", "", "a100_normal_q,t4_normal_q", ""},
		{"", "", "l4-project", ""}, {"", "sxm4-80gb", "accelerated-h100", "ampere"}, {"", "sxm4-80gb", "accelerated-a100", "NVIDIA A100-SXM4-80GB"}, {"", "", "gpu-a100,h100", ""}, {"", "", "gpu_mig", "mig"}, {"", "", "h100-mig", "h100"}, {"big", "", "h100-mig", "h100"},
		{"", "v100s", "a100", "Tesla V100S-PCIE-32GB"}, {"a100", "", "a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB"}, {"a100", "", "h100", "a100"}, {"a100", "", "a100_pcie_40gb,a100_80gb", "a100"},
		{"big", "", "gpu-l40s-low", "NVIDIA L40S"},
	} {
		e := Builtin().Narrow(Builtin().Lookup(c.kind), strings.Split(c.features, ","), strings.Split(c.places, ","))
		if e.Label() != c.want || len(e.Contradicts) > 0 && c.kind != "" {
			t.Errorf("%q with %s in %s: %q, want %q", c.kind, c.features, c.places, e.Label(), c.want)
		}
	}
	for features, place := range map[string]string{
		"sxm4-80gb": "accelerated-h100", "vram80": "v100", "GPU_MEM:24GB": "gpu_a100", "rocm": "h100", "v100": "a100", "gaudi3": "ampere",
	} {
		e := Builtin().Narrow(Match{}, []string{features}, []string{place})
		if len(e.Contradicts) != 1 || e.Contradicts[0] != place || slices.Contains(e.By, place) || e.In(Builtin().Lookup(place)) == Yes {
			t.Errorf("%s in %s: %+v", features, place, e)
		}
	}
	for features, want := range map[string]Vendor{"gfx1151,amd": AMD, "rocm": AMD, "amd": "", "intel,avx": "", "gpu_amd": AMD, "max": "", "gaudi3": Habana} {
		if e := Builtin().Narrow(Match{}, strings.Split(features, ","), nil); e.Vendor() != want {
			t.Errorf("%s: %q", features, e.Vendor())
		}
	}
}

func TestCapability(t *testing.T) {
	least, most := Builtin().Lookup("titanx").Capability()
	if least != 52 || most != 61 || most.String() != "6.1" {
		t.Errorf("%v to %v", least, most)
	}
	for s, want := range map[string]Capability{"8.0": 80, "8": 80, "12.1": 121, "x": 0, "8.10": 0, "": 0, "-1": 0} {
		if got, err := ParseCapability(s); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

// TestFile holds that a user's file corrects and extends the catalogue.
func TestFile(t *testing.T) {
	c, err := Builtin().With("gpus.yaml", []byte(`
- name: NVIDIA L4
  memory_mib: 22000
- name: Acme Cruncher 9
  aliases: [cruncher, a100]
  memory_mib: 10000
  cc: 9.0
  vendor: intel
  year: 2027
`))
	if err != nil {
		t.Fatal(err)
	}
	if m := c.Lookup("l4"); m.Least != 22000<<20 || m.Models[0].CC != 89 {
		t.Errorf("corrected: %+v", m)
	}
	for _, name := range []string{"cruncher", "acme_cruncher_9", "a100"} {
		if m := c.Lookup(name); len(m.Models) != 1 || m.Most != 10000<<20 || m.Vendor() != Intel {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := Builtin().Lookup("l4"); m.Least != 23034<<20 {
		t.Errorf("the built-in catalogue has changed: %+v", m)
	}
	for text, want := range map[string]string{
		"- nam: x":                               `line 1: unknown field "nam"`,
		"- aliases: [x]":                         "GPU 1 has no name",
		"- {name: X1, cc: eight}":                "invalid compute capability",
		"- {name: X1, vendor: acme}":             `invalid vendor "acme"`,
		"- {name: X1, memory_mib: -1}":           "invalid memory_mib -1",
		"- {name: X1, memory_mib: lots}":         "line 1: `lots` is not a whole number",
		"a: b":                                   "line 1: map is not a list",
		"- {name: X1, memory_mib: 99999999999 }": "invalid memory_mib",
	} {
		if _, err := Builtin().With("gpus.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "gpus.yaml: ") || !fault.Is(err, fault.Usage) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"XDG_CONFIG_HOME": dir}
	load := func() *Catalogue {
		t.Helper()
		c, err := Load(func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "ponos", FileName), "- {name: NVIDIA L4, memory_mib: 1000}")
	if m := load().Lookup("l4"); m.Least != 1000<<20 {
		t.Errorf("%+v", m)
	}
	env["PONOS_GPUS"] = filepath.Join(dir, "other.yaml")
	if _, err := Load(func(name string) string { return env[name] }); !fault.Is(err, fault.Usage) {
		t.Errorf("a file that is named and missing: %v", err)
	}
	write(env["PONOS_GPUS"], "")
	if m := load().Lookup("l4"); m.Least != 23034<<20 {
		t.Errorf("an empty file: %+v", m)
	}
}

func FuzzLookup(f *testing.F) {
	for _, s := range []string{"a100", "nvidia_a100_80gb_pcie_3g.40gb", "1g.5gb", "GPU_SKU:V100S_PCIE", "a10080gb", "1g.", "9g.99999gb", "\x00é", "gpuA100x80", "mig1g10", "gpu_mem_81920", "8xh100nvl"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		m := Builtin().Lookup(name)
		if m.Least > m.Most || m.Least < 0 {
			t.Errorf("Lookup(%q) = %+v", name, m)
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	c := Builtin()
	for b.Loop() {
		c.Lookup("nvidia_a100_80gb_pcie_3g.40gb")
	}
}

func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		models, _ := parseTable(builtin)
		newCatalogue(models)
	}
}
