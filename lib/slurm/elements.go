package slurm

import (
	"slices"
	"strconv"
	"strings"
)

// elements are what an id as squeue and sacct print it stands for: 12, 12_3 and 12_[0-2,5%4]
// of an array, 12+1 of a heterogeneous job.
type elements struct {
	id      uint64 // of the job or of the array
	array   uint64 // 0: the job is not of an array
	indices string // as in ARRAY_[INDICES], without what follows '%'; "" if they are cut off
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

// maxElements limits how many elements of an array are distinguished.
const maxElements = 100000

// Indices are those that the array task ids 0-2,5 or 1-7:3 stand for. It is not ok if they
// cannot be read: Slurm shortens a long list with "...".
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

// Element is the id of an element of an array.
func Element(array string, index int) string { return array + "_" + strconv.Itoa(index) }

// Elements are the ids of the jobs that an id as sacct prints it stands for: itself, but
// for elements that it shows as one. Of a list that cannot be read there are none.
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

// arraysOf are the ids by which sacct is asked for jobs: of elements of an array, that of the
// array, as it has those that never started under no other one.
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
