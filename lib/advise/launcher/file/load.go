package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// Name is the base name of the file.
const Name = "launchers.yaml"

// Load reads launchers.yaml and, from the same directory, connectors.yaml and tokens.yaml,
// which may be missing. All errors are in one *Error; without errors, the warnings are in
// File.Warnings.
func Load(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	companion := func(name string) ([]byte, error) {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return text, err
	}
	connectors, err1 := companion("connectors.yaml")
	tokens, err2 := companion("tokens.yaml")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return Parse(path, text, connectors, tokens)
}

// Parse parses the texts of the three files; nil is a missing file.
func Parse(path string, launchers, connectors, tokens []byte) (*File, error) {
	f := &File{Path: path}
	beside := func(name string) *decoder { return &decoder{name: filepath.Join(filepath.Dir(path), name)} }
	main, c, t := &decoder{name: path}, beside("connectors.yaml"), beside("tokens.yaml")
	f.Entries = main.launchers(launchers)
	f.Connectors = c.connectors(connectors)
	f.Tokens = t.counters(tokens)
	main.checkReferences(f, tokens != nil)
	var bad []Problem
	for _, d := range []*decoder{main, c, t} {
		for _, p := range d.problems {
			if p.Warning {
				f.Warnings = append(f.Warnings, p)
			} else {
				bad = append(bad, p)
			}
		}
	}
	if len(bad) > 0 {
		return f, &Error{bad}
	}
	return f, nil
}

// hostname matches the hosts that are passed to ssh: none can be taken for an option.
var hostname = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@:%-]*$`)

func (d *decoder) connectors(text []byte) []Connector {
	var all []Connector
	root := d.document(text)
	if root == nil {
		return nil
	}
	d.mapping(root, "the file", fields{"ssh": func(n *yaml.Node) {
		d.pairs(n, "ssh", func(key, value *yaml.Node) {
			c := Connector{Pos: posOf(key), ID: key.Value}
			if c.ID == "local" {
				d.fail(key, `"local" is this machine and cannot be defined`)
			}
			d.mapping(value, "an ssh connector", fields{"hostname": func(n *yaml.Node) {
				d.string(&c.Hostname, "hostname")(n)
				if c.Hostname != "" && !hostname.MatchString(c.Hostname) {
					d.fail(n, "invalid host name %q", c.Hostname)
				}
			}})
			if c.Hostname == "" {
				d.fail(key, "the connector %q has no hostname", c.ID)
			}
			all = append(all, c)
		})
	}})
	return all
}

// tokenID matches the names of tokens, which become names of files.
var tokenID = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+-]*$`)

// maxTokenID limits the length of such a name.
const maxTokenID = 100

func (d *decoder) counters(text []byte) []Token {
	var all []Token
	root := d.document(text)
	if root == nil {
		return nil
	}
	d.mapping(root, "the file", fields{"countertoken": func(n *yaml.Node) {
		d.pairs(n, "countertoken", func(key, value *yaml.Node) {
			t := Token{Pos: posOf(key), ID: key.Value}
			if len(t.ID) > maxTokenID || !tokenID.MatchString(t.ID) {
				d.fail(key, "invalid token name %q", t.ID)
			}
			d.mapping(value, "a token", fields{"tokens": d.count(&t.Count, "tokens")})
			all = append(all, t)
		})
	}})
	return all
}
