package environment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// UnknownError says that code or data was not prepared and that another try may succeed. Git, pip, an
// install script and downloads have three answers: done; refused, which is a BuildError and a positive list; and
// this one for all else.
type UnknownError struct {
	// On is what is held meanwhile: a host that is away or refuses the credentials of this user, for all
	// code of it, or this code alone. "": nothing is held.
	On string
	// Failures is what the failures in a row of this code count, in which whatever was asked has answered: see Enough.
	Failures int
	// Next is when it is tried again, if it was held and nothing was tried; else zero.
	Next time.Time

	host string // that is away; "": nothing says so
	own  int    // what a failure counts, of those after which code is given up: one of the constants below
	err  error
}

// Enough is what failures in a row may count before code is given up: six that are the code's own, over about five minutes, or
// two of which pip has named the cause, as it does also after an answer that was cut off.
const (
	Enough = 6
	ofCode = 1
	named  = Enough / 2
)

func (e *UnknownError) Error() string { return fault.Text(e.err) }
func (e *UnknownError) Unwrap() error { return e.err }

// Holds remembers what is held, for all processes of an agent.
type Holds interface {
	// Pass returns the hold on a name, or nil: the caller tries it, and tells what came of that, for all others.
	Pass(name string) (*Held, error)
	// Tell records why a name is held and what that counts as its own failure, or with "" that it is not held.
	Tell(name, why string, own int) (Held, error)
}

// Held is why something is not tried at this time.
type Held struct {
	Why      string
	Failures int       // what those of its own count
	Next     time.Time // when one is to try it
}

// Names of what is held.
const (
	HostPrefix = "host "
	codePrefix = "code "
)

// held runs what needs a host or makes an environment, unless its name is held. Mine says whether a
// failure is that of the name.
func (s *Store) held(name string, mine func(*UnknownError) bool, do func() error) error {
	if s.Holds == nil {
		return do()
	}
	hold, err := s.Holds.Pass(name)
	if err != nil {
		return err
	}
	if hold != nil {
		return &UnknownError{On: name, Failures: hold.Failures, Next: hold.Next, err: errors.New(hold.Why)}
	}
	err = do()
	var unknown *UnknownError
	var refused *BuildError
	switch {
	case err == nil, errors.As(err, &refused):
		_, tellErr := s.Holds.Tell(name, "", 0)
		return errors.Join(err, tellErr)
	case !errors.As(err, &unknown) || unknown.On != "":
		return err
	case mine(unknown):
		h, tellErr := s.Holds.Tell(name, unknown.Error(), unknown.own)
		return errors.Join(&UnknownError{On: name, Failures: h.Failures, own: unknown.own, err: err}, tellErr)
	case unknown.own > 0:
		_, tellErr := s.Holds.Tell(name, "", 0)
		return errors.Join(err, tellErr)
	}
	return err
}

// ask runs what needs a host; "": none.
func (s *Store) ask(host string, do func() error) error {
	if host == "" {
		return do()
	}
	return s.held(HostPrefix+host, func(e *UnknownError) bool { return e.host == host }, do)
}

// Fetch runs a download, with the same three answers: an error that refused knows is a BuildError, and
// one of kind fault.Unavailable an UnknownError. Host is asked; "": it is not known, and nothing is held.
func (s *Store) Fetch(ctx context.Context, host string, refused func(error) bool, do func() error) error {
	return s.ask(host, func() error {
		err := do()
		var answer interface{ Answered() bool }
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case refused(err):
			return &BuildError{err}
		case !fault.Is(err, fault.Unavailable):
			return err
		case errors.As(err, &answer) && answer.Answered():
			return &UnknownError{own: ofCode, err: err}
		}
		return &UnknownError{host: host, err: err}
	})
}

// away finds in the output of git and pip that a host cannot be reached, is broken, or refuses
// credentials that it was given.
var away = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`could not resolve|name resolution|name or service not known|no address associated|nodename nor servname`,
	`unable to connect|could not connect|couldn't connect|failed to connect|failed to establish a new connection`,
	`connection (was )?(refused|reset|closed|timed out|aborted|broken)|network is unreachable|no route to host|timed out`,
	`the remote end hung up|early eof|unexpected disconnect|empty reply|recv failure|send failure|transfer closed|incompleteread`,
	`operation too slow|ssl[ _]error|sslerror|certificate|proxy`,
	`returned error: (401|403|407|408|429|5\d\d)|\b5\d\d server error|http error 5\d\d|too many requests`,
	`authentication failed|permission denied \(|access denied|retrying \(retry`,
}, "|"))

