package server

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// searchable are the fields that the market knows.
var searchable = strings.Fields(`bw_nvlink compute_cap cpu_arch cpu_cores cpu_cores_effective cpu_ghz cpu_ram cuda_max_good datacenter
	direct_port_count driver_version disk_bw disk_space dlperf dlperf_per_dphtotal dph_total dph_base duration external flops_per_dphtotal
	gpu_arch gpu_display_active gpu_frac gpu_mem_bw gpu_name gpu_ram gpu_total_ram gpu_max_power gpu_max_temp has_avx host_id inet_down
	inet_down_cost inet_up inet_up_cost machine_id min_bid mobo_name num_gpus pci_gen pcie_bw reliability reliability2 rentable rented
	storage_cost static_ip total_flops ubuntu_version verification verified vms_enabled geolocation cluster_id ask_contract_id score
	os_version hosting_type`)

func (s *Server) search(body []byte) answer {
	var query map[string]any
	if err := json.Unmarshal(body, &query); err != nil {
		return answer{status: 400, kind: "text/plain", body: []byte("Request body must be valid JSON")}
	}
	disk, limit := 5.0, 64
	if v, ok := query["allocated_storage"].(float64); ok {
		disk = v
	}
	if v, ok := query["limit"].(float64); ok && int(v) < limit {
		limit = int(v)
	}
	order, _ := query["order"].([]any)
	bids := query["type"] == "bid" || query["type"] == "interruptible"
	for _, reserved := range []string{"allocated_storage", "limit", "order", "type", "disable_bundling"} {
		delete(query, reserved)
	}
	for field, comparisons := range query {
		if !slices.Contains(searchable, field) {
			return answer{status: 400, kind: "text/plain", body: []byte(field + " is not a valid search key")}
		}
		ops, _ := comparisons.(map[string]any)
		for op, v := range ops {
			if v == nil {
				return answer{status: 400, kind: "text/plain", body: []byte(field + " " + op + " None: query values can't be None")}
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := []map[string]any{}
	for _, offer := range s.offers {
		row := map[string]any{}
		for name, v := range offer {
			row[name] = v
		}
		if bids {
			row["dph_base"], row["is_bid"] = row["min_bid"], true
		}
		if _, given := offer["dph_total"]; !given { // an odd offer has its own values
			row["dph_total"] = num(row["dph_base"]) + num(offer["storage_cost"])*disk/730
		}
		if s.meets(row, query) {
			rows = append(rows, row)
		}
	}
	for k := len(order) - 1; k >= 0; k-- {
		pair, _ := order[k].([]any)
		if len(pair) != 2 {
			continue
		}
		field, _ := pair[0].(string)
		sort.SliceStable(rows, func(i, j int) bool {
			a, b := num(rows[i][field]), num(rows[j][field])
			if pair[1] == "desc" {
				a, b = b, a
			}
			return a < b
		})
	}
	return reply(200, map[string]any{"offers": rows[:min(len(rows), limit)]})
}

func (s *Server) meets(row, query map[string]any) bool {
	for field, comparisons := range query {
		var have any
		switch field {
		case "verified":
			have = row["verification"] == "verified"
		case "datacenter":
			have = num(row["hosting_type"]) == 1
		case "geolocation":
			place, _ := row["geolocation"].(string)
			have = strings.TrimSpace(place[strings.LastIndexByte(place, ',')+1:])
		case "driver_version":
			version, _ := row["driver_version"].(string)
			n := 0.0
			for part := range strings.SplitSeq(version, ".") {
				f, _ := strconv.ParseFloat(part, 64)
				n = n*1000 + f
			}
			have = n
		default:
			have = row[field]
		}
		ops, _ := comparisons.(map[string]any)
		for op, want := range ops {
			if !holds(have, op, want) {
				return false
			}
		}
	}
	return true
}

func holds(have any, op string, want any) bool {
	if list, ok := want.([]any); ok {
		in := slices.ContainsFunc(list, func(w any) bool { return same(have, w) })
		return in == (op == "in")
	}
	switch op {
	case "eq":
		return same(have, want)
	case "neq":
		return !same(have, want)
	}
	h := num(have)
	w, ok := want.(float64)
	if text, isText := want.(string); isText {
		w, _ = strconv.ParseFloat(text, 64)
		ok = true
	}
	return ok && (op == "gt" && h > w || op == "gte" && h >= w || op == "lt" && h < w || op == "lte" && h <= w)
}

// same compares as the market does: words become numbers and truth values.
func same(have, want any) bool {
	if id, ok := have.(int64); ok {
		have = float64(id)
	}
	text, ok := want.(string)
	if !ok {
		return have == want
	}
	switch h := have.(type) {
	case float64:
		f, err := strconv.ParseFloat(text, 64)
		return err == nil && f == h
	case bool:
		return strings.EqualFold(text, strconv.FormatBool(h))
	}
	return have == text
}

func (s *Server) create(offer int64, body []byte) answer {
	var in struct {
		Image   string            `json:"image"`
		Env     map[string]string `json:"env"`
		Onstart string            `json:"onstart"`
		Args    []string          `json:"args"`
		Runtype string            `json:"runtype"`
		Disk    float64           `json:"disk"`
		Label   string            `json:"label"`
		Price   *float64          `json:"price"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return refuse(400, "invalid_args", err.Error())
	}
	size, env := len(in.Onstart), 0
	for _, a := range in.Args {
		size += len(a)
	}
	for name, value := range in.Env {
		env += len(name) + len(value)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.opt.Credit <= 0:
		return refuse(400, "insufficient_credit", "Your account lacks credit; see the billing page.")
	case in.Image == "" || len(in.Image) > 1024 || size > 4096 || env > 32768 || len(in.Label) > 256 || in.Disk < 8:
		return refuse(400, "invalid_args", "error 400: invalid_args")
	}
	if in.Price != nil && (*in.Price < 0.001 || *in.Price > 128) {
		return refuse(400, "invalid_price", "error 400: invalid_price")
	}
	if r, ok := s.refused[offer]; ok {
		return reply(r.Status, map[string]any{"success": false, "error": r.Code, "msg": r.Msg, "ask_id": offer})
	}
	if s.taken[offer] {
		return refuse(410, "no_such_ask", fmt.Sprintf("error 410/3907: no_such_ask Instance type %d is no longer available.", offer))
	}
	at := slices.IndexFunc(s.offers, func(o map[string]any) bool { return int64(num(o["id"])) == offer })
	if at < 0 {
		return refuse(404, "invalid_args", fmt.Sprintf("error 404/3603: no_such_ask Instance type by id %d is not available.", offer))
	}
	space, told := s.offers[at]["disk_space"].(float64)
	if told && in.Disk > space {
		if s.StrictDisk {
			return refuse(400, "invalid_args", fmt.Sprintf("error 400/3468: Invalid args: disk %v exceeds available %v", in.Disk, space))
		}
		in.Disk = space
	}
	s.nextID++
	i := &Instance{
		ID: s.nextID, Offer: s.offers[at], Label: in.Label, Image: in.Image, Env: in.Env, Entry: in.Onstart, Args: in.Args, Disk: in.Disk,
		Key: random(32), Created: s.now(), Visible: clock.Now().Add(s.Lag), Intended: "running",
	}
	s.offers = slices.Delete(s.offers, at, at+1)
	s.taken[offer] = true
	s.instances = append(s.instances, i)
	if in.Price != nil {
		i.Bid = *in.Price
		if i.Bid < num(i.Offer["min_bid"]) {
			i.Actual, i.Intended, i.Outbid = "exited", "stopped", true
			return reply(200, map[string]any{"success": false, "new_contract": i.ID, "instance_api_key": i.Key, "msg": "bid too low"})
		}
	}
	gen := i.gen
	time.AfterFunc(s.opt.Boot/2, func() { s.load(i, gen) })
	return reply(200, map[string]any{"success": true, "new_contract": i.ID, "instance_api_key": i.Key})
}

// load is an instance that fetches its image, and then runs it.
func (s *Server) load(i *Instance, gen int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.gen != gen || s.closed {
		return
	}
	i.Actual, i.Message = "loading", "a1b2c3: Pull complete\n"
	slow := time.Duration(0)
	if m := s.machines[int64(num(i.Offer["machine_id"]))]; m != nil {
		if m.Status != "" {
			i.Message = m.Status
		}
		if m.Stop {
			i.Intended = "stopped"
		}
		if m.Status != "" || m.Stop {
			s.due(i)
		}
		if m.Stuck || m.Stop {
			return
		}
		slow = m.Slow
	}
	time.AfterFunc(s.opt.Boot/2+slow, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i.gen == gen {
			s.run(i)
		}
	})
}

func (s *Server) listed(i *Instance) bool {
	now := clock.Now()
	if !i.Destroyed.IsZero() {
		return now.Before(i.Linger)
	}
	return !now.Before(i.Visible)
}

func (s *Server) list(query url.Values) answer {
	var filter map[string]map[string]any
	if f := query.Get("select_filters"); f != "" && json.Unmarshal([]byte(f), &filter) != nil {
		return refuse(400, "invalid_request", "Error in query parameters: select_filters")
	}
	for col := range filter {
		if !slices.Contains(columns, col) {
			return refuse(400, "invalid_request", "Error in query parameters: "+col+" is not a valid search key")
		}
	}
	var order []struct{ Col, Dir string }
	if o := query.Get("order_by"); o != "" && json.Unmarshal([]byte(o), &order) != nil {
		return refuse(400, "invalid_request", "Error in query parameters: order_by")
	}
	for _, o := range order {
		if !slices.Contains(columns, o.Col) {
			return refuse(400, "invalid_request", "Error in query parameters: "+o.Col+" is not a valid search key")
		}
	}
	limit := 5
	if n, _ := strconv.Atoi(query.Get("limit")); n > 0 {
		limit = min(n, 25)
	}
	from := 0
	if token := query.Get("after_token"); token != "" {
		if _, err := fmt.Sscanf(token, "t%d", &from); err != nil {
			return refuse(400, "invalid_token", "Invalid pagination token")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A token is the last id that was shown, where pages are sorted by it, else a
	// place in the list.
	byID := len(order) == 0 || order[0].Col == "id" && order[0].Dir != "desc"
	rows, labels, skipped := []map[string]any{}, map[string]int{}, 0
	for _, i := range s.instances {
		if !s.listed(i) {
			continue
		}
		labels[i.Label]++
		if byID && len(filter) == 0 && (i.ID <= int64(from) || len(rows) > limit) {
			skipped++ // a row takes its time
			continue
		}
		row := s.row(i)
		if s.meets(row, anyOf(filter)) {
			rows = append(rows, row)
		}
	}
	for _, o := range slices.Backward(order) {
		sort.SliceStable(rows, func(a, b int) bool {
			x, y := rows[a][o.Col], rows[b][o.Col]
			if o.Dir == "desc" {
				x, y = y, x
			}
			return less(x, y)
		})
	}
	total := len(rows) + skipped
	rows = slices.DeleteFunc(rows, func(row map[string]any) bool {
		id, ok := row["id"].(int64)
		return byID && ok && id <= int64(from)
	})
	if !byID {
		rows = rows[min(from, len(rows)):]
	}
	var next any
	if len(rows) > limit {
		rows = rows[:limit]
		next = fmt.Sprintf("t%d", from+limit)
		if byID {
			next = fmt.Sprintf("t%d", row(rows[limit-1]))
		}
	}
	return reply(200, map[string]any{"success": true, "instances": rows, "instances_found": len(rows), "total_instances": total, "label_counts": labels, "next_token": next})
}

// columns are what lists can be filtered and sorted by.
var columns = []string{"id", "label", "actual_status", "gpu_name", "verification", "machine_id", "start_date"}

func anyOf(filter map[string]map[string]any) map[string]any {
	out := map[string]any{}
	for col, ops := range filter {
		out[col] = ops
	}
	return out
}

// row is the id of a row, even if its id field is wrong.
func row(r map[string]any) int64 {
	if id, ok := r["id"].(int64); ok {
		return id
	}
	return 0
}

func less(a, b any) bool {
	switch x := a.(type) {
	case int64:
		return float64(x) < num(b)
	case float64:
		return x < num(b)
	}
	return fmt.Sprint(a) < fmt.Sprint(b)
}

func (s *Server) row(i *Instance) map[string]any {
	env := [][]string{}
	for name, value := range i.Env {
		env = append(env, []string{name, value})
	}
	orNull := func(v string) any {
		if v == "" {
			return nil
		}
		return v
	}
	current := i.Intended // also the next state: an outbid instance has no choice
	base := num(i.Offer["dph_base"])
	if i.Bid > 0 {
		base = i.Bid
	}
	price := base + num(i.Offer["storage_cost"])*i.Disk/730
	row := map[string]any{
		"is_bid": i.Bid > 0, "min_bid": i.Offer["min_bid"], "inet_up": i.Offer["inet_up"], "inet_down": i.Offer["inet_down"], "reliability2": i.Offer["reliability2"], "disk_usage": -1,
		"id": i.ID, "machine_id": i.Offer["machine_id"], "host_id": 77, "actual_status": orNull(i.Actual), "intended_status": i.Intended, "cur_state": current,
		"next_state": current, "status_msg": orNull(i.Message), "label": orNull(i.Label), "image_uuid": i.Image, "image_args": i.Args, "image_runtype": "args",
		"extra_env": env, "onstart": i.Entry, "ssh_host": "ssh5.vast.ai", "ssh_port": 10022, "ssh_idx": "5", "public_ipaddr": "192.0.2.7 ",
		"local_ipaddrs": "10.0.0.1 172.17.0.1 \n", "ports": nil, "start_date": float64(i.Created.UnixMilli()) / 1000, "end_date": 1.9e9, "duration": 1.0,
		"uptime_mins": nil, "num_gpus": i.Offer["num_gpus"], "gpu_name": i.Offer["gpu_name"], "gpu_ram": i.Offer["gpu_ram"], "gpu_totalram": i.Offer["gpu_total_ram"], "gpu_util": nil, "disk_space": i.Disk, "disk_util": -1,
		"dph_base": base, "dph_total": price, "storage_total_cost": num(i.Offer["storage_cost"]) * i.Disk / 730,
		"inet_down_cost": i.Offer["inet_down_cost"], "inet_up_cost": i.Offer["inet_up_cost"], "verification": i.Offer["verification"], "template_id": nil,
		"geolocation": i.Offer["geolocation"], "direct_port_count": i.Offer["direct_port_count"], "static_ip": i.Offer["static_ip"],
		"driver_version": i.Offer["driver_version"], "cuda_max_good": i.Offer["cuda_max_good"], "compute_cap": i.Offer["compute_cap"],
		"cpu_cores_effective": i.Offer["cpu_cores_effective"], "cpu_ram": i.Offer["cpu_ram"], "storage_cost": i.Offer["storage_cost"],
		"something_new": map[string]any{"x": []int{1}},
	}
	if m := s.machines[int64(num(i.Offer["machine_id"]))]; m != nil {
		change(row, m.Row)
	}
	change(row, i.Change)
	return row
}

func (s *Server) one(method string, id int64, body []byte) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(id)
	switch method {
	case "GET":
		if i == nil {
			return reply(200, map[string]any{"instances": nil})
		}
		return reply(200, map[string]any{"instances": s.row(i)})
	case "DELETE":
		if i == nil {
			code := s.GoneCode
			if code == "" {
				code = "no_such_instance"
			}
			return refuse(404, code, "Instance not found")
		}
		if s.DeafDestroys > 0 {
			s.DeafDestroys--
			return reply(200, map[string]any{"success": true})
		}
		s.destroy(i)
		return reply(200, map[string]any{"success": true})
	case "PUT":
		var in struct {
			State string
			Label *string
		}
		if i == nil {
			return refuse(404, "no_such_instance", "not found")
		}
		if json.Unmarshal(body, &in) != nil {
			return answer{status: 400, kind: "text/plain", body: []byte("Request body must be valid JSON")}
		}
		if in.Label != nil {
			if len(*in.Label) > 1024 {
				return refuse(400, "label_too_long", "label")
			}
			i.Label = *in.Label
		}
		switch in.State {
		case "stopped":
			if s.DeafStops > 0 {
				s.DeafStops--
				break
			}
			s.halt(i, "exited", "stopped")
		case "running":
			i.Intended = "running"
			s.run(i)
		}
		return reply(200, map[string]any{"success": true})
	}
	return answer{status: 405, kind: "text/html", body: nil}
}

// destroy ends an instance for good.
func (s *Server) destroy(i *Instance) {
	s.heard(i)
	s.halt(i, "exited", "stopped")
	i.Destroyed, i.Linger = s.now(), clock.Now().Add(s.Linger)
}

// Vanish is a host that is lost with everything on it.
func (s *Server) Vanish(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(id); i != nil {
		s.due(i)
		s.destroy(i)
	}
}

// Halt stops an instance, as its owner or an account without credit does.
func (s *Server) Halt(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(id); i != nil {
		s.due(i)
		s.halt(i, "exited", "stopped")
	}
}

// Hide has lists lack an instance for a while.
func (s *Server) Hide(id int64, d time.Duration) {
	s.Do(func() {
		if i := s.find(id); i != nil {
			i.Visible = clock.Now().Add(d)
		}
	})
}

// Status sets what lists say of an instance, as when its host is offline.
func (s *Server) Status(id int64, actual string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(id); i != nil {
		i.Actual = actual
	}
}
