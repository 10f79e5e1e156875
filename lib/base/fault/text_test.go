package fault

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	decode := func(text string, strict bool) error {
		d := json.NewDecoder(strings.NewReader(text))
		if strict {
			d.DisallowUnknownFields()
		}
		var into struct {
			Tag  string   `json:"tag"`
			CPUs uint     `json:"cpus"`
			List []string `json:"list"`
			In   struct {
				On *bool `json:"on"`
			} `json:"in"`
		}
		return d.Decode(&into)
	}
	unmarshal := func(text string) error {
		var v any
		return json.Unmarshal([]byte(text), &v)
	}
	atoi := func(s string) error {
		_, err := strconv.Atoi(s)
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := listener.Addr().String()
	listener.Close()
	_, refused := net.Dial("tcp", away)
	_, notServed := http.Get("http://" + away + "/?key=secret")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	open, err := net.Dial("tcp", silent.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := open.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	_, slow := open.Read(make([]byte, 1))
	client := http.Client{Timeout: 20 * time.Millisecond}
	_, late := client.Get("http://" + silent.Addr().String())
	missing := exec.Command("no-such-program").Run()
	_, absent := os.Open("/no/such/file")

	for _, tt := range []struct {
		err  error
		want string
	}{
		{decode(`{"tag": 5}`, false), `"tag" is a number, expected a string`},
		{decode(`{"cpus": -1}`, false), `"cpus" is -1, which is not a whole number from 0 on`},
		{decode(`{"list": {}}`, false), `"list" is an object, expected a list`},
		{decode(`{"in": {"on": "x"}}`, false), `"in.on" is a string, expected true or false`},
		{decode(`[]`, false), `the value is a list, expected an object`},
		{decode(`{"tags": 5}`, true), `unknown field "tags"`},
		{decode(`{"tag": `, false), `it ends too early`},
		{unmarshal(`{"tag": x}`), `not JSON: unexpected 'x' at byte 9`},
		{unmarshal(`{"tag": `), `not JSON: it ends too early`},
		{unmarshal(``), `not JSON: it ends too early`},
		{atoi("x"), `"x": expected a number`},
		{atoi("99999999999999999999"), `"99999999999999999999" is too large or too small`},
		{context.DeadlineExceeded, `no answer in time`},
		{os.ErrDeadlineExceeded, `no answer in time`},
		{context.Canceled, `interrupted`},
		{io.ErrUnexpectedEOF, `it ends too early`},
		{bufio.ErrTooLong, `a line is too long`},
		{syscall.EPIPE, `nothing reads it any more`},
		{refused, "cannot connect to " + away + ": connection refused"},
		{notServed, "cannot connect to " + away + ": connection refused"},
		{slow, "no answer in time from " + silent.Addr().String()},
		{late, `no answer in time`},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}}, `no host is called "nowhere"`},
		{errors.New("yaml: unmarshal errors:\n  line 2: cannot unmarshal !!str `x` into int\n  line 3: cannot unmarshal !!seq into string\n  line 4: field nam not found in type gpu.entry"),
			"line 2: `x` is not a whole number; line 3: seq is not a string; line 4: unknown field \"nam\""},
		{missing, `no-such-program: program not found`},
		// What is around them stays, in each form of wrapping.
		{Hint(Errorf(Usage, "file EOF: %w", io.EOF), "x"), `file EOF: it ends too early`},
		{Exit(3, fmt.Errorf("a (%w) b", context.DeadlineExceeded)), `a (no answer in time) b`},
		{errors.Join(io.EOF, errors.New("EOF?"), io.EOF), "it ends too early\nEOF?\nit ends too early"},
		{fmt.Errorf("%w: %w", atoi("x"), atoi("y")), `"x": expected a number: "y": expected a number`},
		{absent, "open /no/such/file: no such file or directory"},
		{errors.New("as it is: EOF"), "as it is: EOF"},
	} {
		if got := Text(tt.err); got != tt.want {
			t.Errorf("%v:\n%q; want\n%q", tt.err, got, tt.want)
		}
	}
}