// toolFailed judges the failure of a program that was run to prepare code and asked a host, by its output.
func toolFailed(what, host, output string, err error) error {
	var exit *command.ExitError
	var late *command.TimeoutError
	switch {
	case errors.As(err, &late):
		return &UnknownError{host: host, err: fmt.Errorf("%s: %w", what, err)}
	case errors.As(err, &exit) && away.MatchString(output):
		return &UnknownError{host: host, err: fmt.Errorf("%s: %s", what, cmp.Or(telling(output), err.Error()))}
	case errors.As(err, &exit):
		return &UnknownError{own: ofCode, err: fmt.Errorf("%s: %w", what, err)}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// telling returns the first line of an output that says that a host is away.
func telling(output string) string {
	for line := range strings.Lines(output) {
		if away.MatchString(line) {
			return task.Clean(strings.TrimSpace(line))
		}
	}
	return ""
}

// wrongRequirement finds what pip says of a requirement that is wrong for good.
var wrongRequirement = regexp.MustCompile(`(?m)^ERROR: (Invalid requirement\b.*)$`)

// noVersion finds that an index has only other versions of a requirement, if it has answered as a whole. An index
// without any version may be a broken one.
var noVersion = regexp.MustCompile(`(?m)^ERROR: (Could not find a version that satisfies the requirement .*\(from versions: [^n].*)$`)

// notFetched finds in the log of pip what its output does not say: that an index has not answered, and why.
var notFetched = regexp.MustCompile(`(?m)Could not fetch URL (\S+): (.*) - skipping$`)

// brokenIndex finds in such a reason that the host is broken, or refuses the credentials of this user.
var brokenIndex = regexp.MustCompile(`^(401|407|408|429|5\d\d) |too many (429|5\d\d) error responses`)

// causedBy finds the cause in what pip has of its library.
var causedBy = regexp.MustCompile(`\(Caused by \w+\(['"](?:<[^>]*>: )?(.*)['"]\)\)$`)

func caused(why string) string {
	if m := causedBy.FindStringSubmatch(why); m != nil {
		return m[1]
	}
	return ""
}

// installFailed judges the failure of pip or of an install script, by its output and by the log of pip.
func installFailed(host, output, log string, err error) error {
	const what = "installing the task's code"
	if !errors.As(err, new(*command.ExitError)) {
		return toolFailed(what, host, output, err)
	}
	if why := wrongRequirement.FindStringSubmatch(output); why != nil && !away.MatchString(output) {
		return buildError("%s: %s", what, task.Clean(why[1]))
	}
	for _, m := range notFetched.FindAllStringSubmatch(log, -1) {
		address, why := task.CleanAddress(m[1]), m[2]
		unknown := &UnknownError{err: fmt.Errorf("%s: %s: %s", what, address, task.Clean(cmp.Or(caused(why), why)))}
		switch {
		case strings.HasPrefix(why, "404 "):
			continue // it has no such package
		case brokenIndex.MatchString(why) || away.MatchString(why):
			unknown.host = host
			if u, err := url.Parse(m[1]); err == nil {
				unknown.host = u.Host
			}
		}
		return unknown // 403 is of this package alone
	}
	if why := noVersion.FindStringSubmatch(output); why != nil && !away.MatchString(output) {
		return &UnknownError{own: named, err: fmt.Errorf("%s: %s", what, task.Clean(why[1]))}
	}
	return toolFailed(what, host, output, err)
}

// gitHost is the host of a repository; "" if it is a path.
func gitHost(repository string) string {
	if strings.Contains(repository, "://") {
		u, err := url.Parse(repository)
		if err != nil {
			return ""
		}
		return u.Host
	}
	address, _, ok := strings.Cut(repository, ":")
	if !ok || strings.Contains(address, "/") {
		return ""
	}
	return address[strings.LastIndexByte(address, '@')+1:]
}

// indexHost is the host of the package index that pip uses, by its flags, the environment, or else what pip says of its
// configuration; "" if it uses none.
func indexHost(flags string, configured func() string) string {
	index := os.Getenv("PIP_INDEX_URL")
	words := strings.Fields(flags)
	for i, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if name == "--no-index" {
			return ""
		}
		if name != "-i" && name != "--index-url" {
			continue
		}
		if !ok && i+1 < len(words) {
			value = words[i+1]
		}
		index = cmp.Or(value, index)
	}
	if index == "" {
		text := configured()
		if m := configuredIndex.FindStringSubmatch(text); m != nil {
			index = m[1]
		} else if strings.Contains(text, ".no-index='") {
			return ""
		}
	}
	if u, err := url.Parse(index); err == nil && u.Host != "" {
		return u.Host
	}
	return "pypi.org"
}

// configuredIndex finds the index in what "pip config list" prints.
var configuredIndex = regexp.MustCompile(`(?m)^(?:global|install)\.index-url='([^']*)'$`)

// tail keeps the end of an output, for what it says of a failure.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text) - maxTail; n > 0 {
		t.text = bytes.Clone(t.text[n:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
