package gpu

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Vendor makes GPUs.
type Vendor string

// The vendors.
const (
	NVIDIA Vendor = "nvidia"
	AMD    Vendor = "amd"
	Intel  Vendor = "intel"
	Apple  Vendor = "apple"
	Habana Vendor = "habana"
	// Several are makers of which the GPUs of a node can be any.
	Several Vendor = "several"
)

// Capability is a CUDA compute capability in tenths, 80 for 8.0; 0: none.
type Capability int

func (c Capability) String() string { return fmt.Sprintf("%d.%d", c/10, c%10) }

// ParseCapability reads "8.0" or "8".
func ParseCapability(s string) (Capability, error) {
	whole, tenth, dot := strings.Cut(s, ".")
	major, err := strconv.ParseUint(whole, 10, 8)
	minor := uint64(0)
	if err == nil && dot {
		minor, err = strconv.ParseUint(tenth, 10, 8)
	}
	if err != nil || minor > 9 || major == 0 {
		return 0, fmt.Errorf("invalid compute capability %.20q: expected a number such as 8.0", s)
	}
	return Capability(major*10 + minor), nil
}

// Model is one product, or one variant of it if they differ in memory.
type Model struct {
	Name    string // as the vendor's driver reports it: "NVIDIA A100-SXM4-40GB"
	Vendor  Vendor
	Aliases []string // other names, which may be shared: "a100"
	Memory  int64    // bytes that a job has; 0: not known
	CC      Capability
	Year    int // of its launch; 0: not known
	// Rare is a variant of one or two sites. A name that may mean others, too, does not mean its memory.
	Rare bool
}

// Catalogue is a list of models, searched by name. What it says is not changed once made.
type Catalogue struct {
	models []Model
	keys   map[string][]int // squeezed names and aliases -> models
	words  []map[string]bool
	named  sync.Map // feature -> reading: many nodes have the same
}

// Models are all models of the catalogue, in its order.
func (c *Catalogue) Models() []Model { return c.models }

//go:embed catalogue.txt
var builtin string

// Builtin is the catalogue that comes with the program.
var Builtin = sync.OnceValue(func() *Catalogue {
	models, _ := parseTable(builtin) // a test holds that it can be read
	return newCatalogue(models)
})

// parseTable reads the table that is built in: sections "[vendor]" with lines
// NAME | ALIASES | MEMORY | CAPABILITY | YEAR, with "rare" behind the year.
func parseTable(text string) ([]Model, error) {
	models := make([]Model, 0, 256)
	var vendor Vendor
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			vendor = Vendor(strings.Trim(line, "[]"))
			continue
		}
		f := strings.Split(line, "|")
		if len(f) != 5 {
			return nil, fmt.Errorf("line %d: %d columns, expected 5", number, len(f))
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		m := Model{Name: f[0], Vendor: vendor}
		if f[1] != "" {
			m.Aliases = strings.Split(f[1], ", ")
		}
		mib, err := strconv.ParseInt(f[2], 10, 32)
		m.Memory = mib << 20
		if err == nil && f[3] != "-" {
			m.CC, err = ParseCapability(f[3])
		}
		if err == nil {
			year, rare := strings.CutSuffix(f[4], " rare")
			m.Year, err = strconv.Atoi(year)
			m.Rare = rare
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		models = append(models, m)
	}
	return models, nil
}

func newCatalogue(models []Model) *Catalogue {
	c := &Catalogue{models: models, keys: make(map[string][]int, 4*len(models)), words: make([]map[string]bool, len(models))}
	for i := range models {
		m := &models[i]
		w := words(m.Name)
		c.words[i] = make(map[string]bool, len(w))
		for _, s := range w {
			c.words[i][s] = true
		}
		for _, k := range ownNames(w) {
			c.add(k, i)
		}
		for _, a := range m.Aliases {
			c.add(squeeze(a), i)
		}
	}
	return c
}

func (c *Catalogue) add(key string, i int) {
	if key != "" && !slices.Contains(c.keys[key], i) {
		c.keys[key] = append(c.keys[key], i)
	}
}

// ownNames are the ways to write the name of a model that has the given words: with
// and without what stands before the number.
func ownNames(w []string) []string {
	var names []string
	geforce := slices.Contains(w, "geforce")
	for len(w) > 0 {
		if name := strings.Join(w, ""); strings.ContainsAny(name, "0123456789") || names == nil {
			names = append(names, name)
		}
		if vocabulary[w[0]]&isBrand == 0 && (!geforce || w[0] != "rtx" && w[0] != "gtx") || len(w) == 1 {
			break
		}
		w = w[1:]
	}
	return names
}

// words are the runs of letters and digits in a name, in lower case.
func words(name string) []string {
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r < 0x80
	})
}

// squeeze leaves the letters and digits of a name, in lower case.
func squeeze(name string) string { return strings.Join(words(name), "") }
