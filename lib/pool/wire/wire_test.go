package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
)

func TestMessagesArrive(t *testing.T) {
	r, w := io.Pipe()
	sent := []*Message{
		{Run: &Run{Key: Key{7, 1}, Text: "echo \"<a>\\b\"\x01\n\xff", Need: pool.Need{CPUs: 2}, CPUs: []int{0, 4}}},
		{Done: &Done{Key: Key{7, 1}, Exit: 3, Out: []byte{0, 255}, Next: &Key{8, 1}}},
		{Note: "a\tb"},
		{Lease: 1 << 60},
	}
	go func() {
		out := NewWriter(w)
		out.Greet(&Hello{Protocol: Protocol, Host: "n1"})
		for _, m := range sent {
			out.Send(m)
		}
		out.Close()
		w.Close()
	}()
	in := NewReader(io.MultiReader(strings.NewReader("Welcome!\nmotd without end"), r))
	h, err := in.Greeting()
	if err != nil || h.Host != "n1" {
		t.Fatalf("greeting %v, %v", h, err)
	}
	for _, want := range sent {
		var got Message
		if err := in.Next(&got); err != nil || !reflect.DeepEqual(&got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	if err := in.Next(new(Message)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestGreetingThatNeverComes(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", "connection ended without a greeting"},
		{"sh: jobpool: not found\n", `connection ended without a greeting, but "sh: jobpool: not found"`},
		{strings.Repeat("x\n", 40000), `no greeting in the first 64 KiB, but "x | x | x"`},
		{Magic + `{"version":"9","protocol":99}` + "\n", `versions differ: worker is version "9", protocol 99; expected protocol 3`},
		{Magic + "{\n", "greeting cannot be read: unexpected end of JSON input"},
	} {
		if _, err := NewReader(strings.NewReader(tt.in)).Greeting(); err == nil || err.Error() != tt.want {
			t.Errorf("%.20q: %v; want %s", tt.in, err, tt.want)
		}
	}
}

func TestLongLines(t *testing.T) {
	big := strings.Repeat("y", 300<<10)
	var b bytes.Buffer
	if err := marshal(&b, &Message{Note: Text(big)}); err != nil {
		t.Fatal(err)
	}
	var m Message
	if err := NewReader(&b).Next(&m); err != nil || string(m.Note) != big {
		t.Errorf("%d bytes, %v", len(m.Note), err)
	}
	if err := NewReader(strings.NewReader(strings.Repeat("y", MaxLine+100<<10))).Next(&m); !errors.Is(err, ErrTooLong) {
		t.Errorf("got %v", err)
	}
}

func TestWriterReportsABrokenPipe(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	out := NewWriter(w)
	out.Send(&Message{Bye: true})
	if err := out.Close(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

// writes records what is written at a time, and when.
type writes struct {
	mu   sync.Mutex
	all  []string
	when []time.Time
}

func (w *writes) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all, w.when = append(w.all, string(b)), append(w.when, time.Now())
	return len(b), nil
}

func TestWhatMayWaitIsWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writes
		out := NewWriter(&w)
		began := time.Now()
		for i := range int64(3) {
			out.SendSoon(&Message{Drop: &Key{Seq: i}})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(Delay)
		out.SendSoon(&Message{Clear: true})
		out.Send(&Message{Bye: true}) // takes along what waits
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if len(w.all) != 2 || strings.Count(w.all[0], "drop") != 3 || !strings.Contains(w.all[1], "clear") || !strings.Contains(w.all[1], "bye") {
			t.Errorf("wrote %q", w.all)
		}
		if took := w.when[0].Sub(began); took != Delay {
			t.Errorf("the first write came after %v, want %v", took, Delay)
		}
	})
}

func TestMuchOfWhatMayWaitIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writes
		out := NewWriter(&w)
		began := time.Now()
		out.SendSoon(&Message{Note: Text(strings.Repeat("x", soon))})
		synctest.Wait()
		if len(w.all) != 1 || !w.when[0].Equal(began) {
			t.Errorf("%d writes, the first after %v", len(w.all), w.when[0].Sub(began))
		}
		out.Close()
	})
}

// Strings as json.dumps of Python writes them: os.fsdecode makes lone surrogates of bytes that are not UTF-8.
func TestBytesInStrings(t *testing.T) {
	for _, tt := range []struct{ text, want, err string }{
		{text: `"a\udcffb"`, want: "a\xffb"},
		{text: `"\uDC80\udce9\n\"\\udcff"`, want: "\x80\xe9\n\"\\udcff"},
		{text: `"\ud83d\ude00\udcff"`, want: "\U0001F600\xff"},
		{text: `"\ufffd"`, want: "\ufffd"},
		{text: `"\ufffd\udcff\u00e9"`, want: "\ufffd\xff\u00e9"},
		{text: `"\ud83d"`, err: `invalid escape \ud83d: it is half of a character`},
		{text: `"\ud83dx\udcff"`, err: `invalid escape \ud83d: it is half of a character`},
		{text: `"\udc00"`, err: `invalid escape \udc00: it is half of a character`},
		{text: `{"b64":"Yf9i"}`, want: "a\xffb"},
	} {
		var got Text
		err := json.Unmarshal([]byte(tt.text), &got)
		if tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%s: %v, want %s", tt.text, err, tt.err)
			}
		} else if err != nil || string(got) != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.text, got, err, tt.want)
		}
	}
}

func TestLongTextIsShort(t *testing.T) {
	b, err := json.Marshal(Text(strings.Repeat("\x00", 100_000)))
	if err != nil || len(b) > 140_000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a", "\x00\x1f\"\\", "\xff\xfe", "é\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := json.Marshal(Text(s))
		if err != nil {
			t.Fatal(err)
		}
		var got Text
		if err := json.Unmarshal(b, &got); err != nil || string(got) != s {
			t.Errorf("%q becomes %s becomes %q, %v", s, b, got, err)
		}
	})
}

func FuzzNext(f *testing.F) {
	f.Add([]byte(`{"done":{"q":1,"a":1,"b":1,"r":0.1}}` + "\n"))
	f.Add([]byte(`{"run":{"q":1,"c":{"b64":"/w=="},"n":{"CPUs":1}}}` + "\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for range 100 {
			if r.Next(new(Message)) != nil {
				return
			}
		}
	})
}

func TestLongStandardInput(t *testing.T) {
	r, w := io.Pipe()
	long := Text(strings.Repeat("\x00\x01\xff\"\n", 700_000))
	go func() {
		out := NewWriter(w)
		out.Send(&Message{Run: &Run{Key: Key{1, 1}, Text: "wc", Stdin: long}})
		out.Send(&Message{Run: &Run{Key: Key{2, 1}, Text: "wc", Stdin: "short"}})
		out.Close()
		w.Close()
	}()
	in := NewReader(r)
	for i, want := range []Text{long, "short"} {
		var m Message
		if err := in.Next(&m); err != nil || m.Run == nil || m.Run.Seq != int64(i+1) || m.Run.Stdin != want {
			t.Fatalf("message %d: %v, not the standard input of %d bytes", i, err, len(want))
		}
	}
	if err := in.Next(new(Message)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}
