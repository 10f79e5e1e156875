// Package nearest finds the name that a misspelt word most likely means. It
// stands on nothing of ours, so that every reader of outside text can suggest.
package nearest

import "strings"

// Name returns the candidate that word most likely means, or "" if none is near:
// one letter, or a third of them, may be wrong, left out, added or swapped. Of
// several that are equally near, one of the same length wins, then the first in
// the alphabet.
func Name(word string, candidates []string) string {
	best, bound := "", max(1, len(word)/3)
	for _, c := range candidates {
		gap := max(len(c)-len(word), len(word)-len(c))
		if gap > bound {
			continue
		}
		d := distance(strings.ToLower(word), strings.ToLower(c))
		if d >= len(word) || d > bound || d == bound && best != "" && !before(c, best, len(word)) {
			continue
		}
		best, bound = c, d
	}
	return best
}

// before orders equally near candidates.
func before(a, b string, length int) bool {
	if sameA, sameB := len(a) == length, len(b) == length; sameA != sameB {
		return sameA
	}
	return a < b
}

// distance is the Damerau-Levenshtein distance (optimal string alignment) of two
// strings, in bytes.
func distance(a, b string) int {
	older, previous, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
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
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, previous, row = previous, row, older
	}
	return previous[len(b)]
}
