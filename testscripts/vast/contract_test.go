package vast

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// clients are versions of the vastai program: the oldest with which instances are ordered, and the newest that the
// registry of packages has today.
var clients = map[string]harness.Packages{
	"1.5.6":  {Name: "vast-1.5.6", List: []string{"vastai==1.5.6"}},
	"newest": {Name: "vast-newest", List: []string{"vastai"}, Newest: true},
}

// client is the virtual environment of the newest vastai program, which all tests of the transport "cli" run.
func client(t *testing.T) string { return harness.Venv(t, clients["newest"]) }

// TestClientVersions runs a task's requests by each version of the program.
func TestClientVersions(t *testing.T) {
	t.Parallel()
	for version, packages := range clients {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{via: "api", fake: true, boot: time.Millisecond})
			w.market.AddOffer(1, nil)
			w.market.AddOffer(2, nil)
			cli := vastai.NewCLI(withEnv{command.System, append(w.env, "VAST_API_KEY="+server.Key)}, w.url)
			cli.Path, cli.Wait, cli.Tries, cli.Key = filepath.Join(harness.Venv(t, packages), "bin/vastai"), 20*time.Millisecond, 2, server.Key
			ctx := t.Context()
			if a, err := cli.Account(ctx); err != nil || a.Credit != 50 {
				t.Errorf("account %+v, %v", a, err)
			}
			env := map[string]string{"JSON": `{"a b":"c"}`, "EMPTY": "", "BLANKS": " a = b "}
			created, err := cli.Create(ctx, 1, vastai.Order{Image: "img:1", Env: env, Entrypoint: "/bin/sh", Args: []string{"-c", "echo '$1'", "ponos", "--raw"}, Disk: 20, Label: "ponos:a:t:1"})
			if err != nil {
				t.Fatal(err)
			}
			i := w.market.Instances()[0]
			if i.ID != created.ID || i.Label != "ponos:a:t:1" || strings.Join(i.Args, "|") != "-c|echo '$1'|ponos|--raw" || i.Env["JSON"] != env["JSON"] || i.Env["BLANKS"] != env["BLANKS"] {
				t.Errorf("ordered %+v", i)
			}
			w.market.SetLog(i.ID, "one\ntwo\n")
			if text, err := cli.Log(ctx, i.ID, 10); err != nil || strings.TrimSpace(string(text)) != "one\ntwo" {
				t.Errorf("log %q, %v", text, err)
			}
			if l, err := cli.List(ctx, "ponos:a:t:1"); err != nil || len(l.Instances) != 1 || l.Instances[0].ID != created.ID || l.Instances[0].Env("JSON") != env["JSON"] {
				t.Errorf("list: %+v, %v", l, err)
			}
			if _, err := cli.Create(ctx, 2, vastai.Order{Image: "img:1", Entrypoint: "/bin/sh", Disk: 20, Label: "ponos:a:t:2"}); err != nil {
				t.Error(err)
			}
			if err := cli.Destroy(ctx, i.ID, i.ID+1); err != nil || len(w.market.Alive()) > 0 {
				t.Errorf("destroy: %v", err)
			}
			// By the market's clock, which is faster, days may have passed.
			now := w.market.RealNow()
			if bill, next, err := cli.Charges(ctx, now.Add(-24*time.Hour), now.Add(365*24*time.Hour), ""); err != nil || len(bill) != 2 || next != "" {
				t.Errorf("charges: %+v, %v", bill, err)
			}
			for _, r := range w.market.Requests(".") {
				if strings.Contains(r.Query, server.Key) {
					t.Errorf("the key is in an address: %s", r.Path)
				}
			}
		})
	}
}

