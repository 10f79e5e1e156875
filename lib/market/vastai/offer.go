package vastai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Offer is a machine that can be rented.
type Offer struct {
	ID          int64
	Machine     int64
	GPU         string
	Price       float64 // dollars per hour, with the disk
	Reliability float64
	DownCost    float64 // dollars per GB
	UpCost      float64
	Location    string
	Verified    bool
	Duration    float64 // maximum rental time in seconds; 0: unknown
	GPUs        int     // 0: unknown
	Bid         bool    // interruptible: Price is that of the minimum bid
	MinBid      float64 // dollars per hour, without the disk
	row         map[string]any
}

// Number returns a numeric field of the offer, or 0.
func (o Offer) Number(field string) float64 {
	f, _ := o.row[field].(float64)
	return f
}

// parseOffers parses a list of offers. Rows that cannot be parsed are omitted and counted; such
// an offer is never ordered.
func parseOffers(raw []byte) (Found, error) {
	var rows []json.RawMessage
	if err := json.Unmarshal(raw, &rows); err != nil {
		return Found{}, errors.New("the list of offers is not a list")
	}
	if rows == nil {
		return Found{}, errors.New("no list of offers")
	}
	found := Found{Offers: make([]Offer, 0, len(rows))}
	for _, text := range rows {
		o, ok := parseOffer(text)
		if !ok {
			found.Odd++
			continue
		}
		found.Offers = append(found.Offers, o)
	}
	if found.Odd > 0 && len(found.Offers) == 0 {
		return Found{}, fmt.Errorf("none of %d offers has an id and a price", found.Odd)
	}
	return found, nil
}

func parseOffer(text []byte) (Offer, bool) {
	var row map[string]any
	if json.Unmarshal(text, &row) != nil || row == nil {
		return Offer{}, false
	}
	o := Offer{row: row}
	o.ID = int64(o.Number("id"))
	price, hasPrice := row["dph_total"].(float64)
	if o.ID <= 0 || !hasPrice || price < 0 {
		return Offer{}, false
	}
	o.Price, o.Machine = price, int64(o.Number("machine_id"))
	o.GPU, _ = row["gpu_name"].(string)
	o.GPUs = int(o.Number("num_gpus"))
	o.Location, _ = row["geolocation"].(string)
	if o.Reliability = o.Number("reliability"); o.Reliability == 0 {
		o.Reliability = o.Number("reliability2")
	}
	o.DownCost, o.UpCost, o.Duration = o.Number("inet_down_cost"), o.Number("inet_up_cost"), o.Number("duration")
	o.Verified = row["verification"] == "verified"
	o.Bid, _ = row["is_bid"].(bool)
	o.MinBid = o.Number("min_bid")
	return o, min(o.DownCost, o.UpCost, o.MinBid) >= 0
}

// MarshalJSON returns the market's row, which UnmarshalJSON reads.
func (o Offer) MarshalJSON() ([]byte, error) { return json.Marshal(o.row) }

// UnmarshalJSON reads a row of the market.
func (o *Offer) UnmarshalJSON(text []byte) error {
	read, ok := parseOffer(text)
	if !ok {
		return errors.New("the row is not an offer")
	}
	*o = read
	return nil
}

// factual are the fields that the rows of offers and instances share and that do not change
// during a rental.
var factual = []string{
	"disk_space", "num_gpus", "gpu_name", "gpu_ram", "gpu_total_ram", "gpu_arch", "compute_cap", "cuda_max_good",
	"driver_version", "geolocation", "direct_port_count", "static_ip", "inet_up", "inet_down",
	"cpu_arch", "cpu_ram", "cpu_cores_effective",
}

// slack is the part of a requested minimum that is accepted in a rented machine: sizes are
// rounded, and speeds are measured repeatedly.
var slack = map[string]float64{"disk_space": 0.95, "inet_up": 0.8, "inet_down": 0.8}

