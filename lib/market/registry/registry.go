package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/web"
)

// ErrRefused says that the registry has no such image, or does not give it to this user.
var ErrRefused = errors.New("the registry does not provide the image")

// Image is what an image runs by itself, and which programs it has.
type Image struct {
	Entrypoint []string
	Command    []string
	Contents   Contents
}

// Argv is what a container of the image runs, as docker has it: a command of one's own
// takes the place of the image's, and an entrypoint comes before either.
func (i Image) Argv(command []string) []string {
	if len(command) == 0 {
		command = i.Command
	}
	return slices.Concat(i.Entrypoint, command)
}

// Client asks registries. User and Password are for the registry Host only.
type Client struct {
	Host, User, Password string
	HTTP                 *http.Client
	// Programs are looked for in images until Enough says that it has seen enough. Without
	// any, layers are not read.
	Programs []string
	Enough   func(Contents) bool
}

// New returns a client with a login as docker takes it: -u USER -p PASSWORD REGISTRY, or
// nothing.
func New(login string) *Client {
	c := &Client{HTTP: web.New(nil)}
	c.HTTP.Timeout = 20 * time.Second
	words := strings.Fields(login)
	for i := 0; i < len(words); i++ {
		switch {
		case (words[i] == "-u" || words[i] == "--username") && i+1 < len(words):
			i++
			c.User = words[i]
		case (words[i] == "-p" || words[i] == "--password") && i+1 < len(words):
			i++
			c.Password = words[i]
		default:
			c.Host, _, _ = strings.Cut(strings.TrimPrefix(words[i], "https://"), "/")
		}
	}
	c.Host = hub(c.Host)
	return c
}

const hubHost = "registry-1.docker.io"

func hub(host string) string {
	switch host {
	case "", "docker.io", "index.docker.io", "hub.docker.com":
		return hubHost
	}
	return host
}

// reference is where an image is.
type reference struct{ host, path, version string }

var (
	pathPattern    = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	versionPattern = regexp.MustCompile(`^(\w[\w.-]{0,127}|[a-z0-9]+:[0-9a-f]{1,128})$`)
)

// parse reads the name of an image.
func parse(image string) (reference, error) {
	r := reference{host: hubHost, path: image, version: "latest"}
	if first, rest, ok := strings.Cut(image, "/"); ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		r.host, r.path = hub(first), rest
	}
	if path, digest, ok := strings.Cut(r.path, "@"); ok {
		path, _, _ = strings.Cut(path, ":")
		r.path, r.version = path, digest
	} else if path, tag, ok := strings.Cut(r.path, ":"); ok {
		r.path, r.version = path, tag
	}
	if r.host == hubHost && !strings.Contains(r.path, "/") {
		r.path = "library/" + r.path
	}
	if u, err := url.Parse("https://" + r.host); err != nil || u.Host != r.host || !pathPattern.MatchString(r.path) ||
		!versionPattern.MatchString(r.version) {
		return r, fmt.Errorf("%w: invalid image name %.80q", ErrRefused, image)
	}
	return r, nil
}

// Limits of what is read.
const (
	maxAnswer = 8 << 20
	maxToken  = 1 << 20
)

// manifest is a list of images for several platforms, or one image.
type manifest struct {
	Config struct {
		Digest string `json:"digest"`
	} `json:"config"`
	Layers []struct {
		Digest string `json:"digest"`
		Size   int64  `json:"size"`
	} `json:"layers"`
	Manifests []struct {
		Digest   string `json:"digest"`
		Platform struct {
			OS   string `json:"os"`
			Arch string `json:"architecture"`
		} `json:"platform"`
	} `json:"manifests"`
}

const manifestTypes = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, " +
	"application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"

// configuration is that of an image.
type configuration struct {
	Config struct{ Entrypoint, Cmd, Env []string } `json:"config"`
}

// Image asks for an image for Linux on amd64. Known is what was seen in it before: of an
// image that has not changed, no layer is read again. Its error wraps ErrRefused if asking
// again does not help.
func (c *Client) Image(ctx context.Context, name string, known Contents) (Image, error) {
	s, m, config, err := c.open(ctx, name)
	if err != nil {
		return Image{}, err
	}
	image := Image{Entrypoint: config.Config.Entrypoint, Command: config.Config.Cmd, Contents: known}
	if len(c.Programs) > 0 && known.Digest != m.Config.Digest {
		image.Contents = c.contents(ctx, s, m, config)
	}
	return image, nil
}

// open asks for the manifest and the configuration of an image.
func (c *Client) open(ctx context.Context, name string) (s *session, m manifest, config configuration, err error) {
	r, err := parse(name)
	if err != nil {
		return nil, m, config, err
	}
	s = &session{client: c, ref: r}
	if err := s.get(ctx, "manifests/"+r.version, manifestTypes, &m); err != nil {
		return nil, m, config, err
	}
	for _, one := range m.Manifests {
		if one.Platform.OS == "linux" && one.Platform.Arch == "amd64" {
			digest := one.Digest
			m = manifest{}
			if err := s.get(ctx, "manifests/"+digest, manifestTypes, &m); err != nil {
				return nil, m, config, err
			}
			break
		}
	}
	if m.Config.Digest == "" {
		return nil, m, config, fmt.Errorf("%w: it has no image for linux/amd64", ErrRefused)
	}
	return s, m, config, s.get(ctx, "blobs/"+m.Config.Digest, "*/*", &config)
}

