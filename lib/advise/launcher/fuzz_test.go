package launcher

import (
	"context"
	"reflect"
	"testing"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
)

// FuzzFind searches arbitrary files for arbitrary requests: the answer must be the same each
// time, and Explain must agree with it.
func FuzzFind(f *testing.F) {
	for _, name := range []string{"documented.yaml", "features.yaml"} {
		f.Add(testdata(f, name), "duration=4 days & cuda(mem=24G) * 2 | cpu(mem=2G, cores=4) & nodes=2")
	}
	f.Add(entry("use_features: false, partitions: {p: {nodes: [{hosts: ['n[1-3]']}]}}"), "nodes=2 & host!=n9")
	f.Add("local: [{gpus: [{model: a, count: 1, memory: 8G}, {kind: mps, count: 2, memory: 24G}]}]", "gpu(mem=9G) & mps() & gpu(model=a)")
	f.Fuzz(func(t *testing.T, text, spec string) {
		r, err := request.Parse(spec)
		if err != nil {
			return
		}
		parsed, err := file.Parse("launchers.yaml", []byte(text), nil, nil)
		if err != nil {
			return
		}
		search := func() *Search { return &Search{Launchers: New(parsed, gpu.Builtin()), Ask: noSlurm} }
		answer, err := search().Find(context.Background(), r)
		again, err2 := search().Find(context.Background(), r)
		_, explained, err3 := search().Explain(context.Background(), r)
		if (err == nil) != (err2 == nil) || (err == nil) != (err3 == nil) {
			t.Fatalf("%v, then %v, then %v", err, err2, err3)
		}
		if (answer == nil) != (again == nil) || (answer == nil) != (explained == nil) {
			t.Fatalf("%+v, then %+v, explained %+v", answer, again, explained)
		}
		if answer != nil && (!reflect.DeepEqual(answer.Options, again.Options) || !reflect.DeepEqual(answer.Options, explained.Options) || answer.Alternative != explained.Alternative) {
			t.Fatalf("%v, then %v, explained %v", answer.Options, again.Options, explained.Options)
		}
	})
}
