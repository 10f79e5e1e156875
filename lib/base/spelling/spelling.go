// Package spelling finds the name that is nearest to a misspelt one.
package spelling

import "strings"

// Nearest returns the candidate that word most likely means, or "" if none is
// near: at most a third of its letters, and never all of them, are wrong, left out, added or swapped.
func Nearest(word string, candidates []string) string {
	best, bound := "", min(max(1, len(word)/3)+1, len(word))
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < bound {
			best, bound = c, d
		}
	}
	return best
}

// distance is the Damerau-Levenshtein distance (optimal string alignment) of two
// strings, in bytes.
func distance(a, b string) int {
	before, previous, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(previous[j]+1, row[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, previous, row = previous, row, before
	}
	return previous[len(b)]
}
