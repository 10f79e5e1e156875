package unit

import (
	"fmt"
	"strconv"
	"strings"
)

// Risk reads a risk such as 5% or 0.05: more than 0, and at most a half.
func Risk(s string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0.001 && f <= 0.5) {
		return 0, fmt.Errorf("invalid risk %q: it is from 0.1%% to 50%%, such as 5%%", s)
	}
	return f, nil
}
