package gpu

import (
	"cmp"
	_ "embed"
	"slices"
	"strconv"
	"strings"
)

// Match is what the name of a GPU says about it.
type Match struct {
	// Models are those that the name can mean; none: the catalogue has none.
	Models []Model
	// Maker is who makes the GPUs, if the name tells that but no model of the catalogue.
	Maker Vendor
	// Whole reports that every word of the name was understood.
	Whole bool
	// Slice is the profile of a part of a GPU, such as "1g.10gb", or SomeSlice; "": a whole one.
	Slice string
	// Least and Most are the bounds of the memory of each GPU in bytes; both are 0
	// if it is not known.
	Least, Most int64
}

// SomeSlice is a slice of which the name does not tell the profile, such as "a100.mig"; its memory is not known.
const SomeSlice = "mig"

// OtherSlice reports whether two descriptions cannot be of the same GPUs: a slice and a whole one, or two profiles.
func OtherSlice(a, b string) bool {
	return a != b && (a == "" || b == "" || a != SomeSlice && b != SomeSlice)
}

// Vendor is who makes the GPUs, "" if the name does not tell.
func (m Match) Vendor() Vendor {
	if len(m.Models) == 0 {
		return m.Maker
	}
	return m.Models[0].Vendor
}

// Capability are the bounds of the compute capability; both 0: not known, or the
// GPU has none.
func (m Match) Capability() (least, most Capability) {
	for i, x := range m.Models {
		if i == 0 || x.CC < least {
			least = x.CC
		}
		most = max(most, x.CC)
	}
	return least, most
}

// Lookup finds what a name means: one of a driver ("NVIDIA A100-SXM4-40GB"), of
// gres.conf or AutoDetect ("nvidia_a100_80gb_pcie", "a100", "1g.10gb"), of a
// feature or a person ("V100S_PCIE", "rtx2080ti", "ampere").
func (c *Catalogue) Lookup(name string) Match {
	if isProfile(strings.ToLower(name)) { // of a feature it may be a network
		return Match{Slice: SomeSlice, Whole: true}
	}
	return c.read(name).Match
}

// bounds sets the memory that models have. Rare ones count only where all are rare.
func bounds(m Match) Match {
	m.Least, m.Most = 0, 0
	all := !slices.ContainsFunc(m.Models, func(x Model) bool { return !x.Rare })
	first := true
	for _, x := range m.Models {
		if x.Rare && !all {
			continue
		}
		if first || x.Memory < m.Least {
			m.Least = x.Memory
		}
		first = false
		m.Most = max(m.Most, x.Memory)
	}
	if m.Least == 0 { // of one of them it is not known
		m.Most = 0
	}
	return m
}

// longest finds the longest run of words that is a name, and the words around it.
func (c *Catalogue) longest(w []string) (found []int, key string, left []string) {
	from, to := 0, 0
	for i := range w {
		joined := ""
		for j := i; j < len(w) && j < i+12; j++ {
			joined += w[j]
			if is := c.keys[joined]; is != nil && len(joined) > len(key) {
				key, from, to, found = joined, i, j+1, is
			}
		}
	}
	if found == nil {
		return nil, "", w
	}
	return found, key, append(slices.Clone(w[:from]), w[to:]...)
}

// sxm are the generations of NVIDIA's sockets, of which names often leave out the
// number.
var sxm = []string{"sxm2", "sxm3", "sxm4", "sxm5", "sxm6"}

// having are those of the models that have a word in their name, nil if none or
// each of them.
func (c *Catalogue) having(models []int, word string) []int {
	var all []int
	for _, i := range models {
		if c.words[i][word] || word == "sxm" && slices.ContainsFunc(sxm, func(w string) bool { return c.words[i][w] }) {
			all = append(all, i)
		}
	}
	return all
}

// slicing reports whether a number that stands behind the name of a model is the size of a slice: all variants of the
// model have more memory. A number without a unit may be that of a node; it has to be one of a profile.
func (c *Catalogue) slicing(models []int, bytes int64, unit bool) bool {
	if len(models) == 0 || slices.ContainsFunc(models, func(i int) bool {
		return c.models[i].Vendor != NVIDIA || c.models[i].Memory <= bytes/100*110
	}) {
		return false
	}
	if unit {
		return true
	}
	suffix := "." + strconv.FormatInt(bytes/1e9, 10) + "gb"
	for profile := range sliceMemory {
		if strings.HasSuffix(profile, suffix) && c.models[models[0]].CC >= 80 {
			return true
		}
	}
	return false
}

