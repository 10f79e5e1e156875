package environment

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/task"
)

// What git, pip and install scripts say is an answer of three kinds: for good, of a host that is away,
// and of all else, which another try may change.
func TestAnswersOfPrograms(t *testing.T) {
	fails := func(text string) error { return &command.ExitError{Name: "x", Code: 1, Stderr: text} }
	pip := func(text string) error { return installFailed("index.org", text, "", fails("")) }
	none := "ERROR: Could not find a version that satisfies the requirement a (from versions: none)\nERROR: No matching distribution found for a\n"
	index := func(why string) error {
		log := "2026-11-29T09:39:16,864 Fetching project page and analyzing links: https://u:****@far.org/simple/a/\n" +
			"2026-11-29T09:39:16,867 Could not fetch URL https://u:****@far.org/simple/a/: " + why + " - skipping\n"
		return installFailed("index.org", none, log, fails(""))
	}
	git := func(text string) error { return gitError("repository r", "git.org", fails(text)) }
	for name, tt := range map[string]struct {
		err  error
		want string // "refused", a host, "named", "own" or "unknown"
	}{
		"version":          {pip("ERROR: Could not find a version that satisfies the requirement a==9 (from versions: 1.0, 2.0)\nERROR: No matching distribution found for a==9\n"), "named"},
		"syntax":           {pip("ERROR: Invalid requirement: 'a b' (from line 1 of requirements.txt)\n"), "refused"},
		"no version":       {pip(none), "own"},
		"index, 404":       {index("404 Client Error: Not Found for url: https://far.org/simple/a/"), "own"},
		"index, 403":       {index("403 Client Error: Forbidden for url: https://far.org/simple/a/"), "unknown"},
		"index, 401":       {index("401 Client Error: Unauthorized for url: https://far.org/simple/a/"), "far.org"},
		"index, 429":       {index("429 Client Error: Too Many Requests for url: https://far.org/simple/a/"), "far.org"},
		"index, 502":       {index("502 Server Error: Bad Gateway for url: https://far.org/simple/a/"), "far.org"},
		"index, 500":       {index("HTTPSConnectionPool(host='far.org', port=443): Max retries exceeded with url: /simple/a/ (Caused by ResponseError('too many 500 error responses'))"), "far.org"},
		"index, name":      {index("connection error: HTTPSConnectionPool(host='far.org', port=443): Max retries exceeded with url: /simple/a/ (Caused by NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7fbb>: Failed to establish a new connection: [Errno -2] Name or service not known'))"), "far.org"},
		"index is away":    {pip("WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\nERROR: Could not find a version that satisfies the requirement a (from versions: none)\n"), "index.org"},
		"half an index":    {pip("WARNING: Retrying (Retry(total=4)) after connection broken\nERROR: Could not find a version that satisfies the requirement a==9 (from versions: 1.0)\n"), "index.org"},
		"file, 503":        {pip("ERROR: HTTP error 503 while getting https://index.org/a.whl\n"), "index.org"},
		"compiler":         {pip("gcc: command not found\n"), "own"},
		"slow":             {installFailed("index.org", "", "", &command.TimeoutError{}), "index.org"},
		"refused":          {git("fatal: unable to connect to git.org:\ngit.org[0: 127.0.0.1]: errno=Connection refused\n"), "git.org"},
		"name":             {git("fatal: unable to access 'https://git.org/r/': Could not resolve host: git.org\n"), "git.org"},
		"502":              {git("error: RPC failed\nfatal: unable to access 'https://git.org/r/': The requested URL returned error: 502\n"), "git.org"},
		"cut off":          {git("fatal: the remote end hung up unexpectedly\n"), "git.org"},
		"credentials":      {git("remote: HTTP Basic: Access denied\nfatal: Authentication failed for 'https://git.org/r/'\n"), "git.org"},
		"ssh key":          {git("git@git.org: Permission denied (publickey).\nfatal: Could not read from remote repository.\n"), "git.org"},
		"not there":        {git("remote: Repository not found.\nfatal: repository 'https://git.org/r/' not found\n"), "unknown"},
		"a page":           {git("fatal: https://git.org/r/info/refs not valid: is this a git repository?\n"), "unknown"},
		"a path, not here": {gitError("repository r", "", fails("fatal: '/r' does not appear to be a git repository\n")), "own"},
	} {
		var unknown *UnknownError
		got := "refused"
		switch {
		case errors.As(tt.err, &unknown) && unknown.own == named:
			got = "named"
		case errors.As(tt.err, &unknown) && unknown.own > 0:
			got = "own"
		case errors.As(tt.err, &unknown) && unknown.host != "":
			got = unknown.host
		case errors.As(tt.err, &unknown):
			got = "unknown"
		case !errors.As(tt.err, new(*BuildError)):
			got = "no answer"
		}
		if got != tt.want {
			t.Errorf("%s: %s, %v; want %s", name, got, tt.err, tt.want)
		}
	}
}

