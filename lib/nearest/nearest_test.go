package nearest

import "testing"

func TestName(t *testing.T) {
	words := []string{"cuda", "cpu", "gpu", "duration", "partition"}
	for word, want := range map[string]string{
		"cuad": "cuda", "CUDA": "cuda", "duraton": "duration", "partitions": "partition", "cuda": "cuda", "xyz": "", "": "", "mpu": "cpu",
	} {
		if got := Name(word, words); got != want {
			t.Errorf("Name(%q) = %q; want %q", word, got, want)
		}
	}
}
