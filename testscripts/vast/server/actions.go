package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Routes that the agent has no use for, but that the vastai program and other users of
// the account may call.

var (
	actionPath = regexp.MustCompile(`^/api/v0/instances/(request_logs|command|reboot|recycle|bid_price|update_template)/(\d+)/$`)
	resultPath = regexp.MustCompile(`^/results/([0-9a-f]+)-(\d+)\.txt$`)
)

// bulk is several instances at once.
func (s *Server) bulk(method string, body []byte) answer {
	var in struct {
		IDs       []int64 `json:"ids"`
		Instances []int64 `json:"instance_ids"`
	}
	if json.Unmarshal(body, &in) != nil || len(in.IDs)+len(in.Instances) == 0 {
		return refuse(400, "invalid_args", "instance_ids")
	}
	for _, id := range append(in.IDs, in.Instances...) {
		if a := s.one(method, id, body); a.status != http.StatusOK {
			return a
		}
	}
	return reply(200, map[string]any{"success": true})
}

// action is something that is done with an instance.
func (s *Server) action(what string, id int64, body []byte) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(id)
	if i == nil {
		switch what {
		case "request_logs", "recycle":
			return refuse(404, "invalid_id", "Invalid instance id.")
		case "command":
			return refuse(400, "invalid_container_id", "Invalid container id.")
		}
		return refuse(404, "no_such_instance", "Instance with that ID does not exist.")
	}
	if i.LogRefused != nil && what == "request_logs" {
		return refuse(i.LogRefused.Status, i.LogRefused.Code, i.LogRefused.Msg)
	}
	var in struct {
		Command string            `json:"command"`
		Price   float64           `json:"price"`
		Image   string            `json:"image"`
		Onstart string            `json:"onstart"`
		Env     map[string]string `json:"env"`
		Tail    any               `json:"tail"`
	}
	if len(body) > 0 && json.Unmarshal(body, &in) != nil {
		return answer{status: 400, kind: "text/plain", body: []byte("Request body must be valid JSON")}
	}
	switch what {
	case "request_logs":
		i.asks = 0
		i.tail, _ = strconv.Atoi(fmt.Sprint(in.Tail))
		return reply(200, map[string]any{"success": true, "result_url": fmt.Sprintf("%s/logs/%s-%d.log", s.opt.URL, random(20), id), "msg": "Logs are being uploaded"})
	case "command":
		word, _, _ := strings.Cut(in.Command, " ")
		if len(in.Command) > 512 || word != "ls" && word != "rm" && word != "du" {
			return refuse(400, "invalid_args", "Invalid command given.")
		}
		i.asks = 0
		return reply(200, map[string]any{"success": true, "writeable_path": "/var/lib/docker/", "result_url": fmt.Sprintf("%s/results/%s-%d.txt", s.opt.URL, random(20), id)})
	case "reboot", "recycle":
		s.halt(i, what+"ing", "running")
		if what == "reboot" {
			i.Actual = "rebooting"
		}
		gen := i.gen
		time.AfterFunc(s.opt.Restart, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if i.gen != gen {
				return
			}
			if what == "recycle" && s.opt.Dir != "" { // a new container, with a disk and a log of its own
				_ = os.RemoveAll(filepath.Join(s.opt.Dir, strconv.FormatInt(id, 10)))
			}
			s.run(i)
		})
	case "bid_price":
		if i.Bid == 0 || in.Price < TheContract.Limits.PriceMin {
			return refuse(400, "invalid_args", "Please set a bid price >= 0.001.")
		}
		i.Bid = in.Price
		if i.Outbid && i.Bid >= max(i.Resume, num(i.Offer["min_bid"])) {
			i.Outbid, i.Intended = false, "running"
			s.run(i)
		}
	case "update_template":
		if in.Image != "" {
			i.Image = in.Image
		}
		if in.Onstart != "" {
			i.Entry = in.Onstart
		}
		if in.Env != nil {
			i.Env = in.Env
		}
	}
	return reply(200, map[string]any{"success": true})
}

// Recycle replaces an instance's container, as its owner may.
func (s *Server) Recycle(id int64) { s.action("recycle", id, nil) }

// copying is a copy from or to an instance.
func (s *Server) copying(method string, body []byte) answer {
	var in struct {
		Source any `json:"src_id"`
		Target any `json:"dst_id"`
	}
	if json.Unmarshal(body, &in) != nil {
		return answer{status: 400, kind: "text/plain", body: []byte("Request body must be valid JSON")}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]any{"success": true, "msg": "Copy started"}
	for prefix, v := range map[string]any{"src": in.Source, "dst": in.Target} {
		text := strings.TrimPrefix(fmt.Sprint(v), "C.")
		id, err := strconv.ParseInt(strings.TrimSuffix(text, ".0"), 10, 64)
		if f, ok := v.(float64); ok {
			id, err = int64(f), nil
		}
		if err != nil {
			continue // this machine, or a store
		}
		if s.find(id) == nil {
			return refuse(404, "no_such_instance", fmt.Sprintf("Instance %d not found", id))
		}
		out[prefix+"_addr"], out[prefix+"_port"] = "127.0.0.1", 9
	}
	if method == http.MethodDelete {
		return reply(200, map[string]any{"success": true})
	}
	return reply(200, out)
}

// Outbid simulates a higher bid by another user for a machine.
func (s *Server) Outbid(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(id); i != nil {
		s.halt(i, "exited", "stopped")
		i.Outbid = true
		s.due(i)
	}
}

// serveResult is the output of a log or command, on the store that hosts upload to.
func (s *Server) serveResult(r *http.Request, m []string, log bool) answer {
	if r.Header.Get("Authorization") != "" {
		return answer{status: 400, kind: "application/xml", body: []byte("<Error><Code>InvalidArgument</Code></Error>")}
	}
	id, _ := strconv.ParseInt(m[2], 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(id)
	if i == nil {
		return answer{status: 404, kind: "application/xml", body: []byte("<Error/>")}
	}
	if hops, _ := strconv.Atoi(r.URL.Query().Get("hop")); log && hops < s.LogRedirects || log && s.LogRedirect != "" {
		to := s.LogRedirect
		if to == "" {
			to = fmt.Sprintf("%s%s?hop=%d", s.elsewhere(), r.URL.Path, hops+1)
		}
		return answer{status: http.StatusTemporaryRedirect, kind: "application/xml", body: []byte("<Error><Code>TemporaryRedirect</Code></Error>"), header: map[string]string{"Location": to}}
	}
	if i.asks++; s.LogAfter < 0 || i.asks <= s.LogAfter {
		return answer{status: 403, kind: "application/xml", body: []byte("<Error><Code>AccessDenied</Code></Error>")}
	}
	if !log {
		return answer{status: 200, kind: "text/plain", body: []byte("total 0\n")}
	}
	text := i.Log
	if s.opt.Dir != "" {
		text, _ = os.ReadFile(filepath.Join(s.opt.Dir, strconv.FormatInt(id, 10), "log"))
	}
	if lines := bytes.SplitAfter(text, []byte("\n")); i.tail > 0 && len(lines) > i.tail+1 { // the last one is not complete, or empty
		text = bytes.Join(lines[len(lines)-i.tail-1:], nil)
	}
	if s.Truncate > 0 && len(text) > s.Truncate {
		text = text[len(text)-s.Truncate:]
	}
	return answer{status: 200, kind: "text/plain", body: text}
}

// Relabel gives an instance another label.
func (s *Server) Relabel(id int64, label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(id); i != nil {
		i.Label = label
	}
}
