package server

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

type market struct {
	*Server
	t   *testing.T
	url string
}

func open(t *testing.T, o Options) *market {
	t.Helper()
	m := New(o)
	web := httptest.NewServer(m)
	t.Cleanup(web.Close)
	t.Cleanup(m.Close)
	m.SetURL(web.URL)
	return &market{m, t, web.URL}
}

// ask makes a request and returns status, body and header.
func (m *market) ask(key, method, path, body string) (int, string, http.Header) {
	m.t.Helper()
	address := path
	if strings.HasPrefix(path, "/") {
		address = m.url + path
	}
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func (m *market) rent(offer int64, fields map[string]any) Instance {
	m.t.Helper()
	body := map[string]any{"image": "img", "disk": 20, "label": "l", "onstart": "sh"}
	change(body, fields)
	b, _ := json.Marshal(body)
	status, said, _ := m.ask(Key, "PUT", "/api/v0/asks/"+strconv.FormatInt(offer, 10)+"/", string(b))
	if all := m.Instances(); status == 200 && len(all) > 0 {
		return all[len(all)-1]
	}
	m.t.Fatalf("order of %d: %d %s", offer, status, said)
	return Instance{}
}

// Each documented interval is kept, and a refusal looks as documented.
func TestIntervals(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Credit: 10, Pace: 1000, RetryAfter: true}) // however slow this machine is
	m.AddOffer(1, nil)
	id := strconv.FormatInt(m.rent(1, nil).ID, 10) // uses the first order
	for _, c := range []struct {
		method, path, body string
		threshold          string
		after              int
	}{
		{"PUT", "/api/v0/asks/2/", `{}`, `{"detail":"API requests too frequent endpoint threshold=4.5"}`, 12000},
		{"GET", "/api/v1/instances/", "", `{"detail":"API requests too frequent endpoint threshold=1.0"}`, 1000},
		{"GET", "/api/v0/instances/" + id + "/", "", `{"detail":"API requests too frequent endpoint threshold=2.0"}`, 2000},
		{"PUT", "/api/v0/instances/" + id + "/", `{}`, `{"detail":"API requests too frequent endpoint threshold=1.0"}`, 1000},
		{"GET", "/api/v0/charges/", "", `{"detail":"API requests too frequent endpoint threshold=1.0"}`, 1000},
		{"PUT", "/api/v0/instances/bid_price/" + id + "/", `{}`, `{"detail":"API requests too frequent endpoint threshold=5.5"}`, 5500},
		{"DELETE", "/api/v0/instances/1/", `{}`, `{"error":"rate_limit_exceeded","msg":"API requests too frequent endpoint threshold=3.0","success":false}`, 3000},
	} {
		began := time.Now()
		if c.method != "PUT" || !strings.Contains(c.path, "asks") {
			if status, body, _ := m.ask(Key, c.method, c.path, c.body); status == 429 {
				t.Errorf("the first %s %s: %s", c.method, c.path, body)
			}
		}
		status, body, header := m.ask(Key, c.method, c.path, c.body)
		after, err := strconv.Atoi(header.Get("Retry-After"))
		// Some of it may have passed since the first one.
		if least := c.after - int(time.Since(began).Seconds()) - 1; status != 429 || body != c.threshold || err != nil || after > c.after || after < least {
			t.Errorf("%s %s: %d %s, Retry-After %q, want %d", c.method, c.path, status, body, header.Get("Retry-After"), c.after)
		}
	}
	// Ten searches in a minute, at whatever time; another key has its own.
	for n := range 11 {
		status, body, _ := m.ask(Key, "POST", "/api/v0/bundles/", "{}")
		if want := map[bool]int{true: 200, false: 429}[n < 10]; status != want {
			t.Errorf("search %d: %d %s", n, status, body)
		}
	}
	if status, body, _ := m.ask("", "POST", "/api/v0/bundles/", "{}"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}