// ofSize are those of the models that are sold as having so many bytes.
func (c *Catalogue) ofSize(models []int, bytes int64) []int {
	var all []int
	for _, i := range models {
		if c.models[i].SoldAs(bytes) {
			all = append(all, i)
		}
	}
	return all
}

// slices of GPUs (MIG) with the memory that a job has in MiB.
var sliceMemory = map[string]int64{
	"1g.5gb": 4864, "2g.10gb": 9984, "3g.20gb": 19968, "4g.20gb": 19968, "7g.40gb": 40192, // A100 40 GB
	"1g.10gb": 9728, "1g.20gb": 19968, "2g.20gb": 19968, "3g.40gb": 40192, "4g.40gb": 40192, "7g.80gb": 80384, // A100, H100 80 GB
	"1g.6gb": 5952, "2g.12gb": 11968, "4g.24gb": 24000, // A30
	"1g.12gb": 11008, "1g.24gb": 22784, "2g.24gb": 22784, "3g.47gb": 47360, "4g.47gb": 47360, "7g.94gb": 95104, // H100 94 GB
	"3g.48gb": 47616, "4g.48gb": 47616, "7g.96gb": 96128, // H100, GH200 96 GB
	"1g.18gb": 16384, "1g.35gb": 33280, "2g.35gb": 33280, "3g.71gb": 71168, "4g.71gb": 71168, "7g.141gb": 142848, // H200
	"1g.23gb": 22144, "1g.45gb": 45056, "2g.45gb": 45056, "3g.90gb": 90624, "4g.90gb": 90624, "7g.180gb": 182272, // B200
}

// cutSlice takes the profile of a slice out of a name: "a100_3g.20gb" is
// "3g.20gb" of an a100, and so are "3g-20gb", "3g20gb" and "3g20". The memory is in bytes;
// of a profile that is not in the table it is 5 % less than its name says.
func cutSlice(name string) (rest, slice string, memory int64) {
	lower := strings.ToLower(name)
	for i := 1; i+2 < len(lower); i++ {
		if lower[i] != 'g' || lower[i-1] < '1' || lower[i-1] > '7' ||
			i > 1 && isAlnum(lower[i-2]) && !strings.HasSuffix(lower[:i-1], SomeSlice) {
			continue
		}
		start := i + 1
		if strings.IndexByte("._-", lower[start]) >= 0 {
			start++
		}
		end := start
		for end < len(lower) && lower[end] >= '0' && lower[end] <= '9' {
			end++
		}
		n, err := strconv.ParseInt(lower[start:end], 10, 16)
		if err != nil || n <= 0 {
			continue
		}
		slice = lower[i-1:i+1] + "." + lower[start:end] + "gb"
		mib := sliceMemory[slice]
		after, unit := strings.CutPrefix(lower[end:], "gb")
		if !unit && (mib == 0 || after != "" && isAlnum(after[0])) {
			continue
		}
		if memory = n * 950e6; mib > 0 {
			memory = mib << 20
		}
		return lower[:i-1] + "_" + after, slice, memory
	}
	return name, "", 0
}

// IsSlice reports whether a name has the profile of a slice, such as 1g.10gb.
func IsSlice(name string) bool {
	_, slice, _ := cutSlice(name)
	return slice != ""
}

