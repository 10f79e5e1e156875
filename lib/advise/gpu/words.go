package gpu

import (
	"slices"
	"strconv"
	"strings"
)

// class says what a word of a name means: a set of bits; 0: a foreign word, with which the name may mean anything.
type class int

const (
	isBrand   class = 1 << iota // tells no model; left out of short names
	isForm                      // the form in which a model is built; matters only where it tells models apart
	isDevice                    // a GPU, whatever else a node has
	isMemory                    // a size of memory; with isDevice that of a GPU
	isVersion                   // a number behind is a version
	isLabel                     // stands beside what is said
)

// vocabulary are the words of the language in which sites name GPUs, beside the names of the catalogue, generations
// and numbers.
var vocabulary = func() map[string]class {
	v := map[string]class{}
	for c, list := range map[class]string{
		isBrand:              "amd intel data center r generation graphics",
		isBrand | isDevice:   "nvidia tesla geforce quadro grid instinct radeon gpu gpus card",
		isDevice:             "device devices cards firepro",
		isDevice | isForm:    "sxm sxm2 sxm3 sxm4 sxm5 sxm6 oam",
		isForm:               "pcie pci nvl nvl2 nvl4 nvl8 nvl72 nvlink nv mig hgx dgx ac ada blackwell passive rtx gtx",
		isDevice | isMemory:  "vram gpumem gpumemory gpuram gpuvram gpum gmem gram hbm hbm2 hbm2e hbm3 hbm3e",
		isDevice | isVersion: "cuda rocm xpu hpu",
		isMemory:             "mem memory ram size",
		isVersion:            "cc sm compute capability",
		isLabel: "ls min per of sku type model name brd brand gen arch ib infiniband fdr edr hdr hdr100 hdr200 ndr xdr opa omnipath " +
			"roce rdma efa nvswitch eth ethernet mb mib gb gib",
	} {
		for _, word := range strings.Fields(list) {
			v[word] = c
		}
	}
	return v
}()

// notDesktop are words of models that have less memory than those of the same
// number without.
var notDesktop = map[string]bool{"laptop": true, "mobile": true, "maxq": true, "q": true}

// generations of NVIDIA's GPUs by their compute capabilities.
var generations = map[string]struct{ least, most Capability }{
	"kepler": {30, 37}, "maxwell": {50, 53}, "pascal": {60, 62}, "volta": {70, 72}, "turing": {75, 75}, "ampere": {80, 87},
	"ada": {89, 89}, "lovelace": {89, 89}, "adalovelace": {89, 89}, "hopper": {90, 90}, "blackwell": {100, 121},
}

// sockets are forms that the names of all their models have.
var sockets = map[string]bool{"sxm2": true, "sxm4": true}

// onlyNVIDIA are generations whose names, alone, hardly name anything else; pascal, turing and maxwell are machines, too.
var onlyNVIDIA = map[string]bool{"volta": true, "ampere": true, "blackwell": true, "lovelace": true, "adalovelace": true}

// queues are words of the names of partitions that tell nothing of their nodes.
var queues = map[string]bool{
	"node": true, "nodes": true, "q": true, "queue": true, "partition": true, "dev": true, "devel": true, "debug": true,
	"test": true, "normal": true, "short": true, "long": true, "low": true, "high": true, "prod": true, "batch": true,
	"preempt": true, "preemptable": true, "preemptible": true, "interactive": true, "small": true, "large": true,
}

// makers are words that tell who makes a GPU.
var makers = map[string]Vendor{
	"amd": AMD, "instinct": AMD, "radeon": AMD, "firepro": AMD, "rocm": AMD, "vega": AMD, "intel": Intel, "xpu": Intel, "max": Intel,
	"flex": Intel, "arc": Intel, "habana": Habana, "hpu": Habana, "gaudi": Habana,
}

// products are how the names of products begin that the catalogue may not have.
var products = map[string]Vendor{"gfx": AMD, "mi": AMD, "vega": AMD, "gaudi": Habana}

