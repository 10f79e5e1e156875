package gpu

import (
	"strconv"
	"strings"
	"testing"
)

// types are names of GPUs as sites give them to Slurm, with the gigabytes with which they are sold; several: any of these.
const types = `
a100 40 80
a100-40 40
a100-80 80
a100_40gb 40
a100_80gb 80
a100-sxm4-80gb 80
a100-pcie-40gb 40
a100l 80
nvidia_a100_80gb_pcie 80
nvidia_a100-sxm4-40gb 40
a10 24
a10g 24
a16 16
a2 16
a30 24
a40 48
nvidia_a40 48
a4000 16
a4500 20
a5000 24
a5500 24
a6000 48
rtx_a6000 48
rtxa5000 24
rtx_6000_ada 48
ada6000 48
rtx6000ada 48
rtx_4090 24
rtx4090 24
4090 24
rtx_3090 24
3090ti 24
rtx3080 10 12
rtx_3070 8
rtx2080ti 11
2080ti 11
geforce_rtx_2080_ti 11
gtx_1080_ti 11
gtx1080ti 11
gtx1080 8
titanrtx 24
titan_rtx 24
titanxp 12
titanv 12
rtx8000 48
quadro_rtx_8000 48
rtx5000 16 32
v100 16 32
v100s 32
v100-sxm2-32gb 32
tesla_v100-pcie-16gb 16
teslav100 16 32
p100 12 16
tesla_p100-pcie-16gb 16
p40 24
p4 8
t4 16
tesla_t4 16
k80 12
k40m 12
m40 12 24
l4 24
l40 48
l40s 48
nvidia_l40s 48
h100 80 94 96
h100-96 96
h100_pcie 80
nvidia_h100_80gb_hbm3 80
h100nvl 94
h200 141
nvidia_h200 141
b200 180 192
gh200 96 144
mi100 32
mi210 64
mi250 64
mi250x 64
mi300a 128
mi300x 192
pvc 64 128
A100x80 80
a100x4 40 80
a100sxm480gb 80
a100-sxm-80 80
h100-nvl-94 94
h100pcie80gb 80
v100nvlink 16 32
nvidia_rtx_pro_6000_blackwell_server_edition 96
rtx_ada_6000 48
lovelace_l40 48
ampere80 80
ampere_80gb 80
gpuA40x4 48
l40s-48 48
a30_24 24
gb200nvl72 200
4xh100 80 94
4a100 40 80
8h200 141
4rtx3090 24
a100m80 80
a100m40 40
gpua100m80 80
a100d 80
gfx908 32
gfx90a 64
mi200 64
mi300 128 192
instinct_mi210 64
dataCenterGpuMax1550 64
`

// Slices, which are no whole GPUs, and GPUs of which the maker alone is known.
func TestOtherTypes(t *testing.T) {
	for name, want := range map[string]string{
		"a100mig": "mig", "a100.mig": "mig", "mig7": "mig", "a100_mig1g10": "1g.10gb", "h100_mig_1g.10gb": "1g.10gb", "h100_1.47": "47gb", "a30-1g6gb": "1g.6gb",
		"a100-40c": "40c", "grid_a100d-80c": "80c", "nvidia_a40-48q": "48q", "GRID T4-16Q": "16q", "a100-3-20c": "20c", "gpu_8c": "8c",
	} {
		if m := Builtin().Lookup(name); m.Slice != want || !m.Whole && name != "h100_1.47" {
			t.Errorf("%s: %+v", name, m)
		}
	}
	for name, want := range map[string]Vendor{
		"amd": AMD, "gfx1151": AMD, "mi455x": AMD, "radeon": AMD, "vega10": AMD, "intel": Intel, "max": Intel, "xpu": Intel, "gaudi2": Habana, "hpu": Habana, "gfx90a": AMD,
		"rtx": "", "gpu": "", "2060sm": "", "l4v100": "", "h100s": "", "tesla": "", "big": "", "cuda12": "", "migrated": "", "2a10": "", "4t4": "", "rack_8c": "", "c20": "",
	} {
		if m := Builtin().Lookup(name); m.Vendor() != want {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// Every name is known, and with its size.
func TestTypes(t *testing.T) {
	for line := range strings.Lines(strings.TrimSpace(types)) {
		f := strings.Fields(line)
		m := Builtin().Lookup(f[0])
		fits := len(m.Models) > 0 && m.Slice == ""
		for _, x := range m.Models {
			one := x.Rare
			for _, word := range f[1:] {
				n, err := strconv.ParseInt(word, 10, 64)
				one = one || err == nil && float64(x.Memory) > float64(n)*0.93e9 && float64(x.Memory) < float64(n)*1.08e9
			}
			fits = fits && one
		}
		if !fits {
			t.Errorf("%s: %+v", strings.TrimSpace(line), m)
		}
	}
}
