package slurm

import (
	"slices"
	"strconv"
	"strings"
)

// elements is the parsed form of an id that squeue or sacct prints: 12; 12_3 or 12_[0-2,5%4] of
// an array; 12+1 of a heterogeneous job.
type elements struct {
	id      uint64 // of the job or of the array
	array   uint64 // 0: not an array
	indices string // of ARRAY_[INDICES], without %LIMIT; "" if truncated
}

func parseElements(text string) (e elements, ok bool) {
	number, indices, isArray := strings.Cut(text, "_")
	if !isArray {
		number, _, _ = strings.Cut(number, "+")
	}
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return e, false
	}
	e.id = id
	if !isArray {
		return e, true
	}
	if list, isList := strings.CutPrefix(indices, "["); isList {
		if indices, isList = strings.CutSuffix(list, "]"); !isList {
			indices = ""
		}
	}
	e.array = id
	e.indices, _, _ = strings.Cut(indices, "%")
	return e, true
}

// maxElements limits the number of elements of an array that are expanded.
const maxElements = 100000

// Indices expands array task ids such as 0-2,5 or 1-7:3. It returns false if it cannot parse
// them, for example because Slurm has shortened a long list with "...".
func Indices(text string) (indices []int, ok bool) {
	text, _, _ = strings.Cut(text, "%")
	for part := range strings.SplitSeq(text, ",") {
		part, stepText, hasStep := strings.Cut(part, ":")
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(low)
		last, step := first, 1
		if err == nil && isRange {
			last, err = strconv.Atoi(high)
		}
		if err == nil && hasStep {
			step, err = strconv.Atoi(stepText)
		}
		if err != nil || first < 0 || last < first || step < 1 || len(indices)+(last-first)/step >= maxElements {
			return nil, false
		}
		for i := first; i <= last; i += step {
			indices = append(indices, i)
		}
	}
	return indices, true
}

// Element returns the id of an element of an array.
func Element(array string, index int) string { return array + "_" + strconv.Itoa(index) }

// Elements returns the ids of the jobs that an id from sacct stands for: the id itself, or each
// element of a list such as 12_[0-3]. A list that cannot be parsed has none.
func Elements(id string) []string {
	array, list, isArray := strings.Cut(id, "_[")
	if !isArray {
		return []string{id}
	}
	indices, _ := Indices(strings.TrimSuffix(list, "]"))
	ids := make([]string, len(indices))
	for i, index := range indices {
		ids[i] = Element(array, index)
	}
	return ids
}

// arraysOf returns the ids to request from sacct. Elements of an array are replaced by the
// array, as sacct finds elements that never started only by its id.
func arraysOf(ids []string) []string {
	asked := make([]string, 0, len(ids))
	seen := map[string]bool{}
	for _, id := range ids {
		array, _, isElement := strings.Cut(id, "_")
		if isElement && seen[array] {
			continue
		}
		if isElement {
			seen[array] = true
		}
		asked = append(asked, array)
	}
	return slices.Clip(asked)
}
