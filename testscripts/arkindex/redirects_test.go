package arkindex

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

// TestRedirects: an instance and its object store redirect each request of the tools once to another host by name, and once to another
// port of this machine. There arrive neither seed, tokens nor what tasks have written, over https or not, and the tasks end well.
func TestRedirects(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var seen []string
			// It gets what is meant for thief.example too, as the tools take it for their proxy.
			thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				_, name, _ := strings.Cut(strings.TrimPrefix(r.URL.String(), "http:/"), "/")
				if seen = append(seen, name); r.Method != http.MethodGet || len(body) > 0 || r.Header.Get("Authorization")+r.Header.Get("Cookie")+r.Header.Get("Referer") != "" {
					t.Errorf("another host gets %s %s with %q %q", r.Method, r.URL, body, r.Header)
				}
				w.WriteHeader(http.StatusBadGateway)
			}))
			defer thief.Close()
			s, err := server.New(server.Options{})
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			instance := httptest.NewUnstartedServer(s)
			if scheme == "https" {
				instance.StartTLS()
			} else {
				instance.Start()
			}
			defer instance.Close()
			env := append(os.Environ(), "HOME="+dir, "XDG_CACHE_HOME=", "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "http_proxy="+thief.URL, "https_proxy="+thief.URL, "no_proxy=",
				"SSL_CERT_FILE="+filepath.Join(dir, "ca.pem"), "PONOS_CONFIG="+filepath.Join(dir, "ponos.yaml"))
			config := fmt.Sprintf("url: %s/\nfarm_id: %s\nseed: %s\nmode: local\ndata_dir: %s/data\npid_file: %s/pid\n", instance.URL, server.FarmID, server.Seed, dir, dir)
			for name, text := range map[string]string{"ponos.yaml": config, "ca.pem": certificate(instance)} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			words := func(line string) json.RawMessage { b, _ := json.Marshal([]string{"sh", "-c", line}); return b }
			if err := s.Add(server.Spec{Storage: map[string]string{"training/m": "weights"}, Tasks: []*server.Task{
				{Slug: "parent", Command: words("echo OURS; echo OURS >$PONOS_DATA/current/made.txt")},
				{Slug: "child", Parents: []string{"parent"}, Files: map[string]string{"model": "training/m"}, Command: words("cat $PONOS_DATA/parent/made.txt")},
			}}); err != nil {
				t.Fatal(err)
			}
			operations := []string{
				"CreateAgent", "RefreshAgentToken", "RetrieveAgentActions", "RetrieveTaskDefinition", "RetrieveTask", "PartialUpdateTask", "ListArtifacts", "CreateArtifact",
				"DownloadArtifact", "PutObject", "GetObject",
			}
			for i, op := range operations {
				for j, to := range []string{"http://thief.example", strings.Replace(thief.URL, "127.0.0.1", "localhost", 1)} {
					s.Break(server.Fault{Operation: op, Kind: "redirect", Status: []int{307, 308}[(i+j)%2], Location: to + "/" + op})
				}
			}
			states := func() (all []string) {
				s.Do(func(w *server.World) {
					for _, task := range w.Tasks {
						all = append(all, task.Slug+" "+task.State)
					}
				})
				return all
			}
			var said strings.Builder
			for turns := 0; strings.Join(states(), ", ") != "parent completed, child completed"; turns++ {
				if turns == 4 || turns == 8 {
					s.ExpireTokens(false)
				}
				if turns == 100 {
					t.Fatalf("%q\n%s", states(), said.String())
				}
				turn := exec.Command("sh", "-c", "ponos-poll | ponos-stop | ponos-start")
				turn.Env = env
				out, _ := turn.CombinedOutput()
				said.Write(out)
			}
			asked := map[string]int{}
			for _, r := range s.Requests("") {
				if r.Fault == "redirect" {
					asked[r.Operation]++
				}
			}
			for _, op := range operations {
				if asked[op] == 0 {
					t.Errorf("%s was not asked", op)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			// What lies in the store may be fetched elsewhere, but not without encryption, except from this machine.
			slices.Sort(seen)
			want := []string{"DownloadArtifact", "GetObject"}
			if scheme == "http" {
				want = append(want, "thief.example/DownloadArtifact", "thief.example/GetObject")
			}
			if !slices.Equal(seen, want) {
				t.Errorf("another host gets %q, expected %q\n%s", seen, want, said.String())
			}
			for _, secret := range []string{server.Seed, "Bearer"} {
				if strings.Contains(said.String(), secret) {
					t.Errorf("the tools print %s: %s", secret, said.String())
				}
			}
		})
	}
}

// certificate is that of a server, for SSL_CERT_FILE.
func certificate(s *httptest.Server) string {
	if s.TLS == nil {
		return ""
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}