// Nothing is ordered with a program that puts the key into addresses.
func TestOldProgramOrdersNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api", fake: true})
	w.offers(1)
	info := filepath.Join(w.dir, "old/vastai-1.5.5.dist-info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(info, "METADATA"), []byte("Metadata-Version: 2.1\nName: vastai\nVersion: 1.5.5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	cli := vastai.NewCLI(withEnv{command.System, append(w.env, "PYTHONPATH="+filepath.Dir(info))}, w.url)
	cli.Path, cli.Key = filepath.Join(w.dir, "old/vastai"), server.Key
	executable.Write(t, cli.Path, "#!"+python+"\nraise SystemExit(9)\n")
	_, err = cli.Create(t.Context(), 1, vastai.Order{Image: "img:1", Entrypoint: "/bin/sh", Disk: 20, Label: "ponos:a:t:1"})
	if err == nil || fault.Text(err) != "the vastai program is version 1.5.5, which shows the key in addresses: nothing is ordered" || len(w.market.Instances()) > 0 {
		t.Errorf("%v, %d instances", err, len(w.market.Instances()))
	}
}

// harmless are codes that the program knows of commands that the agent has no use for.
var harmless = []string{"no_pending_price_increase", "tfa_locked"}

var (
	comparison = regexp.MustCompile(`(?:error"\]|error'\]|\.get\(["']error["']\)|error_code|err_code)\s*(?:==|!=|in|not in)\s*(.{1,120})`)
	codeWord   = regexp.MustCompile(`["']([a-z]+(?:_[a-z]+)+)["']`)
	retryable  = regexp.MustCompile(`_RETRYABLE_STATUS\s*=\s*\{([^}]*)\}`)
	headerName = regexp.MustCompile(`\.headers(?:\.get\(|\[)["']([A-Za-z-]+)["']`)
)