// The quota of a day is not filled before it ends, and says when that is.
func TestQuota(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Credit: 10, Quota: 2})
	search := func() (int, string, http.Header) { return m.ask(Key, "POST", "/api/v0/bundles/", "{}") }
	for range 2 {
		if status, body, _ := search(); status != 200 {
			t.Fatal(status, body)
		}
	}
	status, body, header := search()
	if reset, err := strconv.ParseInt(header.Get("X-RateLimit-Reset"), 10, 64); status != 429 || !strings.Contains(body, `"search_quota_exceeded"`) || err != nil || reset%86400 != 0 || reset < clock.Now().Unix() {
		t.Errorf("%d %s %v", status, body, header)
	}
	m.SetQuota(1, clock.Now().Add(-time.Second))
	if status, body, _ := search(); status != 200 {
		t.Errorf("after the reset: %d %s", status, body)
	}
	if status, _, _ := search(); status != 429 {
		t.Errorf("after the reset: %d", status)
	}
}

// A key of some scopes may do what they allow, and an instance's own what is left to it.
func TestScopes(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Credit: 10})
	m.AddOffer(1, nil)
	i := m.rent(1, nil)
	path := "/api/v0/instances/" + strconv.FormatInt(i.ID, 10) + "/"
	requests := []struct{ scope, method, path, body string }{
		{"instance_read", "GET", "/api/v1/instances/", ""},
		{"instance_read", "PUT", "/api/v0/instances/request_logs/7000001/", "{}"},
		{"instance_write", "PUT", path, `{"label":"l"}`},
		{"instance_write", "PUT", "/api/v0/asks/9/", `{"image":"i","disk":10}`},
		{"user_read", "GET", "/api/v0/users/current/", ""},
		{"billing_read", "GET", "/api/v0/charges/", ""},
	}
	for _, r := range requests {
		m.AddKey("only-"+r.scope, r.scope)
	}
	for _, r := range requests {
		for _, scope := range []string{"instance_read", "instance_write", "user_read", "billing_read"} {
			status, body, _ := m.ask("only-"+scope, r.method, r.path, r.body)
			if refused := status == 401 && strings.Contains(body, "lacks the "+r.scope); refused == (scope == r.scope) {
				t.Errorf("%s %s with %s: %d %s", r.method, r.path, scope, status, body)
			}
		}
	}
	for _, c := range []struct {
		set  func()
		body string
		want int
	}{
		{func() {}, `{"label":"new"}`, 200},
		{func() { m.StopOnlyKeys = true }, `{"label":"newer"}`, 401},
		{func() {}, `{"state":"stopped"}`, 200},
		{func() { m.MuteOwnKeys = true }, `{"state":"running"}`, 401},
	} {
		m.Do(c.set)
		if status, body, _ := m.ask(i.Key, "PUT", path, c.body); status != c.want {
			t.Errorf("%s: %d %s, want %d", c.body, status, body, c.want)
		}
	}
	if i = m.Alive()[0]; i.Label != "new" || i.Intended != "stopped" {
		t.Errorf("%+v", i)
	}
}

// The store of the logs sends requests elsewhere, and wants no key there either.
func TestRedirects(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Credit: 10})
	m.AddOffer(1, nil)
	i := m.rent(1, nil)
	m.SetLog(i.ID, "hello\n")
	m.Do(func() { m.LogRedirects = 2 })
	ask := func() (answer struct {
		URL string `json:"result_url"`
	}) {
		_, body, _ := m.ask(Key, "PUT", "/api/v0/instances/request_logs/"+strconv.FormatInt(i.ID, 10)+"/", "{}")
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatal(body)
		}
		return answer
	}
	to := ask().URL
	for range 2 {
		status, _, header := m.ask("", "GET", to, "")
		if status != 307 || header.Get("Location") == "" {
			t.Fatalf("%d %v", status, header)
		}
		to = header.Get("Location")
	}
	if !strings.Contains(to, "//localhost:") {
		t.Errorf("not another host: %s", to)
	}
	if status, body, _ := m.ask("", "GET", to, ""); status != 200 || body != "hello\n" {
		t.Errorf("%d %q", status, body)
	}
	if status, _, _ := m.ask(Key, "GET", to, ""); status != 400 {
		t.Errorf("with a key: %d", status)
	}
	m.LogOf(i.ID, &Refusal{403, "not_authorized", "Not authorized to view logs for this instance"})
	if status, body, _ := m.ask(Key, "PUT", "/api/v0/instances/request_logs/"+strconv.FormatInt(i.ID, 10)+"/", "{}"); status != 403 || !strings.Contains(body, "not_authorized") {
		t.Errorf("%d %s", status, body)
	}
}

