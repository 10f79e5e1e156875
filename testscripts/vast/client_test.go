package vast

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// TestClient holds the market against the real vastai program: what it does there has
// the effect that it says.
func TestClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "cli", fake: true, boot: time.Millisecond, scale: 1})
	for i := range int64(4) {
		w.market.AddOffer(i+1, map[string]any{"dph_base": 0.3 + float64(i)/10, "min_bid": 0.1 + float64(i)/10, "gpu_name": []string{"RTX 4090", "RTX 3090"}[i%2]})
	}
	// vastai runs the program, and wants it to end without a complaint.
	vastai := func(line string) string {
		t.Helper()
		out, errs, code := w.run("vastai " + line)
		if code != 0 || errs != "" || strings.HasPrefix(out, "Error") {
			t.Errorf("vastai %s: %d %q %q", line, code, out, errs)
		}
		return out
	}
	rows := func(line string) []map[string]any {
		t.Helper()
		var list []map[string]any
		if out := vastai(line + " --raw"); json.Unmarshal([]byte(out), &list) != nil {
			t.Errorf("%s: %s", line, out)
		}
		return list
	}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		for start := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
			if time.Since(start) > harness.Patience {
				t.Fatal(what)
			}
		}
	}
	for _, flag := range []string{"", "--new "} {
		if got := rows("search offers " + flag + "'gpu_ram>=20 gpu_name=RTX_4090' -o dph-"); len(got) != 2 || got[0]["id"] != 3.0 {
			t.Errorf("search %s: %v", flag, got)
		}
	}
	if got := rows("search offers --type bid 'dph<0.25'"); len(got) != 2 || got[0]["is_bid"] != true {
		t.Errorf("bids: %v", got)
	}
	order := func(line string) int64 {
		t.Helper()
		var created struct {
			Contract int64 `json:"new_contract"`
		}
		if out := vastai("create instance " + line + " --raw"); json.Unmarshal([]byte(out), &created) != nil || created.Contract == 0 {
			t.Fatalf("%s: %s", line, out)
		}
		return created.Contract
	}
	find := func(id int64) server.Instance {
		t.Helper()
		for _, i := range w.market.Alive() {
			if i.ID == id {
				return i
			}
		}
		t.Fatalf("there is no instance %d", id)
		return server.Instance{}
	}
	plain := order("1 --image img --disk 20 --label plain")
	bid := order("2 --image img --disk 20 --label bid --bid_price 0.25")
	low := order("3 --image img --disk 20 --label low --bid_price 0.01")
	if i := find(low); i.Intended != "stopped" || i.Actual == "running" {
		t.Errorf("a bid that is too low: %+v", i)
	}
	eventually("they run", func() bool { return find(plain).Actual == "running" && find(bid).Actual == "running" })
	if _, errs, _ := w.run("vastai create instance 1 --image img --raw"); !strings.Contains(errs, `"status_code": 410`) || !strings.Contains(errs, "no_such_ask") {
		t.Errorf("an offer that was taken: %s", errs)
	}
	// Outbid, and a higher bid.
	w.market.Outbid(bid)
	if got := rows("show instances --label bid")[0]; got["cur_state"] != "stopped" || got["intended_status"] != "stopped" || got["next_state"] != "stopped" || got["is_bid"] != true {
		t.Errorf("outbid: %v", got)
	}
	vastai(fmt.Sprintf("change bid %d --price 0.5", bid))
	eventually("it runs again", func() bool { return find(bid).Actual == "running" && find(bid).Bid == 0.5 })
	// Lists: filters, orders, pages.
	if got := rows("show instances --label plain low --order-by 'id desc'"); len(got) != 2 || got[0]["id"] != float64(low) {
		t.Errorf("list %v", got)
	}
	if got := rows("show instances --status running --gpu-name RTX_3090"); len(got) > 1 {
		t.Errorf("list %v", got)
	}
	var page struct {
		Instances []map[string]any
		Next      string         `json:"next_token"`
		Labels    map[string]int `json:"label_counts"`
		Total     int            `json:"total_instances"`
	}
	if err := json.Unmarshal([]byte(vastai("show instances -l 2 --order-by 'label desc' --raw")), &page); err != nil || len(page.Instances) != 2 || page.Next == "" || page.Labels["bid"] != 1 || page.Total != 3 {
		t.Errorf("%v %+v", err, page)
	}
	if err := json.Unmarshal([]byte(vastai("show instances -l 2 --order-by 'label desc' --raw -t "+page.Next)), &page); err != nil || len(page.Instances) != 1 || page.Instances[0]["label"] != "bid" {
		t.Errorf("%v %+v", err, page)
	}
	if out, errs, _ := w.run("vastai show instances --raw -l 2 --order-by 'dph_total desc'"); !strings.Contains(errs, `"status_code": 400`) {
		t.Errorf("a column that cannot be sorted by: %s%s", out, errs)
	}
	// What is done with one.
	w.market.SetLog(plain, "one\ntwo\n")
	if out := vastai(fmt.Sprintf("logs %d --tail 5", plain)); !strings.Contains(out, "one\ntwo") {
		t.Errorf("log %q", out)
	}
	runs := find(plain).Runs
	for _, what := range []string{"reboot", "recycle"} {
		vastai(fmt.Sprintf("%s instance %d", what, plain))
		runs++
		eventually(what, func() bool { return find(plain).Runs == runs && find(plain).Actual == "running" })
	}
	vastai(fmt.Sprintf("stop instance %d", plain))
	if i := find(plain); i.Actual != "exited" || i.Intended != "stopped" {
		t.Errorf("stopped: %+v", i)
	}
	vastai(fmt.Sprintf("start instance %d", plain))
	vastai(fmt.Sprintf("label instance %d other", plain))
	vastai(fmt.Sprintf("update instance %d --image img:2", plain))
	if i := find(plain); i.Actual != "running" || i.Label != "other" || i.Image != "img:2" {
		t.Errorf("started: %+v", i)
	}
	if out := vastai("show user --raw"); !strings.Contains(out, `"credit": 50`) || strings.Contains(out, server.Key) {
		t.Errorf("user %s", out)
	}
	if out := vastai(fmt.Sprintf("show instance %d --raw", plain)); !strings.Contains(out, `"label": "other"`) {
		t.Errorf("instance %s", out)
	}
	vastai(fmt.Sprintf("destroy instances %d %d %d -y", plain, bid, low))
	if left := w.market.Alive(); len(left) > 0 {
		t.Errorf("left are %+v", left)
	}
}

