package fault

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os/exec"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// Text is the message of err for people: what Go's library says in it is put into words of ours. The
// errors that err wraps are looked at, so wrap with %w what may come from the library.
func Text(err error) string {
	text := err.Error()
	if own, ok := words(err); ok {
		return own
	}
	var inner []error
	switch e := err.(type) { //nolint:errorlint // one step of the chain at a time
	case interface{ Unwrap() error }:
		inner = append(inner, e.Unwrap())
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	end := len(text) // the texts of several errors are in their order
	for i := len(inner) - 1; i >= 0; i-- {
		if inner[i] == nil {
			continue
		}
		was := inner[i].Error()
		if at := strings.LastIndex(text[:end], was); at >= 0 && was != "" {
			text, end = text[:at]+Text(inner[i])+text[at+len(was):], at
		}
	}
	return text
}

// words are ours for an error of Go's library.
func words(err error) (string, bool) {
	switch e := err.(type) { //nolint:errorlint // as above
	case *json.SyntaxError:
		if what, found := strings.CutPrefix(e.Error(), "invalid character "); found {
			character, _ := strconv.QuotedPrefix(what)
			return fmt.Sprintf("not JSON: unexpected %s at byte %d", character, e.Offset), true
		}
		return "not JSON: " + strings.Replace(e.Error(), "unexpected end of JSON input", "it ends too early", 1), true
	case *json.UnmarshalTypeError:
		of := "the value"
		if e.Field != "" {
			of = strconv.Quote(e.Field)
		}
		value, number, _ := strings.Cut(e.Value, " ")
		if number != "" {
			return fmt.Sprintf("%s is %s, which is not %s", of, number, kind(e.Type)), true
		}
		return fmt.Sprintf("%s is %s, expected %s", of, article(value), kind(e.Type)), true
	case *strconv.NumError:
		if errors.Is(e.Err, strconv.ErrRange) {
			return fmt.Sprintf("%q is too large or too small", e.Num), true
		}
		if e.Func == "ParseBool" {
			return fmt.Sprintf("%q is neither true nor false", e.Num), true
		}
		return fmt.Sprintf("%q: expected a number", e.Num), true
	case *net.DNSError:
		if e.IsNotFound {
			return fmt.Sprintf("no host is called %q", e.Name), true
		}
		return fmt.Sprintf("the address of host %q is not found", e.Name), true
	case *net.OpError:
		return connection(e), true
	case *url.Error: // its address may have a secret
		return Text(e.Err), true
	case *exec.Error:
		if errors.Is(e.Err, exec.ErrNotFound) {
			return e.Name + ": program not found", true
		}
		return e.Name + ": " + Text(e.Err), true
	}
	if text, found := strings.CutPrefix(err.Error(), "json: "); found { // an unknown field
		return text, true
	}
	if text, found := strings.CutPrefix(err.Error(), "yaml: "); found {
		text = strings.ReplaceAll(strings.TrimPrefix(text, "unmarshal errors:\n  "), "\n  ", "; ")
		text = yamlField.ReplaceAllString(text, `unknown field "$1"`)
		return yamlValue.ReplaceAllStringFunc(text, func(found string) string {
			is := yamlValue.FindStringSubmatch(found)
			return is[1] + is[2] + " is not " + yamlKind(is[3])
		}), true
	}
	for _, known := range []struct {
		err  error
		text string
	}{
		{context.Canceled, "interrupted"}, {io.EOF, "it ends too early"}, {io.ErrUnexpectedEOF, "it ends too early"},
		{io.ErrClosedPipe, "nothing reads it any more"}, {syscall.EPIPE, "nothing reads it any more"},
		{net.ErrClosed, "the connection was closed"}, {bufio.ErrTooLong, "a line is too long"},
	} {
		if err == known.err { //nolint:errorlint // the error itself
			return known.text, true
		}
	}
	if late, ok := err.(interface{ Timeout() bool }); ok && errors.Unwrap(err) == nil && late.Timeout() {
		return "no answer in time", true
	}
	return "", false
}

// yamlValue matches what yaml says of a value of the wrong type: "cannot unmarshal !!str `x` into int".
var yamlValue = regexp.MustCompile("cannot unmarshal !!(?:\\w+ (`[^`]*`)|(\\w+)) into ([^;\\s]+)")

// yamlField matches what yaml says of an unknown field.
var yamlField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// yamlKind names a type of Go as a value of YAML.
func yamlKind(of string) string {
	switch {
	case strings.HasPrefix(of, "int"), strings.HasPrefix(of, "uint"):
		return "a whole number"
	case strings.HasPrefix(of, "float"):
		return "a number"
	case strings.HasPrefix(of, "["):
		return "a list"
	case of == "string":
		return "a string"
	case of == "bool":
		return "true or false"
	}
	return "a mapping"
}

// connection says what happened to a connection, and with whom.
func connection(e *net.OpError) string {
	whom := ""
	if e.Addr != nil {
		whom = e.Addr.String()
	}
	var unknown *net.DNSError
	switch {
	case errors.As(e.Err, &unknown):
		return Text(unknown)
	case e.Timeout():
		return strings.TrimSuffix("no answer in time from "+whom, " from ")
	case e.Op == "dial" || e.Op == "listen":
		why := e.Err
		if call := errors.Unwrap(why); call != nil { // without the name of a system call
			why = call
		}
		what := map[string]string{"dial": "cannot connect to ", "listen": "cannot listen on "}[e.Op]
		return strings.TrimSpace(what+whom) + ": " + Text(why)
	case errors.Is(e.Err, net.ErrClosed), errors.Is(e.Err, syscall.EPIPE), errors.Is(e.Err, syscall.ECONNRESET):
		return strings.TrimSuffix("the connection was closed by "+whom, " by ")
	}
	if whom != "" {
		whom = " with " + whom
	}
	return "the connection" + whom + " broke: " + Text(e.Err)
}

// kind names what a value of JSON must be.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Pointer:
		return kind(t.Elem())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0 on"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	}
	return "a value of another type"
}

// article is a type of JSON with its article.
func article(value string) string {
	switch value {
	case "bool":
		return "true or false"
	case "object":
		return "an object"
	case "array":
		return "a list"
	}
	return "a " + value
}