// Words that name the maker of CPUs, too, and those that mean a GPU only as a type.
var (
	alsoCPUs = map[string]bool{"amd": true, "intel": true}
	onlyType = map[string]bool{"max": true, "flex": true, "arc": true}
)

// makerOf is who makes what a word names, "" if it does not tell: instinct, gfx1151, mi455x, gaudi3.
func makerOf(word string) Vendor {
	if v := makers[word]; v != "" {
		return v
	}
	for begin, v := range products {
		if rest, ok := strings.CutPrefix(word, begin); ok && digits(rest) > 0 && len(rest)-digits(rest) <= 1 && len(rest) <= 5 {
			return v
		}
	}
	return ""
}

// reading is what a name says. Its words narrow the models of the catalogue, each more:
//
//	name       = { word }                     in any order; also glued, as gpua100x4, v100sxm2 and ampere80
//	word       = model | generation | capability | form | size | count | virtual | part | other words of the vocabulary | foreign
//	capability = ( "sm" | "cc" | "capability" ) N     where the catalogue has it: sm_86, cc8.0
//	foreign    = words of the site; behind a model also glued, if it is a version or no suffix of a model: t4v2, a100fat
//	size       = N [ "g" | "gb" | "gib" ] | MIB [ "m" | "mb" | "mib" ]     MIB from 1000 on, without a unit behind "mem"
//	             glued to a model also "m" N: a100m80
//	count      = N "x" | "x" N                up to 16 GPUs; more, as in a100x80, is a size; 4a100; a100-80x4
//	virtual    = [ SLICES ] N ( "a" | "b" | "c" | "q" )     a virtual GPU of N gigabytes: a100-40c, a100-3-20c
//	part       = "mig" [ N ] | SLICES "g" | "half" | ...     the last two behind a model: a100_3g, a100_half; as a type alone 3g
type reading struct {
	Match
	foreign bool // it has words that were not understood
	about   bool // it is of GPUs, whatever else the node has
	long    bool // that can hardly be a part of another name
	// capability is the compute capability that it names beside no model; 0: none
	capability Capability
	size       int64 // memory of a GPU in bytes, where it says no model; 0: none
	sure       bool  // of the size: it can be of nothing else
}

// read reads a name.
func (c *Catalogue) read(name string) reading {
	rest, slice, memory := cutSlice(name)
	w := c.terms(rest)
	found, key, left := c.longest(w)
	divided := slices.ContainsFunc(w, isSomeSlice) || found != nil && slices.ContainsFunc(w, func(s string) bool { return parts[s] })
	if slice == "" && divided && !slices.ContainsFunc(w, func(s string) bool { return denials[s] }) {
		slice = SomeSlice
	}
	if slice == "" {
		slice, memory, left = cutVirtual(left, found != nil)
	}
	if found == nil && slice == "" {
		found = c.ofSocket(left)
	}
	r := reading{about: found != nil || slice != "", long: isLong(key)}
	is := class(0)
	var rough []string // what is left to narrow
	for _, word := range left {
		is |= vocabulary[word]
		if fits := c.ofGeneration(found, generations[word].least, generations[word].most); fits != nil {
			found = fits
			continue
		}
		if cc, _ := capability(word); c.ofGeneration(found, cc, cc) != nil {
			found, r.about = c.ofGeneration(found, cc, cc), true
			if key == "" {
				r.capability = cc
			}
			continue
		}
		rough = append(rough, word)
	}
	named, sized := int64(0), key != "" // bytes, by the name itself
	var words []string
	for _, word := range rough {
		bytes, unit := nominal(word, is&isMemory != 0)
		fits := c.ofSize(found, bytes)
		switch {
		case bytes > 0 && fits != nil:
			found, sized, r.about = fits, true, r.about || unit
		case bytes > 0 && slice == "" && key != "" && c.slicing(found, bytes, unit) && isProfile(word):
			slice = SomeSlice
		case bytes > 0 && slice == "" && key != "" && c.slicing(found, bytes, unit):
			slice, memory = strconv.FormatInt(bytes/1e9, 10)+"gb", bytes/100*95
		case bytes > 0 && len(found) == 0 && !unit:
			r.size = bytes
		case bytes > 0 && unit && c.having(found, word) == nil:
			named = bytes
		default:
			words = append(words, word)
		}
	}
	for _, word := range words {
		fits := c.having(found, word)
		if maker := makerOf(word); maker != "" && (!onlyType[word] || len(w) == 1) {
			r.Maker, r.about = maker, r.about || !alsoCPUs[word] && !onlyType[word]
		}
		switch {
		case fits != nil:
			found = fits
		case vocabulary[word] != 0 || isSomeSlice(word) || parts[word] && slice != "" || r.Maker != "" || countOf(word):
		case notDesktop[word] && c.consumer(found):
			found, r.foreign = nil, true
		default:
			r.foreign = true
		}
	}
	r.about, r.long = r.about || is&isDevice != 0, r.long || is&isDevice != 0
	for _, i := range found {
		r.Models = append(r.Models, c.models[i])
	}
	r.Match = bounds(r.Match)
	switch {
	case slice != "":
		r.Slice, r.Least, r.Most = slice, memory, memory
	case named > 0 && len(found) > 0:
		r.Least, r.Most = named, named
	case !sized: // a generation alone
		r.Least, r.Most = 0, 0
	}
	if len(found) > 0 || slice != "" || r.foreign {
		r.size = 0
	} else {
		r.memoryAlone(is, named)
	}
	r.Whole = !r.foreign && (len(found) > 0 || slice != "")
	return r
}

