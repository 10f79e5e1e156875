package entry

import (
	"errors"
	"strings"
	"testing"
)

func TestMachine(t *testing.T) {
	smi := func(text string) func() (string, error) { return func() (string, error) { return text, nil } }
	want := Machine{GPUs: 1, GPU: "RTX 4090", GPUMemory: 24564, Memory: 64000, Disk: 40}
	for _, c := range []struct {
		want  Machine
		seen  seen
		lacks string
	}{
		{want, seen{}, ""}, // nothing is known
		{want, seen{"1", smi("NVIDIA GeForce RTX 4090, 24564, 570.86.10\n"), 64100, 41}, ""},
		{want, seen{"2", nil, 0, 0}, "it has 2 GPUs instead of 1"},
		{want, seen{"", nil, 0, 0}, ""},
		{want, seen{"1", nil, 32000, 0}, "it has 32000 MB of memory instead of 64000"},
		{want, seen{"1", nil, 0, 10}, "its disk has 10 GB instead of 40"},
		{want, seen{"1", smi("NVIDIA GeForce RTX 3090, 24576, 1"), 0, 0}, "its GPU is a NVIDIA GeForce RTX 3090 instead of a RTX 4090"},
		{want, seen{"1", smi("NVIDIA GeForce RTX 4090, 12000, 1"), 0, 0}, "its GPU has 12000 MB instead of 24564"},
		{want, seen{"1", smi("RTX 4090, 24564, 1\nRTX 4090, 24564, 1\n"), 0, 0}, "its driver shows 2 GPUs instead of 1"},
		{want, seen{"1", smi(""), 0, 0}, "its driver shows 0 GPUs instead of 1"},
		{want, seen{"1", func() (string, error) { return "", errors.New("no answer") }, 0, 0}, "the driver of its GPUs does not work: no answer"},
		{Machine{}, seen{"8", func() (string, error) { return "", errors.New("x") }, 1, 1}, ""},
		{Machine{GPUs: 1, GPU: "RTX 4070S Ti"}, seen{"", smi("NVIDIA GeForce RTX 4070 Ti SUPER, 16376, 1"), 0, 0}, ""},
		{Machine{GPUs: 1, GPU: "A100 SXM4"}, seen{"", smi("NVIDIA A100-SXM4-80GB, 81920, 1"), 0, 0}, ""},
		{Machine{GPUs: 1, GPU: "RTX 6000Ada"}, seen{"", smi("NVIDIA RTX 6000 Ada Generation, 49140, 1"), 0, 0}, ""},
		{Machine{GPUs: 1, GPU: "H100 SXM"}, seen{"", smi("NVIDIA H100 80GB HBM3, 81559, 1"), 0, 0}, ""},
		{Machine{GPUs: 1, GPU: "Titan V"}, seen{"", smi("NVIDIA TITAN V, 12066, 1"), 0, 0}, ""},
	} {
		if got := c.want.lacks(c.seen); got != c.lacks {
			t.Errorf("%+v: %q instead of %q", c.want, got, c.lacks)
		}
	}
	if memoryHere() < 100 || diskHere("/") < 1 || diskHere("/no such") != 0 {
		t.Errorf("%d MB, %d GB", memoryHere(), diskHere("/"))
	}
	if path, err := find("sh"); err != nil || !strings.HasSuffix(path, "/sh") {
		t.Errorf("%s, %v", path, err)
	}
}
