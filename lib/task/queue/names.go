package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Limits of what users call tasks, in bytes.
const (
	maxName       = 255
	maxGroup      = 128
	maxKey        = 255
	maxParameter  = 64 // its name
	maxValue      = 64 << 10
	maxParameters = 256
)

// CheckName checks the name of a new task: 1 to 255 bytes of UTF-8 without control
// characters. Tasks of earlier versions may have any other.
func CheckName(name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	return text("name", name, maxName)
}

// CheckGroup checks the name of a group, which may become that of a directory: letters,
// digits, '.', '_' and '-', the first one a letter or digit, at most 128. "" means no group.
func CheckGroup(group string) error {
	if len(group) > maxGroup {
		return fmt.Errorf("group %.20q... is longer than %d characters", group, maxGroup)
	}
	for i := range len(group) {
		if c := group[i]; !letter(c) && (i == 0 || c != '-' && c != '_' && c != '.') {
			return fmt.Errorf("invalid group %q: expected letters, digits, '.', '_' and '-', the first one a letter or digit", group)
		}
	}
	return nil
}

// CheckKey checks the key of a submission: up to 255 bytes of UTF-8 without control
// characters. "" means no key.
func CheckKey(key string) error { return text("key", key, maxKey) }

// CheckParameters checks the parameters of a task: names of letters, digits, '.', '_' and
// '-', the first one a letter, digit or '_', at most 64; values of up to 64 KiB of UTF-8 without
// zero bytes; 256 at most.
func CheckParameters(parameters map[string]string) error {
	if len(parameters) > maxParameters {
		return fmt.Errorf("%d parameters, more than %d", len(parameters), maxParameters)
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if err := CheckParameter(name); err != nil {
			return err
		}
		value := parameters[name]
		if len(value) > maxValue {
			return fmt.Errorf("parameter %s: the value is longer than %d bytes", name, maxValue)
		}
		for i := range len(value) {
			if value[i] == 0 {
				return fmt.Errorf("parameter %s: the value has a zero byte", name)
			}
		}
		if !utf8.ValidString(value) {
			return fmt.Errorf("parameter %s: the value is not UTF-8", name)
		}
	}
	return nil
}

// CheckParameter checks the name of a parameter: see CheckParameters.
func CheckParameter(name string) error {
	if name == "" {
		return errors.New("the name of a parameter is empty")
	}
	if len(name) > maxParameter {
		return fmt.Errorf("parameter %.20q... is longer than %d characters", name, maxParameter)
	}
	for i := range len(name) {
		c := name[i]
		if c != '_' && !letter(c) && (i == 0 || c != '-' && c != '.') {
			return fmt.Errorf(
				"invalid parameter name %q: expected letters, digits, '.', '_' and '-', the first one a letter, digit or '_'", name)
		}
	}
	return nil
}

func letter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// text checks that a word of the user can be printed.
func text(what, s string, limit int) error {
	switch {
	case len(s) > limit:
		return fmt.Errorf("%s %.20q... is longer than %d bytes", what, s, limit)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s %q is not UTF-8", what, s)
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s %q has a control character", what, s)
		}
	}
	return nil
}