// TestServer asks the market what the vastai program does not get to ask by itself.
func TestServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api", fake: true, boot: time.Millisecond})
	w.market.AddOffer(1, nil)
	ask := func(key, method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if kind := resp.Header.Get("Content-Type"); resp.StatusCode == http.StatusOK && kind != "application/json" && kind != "text/plain" {
			t.Errorf("%s: %s", path, kind)
		}
		return resp.StatusCode, string(b)
	}
	status, body := ask(server.Key, "PUT", "/api/v0/asks/1/", `{"image":"x","disk":10,"label":"l","onstart":"sh"}`)
	i := w.market.Instances()[0]
	id := strconv.FormatInt(i.ID, 10)
	if status != 200 || !strings.Contains(body, id) || len(i.Key) != 64 {
		t.Fatalf("%d %s", status, body)
	}
	for _, c := range []struct {
		key, method, path, body string
		status                  int
		want                    string
	}{
		{"", "GET", "/api/v0/gpu_names/unique/", "", 200, `"gpu_names":["RTX 4090"`},
		{"", "GET", "/api/v0/gpu_types/", "", 200, `"gpu_types":[]`},
		{"", "POST", "/api/v0/bundles/", `{"nonsense":{"eq":1}}`, 400, "nonsense is not a valid search key"},
		{"", "POST", "/api/v0/bundles/", `{"gpu_ram":{"gte":null}}`, 400, "query values can't be None"},
		{"", "GET", "/api/v1/instances/", "", 403, "This action requires login."},
		{"wrong", "GET", "/api/v1/instances/", "", 404, "auth_error"},
		{server.Key, "GET", "/api/v0/instances/", "", 410, "deprecated_endpoint"},
		{server.Key, "GET", "/api/v0/instances/filters/", "", 200, `"filters":[]`},
		{server.Key, "GET", "/api/v0/users/current", "", 200, `"credit"`},
		{server.Key, "PUT", "/api/v0/asks/2/", `{"image":"x","disk":10}`, 404, "no_such_ask"},
		{server.Key, "PUT", "/api/v0/asks/2/", `{"image":"x","disk":7}`, 400, "invalid_args"},
		{server.Key, "GET", "/api/v0/instances/1/", "", 200, `"instances":null`},
		{server.Key, "DELETE", "/api/v0/instances/1/", "{}", 404, "no_such_instance"},
		{server.Key, "PUT", "/api/v0/instances/command/" + id + "/", `{"command":"du -d2"}`, 200, "/results/"},
		{server.Key, "PUT", "/api/v0/instances/command/" + id + "/", `{"command":"sh -c id"}`, 400, "invalid_args"},
		{server.Key, "PUT", "/api/v0/instances/bid_price/" + id + "/", `{"price":1}`, 400, "set a bid price"},
		{server.Key, "PUT", "/api/v0/commands/rsync/", `{"src_id":"C.` + id + `","dst_id":null,"src_path":"/a","dst_path":"b"}`, 200, "src_port"},
		{server.Key, "PUT", "/api/v0/commands/rsync/", `{"src_id":7,"dst_id":null}`, 404, "no_such_instance"},
		{i.Key, "GET", "/api/v0/instances/" + id + "/", "", 200, `"label":"l"`},
		{i.Key, "GET", "/api/v1/instances/", "", 401, "instance_read"},
		{i.Key, "PUT", "/api/v0/instances/1/", `{"state":"stopped"}`, 401, "instance_write"},
	} {
		if status, body := ask(c.key, c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, status, body, c.status, c.want)
		}
	}
	w.market.Do(func() { w.market.Unauthorized = 401; w.market.LogAfter = 1 })
	if status, _ := ask("wrong", "GET", "/api/v1/instances/", ""); status != 401 {
		t.Errorf("a bad key: %d", status)
	}
	var answer struct {
		URL string `json:"result_url"`
	}
	_, body = ask(server.Key, "PUT", "/api/v0/instances/request_logs/"+id+"/", `{}`)
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(answer.URL, w.url)
	for _, want := range []struct {
		key    string
		status int
	}{{"", 403}, {"", 200}, {server.Key, 400}} {
		if status, body := ask(want.key, "GET", path, ""); status != want.status {
			t.Errorf("log: %d %s, want %d", status, body, want.status)
		}
	}
}
