package main

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain is the program itself for TestProgram.
func TestMain(m *testing.M) {
	if os.Getenv("VAST_SWITCH_TEST") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	var got, body string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got, body = r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Content-Type"), string(b)
		if r.URL.Path == "/refused/" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	const key = "hush"
	if err := run(t.Context(), []string{"PUT", plain.URL + "/api/v0/instances/7/?x=1", `{"state":"stopped"}`}, key); err != nil {
		t.Error(err)
	}
	if got != "PUT /api/v0/instances/7/?x=1 Bearer hush application/json" || body != `{"state":"stopped"}` {
		t.Errorf("%s %s", got, body)
	}
	if err := run(t.Context(), []string{"DELETE", plain.URL + "/refused/", "{}"}, key); err == nil || err.Error() != "refused: status 401 Unauthorized" {
		t.Error(err)
	}
	// Nobody is believed whom no authority vouches for.
	got = ""
	if err := run(t.Context(), []string{"PUT", secure.URL + "/", "{}"}, key); err == nil || got != "" {
		t.Errorf("%v, %q", err, got)
	}
	for _, args := range [][]string{
		{"PUT"}, {"PUT", "ftp://h/", ""}, {"PUT", "http://", ""}, {"PUT x", plain.URL, ""}, {"PUT\r\nX: y", plain.URL, ""}, {"PUT", "::", ""},
	} {
		if err := run(t.Context(), args, key); err == nil {
			t.Errorf("%q was done", args)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ended, []string{"PUT", plain.URL, "{}"}, key); err == nil {
		t.Error("no limit")
	}
}

// The program as it is: with an authority of the usual variable, a server is believed.
func TestProgram(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer hush" {
			asked++
		}
	}))
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, block, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		authority string
		args      []string
		code      int
		said      string
	}{
		{authority, []string{"PUT", server.URL + "/x/", "{}"}, 0, ""},
		{"", []string{"PUT", server.URL + "/x/", "{}"}, 1, "vast-switch: tls: failed to verify certificate"},
		{"", nil, 0, ""},
		{"", []string{"PUT"}, 1, "vast-switch: usage: K=KEY vast-switch METHOD URL BODY\n"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], c.args...)
		cmd.Env = append(os.Environ(), "VAST_SWITCH_TEST=1", "K=hush")
		if c.authority != "" {
			cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+c.authority)
		}
		out, err := cmd.CombinedOutput()
		if (err == nil) != (c.code == 0) || !strings.HasPrefix(string(out), c.said) || c.said == "" && len(out) > 0 {
			t.Errorf("%q: %v, %s", c.args, err, out)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
