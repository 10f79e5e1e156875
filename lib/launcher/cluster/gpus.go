package cluster

import (
	"regexp"
	"strconv"
	"strings"
)

// modelSize finds a size in what Slurm or a feature calls a GPU: a100_80gb,
// nvidia_h100_80gb_hbm3, 1g.10gb, A100-40G.
var modelSize = regexp.MustCompile(`(?i)(?:^|[^0-9])(\d{1,3})gi?b?(?:$|[^a-z0-9.])`)

// sizes are the largest memory, in G, with which a model is sold: what it surely
// does not have more than. A longer name comes before one that it begins with.
var sizes = []struct {
	model string
	most  int64
}{
	{"gtx1080ti", 11}, {"gtx1080", 8}, {"gtx1070", 8}, {"gtx1060", 6}, {"rtx2080ti", 11}, {"rtx2080", 8}, {"rtx2070", 8},
	{"rtx3090", 24}, {"rtx3080", 12}, {"rtx3070", 8}, {"rtx4090", 24}, {"rtx4080", 16}, {"rtx5090", 32}, {"rtx6000", 48}, {"rtx8000", 48},
	{"a4000", 16}, {"a5000", 24}, {"a6000", 48}, {"a100", 80}, {"a10", 24}, {"a16", 16}, {"a30", 24}, {"a40", 48}, {"a2", 16},
	{"b200", 192}, {"b300", 288}, {"gh200", 144}, {"h100", 96}, {"h200", 141}, {"k20", 6}, {"k40", 12}, {"k80", 12},
	{"l40s", 48}, {"l40", 48}, {"l4", 24}, {"m40", 24}, {"m60", 8}, {"p100", 16}, {"p40", 24}, {"p4", 8}, {"t4", 16},
	{"titanxp", 12}, {"titanx", 12}, {"titanrtx", 24}, {"titanv", 12}, {"v100", 32},
	{"mi50", 32}, {"mi100", 32}, {"mi210", 64}, {"mi250x", 128}, {"mi250", 128}, {"mi300a", 128}, {"mi300x", 192}, {"mi325x", 256},
}

// Memory returns what a model's name tells of its memory: exactly, if there is a
// size in the name, or else the most it can have. Both are 0 if it tells nothing.
func Memory(model string) (exact, most int64) {
	if m := modelSize.FindStringSubmatch(model); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil && n > 0 {
			return n * 1e9, 0
		}
	}
	squeezed := squeeze(model)
	for _, prefix := range []string{"", "nvidia", "amd", "tesla", "nvidiatesla", "geforce", "nvidiageforce", "quadro", "nvidiaquadro", "instinct", "amdinstinct", "rtx", "nvidiartx"} {
		rest, ok := strings.CutPrefix(squeezed, prefix)
		if !ok {
			continue
		}
		for _, s := range sizes {
			if after, ok := strings.CutPrefix(rest, s.model); ok && (after == "" || after[0] < '0' || after[0] > '9') {
				return 0, s.most << 30
			}
		}
	}
	return 0, 0
}

// Kind is the kind of a GPU whose type Slurm calls so: rocm for AMD's, else cuda.
func Kind(model string) string {
	s := squeeze(model)
	if strings.HasPrefix(s, "amd") || strings.HasPrefix(s, "instinct") || len(s) > 3 && strings.HasPrefix(s, "mi") && s[2] >= '0' && s[2] <= '9' {
		return "rocm"
	}
	return "cuda"
}

// squeeze leaves the letters and digits of a name, in lower case.
func squeeze(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, s)
}