// Differing returns the first condition that a rented machine does not satisfy according to its
// row, or nil. Missing fields count as satisfied.
func (f Filters) Differing(i Instance) *Condition {
	o := Offer{row: i.Facts}
	o.Location, _ = i.Facts["geolocation"].(string)
	for k := range f {
		c := f[k]
		if !slices.Contains(factual, c.Field) {
			continue
		}
		have, told := i.Facts[c.Field]
		if !told {
			continue
		}
		if factor, ok := slack[c.Field]; ok && (c.Op == "gte" || c.Op == "gt") {
			if want, isNumber := c.Value.(float64); isNumber {
				if n, isNumber := have.(float64); isNumber && n >= want*factor {
					continue
				}
			}
		}
		if !c.Holds(o) {
			return &f[k]
		}
	}
	return nil
}

// Holds reports whether an offer satisfies the condition. A missing field counts as satisfied, except for the number of
// GPUs.
func (c Condition) Holds(o Offer) bool {
	if c.Op == anything {
		return true
	}
	var have any
	switch c.Field {
	case "verified":
		v, known := o.row["verification"].(string)
		if !known {
			return true
		}
		have = v == "verified"
	case "datacenter":
		v, known := o.row["hosting_type"].(float64)
		if !known {
			return true
		}
		have = v == 1
	case "geolocation":
		// Addresses may have several commas; the country code comes last.
		have = strings.TrimSpace(o.Location[strings.LastIndexByte(o.Location, ',')+1:])
	case "driver_version":
		v, _ := o.row["driver_version"].(string)
		n, err := driver(v)
		if err != nil {
			return true
		}
		have = n
	case "is_bid":
		have = o.Bid
	case "reliability":
		have = o.Reliability
	case "ask_contract_id":
		have = float64(o.ID)
	default:
		v, ok := o.row[c.Field]
		if !ok || v == nil {
			return c.Field != "num_gpus" && c.Test == nil
		}
		have = v
	}
	if c.Test != nil {
		return c.Test(have)
	}
	return compare(have, c.Op, c.Value)
}

func compare(have any, op string, want any) bool {
	if list, ok := want.([]any); ok {
		in := slices.ContainsFunc(list, func(w any) bool { return equal(have, w) })
		return in == (op == "in")
	}
	switch op {
	case "eq":
		return equal(have, want)
	case "neq":
		return !equal(have, want)
	}
	h, ok1 := have.(float64)
	w, ok2 := want.(float64)
	if !ok1 || !ok2 {
		return false
	}
	switch op {
	case "gt":
		return h > w
	case "gte":
		return h >= w
	case "lt":
		return h < w
	case "lte":
		return h <= w
	}
	return false
}

func equal(have, want any) bool {
	if h, ok := have.(string); ok {
		return strings.EqualFold(spaced(h), spaced(fmt.Sprint(want)))
	}
	return have == want
}

// Estimate is the expected time and traffic of a task.
type Estimate struct {
	Hours float64
	Down  float64 // GB of image and models
	Up    float64 // GB of artifacts
}

// Cost returns the expected cost of a task with an offer, in dollars.
func (e Estimate) Cost(o Offer) float64 {
	return o.Price*e.Hours + o.DownCost*e.Down + o.UpCost*e.Up
}

// Compare orders offers by the cost of the task. For equal costs, a machine that is not
// interruptible comes first, then the more reliable one.
func (e Estimate) Compare(a, b Offer) int {
	// Ignore differences below a hundredth of a cent.
	costA, costB := int64(e.Cost(a)*1e4+0.5), int64(e.Cost(b)*1e4+0.5)
	lost := func(o Offer) int {
		if o.Bid {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(costA, costB), cmp.Compare(lost(a), lost(b)),
		cmp.Compare(b.Reliability, a.Reliability), cmp.Compare(a.ID, b.ID))
}

// Row returns the fields of the offer by the market's names.
func (o Offer) Row() map[string]any { return o.row }

// flexID parses an id that is a number or a string.
func flexID(v any) int64 {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}
