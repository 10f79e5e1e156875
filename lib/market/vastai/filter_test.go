package vastai

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseQuery(t *testing.T) {
	got, err := ParseQuery(`gpu_ram>=24 gpu_name=RTX_4090 duration > 2 geolocation in [FR,DE] verified=true driver_version>=535.86.05 cuda_vers!=12.1`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"gpu_ram": map[string]any{"gte": 24000.0}, "gpu_name": map[string]any{"eq": "RTX 4090"}, "duration": map[string]any{"gt": 172800.0},
		"geolocation": map[string]any{"in": []any{"FR", "DE"}}, "verified": map[string]any{"eq": true}, "driver_version": map[string]any{"gte": 535086005.0},
		"cuda_max_good": map[string]any{"neq": 12.1},
	}
	if body := got.body(); !reflect.DeepEqual(body, want) {
		t.Errorf("got %v\nwant %v", body, want)
	}
	// The query for the CLI parses to the same filters.
	query, err := got.query()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseQuery(query)
	if err != nil || !reflect.DeepEqual(again.body(), want) {
		t.Errorf("%q: %v, %v", query, again.body(), err)
	}
}

func TestInvalidFilters(t *testing.T) {
	for query, want := range map[string]string{
		"gpu_rma>=24":                   `unknown field; did you mean "gpu_ram"?`,
		"gpu_ram=>24":                   "unknown operator",
		"gpu_name>4090":                 "needs a number",
		"static_ip=perhaps":             "neither true nor false",
		"gpu_ram>=much":                 "invalid number",
		"gpu_ram>=24 gpu_ram<=12":       "contradict each other",
		"reliability>98":                "it is a fraction",
		"cuda_max_good>=1280":           "invalid CUDA version",
		"compute_cap>=8":                "8.9 is written 890",
		"num_gpus>=2":                   "expected the number of GPUs",
		"rentable=true":                 "the agent sets this itself",
		"driver_version>=535":           "invalid version",
		"gpu_ram in []":                 "empty",
		"gpu_ram":                       "invalid comparison",
		"gpu_ram>=24 || gpu_name=x":     "invalid comparison",
		"gpu_ram>=200000":               "in a query the unit is GB",
		"gpu_ram = [1,2]":               "does not take a list",
		"gpu_name in RTX_4090":          "requires a list",
		"gpu_name=\"a\"b":               "a space is missing",
		"gpu_name=A gpu_name=B":         "contradict each other",
		"verified=true verified=false":  "contradict each other",
		"num_gpus=any":                  "give one, such as num_gpus=1",
		"gpu_name=RTX4090":              `unknown GPU "RTX4090"; did you mean "RTX 4090"?`,
		"gpu_ram>=any":                  "invalid number",
		"dph<1 dph_total=2 gpu_ramm<=1": "unknown field",
	} {
		if _, err := ParseQuery(query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", query, err, want)
		}
	}
	for want, m := range map[string]map[string]any{
		"in a map the unit is MB": {"gpu_ram": map[string]any{"gte": 24}},
		"the value is missing":    {"gpu_ram": nil},
		"has no operator":         {"gpu_ram": map[string]any{}},
		"expected a plain value":  {"gpu_name": map[string]any{"eq": map[string]any{"x": 1}}},
	} {
		if _, err := ParseMap(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %q", m, err, want)
		}
	}
	// All problems are reported at once.
	if _, err := ParseQuery("gpu_rma>=1 num_gpus=0"); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("%v", err)
	}
}

// Each field for filters is in the market's documents, or has its source in the list.
func TestFieldsAreKnown(t *testing.T) {
	var contract struct {
		Operations []struct {
			Name         string
			Request, Row []string
		}
		Beyond []struct {
			Operation string
			Fields    []string
		} `json:"beyond_the_documents"`
	}
	b, err := os.ReadFile("../../../testscripts/vast/server/contract.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &contract); err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, o := range contract.Operations {
		if o.Name == "search_offers" {
			known = o.Request
		}
	}
	for _, b := range contract.Beyond {
		if b.Operation == "search_offers" {
			known = append(known, b.Fields...)
		}
	}
	for field := range fields {
		if !slices.Contains(known, field) {
			t.Errorf("offers are filtered by %q, which is not in the contract", field)
		}
	}
	if len(known) < 40 {
		t.Errorf("the contract has %q", known)
	}
}

