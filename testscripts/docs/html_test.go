package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestHTML makes the pages for a browser: each is in the index, and every link leads to a page and a heading.
func TestHTML(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sh := exec.Command("make", "-s", "html", "HTML="+dir)
	sh.Dir = harness.Root()
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("make html: %v\n%s", err, out)
	}
	sources, err := filepath.Glob(filepath.Join(harness.Root(), "man/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, name := range append(sources, "index.md") {
		name = strings.TrimSuffix(filepath.Base(name), ".md") + ".html"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		pages[name] = string(page)
	}
	href := regexp.MustCompile(`href="([^"#]*)(?:#([^"]*))?"`)
	for name, page := range pages {
		if !strings.Contains(pages["index.html"], `href="`+name+`"`) && name != "index.html" {
			t.Errorf("index.html has no link to %s", name)
		}
		for _, m := range href.FindAllStringSubmatch(page, -1) {
			to := m[1]
			if to == "" {
				to = name
			}
			if target, ok := pages[to]; !ok || m[2] != "" && !strings.Contains(target, ` id="`+m[2]+`"`) {
				t.Errorf("%s: the link %q leads nowhere", name, m[0])
			}
		}
	}
	if link := `<a href="ponos-start.1.html"><strong>ponos-start</strong>(1)</a>`; !strings.Contains(pages["ponos.7.html"], link) {
		t.Errorf("ponos.7.html has no %s", link)
	}
}
