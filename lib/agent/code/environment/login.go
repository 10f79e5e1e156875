package environment

import (
	"net/url"
	"strings"
)

// helper passes the user and the password of an address to git.
const helper = `!f() { printf 'username=%s\npassword=%s\n' "$PONOS_GIT_USER" "$PONOS_GIT_PASSWORD"; }; f`

// Login removes the user and the password from the address of a repository. Git gets them through its
// environment, which other users cannot read, unlike its arguments; options come before its command.
// Both are nil if the address has no password.
func Login(repository string) (address string, options, env []string) {
	u, err := url.Parse(repository)
	if err != nil || u.User == nil || u.Scheme != "https" && u.Scheme != "http" {
		return repository, nil, nil
	}
	password, ok := u.User.Password()
	if !ok {
		return repository, nil, nil
	}
	env = []string{"PONOS_GIT_USER=" + u.User.Username(), "PONOS_GIT_PASSWORD=" + password}
	u.User = nil
	address = u.String()
	// Only for this host, and not for the target of a redirect.
	_, rest, _ := strings.Cut(address, "://")
	host, _, _ := strings.Cut(rest, "/")
	return address, []string{"-c", "credential.helper=", "-c", "credential." + u.Scheme + "://" + host + ".helper=" + helper}, env
}