func isAlnum(b byte) bool { return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' }

// OfSize is what is left of the models if each GPU is sold as having so many bytes:
// "GPU_MEM:80GB" of an a100. The same match comes back if none has that much.
func (m Match) OfSize(bytes int64) Match {
	if bytes == 0 {
		return m
	}
	var some []Model
	for _, x := range m.Models {
		if x.SoldAs(bytes) {
			some = append(some, x)
		}
	}
	if some == nil || m.Slice != "" {
		return m
	}
	return bounds(Match{Models: some, Whole: m.Whole})
}

// Both is what is left of the models of two descriptions of the same GPUs; none if
// they contradict each other.
func (m Match) Both(other Match) Match {
	var some []Model
	for _, x := range m.Models {
		if slices.ContainsFunc(other.Models, func(y Model) bool { return x.Name == y.Name }) {
			some = append(some, x)
		}
	}
	return bounds(Match{Models: some, Whole: m.Whole && other.Whole})
}

// SoldAs reports whether a model is sold as having so many bytes; what a job has is
// a few per cent more or less.
func (m *Model) SoldAs(bytes int64) bool {
	sold := float64(m.Memory) / float64(bytes)
	return sold > 0.97 && sold < 1.08
}

// Names are the short names of the catalogue, for suggestions.
func (c *Catalogue) Names() []string {
	names := make([]string, 0, len(c.keys))
	for k := range c.keys {
		names = append(names, k)
	}
	slices.SortFunc(names, cmp.Compare)
	return names
}

// Is says whether GPUs with one name are of the model that another name means:
// "a100" is an "a100-sxm4-80gb" only perhaps, and an "h100" not.
func (c *Catalogue) Is(name, model string) Answer {
	return c.IsModel([]string{name}, c.Lookup(name), model)
}

// IsModel says whether GPUs that have some names, of which match is known, are of the
// model that a name means. A run of the words of one of their names is that name.
func (c *Catalogue) IsModel(names []string, match Match, model string) Answer {
	squeezed, named := squeeze(model), len(match.Models) > 0
	for _, name := range names {
		if run(words(name), squeezed) {
			return Yes
		}
		named = named || squeeze(name) != ""
	}
	want := c.Lookup(model)
	if len(want.Models) > 0 && !want.Whole && named {
		return No // a name of a site, and not this one
	}
	if len(want.Models) > 0 || want.Slice != "" {
		if len(match.Models) == 0 && match.Slice == "" {
			return Unknown
		}
		return match.In(want)
	}
	within := 0 // of the models, whose own names have it
	for _, x := range match.Models {
		if run(words(x.Name), squeezed) {
			within++
		}
	}
	switch {
	case !named || within > 0 && within < len(match.Models):
		return Unknown
	case within > 0:
		return Yes
	}
	return No // a name of the site, and not this one
}

// Label is a short name of what is known: the model, or what several have in
// common; "" if there is nothing.
func (m Match) Label() string {
	if len(m.Models) == 0 {
		return m.Slice
	}
	if len(m.Models) == 1 {
		return m.Models[0].Name
	}
	for _, alias := range m.Models[0].Aliases {
		if !slices.ContainsFunc(m.Models, func(x Model) bool { return !slices.Contains(x.Aliases, alias) }) {
			return alias
		}
	}
	least, most := m.Capability()
	for name, g := range generations {
		if least >= g.least && most <= g.most && len(name) > 3 && name != "adalovelace" {
			return name
		}
	}
	return m.Models[0].Name
}

// In says whether GPUs of one description are of those of another.
func (m Match) In(of Match) Answer {
	if of.Slice != "" && of.Slice != m.Slice {
		return No
	}
	if len(of.Models) == 0 {
		return Yes
	}
	if len(m.Models) == 0 {
		return Unknown
	}
	within := 0
	for _, x := range m.Models {
		if slices.ContainsFunc(of.Models, func(y Model) bool { return x.Name == y.Name }) {
			within++
		}
	}
	switch within {
	case len(m.Models):
		return Yes
	case 0:
		return No
	}
	return Unknown
}

// run reports whether some of the words, one behind the other, make the word.
func run(w []string, word string) bool {
	for i := range w {
		joined := ""
		for _, next := range w[i:] {
			if joined += next; joined == word {
				return true
			}
			if len(joined) > len(word) {
				break
			}
		}
	}
	return false
}

// Answer is yes, no or unknown.
type Answer int

// The answers.
const (
	Unknown Answer = iota
	Yes
	No
)

func (a Answer) String() string {
	return [...]string{"unknown", "yes", "no"}[a]
}

// Not is the opposite; unknown stays it.
func (a Answer) Not() Answer {
	switch a {
	case Yes:
		return No
	case No:
		return Yes
	}
	return Unknown
}

// And is yes if both are, and no if one is.
func (a Answer) And(b Answer) Answer {
	switch {
	case a == No || b == No:
		return No
	case a == Yes && b == Yes:
		return Yes
	}
	return Unknown
}