// The reason of an index that is away is what it did, or did not, and not how pip came to know.
func TestReasonOfIndex(t *testing.T) {
	for why, want := range map[string]string{
		"502 Server Error: Bad Gateway for url: https://far.org/simple/a/":                                                                                   "502 Server Error: Bad Gateway for url: https://far.org/simple/a/",
		"HTTPSConnectionPool(host='far.org', port=443): Max retries exceeded with url: /simple/a/ (Caused by ResponseError('too many 500 error responses'))": "too many 500 error responses",
		"connection error: HTTPSConnectionPool(host='far.org', port=443): Max retries exceeded with url: /a/ (Caused by NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7fbb>: Failed to establish a new connection: [Errno -2] Name or service not known'))": "Failed to establish a new connection: [Errno -2] Name or service not known",
	} {
		err := installFailed("", "", "2026-11-29T09:39:16,867 Could not fetch URL https://u:****@far.org/simple/a/: "+why+" - skipping\n", &command.ExitError{Name: "x", Code: 1})
		if got := err.Error(); got != "installing the task's code: https://far.org/simple/a/: "+want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

func TestHostsOfCode(t *testing.T) {
	for address, want := range map[string]string{
		"https://u:p@git.org:8443/r.git": "git.org:8443", "git@git.org:r.git": "git.org", "git.org:r": "git.org",
		"ssh://git@git.org/r": "git.org", "/home/u/r": "", "file:///home/u/r": "", "/home/a:b/r": "",
	} {
		if got := gitHost(address); got != want {
			t.Errorf("%s: %q; want %q", address, got, want)
		}
	}
	t.Setenv("PIP_INDEX_URL", "https://env.org/simple")
	for flags, want := range map[string]string{
		"": "env.org", "-i https://a.org/simple -q": "a.org", "--index-url=http://b.org:81/": "b.org:81", "--no-index -i https://a.org": "", "-q -i": "env.org",
	} {
		if got := indexHost(flags, nil); got != want {
			t.Errorf("%s: %q; want %q", flags, got, want)
		}
	}
	t.Setenv("PIP_INDEX_URL", "")
	for list, want := range map[string]string{
		"": "pypi.org", "global.index-url='https://u:p@near.org/simple'\nglobal.timeout='9'\n": "near.org",
		"global.no-index='true'\n": "",
	} {
		if got := indexHost("-q", func() string { return list }); got != want {
			t.Errorf("%s: %q; want %q", list, got, want)
		}
	}
}

// What may have another outcome later is no refusal: a script that fails, a repository that is not there,
// and a server that says that a repository has nothing.
func TestWhatMayBePreparedLater(t *testing.T) {
	repo, commit := repository(t, map[string]string{InstallScript: "echo no compiler >&2; exit 7"})
	empty := t.TempDir()
	git(t, empty, "init", "-q", "-b", "main")
	for name, tt := range map[string]struct {
		spec Spec
		want string
	}{
		"no repository":   {Spec{Source: task.Source{Repository: "/no/such/repository", Revision: "main"}, Local: true}, "/no/such/repository"},
		"an empty one":    {Spec{Source: task.Source{Repository: empty, Revision: "main"}, Local: true}, "it has no branches"},
		"failing install": {Spec{Source: task.Source{Repository: repo, Revision: commit}, Local: true, Python: python(t, "")}, "installing the task's code: bash: exit status 7"},
	} {
		s, _ := store(t)
		_, err := s.Prepare(t.Context(), tt.spec, &bytes.Buffer{})
		var unknown *UnknownError
		if !errors.As(err, &unknown) || unknown.own != ofCode || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
}
