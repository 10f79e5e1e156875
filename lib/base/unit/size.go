package unit

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// ErrNoUnit reports a number that stands alone where it may not.
var ErrNoUnit = errors.New("missing unit")

// SizeUnits are the units a size may have, as messages list them.
const SizeUnits = "K, M, G, T, KiB, MiB, GiB or TiB"

var decimal = map[string]int64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}

// SizeUnit returns the bytes of one unit; upper and lower case are the same. The
// empty unit is one byte.
func SizeUnit(unit string) (int64, bool) {
	u := strings.ToLower(unit)
	if n, ok := sizeWords[u]; ok {
		return n, true
	}
	if u == "b" {
		return 1, true
	}
	if prefix, binary := strings.CutSuffix(strings.TrimSuffix(u, "b"), "i"); binary && prefix != "" {
		if power := strings.Index("kmgtp", prefix); power >= 0 && len(prefix) == 1 {
			return 1 << (10 * (power + 1)), true
		}
		return 0, false
	}
	n, ok := decimal[strings.TrimSuffix(u, "b")]
	return n, ok
}

// sizeWords are the units in full, singular and plural.
var sizeWords = func() map[string]int64 {
	words := map[string]int64{"byte": 1, "bytes": 1}
	for i, name := range []string{"kilo", "mega", "giga", "tera", "peta"} {
		words[name+"byte"] = decimal[name[:1]]
		words[name+"bytes"] = decimal[name[:1]]
		words[name[:2]+"bibyte"] = 1 << (10 * (i + 1))
		words[name[:2]+"bibytes"] = 1 << (10 * (i + 1))
	}
	return words
}()

// Size reads "16G", "8116MiB", "1.5 TB". A number alone is a number of bytes.
func Size(s string) (int64, error) {
	number, unit := cut(s)
	if number == "" {
		return 0, fmt.Errorf("invalid size %q: expected a number and %s", s, SizeUnits)
	}
	scale, ok := SizeUnit(unit)
	if !ok {
		return 0, fmt.Errorf("invalid size %q: unknown unit %q: expected %s", s, unit, SizeUnits)
	}
	return Multiply(number, scale)
}

// SizeWithUnit is Size, but a number alone, other than 0, is ErrNoUnit: it is for what
// Slurm has in megabytes.
func SizeWithUnit(s string) (int64, error) {
	n, err := Size(s)
	if err == nil && n > 0 && !HasUnit(s) {
		return 0, fmt.Errorf("invalid size %q: %w: expected %s", s, ErrNoUnit, SizeUnits)
	}
	return n, err
}

// HasUnit reports whether a size that Size can read has a unit.
func HasUnit(s string) bool {
	_, unit := cut(s)
	return unit != ""
}

// cut takes the number at the beginning of s from what follows it.
func cut(s string) (number, rest string) {
	s = strings.TrimSpace(s)
	i := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i < 0 {
		i = len(s)
	}
	return s[:i], strings.TrimSpace(s[i:])
}

// Multiply returns number, digits with perhaps a decimal point, times scale,
// rounded up.
func Multiply(number string, scale int64) (int64, error) {
	if n, err := strconv.ParseInt(number, 10, 64); err == nil && n <= math.MaxInt64/scale {
		return n * scale, nil
	}
	if len(number) > 40 {
		return 0, errors.New("the number is too large")
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok || strings.HasPrefix(number, ".") || strings.HasSuffix(number, ".") {
		return 0, fmt.Errorf("invalid number %q", number)
	}
	r.Mul(r, new(big.Rat).SetInt64(scale))
	n, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() {
		return 0, fmt.Errorf("%s is too large", number)
	}
	return n.Int64(), nil
}

// FormatSize writes a size in the largest unit that is exact, decimal units
// first; Size reads the same number from it.
func FormatSize(n int64) string {
	if n == 0 {
		return "0"
	}
	for _, u := range sizeUnits {
		if n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

type sizeUnit struct {
	name  string
	bytes int64
}

var sizeUnits = []sizeUnit{
	{"T", 1e12}, {"TiB", 1 << 40}, {"G", 1e9}, {"GiB", 1 << 30}, {"M", 1e6}, {"MiB", 1 << 20}, {"K", 1e3}, {"KiB", 1 << 10},
}

// ShortSize writes a size for people: exact where that is short, else rounded to
// one decimal.
func ShortSize(n int64) string {
	exact := FormatSize(n)
	if len(exact) <= 9 {
		return exact
	}
	i := slices.IndexFunc(sizeUnits, func(u sizeUnit) bool { return u.bytes%10 == 0 && n >= u.bytes })
	if i < 0 {
		return exact
	}
	return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(sizeUnits[i].bytes), 'f', 1, 64), ".0") + sizeUnits[i].name
}