// isLong reports whether the name of a model can hardly be a part of another name: a100, a40, but not a10, t4 or 1080.
func isLong(key string) bool {
	return !allDigits(key) && (len(key) > 3 || len(key) == 3 && key[1] >= '3' && allDigits(key[1:]))
}

// memoryAlone decides whether a size without a model is the memory of a GPU: main memory, or any number, is none.
func (r *reading) memoryAlone(is class, named int64) {
	bare := r.size
	if named > 0 {
		r.size = named
	}
	memory, device := is&isMemory != 0, is&isDevice != 0
	switch {
	case r.size < 4e9 || r.size > 999e9,
		memory && !device, !device && named == 0,
		named == 0 && !memory && bare <= 16e9: // a number of GPUs
		r.size = 0
	}
	r.sure = r.size > 0 && device && (memory || named > 0)
}

// terms are the words of a name, with those that are glued cut apart. The number behind a word such as "cuda" is part of it.
func (c *Catalogue) terms(name string) []string {
	var all []string
	version := false
	for _, word := range words(name) {
		if version && allDigits(word) {
			last := len(all) - 1
			if _, is := capability(all[last]); is { // sm_86, cc8.6
				all[last] += word
			}
			continue
		}
		all = append(all, c.split(word)...)
		_, begun := capability(word)
		version = begun || vocabulary[word]&isVersion != 0 || version && vocabulary[word]&isLabel != 0
	}
	return all
}

// split cuts a word into the terms of which it is made; of one that has other parts, the word is left.
func (c *Catalogue) split(word string) []string {
	if bytes, _ := nominal(word, true); bytes > 0 || c.keys[word] != nil || vocabulary[word] != 0 || isSomeSlice(word) || len(word) > 40 {
		return []string{word}
	}
	if n := digits(word); n > 0 && n < len(word) && countOf(word[n:]) { // 80x4
		return []string{word[:n]}
	}
	s := splitter{catalogue: c, word: word, dead: map[int]bool{}}
	if s.cut(0, 0, false) {
		slices.Reverse(s.terms)
		return s.terms
	}
	return c.decorated(word)
}

// decorated cuts what a site has added from the name of a model: a version (t4v2), a count (l4x8), a number behind a name that
// has none (pvc9), or three letters and more (a100fat), since one or two tell variants apart.
func (c *Catalogue) decorated(word string) []string {
	for n := len(word) - 1; n > 1; n-- {
		if c.keys[word[:n]] == nil {
			continue
		}
		added := word[n:]
		version, is := strings.CutPrefix(added, "v")
		letters := !strings.ContainsAny(added, "0123456789")
		switch numbered := strings.ContainsAny(word[:n], "0123456789"); {
		case is && version != "" && len(version) < 3 && allDigits(version), countOf(added), !numbered && n > 2 && allDigits(added):
			return []string{word[:n]}
		case numbered && n > 3 && letters && len(added) > 2:
			return []string{word[:n], added}
		default:
			return []string{word}
		}
	}
	return []string{word}
}

