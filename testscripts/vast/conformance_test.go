package vast

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// TestConformance holds both transports, with the real vastai program, against the
// market: the same calls, the same answers, the same errors.
func TestConformance(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, fake: true})
		w.market.SetCredit(12.5)
		conform(t, w.api(), w.market)
		w.noSecrets()
	})
}

func conform(t *testing.T, api vastai.API, m *server.Server) {
	ctx := t.Context()
	account, err := api.Account(ctx)
	if err != nil || account.Credit != 12.5 || account.ID != 4242 {
		t.Errorf("account %+v, %v", account, err)
	}
	m.AddOffer(1, map[string]any{"dph_base": 0.5, "geolocation": "Poland, PL"})
	m.AddOffer(2, map[string]any{"dph_base": 0.2, "gpu_name": "RTX 3090"})
	m.AddOffer(3, map[string]any{"dph_base": 0.1, "gpu_ram": 12000})
	m.AddOffer(4, map[string]any{"dph_base": 0.1, "driver_version": "470.1.1"})
	m.AddOffer(5, map[string]any{"dph_base": 0.1, "verification": "unverified"})
	filters, err := vastai.ParseQuery(`gpu_ram>=24 driver_version>=535.86.05 gpu_name in [RTX_4090,RTX_3090] duration>3 geolocation!=CN`)
	if err != nil {
		t.Fatal(err)
	}
	found, err := api.Search(ctx, vastai.Search{Filters: filters.Complete(), Disk: 73})
	offers := found.Offers
	if err != nil || len(offers) != 2 || offers[0].ID != 2 || offers[1].GPU != "RTX 4090" || offers[0].Price < 0.2149 || offers[0].Price > 0.2151 {
		t.Errorf("offers %+v, %v", offers, err)
	}
	env := map[string]string{"PLAIN": "x", "JSON": `{"a b":"c","d":"é"}`, "EMPTY": "", "LINES": "a\nb", "BLANKS": " a = b ", "URL": "http://h/?a=b&c=$d"}
	order := vastai.Order{Image: "img:1", Env: env, Entrypoint: "/bin/sh", Args: []string{"-c", "echo '$1' \"x\"", "ponos", "--raw", "-y"}, Disk: 20, Label: "ponos:a:t:1"}
	created, err := api.Create(ctx, 2, order)
	if err != nil || created.ID == 0 {
		t.Fatalf("created %+v, %v", created, err)
	}
	if i := m.Instances()[0]; i.Label != order.Label || i.Image != "img:1" || i.Entry != "/bin/sh" || strings.Join(i.Args, "|") != strings.Join(order.Args, "|") || i.Disk != 20 {
		t.Errorf("ordered %+v", i)
	} else {
		for name, want := range env {
			if got, ok := i.Env[name]; !ok || got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
	if _, err := api.Create(ctx, 2, order); !errors.Is(err, vastai.ErrOfferGone) {
		t.Errorf("taken: %v", err)
	}
	order.Env = map[string]string{"NAME": "O'Neill", "OTHER": "x"}
	if _, err := api.Create(ctx, 1, order); api.Name() == "cli" && (!errors.Is(err, vastai.ErrInvalid) || !strings.Contains(err.Error(), "NAME") || strings.Contains(err.Error(), "Neill")) || api.Name() == "api" && err != nil {
		t.Errorf("apostrophe: %v", err)
	}
	// What the market repeats of an order's values is not repeated here.
	order.Env = map[string]string{"NAME": secret, "QUOTED": secret + " \"x\""}
	echo, _ := json.Marshal(map[string]any{"success": false, "error": "invalid_args", "msg": order.Env})
	text, _ := json.Marshal(map[string]any{"success": false, "error": "invalid_args", "msg": "no good: " + order.Env["QUOTED"]})
	for _, body := range []string{string(echo), string(text), secret} {
		m.Break(server.Fault{Method: "PUT", Path: asks, Times: 1, Status: 400, Body: body})
		if _, err := api.Create(ctx, 1, order); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", body, err)
		}
		m.Mend()
	}
	order.Env, order.Args = nil, []string{strings.Repeat("x", 5000)}
	if _, err := api.Create(ctx, 1, order); !errors.Is(err, vastai.ErrInvalid) {
		t.Errorf("too long: %v", err)
	}
	order.Args = nil
	for _, f := range []struct {
		fault server.Fault
		want  error
	}{
		{server.Fault{Status: 429, Body: "API requests too frequent", Type: "text/plain"}, vastai.ErrBusy},
		{server.Fault{Status: 503, Body: "<html>", Type: "text/html"}, vastai.ErrUnknown},
		{server.Fault{Lose: true, Status: 200}, vastai.ErrUnknown},
		{server.Fault{Status: 200, Body: "<html>"}, vastai.ErrUnknown},
		{server.Fault{Status: 200, Body: `{"success":true}`}, vastai.ErrUnknown},
		{server.Fault{Status: 400, Body: `{"success":false,"error":"insufficient_credit","msg":"Your account lacks credit"}`}, vastai.ErrCredit},
		{server.Fault{Status: 404, Body: `{"success":false,"error":"auth_error","msg":"Invalid user key"}`}, vastai.ErrRejected},
		{server.Fault{Status: 403, Body: `{"success":false,"error":"invalid_args","msg":"error 403/3586: Offer 4 is not your own."}`}, vastai.ErrRejected},
	} {
		before := len(m.Requests("PUT /api/v0/asks/"))
		f.fault.Method, f.fault.Path, f.fault.Times = "PUT", asks, 1
		m.Break(f.fault)
		if _, err := api.Create(ctx, 4, order); !errors.Is(err, f.want) || !fault.Is(err, fault.Unavailable) {
			t.Errorf("%+v: %v, want %v", f.fault, err, f.want)
		}
		if n := len(m.Requests("PUT /api/v0/asks/")) - before; n != 1 {
			t.Errorf("%+v: %d requests for one order", f.fault, n)
		}
		m.Mend()
	}
	conformLists(t, api, m, created.ID)
	for _, r := range m.Requests(".") {
		if strings.Contains(r.Query, server.Key) {
			t.Errorf("the key is in an address: %s", r.Path)
		}
	}
}

func conformLists(t *testing.T, api vastai.API, m *server.Server, id int64) {
	ctx := t.Context()
	listing, err := api.List(ctx, "ponos:a:t:1")
	list := listing.Instances
	if err != nil || len(list) == 0 || list[0].ID != id || list[0].Label != "ponos:a:t:1" || list[0].Env("PLAIN") != "x" || list[0].Started.IsZero() {
		t.Errorf("list %+v, %v", list, err)
	}
	if list, err := api.List(ctx, "ponos:a:t:2"); err != nil || len(list.Instances) != 0 || list.Odd != 0 {
		t.Errorf("list of another label %+v, %v", list, err)
	}
	for _, body := range []string{`{}`, `[]`, `null`, `{"success":true}`, `{"success":true,"instances":null,"total_instances":0}`, `{"success":true,"instances":[],"total_instances":3}`,
		`{"success":true,"instances":[{"label":"x","start_date":1,"extra_env":[]}],"total_instances":1}`, "<html>"} {
		m.Break(server.Fault{Path: lists, Status: 200, Body: body})
		if list, err := api.List(ctx, ""); err == nil {
			t.Errorf("%s became a list: %+v", body, list)
		}
		m.Mend()
	}
	m.Do(func() { m.LogAfter = 1 })
	m.SetLog(id, "one\ntwo 'x' é\n")
	if text, err := api.Log(ctx, id, 10); err != nil || strings.TrimSpace(string(text)) != "one\ntwo 'x' é" {
		t.Errorf("log %q, %v", text, err)
	}
	m.Break(server.Fault{Method: "PUT", Path: "request_logs", Status: 400, Body: `{"success":false,"msg":"instance log channel is starting"}`})
	if _, err := api.Log(ctx, id, 10); !errors.Is(err, vastai.ErrNotReady) {
		t.Errorf("no log: %v", err)
	}
	m.Mend()
	m.Break(server.Fault{Method: "DELETE", Path: one, Status: 500, Body: "x", Type: "text/plain"})
	if err := api.Destroy(ctx, id); err == nil {
		t.Error("a destroy that failed is a success")
	}
	m.Mend()
	if i, err := api.Show(ctx, id); err != nil || i == nil || i.ID != id || i.Label == "" {
		t.Errorf("show: %+v, %v", i, err)
	}
	for range 2 {
		if err := api.Destroy(ctx, id); err != nil {
			t.Errorf("destroy: %v", err)
		}
	}
	if i, err := api.Show(ctx, id); err != nil || i != nil {
		t.Errorf("show what is gone: %+v, %v", i, err)
	}
	for _, odd := range []string{`{}`, `{"instances":[]}`, `{"instances":{"id":1}}`, `[]`} {
		m.Break(server.Fault{Method: "GET", Path: one, Status: 200, Body: odd})
		if i, err := api.Show(ctx, id); err == nil {
			t.Errorf("%s is an answer: %+v", odd, i)
		}
		m.Mend()
	}
	// Of several, one that is gone says nothing about the others.
	m.Break(server.Fault{Method: "DELETE", Path: "^/api/v0/instances/[?]", Status: 404, Body: `{"success":false,"error":"instances_not_found","msg":"not_found"}`})
	if err := api.Destroy(ctx, id, id+1); err == nil {
		t.Error("several are gone by one 404")
	}
	m.Mend()
	for _, i := range m.Alive() {
		if i.ID == id {
			t.Error("destroyed, and still there")
		}
	}
}
