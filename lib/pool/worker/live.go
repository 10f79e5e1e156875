package worker

import "github.com/ponos-tools/ponos/lib/pool/wire"

// sendLive sends what running tasks have printed since the last time, as far as the
// scheduler takes it. The rest stays in their files meanwhile.
func (w *worker) sendLive() {
	if !w.setup.Output.Live || w.lost.Load() {
		return
	}
	for _, j := range w.jobs {
		if j.pid == 0 || j.out == nil || j.out.shared || j.run.Capture {
			continue
		}
		for i, f := range j.out.files {
			for w.credit > 0 {
				n := min(f.size()-j.sent[i], wire.Piece, w.credit)
				if n <= 0 {
					break
				}
				b := make([]byte, n)
				got, err := f.ReadAt(b, j.sent[i])
				if got == 0 && err != nil {
					break
				}
				w.out.Send(&wire.Message{Data: &wire.Data{Key: j.run.Key, Stderr: i == 1, Offset: j.sent[i], Bytes: b[:got], Live: true}})
				j.sent[i] += int64(got)
				w.credit -= int64(got)
			}
		}
	}
}
