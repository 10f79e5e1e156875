package vastai

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/spelling"
)

// Condition is one comparison of a filter, in the units of the API: megabytes and seconds.
// Value is a float64, bool or string, or a list of those.
type Condition struct {
	Field string
	Op    string
	Value any
	Text  string // as the user wrote it
	// Test, if set, decides locally instead of Op and Value, which are then for the market
	// only. Without an Op, the market gets no condition.
	Test func(have any) bool `json:"-"`
}

// Filters are conditions that all hold.
type Filters []Condition

// anything is the operator of a field with any value. It removes a default condition, such as
// verified.
const anything = "any"

// FieldError is an error in one field of a map of filters.
type FieldError struct {
	Field string
	err   error
}

func (e *FieldError) Error() string { return e.err.Error() }
func (e *FieldError) Unwrap() error { return e.err }

type kind byte

const (
	number kind = 'n'
	truth  kind = 'b'
	text   kind = 's'
)

// fields are the fields by which offers can be filtered, with their types.
var fields = map[string]kind{
	"bw_nvlink": number, "compute_cap": number, "cpu_arch": text, "cpu_cores": number, "cpu_cores_effective": number,
	"cpu_ghz": number, "cpu_ram": number, "cuda_max_good": number, "datacenter": truth, "direct_port_count": number,
	"driver_version": text, "disk_bw": number, "disk_space": number, "dlperf": number, "dlperf_per_dphtotal": number,
	"dph_total": number, "dph_base": number, "duration": number, "flops_per_dphtotal": number, "gpu_arch": text,
	"gpu_display_active": truth, "gpu_frac": number, "gpu_mem_bw": number, "gpu_name": text, "gpu_ram": number,
	"gpu_total_ram": number, "gpu_max_power": number, "gpu_max_temp": number, "has_avx": truth, "host_id": number,
	"ask_contract_id": number, "inet_down": number, "inet_down_cost": number, "inet_up": number, "inet_up_cost": number,
	"machine_id": number, "min_bid": number, "mobo_name": text, "num_gpus": number, "pci_gen": number, "pcie_bw": number,
	"reliability": number, "reliability2": number, "score": number, "storage_cost": number, "static_ip": truth,
	"total_flops": number, "ubuntu_version": text, "os_version": text, "verification": text, "verified": truth,
	"vms_enabled": truth, "geolocation": text, "cluster_id": number, "hosting_type": number,
}

var aliases = map[string]string{
	"cuda_vers": "cuda_max_good", "display_active": "gpu_display_active", "dlperf_usd": "dlperf_per_dphtotal",
	"dph": "dph_total", "flops_usd": "flops_per_dphtotal", "id": "ask_contract_id",
}

// agents are the fields that only the agent sets.
var agents = []string{"rentable", "rented", "external", "type", "order", "limit", "allocated_storage"}

// multipliers convert the units of the CLI's query language to those of the API.
var multipliers = map[string]float64{"cpu_ram": 1000, "gpu_ram": 1000, "gpu_total_ram": 1000, "duration": 86400}

var operators = map[string]string{
	"=": "eq", "==": "eq", "eq": "eq", "!=": "neq", "neq": "neq", "noteq": "neq", "not eq": "neq", "<": "lt", "lt": "lt",
	"<=": "lte", "lte": "lte", ">": "gt", "gt": "gt", ">=": "gte", "gte": "gte", "in": "in", "notin": "notin", "nin": "notin",
	"not in": "notin",
}

var token = regexp.MustCompile(`^\s*([A-Za-z0-9_]+)\s*` +
	`(==|!=|<=|>=|=>|=<|=|<|>|\s(?:not\s+in|not\s+eq|noteq|notin|nin|neq|in)\s)\s*` +
	`(\[[^\]]*\]|"[^"]*"|'[^']*'|[^\s\[\]"'=<>!]+)`)