// splitter looks for terms that make a word.
type splitter struct {
	catalogue *Catalogue
	word      string
	terms     []string // from the last one to the first
	dead      map[int]bool
}

// cut cuts the word from a place on, behind a word of a class or a model, and reports whether it can.
func (s *splitter) cut(at int, behind class, model bool) bool {
	rest := s.word[at:]
	if rest == "" {
		return true
	}
	if s.dead[at] {
		return false
	}
	take := func(n int, term string, is class, model bool) bool {
		if !s.cut(at+n, is, model) {
			return false
		}
		if term != "" {
			s.terms = append(s.terms, term)
		}
		return true
	}
	if n := digits(rest); at == 0 && n > 0 && n < 3 && countOf(rest[:n]+"x") && s.model(rest[n:]) && take(n, "", isDevice, false) {
		return true
	}
	if rest[0] == 'm' && model {
		if n := digits(rest[1:]); n > 0 && take(1+n, rest[1:1+n], 0, false) {
			return true
		}
	}
	for n := len(rest); n > 1; n-- {
		piece := rest[:n]
		after := rest[n:]
		switch {
		case s.catalogue.keys[piece] != nil && (n > 2 || behind&isDevice != 0) && (piece[n-1] != 'x' || digits(after) == 0):
			if take(n, piece, 0, true) {
				return true
			}
		case vocabulary[piece] != 0 && (vocabulary[piece]&^isVersion&^isLabel != 0 || n > 3) || generations[piece].most > 0:
			is := vocabulary[piece]
			if generations[piece].most > 0 {
				is |= isMemory
			}
			if take(n, piece, is, false) {
				return true
			}
		}
	}
	if rest[0] == 'x' && model {
		if n := digits(rest[1:]); n > 0 {
			term := rest[1 : 1+n]
			if countOf(rest[:1+n]) {
				term = ""
			}
			if take(1+n, term, 0, false) {
				return true
			}
		}
	}
	if n := digits(rest); n > 0 {
		if n < len(rest) && rest[n] == 'x' && countOf(rest[:n+1]) && take(n+1, "", behind, false) {
			return true
		}
		for _, unit := range units {
			if strings.HasPrefix(rest[n:], unit) && take(n+len(unit), rest[:n+len(unit)], 0, false) {
				return true
			}
		}
		sized := behind&(isDevice|isMemory) != 0 && behind&(isVersion|isForm) == 0
		if (sized || behind&isForm != 0 && n == 2) && take(n, rest[:n], 0, false) { // sxm4 is a socket, sxm80 none
			return true
		}
	}
	s.dead[at] = true
	return false
}

// model reports whether a text begins with the name of a model that can hardly mean anything else.
func (s *splitter) model(text string) bool {
	for n := len(text); n > 3; n-- {
		if s.catalogue.keys[text[:n]] != nil && !isDigit(text[0]) {
			return true
		}
	}
	return false
}

// units of sizes, the longer ones first.
var units = []string{"gib", "gb", "g", "mib", "mb", "m"}

