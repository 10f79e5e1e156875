package app

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// The names of keys that are not letters.
const (
	KeyEnter, KeyEscape, KeyUp, KeyDown, KeyBack, KeyEnd = "enter", "escape", "up", "down", "back", "end"
)

// ReadKeys sends the keys that are typed on a terminal until it ends. restore gives the
// terminal back; ok is false if in is none.
func ReadKeys(in io.Reader) (keys <-chan string, restore func(), ok bool) {
	f, isFile := in.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return nil, nil, false
	}
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, nil, false
	}
	typed := make(chan string)
	go func() {
		buffer := make([]byte, 256)
		for {
			n, err := f.Read(buffer)
			for _, key := range keyNames(buffer[:n]) {
				typed <- key
			}
			if err != nil {
				close(typed)
				return
			}
		}
	}()
	return typed, func() { _ = term.Restore(int(f.Fd()), before) }, true
}

// keyNames are the keys in what a terminal has sent at a time.
func keyNames(text []byte) (names []string) {
	for s := string(text); s != ""; {
		sequence := map[string]string{"\x1b[A": KeyUp, "\x1bOA": KeyUp, "\x1b[B": KeyDown, "\x1bOB": KeyDown}
		if len(s) >= 3 && sequence[s[:3]] != "" {
			names, s = append(names, sequence[s[:3]]), s[3:]
			continue
		}
		if strings.HasPrefix(s, "\x1b[") || strings.HasPrefix(s, "\x1bO") { // another key of that kind
			end := strings.IndexFunc(s[2:], func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				return names
			}
			s = s[2+end+1:]
			continue
		}
		r := []rune(s)[0]
		s = strings.TrimPrefix(s, string(r))
		switch {
		case r == '\x1b':
			names = append(names, KeyEscape)
		case r == '\r' || r == '\n':
			names = append(names, KeyEnter)
		case r == 0x7f || r == '\b':
			names = append(names, KeyBack)
		case r == 3 || r == 4:
			names = append(names, KeyEnd)
		case r >= ' ' && r != '\ufffd':
			names = append(names, string(r))
		default:
			return names
		}
	}
	return names
}
