package vast

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"

	arkindex "github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// noSecrets looks for secrets wherever somebody may find one: in what the tools have
// printed, in their files (among them the arguments of the programs that were run), in
// the logs of tasks, and in the addresses of requests.
func (w *world) noSecrets() {
	w.t.Helper()
	keys := []string{server.Key, secret, token, arkindex.Seed}
	for _, i := range w.market.Instances() {
		keys = append(keys, i.Key)
	}
	check := func(where, text string) {
		w.t.Helper()
		for _, key := range keys {
			if strings.Contains(text, key) {
				w.t.Errorf("%s holds a secret, that begins with %.6q", where, key)
			}
		}
	}
	check("what was printed", w.said.String())
	var slugs []string
	w.queue.Do(func(world *arkindex.World) {
		for _, t := range world.Tasks {
			slugs = append(slugs, t.Slug)
		}
	})
	for _, slug := range slugs {
		check("the log of "+slug, string(w.queue.Log(slug)))
	}
	for _, r := range w.market.Requests(".") {
		query, err := url.QueryUnescape(r.Query)
		if err != nil {
			w.t.Error(err)
		}
		check("the address "+r.Path, r.Path+"?"+query)
		if (strings.HasPrefix(r.Path, "/logs/") || strings.HasPrefix(r.Path, "/results/")) && r.Auth != "" {
			w.t.Errorf("%s was fetched with a key", r.Path)
		}
	}
	err := filepath.WalkDir(w.dir, func(path string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.dir, path)
		if err != nil || e.IsDir() {
			if rel == "containers" || rel == "home" {
				return filepath.SkipDir
			}
			return nil
		}
		if rel == "key" || rel == "ponos.yaml" || filepath.Base(rel) == "env" {
			info, err := e.Info()
			if err == nil && info.Mode()&0o077 != 0 {
				w.t.Errorf("%s holds secrets, and its mode is %v", rel, info.Mode())
			}
			return nil
		}
		b, _ := os.ReadFile(path)
		check(rel, string(b))
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
	if w.via == "cli" && len(w.market.Requests("PUT "+asks[1:])) > 0 {
		if b, err := os.ReadFile(filepath.Join(w.dir, "z.argv")); err == nil && !strings.Contains(string(b), `"-c"`) {
			w.t.Errorf("the arguments of an order are missing in\n%s", b)
		}
	}
}
