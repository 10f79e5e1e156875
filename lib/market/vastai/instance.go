package vastai

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// page is one page of the list of instances.
type page struct {
	Success   *bool             `json:"success"`
	Instances []json.RawMessage `json:"instances"`
	Total     *int              `json:"total_instances"`
	Found     *int              `json:"instances_found"`
	Next      *string           `json:"next_token"`
}

// maxPages limits the pages of a list; a page has 25 instances.
const maxPages = 400

// collect reads all pages. If a page does not report success, has no list, or has a wrong
// count, the whole list is an error.
func collect(at time.Time, label string, get func(after string) ([]byte, error)) (Listing, error) {
	for attempt := 0; ; attempt++ {
		list, err := collectOnce(label, get)
		list.At = at
		// Instances may start and end between two pages: read all pages again, once.
		if !errors.Is(err, errMoved) || attempt == 1 {
			return list, err
		}
	}
}

var errMoved = errors.New("the list changed while it was read")

func collectOnce(label string, get func(after string) ([]byte, error)) (Listing, error) {
	var list []Instance
	odd := map[string]int{} // count of each unreadable row, by its text: another page may repeat a row
	seen := map[int64]bool{}
	total, after := 0, ""
	for range maxPages {
		raw, err := get(after)
		if err != nil {
			return Listing{}, err
		}
		var p page
		if err := json.Unmarshal(raw, &p); err != nil {
			return Listing{}, failed("list of instances", nil, 0, "the answer is not a page of instances")
		}
		switch {
		case p.Success == nil || !*p.Success:
			return Listing{}, failed("list of instances", nil, 0, "the answer does not report success")
		case p.Instances == nil:
			return Listing{}, failed("list of instances", nil, 0, "the answer has no list of instances")
		case p.Total == nil:
			return Listing{}, failed("list of instances", nil, 0, "the answer does not have the number of instances")
		}
		here := map[string]int{}
		for _, row := range p.Instances {
			i, err := parseInstance(row)
			if err != nil {
				here[string(row)]++
				odd[string(row)] = max(odd[string(row)], here[string(row)])
				continue
			}
			if !seen[i.ID] {
				seen[i.ID] = true
				list = append(list, i)
			}
		}
		total = *p.Total
		if p.Next == nil || *p.Next == "" {
			out := Listing{Instances: ofLabel(list, label)}
			for row, n := range odd {
				out.Odd += n
				if name, ok := oddLabel([]byte(row)); ok {
					out.OddLabels = append(out.OddLabels, slices.Repeat([]string{name}, n)...)
				}
			}
			slices.Sort(out.OddLabels)
			// With a filter, some servers return the total of all instances.
			if label == "" && total != len(seen)+out.Odd {
				return Listing{}, failed("list of instances", errMoved, 0, "")
			}
			if out.Odd > 0 && len(seen) == 0 {
				return Listing{}, failed("list of instances", nil, 0, fmt.Sprintf("none of its %d rows can be read", out.Odd))
			}
			return out, nil
		}
		if *p.Next == after || len(p.Instances) == 0 {
			return Listing{}, failed("list of instances", nil, 0, "the pages do not end")
		}
		after = *p.Next
	}
	return Listing{}, failed("list of instances", nil, 0, "too many pages")
}

// oddLabel returns the label of a row that cannot be parsed otherwise.
func oddLabel(raw []byte) (string, bool) {
	var row map[string]any
	if json.Unmarshal(raw, &row) != nil {
		return "", false
	}
	v, told := row["label"]
	name, isText := v.(string)
	return name, told && (isText || v == nil)
}

// ofLabel repeats the server's filter by label.
func ofLabel(list []Instance, label string) []Instance {
	if label == "" {
		return list
	}
	out := []Instance{}
	for _, i := range list {
		if i.Label == label {
			out = append(out, i)
		}
	}
	return out
}

func parseInstance(raw []byte) (Instance, error) {
	var row map[string]any
	if err := json.Unmarshal(raw, &row); err != nil {
		return Instance{}, errors.New("an instance is not an object")
	}
	str := func(name string) string {
		s, _ := row[name].(string)
		return strings.TrimSpace(s)
	}
	num := func(name string) float64 {
		f, _ := row[name].(float64)
		return f
	}
	money := func(name string) float64 { return max(0, num(name)) } // what pays for itself would lift the limits of others
	i := Instance{
		ID: flexID(row["id"]), Label: str("label"), Machine: flexID(row["machine_id"]), Actual: str("actual_status"),
		Intended: str("intended_status"), Current: str("cur_state"), Message: clean(str("status_msg")), GPU: str("gpu_name"),
		Price: money("dph_total"), Storage: money("storage_total_cost"), UpCost: money("inet_up_cost"), DownCost: money("inet_down_cost"),
		Variables: variables(row["extra_env"]), Facts: map[string]any{},
	}
	i.Bid, _ = row["is_bid"].(bool)
	if row["gpu_total_ram"] == nil {
		row["gpu_total_ram"] = row["gpu_totalram"] // its name in instances; offers have gpu_total_ram
	}
	for _, name := range factual {
		switch v := row[name].(type) {
		case float64, bool, string:
			i.Facts[name] = v
		}
	}
	if i.ID <= 0 {
		return Instance{}, errors.New("an instance has no id")
	}
	if s := num("start_date"); s > 0 && s < 1e11 {
		seconds, part := math.Modf(s)
		i.Started = time.Unix(int64(seconds), int64(part*1e9))
	}
	return i, nil
}

// variables parses extra_env, a list of pairs or an object.
func variables(v any) map[string]string {
	out := map[string]string{}
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			out[name], _ = value.(string)
		}
	case []any:
		for _, pair := range v {
			if p, ok := pair.([]any); ok && len(p) == 2 {
				name, _ := p[0].(string)
				out[name], _ = p[1].(string)
			}
		}
	}
	return out
}
