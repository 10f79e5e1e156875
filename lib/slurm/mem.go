package slurm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseMemory reads an amount of memory as Slurm writes it, in bytes: a number,
// perhaps with decimals, and K, M, G, T or P (powers of 1024). Without a letter it
// is in MiB. A trailing n or c ("per node", "per CPU" in sacct) is left out.
func ParseMemory(s string) (int64, error) {
	bad := fmt.Errorf("%q is no amount of memory of Slurm, such as 4000M or 16G", s)
	number := strings.TrimRight(strings.TrimSpace(s), "nc")
	unit := float64(1 << 20)
	if number != "" {
		switch number[len(number)-1] {
		case 'K', 'k':
			unit = 1 << 10
		case 'M', 'm':
			unit = 1 << 20
		case 'G', 'g':
			unit = 1 << 30
		case 'T', 't':
			unit = 1 << 40
		case 'P', 'p':
			unit = 1 << 50
		default:
			number += "M"
		}
		number = number[:len(number)-1]
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 || math.IsNaN(n) || n*unit >= math.MaxInt64 {
		return 0, bad
	}
	return int64(n * unit), nil
}

// FormatMemory writes bytes for --mem, rounded up to whole MiB, and at least 1M:
// 0 would mean all memory of the node.
func FormatMemory(bytes int64) string {
	const mib = 1 << 20
	n := max(1, (bytes+mib-1)/mib)
	if n%1024 == 0 {
		return strconv.FormatInt(n/1024, 10) + "G"
	}
	return strconv.FormatInt(n, 10) + "M"
}