func TestAnything(t *testing.T) {
	f, err := ParseQuery("verified=false gpu_ram>=80 verified=any gpu_ram = *")
	if err != nil {
		t.Fatal(err)
	}
	if body := f.Complete().body(); body["verified"] != nil || body["gpu_ram"] != nil || body["num_gpus"] == nil {
		t.Errorf("%v", body)
	}
	if query, err := f.query(); err != nil || query != "verified=any gpu_ram=any" {
		t.Errorf("%q, %v", query, err)
	}
}

func TestSuspicions(t *testing.T) {
	for query, n := range map[string]int{"cpu_cores>=8": 1, "gpu_ram=24": 1, "verified=false cpu_cores<4": 2, "gpu_ram>=24 verified=true cpu_cores_effective>4": 0} {
		f, err := ParseQuery(query)
		if err != nil || len(f.Suspicions()) != n {
			t.Errorf("%s: %q, %v", query, f.Suspicions(), err)
		}
	}
}

// pass reports whether an offer passes filters.
func pass(f Filters, o Offer) bool {
	return !slices.ContainsFunc(f, func(c Condition) bool { return !c.Holds(o) })
}

func TestHolds(t *testing.T) {
	offers, err := parseOffers([]byte(`[{"id": 1, "dph_total": 0.3, "num_gpus": 1, "gpu_ram": 24564, "verification": "verified", "geolocation": "France, FR",
		"driver_version": "570.86.10", "reliability2": 0.99, "hosting_type": 0, "gpu_name": "RTX 4090"}]`))
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]bool{
		"gpu_ram>=24": true, "gpu_ram>=40": false, "geolocation=FR": true, "geolocation notin [FR,DE]": false, "reliability>0.98": true, "reliability>0.995": false,
		"driver_version>=570.86.10": true, "driver_version<535.1.1": false, "datacenter=true": false, "gpu_name=RTX_4090": true, "verified=false": false, "cpu_ghz>9": true,
	} {
		f, err := ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := pass(f, offers.Offers[0]); got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
	// An offer with two GPUs is never ordered, even if the market lists it.
	two, err := parseOffers([]byte(`[{"id": 1, "dph_total": 0.3, "num_gpus": 2}]`))
	if err != nil || pass(Filters(nil).Complete(), two.Offers[0]) {
		t.Error("two GPUs")
	}
	for _, bad := range []string{`{}`, `null`, `[1]`, `[{"id": 1}]`, `[{"dph_total": 1}]`, `[{"id":1,"dph_total":-1}]`, ``} {
		if _, err := parseOffers([]byte(bad)); err == nil {
			t.Errorf("%s became offers", bad)
		}
	}
}

