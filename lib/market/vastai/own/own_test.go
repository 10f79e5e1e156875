package own

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain is a container for TestAuthorities.
func TestMain(m *testing.M) {
	if address := os.Getenv("OWN_TEST"); address != "" {
		if err := (Instance{address, "hush"}).Stop(context.Background()); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAsk(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   Answer
		err    error
	}{
		{200, `{"instances": {"label": "L", "intended_status": "running"}}`, Answer{true, "L"}, nil},
		{200, `{"instances": {"label": null, "actual_status": "running"}}`, Answer{true, ""}, nil},
		{200, `{"instances": {"label": "L", "intended_status": "stopped"}}`, Answer{false, "L"}, nil},
		{200, `{"instances": null}`, Answer{}, nil},
		{404, `{"success": false, "error": "no_such_instance"}`, Answer{}, nil},
		{404, `{"success": false, "error": "auth_error", "msg": "Invalid user key"}`, Answer{}, nil},
		{404, `<html>`, Answer{}, errOdd},
		{401, `{}`, Answer{}, ErrSecret},
		{403, `<html>`, Answer{}, ErrSecret},
		{500, `{"instances": null}`, Answer{}, errOdd},
		{200, `{}`, Answer{}, errOdd},
		{200, `{"instances": 7}`, Answer{}, errOdd},
		{302, ``, Answer{}, errOdd},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v0/instances/7/" || r.Header.Get("Authorization") != "Bearer hush" || r.Method != http.MethodGet {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		i := Of(func(name string) string {
			return map[string]string{"VAST_URL": s.URL, IDEnv: "7", KeyEnv: "hush"}[name]
		})
		if got, err := i.Ask(t.Context()); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%d %s: %+v, %v", c.status, c.body, got, err)
		}
		s.Close()
		if _, err := i.Ask(t.Context()); err == nil {
			t.Error("nobody has answered")
		}
	}
}

// The market, or who answers in its place, sends each request elsewhere: the key of the instance stays.
func TestKeyStays(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		t.Errorf("another host gets %s with %q", q.Method, q.Header.Get("Authorization"))
	}))
	defer other.Close()
	var asked []string
	market := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		asked = append(asked, q.Method+" "+string(b))
		http.Redirect(w, q, other.URL+q.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer market.Close()
	i := Instance{market.URL + "/", "hush"}
	_, err := i.Ask(t.Context())
	for _, err := range []error{err, i.Tell(t.Context(), "L:end=3"), i.Stop(t.Context()), i.Destroy(t.Context())} {
		if err == nil {
			t.Error("it was done")
		}
	}
	if got := strings.Join(asked, "|"); got != `GET |PUT {"label":"L:end=3"}|PUT {"state":"stopped"}|DELETE {}` {
		t.Error(got)
	}
	for _, bad := range []string{"ftp://h/", "http://", "::", market.URL + "/\r\nX: y"} {
		if (Instance{bad, "hush"}).Stop(t.Context()) == nil {
			t.Errorf("%q was asked", bad)
		}
	}
	if (Instance{market.URL, "hu\r\nsh"}).Stop(t.Context()) == nil || len(asked) != 4 {
		t.Errorf("%q", asked)
	}
}

// Nobody is believed whom no authority vouches for; the usual variable names one.
func TestAuthorities(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, block, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"", authority} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "OWN_TEST="+server.URL+"/", "SSL_CERT_FILE="+file)
		out, err := cmd.CombinedOutput()
		if err != nil || (file == "") != strings.Contains(string(out), "failed to verify certificate") || file != "" && len(out) > 0 {
			t.Errorf("%v, %s", err, out)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