// TestNewestClient holds what is known here of the market's contract against what the
// newest program of the registry knows: it fails on an error code, a header or a status
// that calls for another try that nobody here has heard of.
func TestNewestClient(t *testing.T) {
	t.Parallel()
	venv := client(t)
	found, err := filepath.Glob(filepath.Join(venv, "lib/python3*/site-packages/vastai"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	known := slices.Clone(harmless)
	headers := []string{"Content-Type", "content-type", "Location", "Content-Length", "Authorization"}
	for _, o := range server.TheContract.Operations {
		for _, codes := range o.Errors {
			known = append(known, codes...)
		}
	}
	for _, b := range server.TheContract.Beyond {
		known, headers = append(known, b.Error), append(headers, b.Header)
	}
	codes, statuses := 0, ""
	err = filepath.WalkDir(found[0], func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "serverless" || d.Name() == "self_test") {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".py") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range comparison.FindAllStringSubmatch(string(text), -1) {
			for _, code := range codeWord.FindAllStringSubmatch(m[1], -1) {
				if codes++; !slices.Contains(known, code[1]) {
					t.Errorf("%s knows the error %q, and nothing here does", filepath.Base(path), code[1])
				}
			}
		}
		for _, m := range headerName.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(path, "/api/") && !slices.Contains(headers, m[1]) {
				t.Errorf("%s reads the header %q, and nothing here knows of it", filepath.Base(path), m[1])
			}
		}
		if m := retryable.FindStringSubmatch(string(text)); m != nil {
			statuses = m[1]
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if codes == 0 || statuses != "429, 502, 503, 504" {
		t.Errorf("%d error codes and the statuses %q were found in the program: it has changed, and this test with it has to", codes, statuses)
	}
	// What it orders with, REST orders with as well.
	out, err := exec.Command(filepath.Join(venv, "bin/python3"), "-c", `import json
from vastai.api.instances import build_create_instance_payload as b
print(json.dumps(sorted(b(image="i", args=["x"]))))`).Output()
	var theirs []string
	if err != nil || json.Unmarshal(out, &theirs) != nil {
		t.Fatalf("%s, %v", out, err)
	}
	w := newWorld(t, options{via: "api", fake: true})
	w.market.AddOffer(1, nil)
	if _, err := w.api().Create(t.Context(), 1, vastai.Order{Image: "i", Disk: 10, Entrypoint: "sh", Args: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	var ours map[string]any
	if err := json.Unmarshal([]byte(w.market.Requests("PUT " + asks[1:])[0].Body), &ours); err != nil {
		t.Fatal(err)
	}
	for _, field := range theirs {
		if _, ok := ours[field]; !ok {
			t.Errorf("the program orders with %q, REST does not", field)
		}
	}
}

// TestDocumentedErrors has the market answer with each documented error code: both
// transports know what to do about each, and a code that is new in the fixture fails.
func TestDocumentedErrors(t *testing.T) {
	transports(t, func(t *testing.T, via string) {
		w := newWorld(t, options{via: via, fake: true})
		w.market.AddOffer(1, nil)
		api := w.api()
		ctx := t.Context()
		order := vastai.Order{Image: "i", Disk: 10, Entrypoint: "sh", Label: "l"}
		calls := map[string]func() error{
			"search_offers":    func() error { _, err := api.Search(ctx, vastai.Search{Disk: 10}); return err },
			"create_instance":  func() error { _, err := api.Create(ctx, 1, order); return err },
			"show_instances":   func() error { _, err := api.List(ctx, ""); return err },
			"show_instance":    func() error { _, err := api.Show(ctx, 7); return err },
			"destroy_instance": func() error { return api.Destroy(ctx, 7) },
			"logs":             func() error { _, err := api.Log(ctx, 7, 10); return err },
			"show_user":        func() error { _, err := api.Account(ctx); return err },
		}
		answers := 0
		answer := func(o server.Operation, status int, code string, header map[string]string) {
			call, used := calls[o.Name]
			if !used {
				return
			}
			answers++
			body, _ := json.Marshal(map[string]any{"success": false, "error": code, "msg": fmt.Sprintf("error %d/1: %s", status, code)})
			w.market.Break(server.Fault{Method: o.Method, Path: "^" + strings.ReplaceAll(o.Path, "{id}", `\d+`), Status: status, Body: string(body), Header: header})
			err := call()
			w.market.Mend()
			gone := o.Name == "destroy_instance" && status == 404
			switch {
			case gone && err != nil:
				t.Errorf("%s: %d %s: %v, and what is gone is gone", o.Name, status, code, err)
			case !gone && err == nil:
				t.Errorf("%s: %d %s is taken for a success", o.Name, status, code)
			case err != nil && (!fault.Is(err, fault.Unavailable) || status < 500 && errors.Is(err, vastai.ErrUnknown)):
				t.Errorf("%s: %d %s: %v: nobody knows what that means", o.Name, status, code, err)
			}
		}
		for _, o := range server.TheContract.Operations {
			for text, codes := range o.Errors {
				status, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				for _, code := range codes {
					answer(o, status, code, nil)
				}
			}
		}
		for _, b := range server.TheContract.Beyond {
			switch b.Error {
			case "search_quota_exceeded":
				answer(*server.TheContract.Find("POST", "/api/v0/bundles/"), b.Status, b.Error, map[string]string{b.Header: "4102444800"})
			case "insufficient_credit", "spend_rate_limit":
				answer(*server.TheContract.Find("PUT", "/api/v0/asks/1/"), b.Status, b.Error, nil)
			case "deprecated_endpoint":
				answer(*server.TheContract.Find("GET", "/api/v1/instances/"), b.Status, b.Error, nil)
			}
		}
		if answers < 15 {
			t.Errorf("only %d answers were tried", answers)
		}
	})
}

// TestFields holds the fields that the code sends and reads against the contract: those of
// the market's documents, and the few beyond them whose source is named there.
func TestFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{via: "api", fake: true, boot: time.Millisecond})
	api, ctx := w.api(), t.Context()
	for id := range int64(4) {
		w.market.AddOffer(id+1, nil)
	}
	filters, err := vastai.ParseQuery("gpu_ram>=20 driver_version>=535.86.05 geolocation!=CN reliability>0.5")
	if err != nil {
		t.Fatal(err)
	}
	now := w.market.RealNow()
	search := func() (any, error) {
		return api.Search(ctx, vastai.Search{Filters: filters.Complete(), Disk: 10, Limit: 2})
	}
	list := func() (any, error) { return api.List(ctx, "") }
	account := func() (any, error) { return api.Account(ctx) }
	charges := func() (any, error) {
		page, next, err := api.Charges(ctx, now.Add(-24*time.Hour), now.Add(365*24*time.Hour), "")
		return fmt.Sprint(page, next), err
	}
	order := vastai.Order{Image: "i", Disk: 10, Entrypoint: "sh", Args: []string{"x"}, Label: "ponos:a:t:1", Login: "-u a -p b c", Env: map[string]string{"A": "b"}}
	for id := range int64(3) {
		order.Bid = []float64{0, 0.3, 0.3}[id]
		if _, err := api.Create(ctx, id+1, order); err != nil {
			t.Fatal(err)
		}
	}
	all := w.market.Instances()
	_, err = api.Log(ctx, all[0].ID, 10)
	_, labelled := api.List(ctx, order.Label)
	if err := errors.Join(err, labelled, api.Destroy(ctx, all[1].ID), api.Destroy(ctx, all[1].ID, all[2].ID)); err != nil && !strings.Contains(err.Error(), "no_such_instance") {
		t.Fatal(err)
	}
	// Read: each field that is missed when it is not there is known.
	for _, c := range []struct {
		method, path, rows string
		call               func() (any, error)
	}{
		{"GET", "/api/v1/instances/", "instances", list},
		{"POST", "/api/v0/bundles/", "offers", search},
		{"GET", "/api/v0/charges/", "results", charges},
		{"GET", "/api/v0/users/current/", "", account},
	} {
		outcome := func() string {
			v, err := c.call()
			if list, ok := v.(vastai.Listing); ok {
				list.At = time.Time{}
				v = list
			}
			text, _ := json.Marshal(v)
			return fmt.Sprintf("%s %v", text, err)
		}
		outcome()
		requests := w.market.Requests("^" + c.method + " " + c.path)
		last := requests[len(requests)-1]
		whole := ask(t, w.url+c.path+"?"+last.Query, c.method, last.Body)
		serve := func(body map[string]any) string {
			text, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			w.market.Break(server.Fault{Method: c.method, Path: "^" + c.path, Status: 200, Body: string(text)})
			defer w.market.Mend()
			return outcome()
		}
		known, before, used := server.TheContract.Known(server.TheContract.Find(c.method, c.path)), serve(whole), 0
		without := func(object map[string]any) {
			for field, v := range object {
				delete(object, field)
				if serve(whole) != before {
					if used++; !slices.Contains(known, field) {
						t.Errorf("%s %s: the code reads %q, which is not in the contract", c.method, c.path, field)
					}
				}
				object[field] = v
			}
		}
		without(whole)
		if c.rows != "" {
			rows, _ := whole[c.rows].([]any)
			row, _ := rows[0].(map[string]any)
			without(row)
		}
		if least := map[string]int{"instances": 10, "offers": 3, "results": 5, "": 2}[c.rows]; used < least {
			t.Errorf("%s %s: only %d fields are read", c.method, c.path, used)
		}
	}
	// Sent: each field of a body or a query is known.
	for _, r := range w.market.Requests("/api/") {
		o := server.TheContract.Find(r.Method, r.Path)
		if o == nil {
			t.Errorf("%s %s is not in the contract", r.Method, r.Path)
			continue
		}
		known := server.TheContract.Known(o)
		var body map[string]any
		_ = json.Unmarshal([]byte(r.Body), &body) // without a body there are no fields
		query, err := url.ParseQuery(r.Query)
		if err != nil {
			t.Error(err)
		}
		for _, field := range slices.Concat(slices.Collect(maps.Keys(body)), slices.Collect(maps.Keys(query))) {
			if !slices.Contains(known, field) {
				t.Errorf("%s %s: the code sends %q, which is not in the contract", r.Method, r.Path, field)
			}
		}
	}
}

// ask makes a request of the market beside the code, and returns the object that it answers.
func ask(t *testing.T, address, method, body string) (answer map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+server.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return answer
}
