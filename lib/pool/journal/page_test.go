package journal

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// The page of the manual names each field and each kind of the records.
func TestPage(t *testing.T) {
	b, err := os.ReadFile("../../../man/jobpool-journal.5.md")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{Begin, Send, Try, End, Node, Stop, Output, Retry, Cuts}
	for _, of := range []reflect.Type{reflect.TypeFor[Record](), reflect.TypeFor[Counts]()} {
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	for _, name := range names {
		if !strings.Contains(string(b), "**"+name+"**") {
			t.Errorf("the page does not name %q", name)
		}
	}
}

// A journal of a later format is refused.
func TestLaterFormat(t *testing.T) {
	const text = `{"k":"begin","t":1,"format":3}` + "\n"
	_, err := Read(strings.NewReader(text))
	if want := "1: the journal has format 3, of a newer jobpool: this one knows format 2"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
