package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// fake is a registry with one image for two platforms.
type fake struct {
	*httptest.Server
	docs  map[string]string
	auth  string // none, basic or bearer
	sloth int    // status of everything
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func newFake(t *testing.T, config string) *fake {
	manifest := fmt.Sprintf(`{"config":{"digest":%q},"layers":[]}`, digest(config))
	index := fmt.Sprintf(`{"manifests":[{"digest":"sha256:00","platform":{"os":"linux","architecture":"arm64"}},{"digest":%q,"platform":{"os":"linux","architecture":"amd64"}}]}`, digest(manifest))
	f := &fake{auth: "bearer", docs: map[string]string{
		"manifests/1": index, "manifests/" + digest(manifest): manifest, "blobs/" + digest(config): config, "manifests/plain": manifest,
		"manifests/" + digest("x"): index,
	}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.sloth != 0 {
		w.WriteHeader(f.sloth)
		return
	}
	user, password, ok := r.BasicAuth()
	login := ok && user == "me" && password == "hush"
	if r.URL.Path == "/token" {
		if !login || r.URL.Query().Get("scope") != "repository:team/worker:pull" || r.URL.Query().Get("service") != "fake" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"access_token":"t0ken"}`)
		return
	}
	switch {
	case f.auth == "bearer" && r.Header.Get("Authorization") != "Bearer t0ken":
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="fake",scope="x"`, f.URL))
		w.WriteHeader(http.StatusUnauthorized)
		return
	case f.auth == "basic" && !login:
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	doc, ok := f.docs[strings.TrimPrefix(r.URL.Path, "/v2/team/worker/")]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
	}
	fmt.Fprint(w, doc)
}

func TestImage(t *testing.T) {
	f := newFake(t, `{"config":{"Entrypoint":["/tini","--"],"Cmd":["worker","run"]}}`)
	host := strings.TrimPrefix(f.URL, "http://")
	login := "-u me -p hush " + host
	for _, auth := range []string{"none", "basic", "bearer"} {
		f.auth = auth
		for _, tag := range []string{"1", "plain"} {
			i, err := New(login).Image(t.Context(), host+"/team/worker:"+tag, Contents{})
			if err != nil || !slices.Equal(i.Argv(nil), []string{"/tini", "--", "worker", "run"}) || !slices.Equal(i.Argv([]string{"x"}), []string{"/tini", "--", "x"}) {
				t.Errorf("%s %s: %v, %v", auth, tag, i, err)
			}
		}
	}
	for image, refused := range map[string]bool{
		host + "/team/worker:2": true, host + "/team/Worker:1": true, host + "/team/worker@" + digest("x"): false, "-x": true, host + "/../x": true, "": true,
	} {
		if _, err := New(login).Image(t.Context(), image, Contents{}); err == nil || errors.Is(err, ErrRefused) != refused {
			t.Errorf("%s: %v", image, err)
		}
	}
	// The login is for one registry only.
	if _, err := New("-u me -p hush elsewhere.example.org").Image(t.Context(), host+"/team/worker:1", Contents{}); !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
	for _, status := range []int{429, 500, 503} {
		f.sloth = status
		if _, err := New(login).Image(t.Context(), host+"/team/worker:1", Contents{}); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("%d: %v", status, err)
		}
	}
	f.Close()
	if _, err := New(login).Image(t.Context(), host+"/team/worker:1", Contents{}); err == nil || errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "/v2/") {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	for image, want := range map[string]reference{
		"python":                          {hubHost, "library/python", "latest"},
		"python:3.12-slim":                {hubHost, "library/python", "3.12-slim"},
		"team/worker":                     {hubHost, "team/worker", "latest"},
		"docker.io/team/worker:1":         {hubHost, "team/worker", "1"},
		"localhost:5000/a/b:c":            {"localhost:5000", "a/b", "c"},
		"registry.example.org/a/b/c":      {"registry.example.org", "a/b/c", "latest"},
		"ghcr.io/a/b:1@sha256:0123456789": {"ghcr.io", "a/b", "sha256:0123456789"},
	} {
		if got, err := parse(image); err != nil || got != want {
			t.Errorf("%s: %+v, %v", image, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("registry.example.org:5000/a/b:1.2")
	f.Add("a@sha256:00")
	f.Fuzz(func(t *testing.T, image string) {
		r, err := parse(image)
		if err == nil && (strings.ContainsAny(r.host+r.path+r.version, " ?#%\\\n") || strings.Contains(r.path+r.host, "..") && strings.Contains(r.path, "/../")) {
			t.Errorf("%q became %+v", image, r)
		}
	})
}
