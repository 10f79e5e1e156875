package request

import "time"

// Fill sets how long the job takes and its main memory, in bytes, where an alternative does
// not say it; 0 sets nothing. It reports what the first alternative got.
func (r *Request) Fill(length time.Duration, memory int64) (time.Duration, int64) {
	var gotLength time.Duration
	var gotMemory int64
	for i := range r.Alternatives {
		a := &r.Alternatives[i]
		if a.Duration == 0 && length > 0 {
			if a.Duration = length; i == 0 {
				gotLength = length
			}
		}
		if a.Memory == 0 && a.MemPerGPU == 0 && memory > 0 {
			if a.Memory = memory; i == 0 {
				gotMemory = memory
			}
		}
	}
	return gotLength, gotMemory
}
