package command

import "testing"

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{"": "''", "a-b_c=d/e.f:1,2@3%": "a-b_c=d/e.f:1,2@3%", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "a b": "'a b'", "ü": "'ü'"} {
		if got := Quote(word); got != want {
			t.Errorf("Quote(%q) = %s; want %s", word, got, want)
		}
	}
}