// The bill is what the meter shows, for each instance and by its parts.
func TestCharges(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Credit: 10, Boot: time.Nanosecond, Scale: 36000})
	for n := range int64(3) {
		m.AddOffer(n+1, map[string]any{"inet_down_cost": 0.01 * float64(n)})
		m.rent(n+1, map[string]any{"label": "ponos:a:t:" + strconv.FormatInt(n+1, 10)})
	}
	for start := time.Now(); !slices.ContainsFunc(m.Alive(), func(i Instance) bool { return i.Actual == "running" }); time.Sleep(time.Millisecond) {
		if time.Since(start) > 3*time.Minute {
			t.Fatal("nothing runs")
		}
	}
	for _, i := range m.Alive() {
		m.ask(Key, "DELETE", "/api/v0/instances/"+strconv.FormatInt(i.ID, 10)+"/", "{}")
	}
	type charge struct {
		Source string
		Amount float64
		Items  []struct {
			Type   string
			Amount float64
		}
	}
	var all []charge
	token := ""
	for range 3 {
		query := url.Values{"select_filters": {`{"day":{"gte":0,"lte":99999999999},"type":{"in":["instance"]}}`}, "limit": {"1"}, "latest_first": {"false"}}
		if token != "" {
			query.Set("after_token", token)
		}
		var page struct {
			Next    *string  `json:"next_token"`
			Results []charge `json:"results"`
			Total   int      `json:"total"`
		}
		if _, body, _ := m.ask(Key, "GET", "/api/v0/charges/?"+query.Encode(), ""); json.Unmarshal([]byte(body), &page) != nil || page.Total != 3 {
			t.Fatal(body)
		}
		all = append(all, page.Results...)
		if page.Next == nil {
			break
		}
		token = *page.Next
	}
	total := 0.0
	for _, c := range all {
		sum := 0.0
		for _, item := range c.Items {
			sum += item.Amount
		}
		if d := sum - c.Amount; d > 0.001 || d < -0.001 || len(c.Items) != 3 {
			t.Errorf("%+v", c)
		}
		total += sum
	}
	if meter := m.Meter("ponos:"); len(all) != 3 || all[0].Source != "instance-7000001" || total < meter*0.999 || total > meter*1.001 || meter == 0 {
		t.Errorf("%d charges of $%f, the meter shows $%f", len(all), total, meter)
	}
	if status, body, _ := m.ask(Key, "GET", "/api/v0/charges/?select_filters={}", ""); status != 400 || !strings.Contains(body, "Must provide both") {
		t.Errorf("%d %s", status, body)
	}
	m.Do(func() { m.ChargesLag = time.Hour * 24 * 365 })
	if _, body, _ := m.ask(Key, "GET", "/api/v0/charges/?select_filters="+url.QueryEscape(`{"day":{"gte":0,"lte":99999999999}}`), ""); !strings.Contains(body, `"total":0`) {
		t.Errorf("before they are on the bill: %s", body)
	}
}

