package request

import "time"

// Fill sets the duration and the main memory (bytes) of alternatives that request none; 0 sets
// nothing. It returns what the first alternative was given.
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
