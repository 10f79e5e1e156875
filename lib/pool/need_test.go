package pool

import (
	"encoding/json"
	"testing"
)

func named(t *testing.T, s string) Named {
	t.Helper()
	n, err := ParseNamed(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestGPUsAreShared(t *testing.T) {
	p := &Pool{}
	p.AddNode(NewNode("a", cpus(8), gpus(2), 0, Named{}))
	half := &Spec{Need: Need{CPUs: 1, Share: 500}}
	for i := range int64(3) {
		p.Push(&Task{Seq: i + 1, Spec: half})
	}
	p.Push(&Task{Seq: 4, Spec: &Spec{Need: Need{CPUs: 1, GPUs: 1}}})
	slots := drain(p)
	if len(slots) != 3 || slots[0].GPUs[0] != slots[1].GPUs[0] || slots[1].GPUs[0] == slots[2].GPUs[0] {
		t.Fatalf("started%s; want two on one GPU, one on the other, and 4 to wait", started(slots))
	}
	p.Release(slots[0])
	p.Push(&Task{Seq: 5, Spec: &Spec{Need: Need{CPUs: 1, Share: 501}}})
	if got := started(drain(p)); got != "" {
		t.Errorf("started%s; no GPU has so much free", got)
	}
	p.Release(slots[2])
	if got := drain(p); len(got) != 1 || got[0].Task.Seq != 4 {
		t.Errorf("started%s; want 4 on the GPU that is free now", started(got))
	}
}

func TestSharedResourceIsNotStarved(t *testing.T) {
	p := &Pool{Shared: named(t, "licence=3")}
	p.AddNode(NewNode("a", cpus(8), nil, 0, Named{}))
	one, all := &Spec{Need: Need{CPUs: 1, Named: named(t, "licence=1")}}, &Spec{Need: Need{CPUs: 1, Named: named(t, "licence=3")}}
	p.Push(&Task{Seq: 1, Spec: one})
	first := drain(p)
	p.Push(&Task{Seq: 2, Spec: all})
	p.Push(&Task{Seq: 3, Spec: one})
	p.Push(&Task{Seq: 4, Spec: spec(8)})
	p.Push(&Task{Seq: 5, Spec: spec(1)})
	if got := started(drain(p)); got != " 5@a[1]" {
		t.Errorf("started%s; want only 5, which needs no licence", got)
	}
	p.Release(first[0])
	if got := drain(p); len(got) != 1 || got[0].Task.Seq != 2 {
		t.Errorf("started%s; want 2", started(got))
	}
}

func TestAmounts(t *testing.T) {
	for text, want := range map[string]string{
		"licence=1,scratch=50G": "licence=1,scratch=50G", "b=0.5,a=1.250": "a=1.25,b=0.5", "x=0": "", "x=1024": "x=1024", "x=10MiB": "x=10MiB", "x=5000000": "x=5M",
	} {
		if got := named(t, text).String(); got != want {
			t.Errorf("%s is read as %s", text, got)
		}
	}
	for _, text := range []string{"", "x", "x=", "x=-1", "x=.", "x=1.", "x=1.2345", "x=1e3", "1x=1", "x=1,x=2", "x=9999999999999999999", "cpus=2", "x=2P", "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1"} {
		if n, err := ParseNamed(text); err == nil {
			t.Errorf("%q is read as %v", text, n)
		}
	}
}

func FuzzNamed(f *testing.F) {
	for _, s := range []string{"licence=1,scratch=50G", "a=0.125", "a=1,a=2", "x=1.5MiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNamed(s)
		if err != nil || n == (Named{}) {
			return
		}
		again, err := ParseNamed(n.String())
		if err != nil || again != n {
			t.Errorf("%q is %v, and that %v: %v", s, n, again, err)
		}
		b, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		var read Named
		if err := json.Unmarshal(b, &read); err != nil || read != n {
			t.Errorf("%s is read as %v: %v", b, read, err)
		}
	})
}

func FuzzAmount(f *testing.F) {
	for _, s := range []string{"0.5", "50G", "1.250", "2MiB", "007"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAmount(s)
		if err != nil {
			return
		}
		if again, err := ParseAmount(a.String()); err != nil || again != a || a < 0 || a > maxAmount {
			t.Errorf("%q is %v, and that %v: %v", s, a, again, err)
		}
		if again, err := ParseAmount(a.Number()); err != nil || again != a {
			t.Errorf("%q is %s, and that %v: %v", s, a.Number(), again, err)
		}
	})
}