// Odd rows and offers, machines that are not as offered, disks, bids.
func TestOddities(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Credit: 10, Boot: time.Nanosecond})
	m.AddOffer(1, map[string]any{"dph_total": nil})
	m.AddOffer(2, map[string]any{"id": Absent, "geolocation": "Shinagawa District, Tokyo, JP"})
	m.AddOffer(3, map[string]any{"disk_space": 9.5, "num_gpus": 4})
	m.AddOffer(4, map[string]any{"min_bid": 0.2})
	_, body, _ := m.ask("", "POST", "/api/v0/bundles/", `{"order":[["id","asc"]]}`)
	var found struct{ Offers []map[string]any }
	if json.Unmarshal([]byte(body), &found) != nil || len(found.Offers) != 4 {
		t.Fatal(body)
	}
	for n, has := range map[int]map[string]bool{0: {"id": false, "dph_total": true}, 1: {"id": true, "dph_total": true}} {
		for field, want := range has {
			if _, ok := found.Offers[n][field]; ok != want {
				t.Errorf("offer %d: %s is there: %v", n, field, ok)
			}
		}
	}
	if found.Offers[1]["dph_total"] != nil {
		t.Errorf("%v", found.Offers[1])
	}
	if _, body, _ := m.ask("", "POST", "/api/v0/bundles/", `{"geolocation":{"eq":"JP"}}`); !strings.Contains(body, "Tokyo") || strings.Contains(body, "France") {
		t.Errorf("in Japan: %s", body)
	}
	// Fewer GB than were ordered.
	m.Machine(3, Machine{Row: map[string]any{"gpu_ram": 8000}})
	small := m.rent(3, nil)
	list := func() []map[string]any {
		var page struct{ Instances []map[string]any }
		if _, body, _ := m.ask(Key, "GET", "/api/v1/instances/?limit=25", ""); json.Unmarshal([]byte(body), &page) != nil {
			t.Fatal(body)
		}
		return page.Instances
	}
	if row := list()[0]; row["disk_space"] != 9.5 || row["num_gpus"] != 4.0 || row["gpu_ram"] != 8000.0 {
		t.Errorf("%v", row)
	}
	m.Change(small.ID, map[string]any{"id": nil, "start_date": Absent})
	if row := list()[0]; row["id"] != nil || row["label"] != "l" {
		t.Errorf("%v", row)
	}
	m.AddOffer(5, map[string]any{"disk_space": 9.5})
	m.Do(func() { m.StrictDisk = true })
	if status, body, _ := m.ask(Key, "PUT", "/api/v0/asks/5/", `{"image":"i","disk":20}`); status != 400 || !strings.Contains(body, "invalid_args") {
		t.Errorf("%d %s", status, body)
	}
	m.Refuse(5, Refusal{403, "invalid_args", "error 403/3586: Offer 5 is not your own. Hosts can only rent their own machines."})
	if status, body, _ := m.ask(Key, "PUT", "/api/v0/asks/5/", `{"image":"i","disk":8}`); status != 403 || !strings.Contains(body, `"ask_id":5`) {
		t.Errorf("%d %s", status, body)
	}
	// Outbid, and again the highest bidder.
	bid := m.rent(4, map[string]any{"price": 0.25})
	running := func() bool {
		for _, i := range m.Alive() {
			if i.ID == bid.ID {
				return i.Actual == "running" && i.Intended == "running"
			}
		}
		return false
	}
	for start := time.Now(); !running(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 3*time.Minute {
			t.Fatal("the bid does not run")
		}
	}
	m.MinBid(bid.ID, 0.3)
	if running() {
		t.Error("outbid, and it runs")
	}
	m.MinBid(bid.ID, 0.2)
	if !running() {
		t.Error("not outbid any more, and it does not run")
	}
}

// What the documents name is what the server has.
func TestContract(t *testing.T) {
	t.Parallel()
	m := open(t, Options{Credit: 10})
	m.AddOffer(1, nil)
	m.AddOffer(2, nil)
	m.rent(1, nil)
	for _, name := range []string{"search_offers", "create_instance", "show_instances", "destroy_instance", "destroy_instances", "manage_instance", "logs", "show_user", "show_charges", "change_bid"} {
		if !slices.ContainsFunc(TheContract.Operations, func(o Operation) bool { return o.Name == name }) {
			t.Errorf("the fixture lacks %s", name)
		}
	}
	for _, c := range []struct{ method, path, list string }{
		{"GET", "/api/v1/instances/?limit=25", "instances"},
		{"POST", "/api/v0/bundles/", "offers"},
		{"GET", "/api/v0/charges/?select_filters=" + url.QueryEscape(`{"day":{"gte":0,"lte":99999999999}}`), "results"},
	} {
		path, _, _ := strings.Cut(c.path, "?")
		o := TheContract.Find(c.method, path)
		var body map[string]any
		_, text, _ := m.ask(Key, c.method, c.path, "{}")
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Fatal(text)
		}
		for field := range body {
			if !slices.Contains(o.Response, field) {
				t.Errorf("%s: %s is not documented", o.Name, field)
			}
		}
		for _, field := range o.Response {
			if _, ok := body[field]; !ok {
				t.Errorf("%s: %s is missing", o.Name, field)
			}
		}
		row, _ := body[c.list].([]any)[0].(map[string]any)
		for field := range row {
			if !slices.Contains(TheContract.Known(o), field) && field != "something_new" { // to see that new ones do no harm
				t.Errorf("%s: %s is not documented", o.Name, field)
			}
		}
	}
}