func TestCompare(t *testing.T) {
	offers := []Offer{
		{ID: 1, Price: 0.30, DownCost: 0.04}, {ID: 2, Price: 0.40, Reliability: 0.9}, {ID: 3, Price: 0.40, Reliability: 0.99}, {ID: 4, Price: 0.5},
		{ID: 5, Price: 0.40, Reliability: 1, Bid: true},
	}
	slices.SortFunc(offers, Estimate{Hours: 1, Down: 10}.Compare)
	var got []int64
	for _, o := range offers {
		got = append(got, o.ID)
	}
	if want := []int64{3, 2, 5, 4, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Rows of a search that cannot be parsed are omitted and counted.
// An offer that pays for being taken would be the cheapest of all, and count against what others cost.
func TestHostileOffers(t *testing.T) {
	const odd = `[{"id":1,"dph_total":-1},{"id":2,"dph_total":"0.1"},{"id":3,"dph_total":0.1,"inet_down_cost":-100},
		{"id":4,"dph_total":0.1,"inet_up_cost":-100},{"id":5,"dph_total":0.1,"is_bid":true,"min_bid":-1},{"id":6,"dph_total":1e999},
		{"id":7,"dph_total":true},{"id":-8,"dph_total":0.1},{"id":9}]`
	if found, err := parseOffers([]byte(odd)); err == nil {
		t.Errorf("%+v", found)
	}
	found, err := parseOffers([]byte(`[{"id":3,"dph_total":0.1,"inet_down_cost":-100},{"id":10,"dph_total":0.2}]`))
	if err != nil || found.Odd != 1 || len(found.Offers) != 1 || found.Offers[0].ID != 10 {
		t.Errorf("%+v, %v", found, err)
	}
	i, err := parseInstance([]byte(`{"id":1,"dph_total":-1,"storage_total_cost":-1,"inet_up_cost":-1,"inet_down_cost":-1}`))
	if err != nil || i.Price+i.Storage+i.UpCost+i.DownCost != 0 {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestOddOffers(t *testing.T) {
	found, err := parseOffers([]byte(`[{"id":300,"dph_total":null},{"id":301,"dph_total":0.2},7,{"id":-1,"dph_total":1}]`))
	if err != nil || found.Odd != 3 || len(found.Offers) != 1 || found.Offers[0].ID != 301 {
		t.Errorf("%+v, %v", found, err)
	}
}

// Hosts write addresses freely; the country code is after the last comma.
func TestGeolocation(t *testing.T) {
	found, err := parseOffers([]byte(`[{"id":1,"dph_total":1,"geolocation":"Yutakacho, Shinagawa District, Tokyo, JP"},{"id":2,"dph_total":1,"geolocation":"JP"}]`))
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]bool{"geolocation=JP": true, "geolocation!=JP": false, "geolocation in [FR,JP]": true, "geolocation=FR": false} {
		f, err := ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range found.Offers {
			if got := pass(f, o); got != want {
				t.Errorf("%s at %q: %v", query, o.Location, got)
			}
		}
	}
}

// Of two limits of a field, the stricter one is sent to the market.
func TestStrictest(t *testing.T) {
	f, err := ParseQuery("disk_space>=100 gpu_ram>=20 gpu_ram>=40 dph<=0.5 dph<=2")
	if err != nil {
		t.Fatal(err)
	}
	f = append(f, Condition{Field: "disk_space", Op: "gte", Value: 40.0}, Condition{Field: "gpu_name", Test: func(any) bool { return true }})
	if got, want := fmt.Sprint(f.body()), "map[disk_space:map[gte:100] dph_total:map[lte:0.5] gpu_ram:map[gte:40000]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, err := f.query(); err != nil || got != "disk_space>=100 gpu_ram>=40 dph_total<=0.5" {
		t.Errorf("%s, %v", got, err)
	}
}

// A rented machine is compared with the filters by the row of its instance.
func TestDiffering(t *testing.T) {
	i, err := parseInstance([]byte(`{"id":7,"label":"x","gpu_name":"RTX 4090","num_gpus":1,"gpu_ram":24564,"disk_space":8.5,"geolocation":"Lyon, FR",
		"driver_version":"535.86.05","cuda_max_good":12.2,"direct_port_count":3,"inet_down":700,"dph_total":9,"rentable":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for query, bad := range map[string]bool{
		"disk_space>=20": true, "disk_space>=8.6": false, "gpu_ram>=24": false, "gpu_ram>=40": true, "geolocation=FR": false, "geolocation=DE": true,
		"driver_version>=550.1.1": true, "cuda_max_good>=12.4": true, "direct_port_count>=4": true, "inet_down>=800": false, "inet_down>=900": true,
		"inet_up>=900": false, "dph<=1": false, "num_gpus=2": true, "num_gpus=1": false, "gpu_name=RTX_3090": true, "reliability>0.99": false,
	} {
		f, err := ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Complete().Differing(i); (got != nil && got.Text == query) != bad {
			t.Errorf("%s: %v", query, got)
		}
	}
	for row, want := range map[string]bool{`"disk_space":30,"gpu_totalram":24564`: false, `"disk_space":30`: false, `"disk_space":null`: false, `"gpu_totalram":9000`: true} {
		i, err := parseInstance([]byte(`{"id":7,"num_gpus":1,` + row + `}`))
		if err != nil {
			t.Fatal(err)
		}
		f, err := ParseQuery("disk_space>=20 gpu_total_ram>=20 reliability>0.9")
		if err != nil {
			t.Fatal(err)
		}
		if bad := f.Complete().Differing(i); (bad != nil) != want {
			t.Errorf("%s: %v", row, bad)
		}
	}
}

func TestCleanHidesSecrets(t *testing.T) {
	key := strings.Repeat("0123456789abcdef", 4)
	got := clean("bad key " + key + " at https://s3.example.org/x?sig=1 Bearer abc\x1b[31m\n")
	if strings.Contains(got, key) || strings.Contains(got, "s3.") || strings.Contains(got, "abc") || strings.ContainsAny(got, "\x1b\n") {
		t.Error(got)
	}
}

func TestHide(t *testing.T) {
	o := Order{Env: map[string]string{"A": "first-secret", "B": "first-secret-and-more \"x\"", "C": "1"}, Login: "-u me -p hush-hush reg"}
	said := hide([]byte(`{"msg":"first-secret first-secret-and-more \"x\" -u me -p hush-hush reg 1"}`), o)
	if got := string(said); got != `{"msg":"*** *** *** 1"}` {
		t.Error(got)
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add(`gpu_ram>=24 gpu_name="RTX 4090" geolocation notin [FR, DE]`)
	f.Add("dph<=0.5 verified=any")
	f.Fuzz(func(t *testing.T, query string) {
		filters, err := ParseQuery(query)
		if err != nil {
			return
		}
		text, err := filters.query()
		if err != nil {
			return
		}
		again, err := ParseQuery(text)
		if err != nil || len(again) != len(filters) {
			t.Errorf("%q became %q: %v", query, text, err)
		}
	})
}

func FuzzReadAnswers(f *testing.F) {
	f.Add([]byte(`{"success":true,"instances":[{"id":1,"label":"x","extra_env":[["a","b"]]}],"total_instances":1,"next_token":null}`))
	f.Add([]byte(`{"success":true,"count":1,"total":1,"results":[{"start":1730419200,"end":1730678400,"type":"instance","source":"instance-7","amount":1.5,"metadata":{"label":"x"},"items":[]}],"next_token":null}`))
	f.Add([]byte(`{"results":[{}]}`))
	f.Add([]byte(`{"success":true,"new_contract":7,"instance_api_key":"x"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := collect(time.Time{}, "", func(string) ([]byte, error) { return raw, nil })
		if err == nil && list.Instances == nil && !strings.Contains(string(raw), "instances") {
			t.Errorf("%q became an empty list", raw)
		}
		_, _ = parseOffers(raw)
		_, _ = parseAccount(raw)
		if i, err := parseInstance(raw); err == nil && i.ID <= 0 {
			t.Errorf("%q became an instance", raw)
		}
		if page, _, err := parseCharges(raw); err == nil {
			for _, c := range page {
				if c.Instance <= 0 && c != (Charge{}) { // else it is a row that cannot be read
					t.Errorf("%q became the charge of no instance: %+v", raw, c)
				}
			}
		}
		if c, err := parseCreated(raw); err == nil && c.ID <= 0 {
			t.Errorf("%q became an order", raw)
		}
	})
}

func FuzzEnvFlag(f *testing.F) {
	f.Add("A", `{"x":"y z"}`, "B", "it's")
	f.Fuzz(func(t *testing.T, a, va, b, vb string) {
		env := map[string]string{a: va, b: vb}
		flag, err := envFlag(env)
		if err == nil && !reflect.DeepEqual(readEnvFlag(flag), env) {
			t.Errorf("%q lost something", flag)
		}
	})
}