// ParseQuery parses filters in the query language of the CLI, with memory in GB and durations
// in days. The error contains every problem.
func ParseQuery(query string) (Filters, error) {
	var out Filters
	var errs []error
	rest := query
	for strings.TrimSpace(rest) != "" {
		m := token.FindStringSubmatch(rest)
		if m == nil {
			errs = append(errs, fmt.Errorf("invalid comparison %.60q: expected one such as gpu_ram>=24", strings.TrimSpace(rest)))
			break
		}
		rest = rest[len(m[0]):]
		if rest != "" && !strings.ContainsAny(rest[:1], " \t\n") {
			errs = append(errs, fmt.Errorf("%.60q: a space is missing after %q", strings.TrimSpace(m[0]+rest), strings.TrimSpace(m[0])))
			break
		}
		var value any
		switch v := m[3]; v[0] {
		case '[':
			var list []any
			for item := range strings.SplitSeq(strings.Trim(v, "[]"), ",") {
				if item = strings.Trim(strings.TrimSpace(item), `"'`); item != "" {
					list = append(list, spaced(item))
				}
			}
			value = list
		case '"', '\'':
			value = spaced(v[1 : len(v)-1])
		default:
			value = spaced(v)
		}
		op := strings.Join(strings.Fields(m[2]), " ")
		if word := strings.ToLower(m[3]); (op == "=" || op == "==") && (word == "any" || word == "*" || word == "?") {
			value = anything
			op = anything
		}
		c, err := condition(m[1], op, value, true)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.Text = strings.Join(strings.Fields(m[0]), " ")
		if c.Op == anything {
			out = slices.DeleteFunc(out, func(o Condition) bool { return o.Field == c.Field })
		}
		out = append(out, c)
	}
	errs = append(errs, out.contradictions()...)
	return out, errors.Join(errs...)
}

// spaced returns a word of the query language, in which '_' stands for a blank in the names of
// GPUs.
func spaced(s string) string { return strings.ReplaceAll(s, "_", " ") }

// ParseMap parses filters in the form of the API, {field: {operator: value}} or {field: value},
// in megabytes and seconds. The error contains every problem.
func ParseMap(m map[string]any) (Filters, error) {
	var out Filters
	var errs []error
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		comparisons, ok := m[name].(map[string]any)
		if !ok {
			comparisons = map[string]any{"eq": m[name]}
		}
		if len(comparisons) == 0 {
			errs = append(errs, &FieldError{name, fmt.Errorf("%s: it has no operator", name)})
		}
		ops := make([]string, 0, len(comparisons))
		for op := range comparisons {
			ops = append(ops, op)
		}
		slices.Sort(ops)
		for _, op := range ops {
			c, err := condition(name, op, comparisons[op], false)
			if err != nil {
				errs = append(errs, &FieldError{name, err})
				continue
			}
			c.Text = fmt.Sprintf("%s %s %v", c.Field, c.Op, c.Value)
			out = append(out, c)
		}
	}
	errs = append(errs, out.contradictions()...)
	return out, errors.Join(errs...)
}

// condition checks and converts one comparison; cli selects the units of the CLI's language.
func condition(field, op string, value any, cli bool) (Condition, error) {
	name := field
	if a, ok := aliases[field]; ok {
		name = a
	}
	if slices.Contains(agents, name) {
		return Condition{}, fmt.Errorf("%s: the agent sets this itself", field)
	}
	k, ok := fields[name]
	if !ok {
		known := make([]string, 0, len(fields))
		for f := range fields {
			known = append(known, f)
		}
		slices.Sort(known)
		if near := spelling.Nearest(field, known); near != "" {
			return Condition{}, fmt.Errorf("%s: unknown field; did you mean %q?", field, near)
		}
		return Condition{}, fmt.Errorf("%s: unknown field", field)
	}
	if op == anything && name != "num_gpus" && cli {
		return Condition{Field: name, Op: anything}, nil
	}
	if op == anything && cli {
		return Condition{}, fmt.Errorf("%s: any number of GPUs is not offered; give one, such as num_gpus=1", field)
	}
	operator, ok := operators[op]
	if !ok {
		return Condition{}, fmt.Errorf("%s: unknown operator %q; it is one of eq neq gt gte lt lte in notin", field, op)
	}
	ordered := operator == "gt" || operator == "gte" || operator == "lt" || operator == "lte"
	if ordered && k != number && name != "driver_version" {
		return Condition{}, fmt.Errorf("%s: operator %s needs a number, and this is a %s", field, operator, kindName(k))
	}
	c := Condition{Field: name, Op: operator}
	list, isList := value.([]any)
	if wants := operator == "in" || operator == "notin"; wants != isList {
		if wants {
			return Condition{}, fmt.Errorf("%s: operator %s requires a list", field, operator)
		}
		return Condition{}, fmt.Errorf("%s: operator %s does not take a list", field, operator)
	}
	if !isList {
		list = []any{value}
	}
	if len(list) == 0 {
		return Condition{}, fmt.Errorf("%s: the list is empty", field)
	}
	converted := make([]any, len(list))
	for i, v := range list {
		typed, err := convert(name, k, v, cli)
		if err != nil {
			return Condition{}, fmt.Errorf("%s: %w", field, err)
		}
		converted[i] = typed
	}
	if c.Value = converted[0]; isList {
		c.Value = converted
	}
	if n, isNumber := c.Value.(float64); name == "num_gpus" && (operator != "eq" || !isNumber || n < 1 || n > 64 || n != math.Trunc(n)) {
		return Condition{}, errors.New("num_gpus: expected the number of GPUs, such as num_gpus=2")
	}
	return c, nil
}

