package environment

import (
	"net/url"
	"strings"
)

// helper gives git the user and the password of an address.
const helper = `!f() { printf 'username=%s\npassword=%s\n' "$PONOS_GIT_USER" "$PONOS_GIT_PASSWORD"; }; f`

// Login takes the user and the password out of the address of a repository. Git gets
// them from its environment, which others cannot see as they can its arguments; options
// come before its command. Both are nil if the address has no password.
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
	// For this host, and not for where it may redirect to.
	_, rest, _ := strings.Cut(address, "://")
	host, _, _ := strings.Cut(rest, "/")
	return address, []string{"-c", "credential.helper=", "-c", "credential." + u.Scheme + "://" + host + ".helper=" + helper}, env
}