// nominal reads the size of a memory in bytes, such as 80gb or 80, and whether it has a unit. A number from 1000 on is one
// of MiB, if a unit or what stands beside says that it is a size.
func nominal(word string, memory bool) (bytes int64, unit bool) {
	end := digits(word)
	if end == 0 || end > 6 || word[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(word[:end], 10, 64)
	if err != nil {
		return 0, false
	}
	switch word[end:] {
	case "g", "gb", "gib":
		if n > 999 {
			return 0, false
		}
		return n * 1e9, true
	case "m", "mb", "mib":
		if n < 1000 {
			return 0, false
		}
		return n << 20, true
	case "":
		switch {
		case n <= 999:
			return n * 1e9, false
		case memory:
			return n << 20, false
		}
	}
	return 0, false
}

// countOf reports whether a term is the number of a node's GPUs: x4, 8x.
func countOf(term string) bool {
	number, before := strings.CutPrefix(term, "x")
	number, behind := strings.CutSuffix(number, "x")
	n, err := strconv.ParseUint(number, 10, 8)
	return err == nil && before != behind && n >= 1 && n <= 16
}

// cutVirtual takes the profile of a virtual GPU (vGPU) out of the words beside a model or the word for a device; slice is "" if
// there is none. The number of slices of which one is made stands before it. A job has about 5 % less than N gigabytes.
func cutVirtual(w []string, model bool) (slice string, memory int64, left []string) {
	if !model && !slices.ContainsFunc(w, func(s string) bool { return vocabulary[s]&isDevice != 0 }) {
		return "", 0, w
	}
	for i, word := range w {
		end := digits(word)
		n, err := strconv.ParseInt(word[:end], 10, 16)
		if err != nil || n < 1 || n > 999 || len(word) != end+1 || !strings.Contains("abcq", word[end:]) {
			continue
		}
		from := i
		if i > 0 && len(w[i-1]) == 1 && allDigits(w[i-1]) {
			from--
		}
		return word, n * 950e6, append(slices.Clone(w[:from]), w[i+1:]...)
	}
	return "", 0, w
}

// ofSocket are the models that a socket and the sizes beside it mean, nil if there are none.
func (c *Catalogue) ofSocket(w []string) []int {
	var found []int
	for _, word := range w {
		if sockets[word] {
			for i := range c.models {
				if c.words[i][word] {
					found = append(found, i)
				}
			}
			break
		}
	}
	for _, word := range w {
		if bytes, unit := nominal(word, false); unit && len(c.ofSize(found, bytes)) == 0 {
			return nil
		}
	}
	return found
}

// isSomeSlice reports whether a word says that GPUs are divided: mig, mig7.
func isSomeSlice(word string) bool {
	number, is := strings.CutPrefix(word, SomeSlice)
	return is && allDigits(number) && number != "0"
}

// isProfile reports whether a word is the first part of a slice's profile, the number of its shares: 3g.
func isProfile(word string) bool {
	return len(word) == 2 && word[1] == 'g' && strings.Contains("12347", word[:1])
}

// Words beside a model that say that it is divided, and those that say that it is not.
var (
	parts   = map[string]bool{"half": true, "third": true, "quarter": true, "slice": true, "small": true, "tiny": true, "mini": true}
	denials = map[string]bool{"no": true, "non": true, "not": true, "without": true, "off": true, "disabled": true}
)

// capability is the compute capability that a word names, as sm86, and whether it names one or begins its name.
func capability(word string) (cc Capability, is bool) {
	for _, name := range []string{"sm", "cc", "capability"} {
		if number, ok := strings.CutPrefix(word, name); ok && allDigits(number) {
			n, _ := strconv.ParseUint(number, 10, 8)
			return Capability(n), true
		}
	}
	return 0, false
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// digits is the number of digits with which a text begins.
func digits(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

func allDigits(s string) bool { return digits(s) == len(s) }

// ofGeneration are those of the models, or of all, that have a compute capability in a range.
func (c *Catalogue) ofGeneration(models []int, least, most Capability) []int {
	var all []int
	add := func(i int) {
		if most > 0 && c.models[i].CC >= least && c.models[i].CC <= most {
			all = append(all, i)
		}
	}
	for _, i := range models {
		add(i)
	}
	if models == nil {
		for i := range c.models {
			add(i)
		}
	}
	return all
}

// consumer reports whether models are of a line that has others for laptops.
func (c *Catalogue) consumer(models []int) bool {
	return slices.ContainsFunc(models, func(i int) bool {
		return c.words[i]["rtx"] || c.words[i]["gtx"] || c.words[i]["quadro"] || c.words[i]["geforce"]
	})
}