func kindName(k kind) string {
	return map[kind]string{number: "number", truth: "truth value", text: "text"}[k]
}

func convert(field string, k kind, v any, cli bool) (any, error) {
	if v == nil {
		return nil, errors.New("the value is missing")
	}
	s := fmt.Sprint(v)
	if _, nested := v.(map[string]any); nested || strings.TrimSpace(s) == "" {
		return nil, errors.New("expected a plain value")
	}
	if at := strings.IndexAny(s, "0123456789"); field == "gpu_name" && (s[:max(at, 0)] == "RTX" || s[:max(at, 0)] == "GTX") {
		return nil, fmt.Errorf("unknown GPU %.40q; did you mean %.40q?", s, s[:at]+" "+s[at:])
	}
	switch k {
	case number:
		f, err := strconv.ParseFloat(strings.ReplaceAll(s, " ", "_"), 64)
		if _, isBool := v.(bool); err != nil || isBool || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("invalid number %.40q", s)
		}
		if m, ok := multipliers[field]; ok && cli {
			if f > 100000 {
				return nil, fmt.Errorf("%v is too much: in a query the unit is GB or days", f)
			}
			f *= m
		} else if ok && field != "duration" && f > 0 && f < 512 {
			return nil, fmt.Errorf("%v is too little: in a map the unit is MB, as the API has it", f)
		}
		return f, plausible(field, f)
	case truth:
		switch strings.ToLower(s) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, fmt.Errorf("%.40q is neither true nor false", s)
	}
	if field == "driver_version" {
		return driver(s)
	}
	if !cli {
		s = spaced(s)
	}
	return s, nil
}

// plausible reports numbers that are probably in the wrong unit.
func plausible(field string, f float64) error {
	switch {
	case (field == "reliability" || field == "reliability2" || field == "gpu_frac") && f > 1:
		return fmt.Errorf("%v is more than 1: it is a fraction, such as 0.98", f)
	case field == "cuda_max_good" && f > 100:
		return fmt.Errorf("invalid CUDA version %v: expected one such as 12.4", f)
	case field == "compute_cap" && f > 0 && f < 100:
		return fmt.Errorf("%v is too little: 8.9 is written 890", f)
	}
	return nil
}

// driver converts a version X.Y.Z to the number that the API compares.
func driver(s string) (any, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && f >= 1e6 {
		return f, nil
	}
	parts := strings.Split(s, ".")
	n := 0.0
	for _, p := range parts {
		v, err := strconv.ParseUint(p, 10, 32)
		if err != nil || v > 999 || len(parts) != 3 {
			return nil, fmt.Errorf("invalid version %.40q: expected one such as 535.86.05", s)
		}
		n = n*1000 + float64(v)
	}
	return n, nil
}

// contradictions returns errors for conditions that no offer can satisfy together.
func (f Filters) contradictions() []error {
	type span struct {
		low, high         float64
		lowText, highText string
	}
	spans := map[string]span{}
	var errs []error
	equals := map[string]Condition{}
	for _, c := range f {
		v, ok := c.Value.(float64)
		if !ok {
			if other, seen := equals[c.Field]; seen && c.Op == "eq" && !equal(other.Value, c.Value) {
				errs = append(errs, &FieldError{c.Field, fmt.Errorf("%s: %q and %q contradict each other", c.Field, other.Text, c.Text)})
			} else if c.Op == "eq" {
				equals[c.Field] = c
			}
			continue
		}
		s, seen := spans[c.Field]
		if !seen {
			s = span{low: math.Inf(-1), high: math.Inf(1)}
		}
		low, high := math.Inf(-1), math.Inf(1)
		switch c.Op {
		case "eq":
			low, high = v, v
		case "gt":
			low = math.Nextafter(v, math.Inf(1))
		case "gte":
			low = v
		case "lt":
			high = math.Nextafter(v, math.Inf(-1))
		case "lte":
			high = v
		}
		if low > s.low {
			s.low, s.lowText = low, c.Text
		}
		if high < s.high {
			s.high, s.highText = high, c.Text
		}
		if s.low > s.high {
			errs = append(errs, &FieldError{c.Field, fmt.Errorf("%s: %q and %q contradict each other", c.Field, s.lowText, s.highText)})
			s = span{low: math.Inf(-1), high: math.Inf(1)}
		}
		spans[c.Field] = s
	}
	return errs
}