// session is what is asked of one registry.
type session struct {
	client *Client
	ref    reference
	auth   string // header
}

// address is that of a manifest or a blob.
func (s *session) address(what string) string {
	scheme := "https"
	if host := (&url.URL{Host: s.ref.host}).Hostname(); host == "127.0.0.1" || host == "localhost" {
		scheme = "http" // as docker does
	}
	return scheme + "://" + s.ref.host + "/v2/" + s.ref.path + "/" + what
}

// get reads a JSON document of the image.
func (s *session) get(ctx context.Context, what, accept string, into any) error {
	if _, version, _ := strings.Cut(what, "/"); !versionPattern.MatchString(version) {
		return fault.Errorf(fault.Unavailable, "registry %s: it has an invalid digest", s.ref.host)
	}
	address := s.address(what)
	for try := 0; ; try++ {
		body, challenge, status, err := s.ask(ctx, address, accept, s.auth)
		if err != nil {
			return err
		}
		if status == http.StatusUnauthorized && try == 0 {
			if s.auth, err = s.authorize(ctx, challenge); err != nil {
				return err
			}
			continue
		}
		switch {
		case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound:
			return fmt.Errorf("%w: %s: status %d", ErrRefused, s.ref.host, status)
		case status != http.StatusOK:
			return fault.Errorf(fault.Unavailable, "registry %s: status %d", s.ref.host, status)
		}
		if _, digest, ok := strings.Cut(what, "sha256:"); ok {
			if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != digest {
				return fault.Errorf(fault.Unavailable, "registry %s: unexpected type of answer", s.ref.host)
			}
		}
		if err := json.Unmarshal(body, into); err != nil {
			return fault.Errorf(fault.Unavailable, "registry %s: an answer is not JSON", s.ref.host)
		}
		return nil
	}
}

func (s *session) ask(ctx context.Context, address, accept, auth string) (body []byte, challenge string, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, "", 0, fmt.Errorf("%w: invalid address", ErrRefused)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "ponos")
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	if strings.HasPrefix(auth, "Bearer ") {
		req = req.WithContext(web.Leaves(ctx)) // configurations lie in a store
	}
	resp, err := web.Guard(s.client.HTTP).Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without an address that may be signed
		}
		return nil, "", 0, fault.Errorf(fault.Unavailable, "registry %s: %w", s.ref.host, err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil || len(body) > maxAnswer {
		return nil, "", 0, fault.Errorf(fault.Unavailable, "registry %s: the answer was cut off", s.ref.host)
	}
	return body, resp.Header.Get("WWW-Authenticate"), resp.StatusCode, nil
}

var parameter = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)

// authorize answers a challenge: with the login, or with a token that it fetches.
func (s *session) authorize(ctx context.Context, challenge string) (string, error) {
	basic := ""
	if s.client.User != "" && s.client.Host == s.ref.host {
		req := http.Request{Header: http.Header{}}
		req.SetBasicAuth(s.client.User, s.client.Password)
		basic = req.Header.Get("Authorization")
	}
	kind, rest, _ := strings.Cut(challenge, " ")
	if !strings.EqualFold(kind, "bearer") {
		if basic == "" {
			return "", fmt.Errorf("%w: %s requires a login", ErrRefused, s.ref.host)
		}
		return basic, nil
	}
	parameters := map[string]string{}
	for _, m := range parameter.FindAllStringSubmatch(rest, -1) {
		parameters[m[1]] = m[2]
	}
	realm, err := url.Parse(parameters["realm"])
	local := err == nil && (realm.Hostname() == "127.0.0.1" || realm.Hostname() == "localhost")
	if err != nil || realm.Host == "" || realm.Scheme != "https" && !local {
		return "", fault.Errorf(fault.Unavailable, "registry %s: it names no server for tokens", s.ref.host)
	}
	query := realm.Query()
	if parameters["service"] != "" {
		query.Set("service", parameters["service"])
	}
	query.Set("scope", "repository:"+s.ref.path+":pull")
	realm.RawQuery = query.Encode()
	body, _, status, err := s.ask(ctx, realm.String(), "application/json", basic)
	if err != nil {
		return "", err
	}
	if status >= 400 && status < 500 && status != http.StatusTooManyRequests {
		return "", fmt.Errorf("%w: %s: status %d for a token", ErrRefused, s.ref.host, status)
	}
	var token struct {
		Token  string `json:"token"`
		Access string `json:"access_token"`
	}
	if status != http.StatusOK || len(body) > maxToken || json.Unmarshal(body, &token) != nil || token.Token+token.Access == "" {
		return "", fault.Errorf(fault.Unavailable, "registry %s: no token", s.ref.host)
	}
	if token.Token == "" {
		token.Token = token.Access
	}
	return "Bearer " + token.Token, nil
}