// Suspicions returns warnings about conditions that are valid but probably not intended.
func (f Filters) Suspicions() []string {
	var out []string
	for _, c := range f {
		switch c.Field {
		case "cpu_cores":
			out = append(out, fmt.Sprintf(
				"%q: cpu_cores are those of the whole machine; your share of them is cpu_cores_effective", c.Text))
		case "verified":
			if c.Op == "eq" && c.Value == false {
				out = append(out, fmt.Sprintf("%q: only unverified machines", c.Text))
			}
		case "gpu_ram":
			// Cards of 24 GB report 24564 MB and the like.
			if c.Op == "eq" {
				out = append(out, fmt.Sprintf("%q: few cards have exactly that; use >=", c.Text))
			}
		}
	}
	return out
}

// Has reports whether there is a condition on a field.
func (f Filters) Has(field string) bool {
	return slices.ContainsFunc(f, func(c Condition) bool { return c.Field == field })
}

// Complete adds the conditions of every order: one GPU, verified machines (unless the filters
// have such conditions), available to rent, and hosted on the market itself.
func (f Filters) Complete() Filters {
	out := slices.Clone(f)
	add := func(field string, value any) {
		out = append(out, Condition{Field: field, Op: "eq", Value: value, Text: fmt.Sprintf("%s=%v", field, value)})
	}
	if !f.Has("verified") && !f.Has("verification") {
		add("verified", true)
	}
	if !f.Has("num_gpus") {
		add("num_gpus", 1.0)
	}
	add("rentable", true)
	add("external", false)
	return out
}

// body returns the filters in the form of the API.
func (f Filters) body() map[string]any {
	body := map[string]any{}
	for _, c := range f.strictest() {
		if c.Op == anything || c.Op == "" {
			continue
		}
		comparisons, ok := body[c.Field].(map[string]any)
		if !ok {
			comparisons = map[string]any{}
			body[c.Field] = comparisons
		}
		comparisons[c.Op] = c.Value
	}
	return body
}

// strictest keeps one condition for each field and operator, the strictest, as the market and
// the vastai program would use the last.
func (f Filters) strictest() Filters {
	var out Filters
	for _, c := range f {
		if c.Op == "" {
			continue
		}
		at := slices.IndexFunc(out, func(o Condition) bool { return o.Field == c.Field && o.Op == c.Op })
		if at < 0 {
			out = append(out, c)
			continue
		}
		have, ok1 := out[at].Value.(float64)
		value, ok2 := c.Value.(float64)
		below := c.Op == "lt" || c.Op == "lte"
		above := c.Op == "gt" || c.Op == "gte"
		if !ok1 || !ok2 || below && value < have || above && value > have || !below && !above {
			out[at] = c
		}
	}
	return out
}

// query returns the filters in the query language of the CLI.
func (f Filters) query() (string, error) {
	symbols := map[string]string{"eq": "=", "neq": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "in": " in ", "notin": " notin "}
	var words []string
	for _, c := range f.strictest() {
		if c.Op == "" {
			continue
		}
		if c.Op == anything {
			words = append(words, c.Field+"=any")
			continue
		}
		one := func(v any) (string, error) {
			switch v := v.(type) {
			case float64:
				if m, ok := multipliers[c.Field]; ok {
					v /= m
				}
				if c.Field == "driver_version" {
					n := int64(v)
					return fmt.Sprintf("%d.%d.%d", n/1000000, n/1000%1000, n%1000), nil
				}
				return strconv.FormatFloat(v, 'f', -1, 64), nil
			case bool:
				return strconv.FormatBool(v), nil
			}
			s := fmt.Sprint(v)
			if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_. ") != "" {
				return "", fmt.Errorf("%s: the CLI cannot express %.40q; use vast_api.via: api", c.Field, s)
			}
			return strings.ReplaceAll(s, " ", "_"), nil
		}
		field, value := c.Field, ""
		if list, ok := c.Value.([]any); ok {
			if _, scaled := multipliers[field]; scaled {
				return "", fmt.Errorf("%s: the CLI cannot take a list here; use vast_api.via: api", field)
			}
			var items []string
			for _, item := range list {
				s, err := one(item)
				if err != nil {
					return "", err
				}
				items = append(items, s)
			}
			value = "[" + strings.Join(items, ",") + "]"
		} else {
			var err error
			if value, err = one(c.Value); err != nil {
				return "", err
			}
		}
		words = append(words, field+symbols[c.Op]+value)
	}
	return strings.Join(words, " "), nil
}
